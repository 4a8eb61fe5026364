//! `POST /auth/signup`: people make accounts of their own, where that is allowed. Those of a listed domain may sign in at
//! once, others wait for an administrator, who enables them.

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use schemas::account::email::Email;
use schemas::catalog::Role;
use schemas::failure::{Failure, FailureCode};
use schemas::id::UserId;
use schemas::secret::Secret;
use serde::{Deserialize, Serialize};

use super::attempts::{self, Of};
use super::member::New;
use super::settings::SignUp;
use super::{hashing, invalid, login, member, on};
use crate::arrival::Arrival;
use crate::caller;
use crate::manage::openapi::Operation;
use crate::manage::settings;
use crate::manage::{description, json};
use crate::state::Shared;

/// Who wants an account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SignUp")]
pub(crate) struct Wanted {
    /// The address of mail to sign in by.
    email: String,
    /// The password, of 8 to 256 characters.
    #[schemars(with = "String")]
    password: Secret<String>,
    /// A name that people read.
    #[serde(default)]
    user_name: Option<String>,
    /// For what the account is wanted: taken and not kept.
    #[serde(default)]
    use_case: Option<String>,
    /// The terms are accepted; false is refused.
    #[serde(default)]
    accepted_tos: Option<bool>,
}

const WANTED: &str = "expected email, password and, optionally, user_name, use_case, accepted_tos";

/// An account was made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignedUp")]
pub(crate) struct Made {
    /// What comes next, for people.
    #[schemars(with = "String")]
    message: &'static str,
    /// The address of mail to sign in by.
    email: String,
    /// The member.
    user_id: UserId,
    /// An administrator has to enable him first.
    requires_approval: bool,
}

pub(crate) const SIGN_UP: Operation = Operation::ask::<Wanted, Made>("Makes an account of one's own")
    .of_everybody()
    .answering(201)
    .failing(&[403, 404, 409, 429, 503]);

/// Makes an account of one's own.
pub(crate) async fn create(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        on(&state)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        made(&state, &arrival, description::read(&bytes, WANTED)?).await
    };
    match done.await {
        Ok(made) => {
            let mut response = json(&made);
            *response.status_mut() = StatusCode::CREATED;
            response
        }
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn made(state: &Shared, arrival: &Arrival, wanted: Wanted) -> Result<Made, Failure> {
    let settings = &settings::sign_up(state);
    if !settings.enabled {
        return Err(Failure::new(
            FailureCode::InsufficientScope,
            "nobody may sign up here",
        ));
    }
    caller::unblocked(state, arrival)?;
    attempts::count(state, Of::SignUp(login::address(arrival)), settings.of_address).await?;
    if wanted.accepted_tos == Some(false) {
        return Err(invalid("accepted_tos", "the terms have to be accepted"));
    }
    drop(wanted.use_case);
    let email = Email::parse(&wanted.email).ok_or_else(|| invalid("email", "expected an address of mail"))?;
    let waits = waits(settings, &email)?;
    hashing::acceptable(&wanted.password, email.as_str(), "password")?;
    let name = wanted.user_name.map(description::name).transpose()?;
    let salt = state.ports.mint.random();
    let password = state.sign_in.hasher.hash(wanted.password, salt).await?;
    let mut account = member::fresh(state, &settings.tenant, email);
    account.password = Some(password);
    account.is_new = true;
    let made = Made {
        message: if waits {
            "the account waits for the approval of an administrator"
        } else {
            "the account is made: sign in"
        },
        email: account.email.to_string(),
        user_id: account.user.clone(),
        requires_approval: waits,
    };
    let new = New {
        account,
        name,
        role: Role::Free,
        disabled: waits,
    };
    member::make(state, new, ("sign-up", arrival)).await?;
    Ok(made)
}

/// Whether an administrator has to enable the account of an address; refuses those that nobody may have.
fn waits(settings: &SignUp, email: &Email) -> Result<bool, Failure> {
    let is_listed = email.is_of(&settings.domains);
    match (is_listed, settings.approval) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        (false, false) if settings.domains.is_empty() => Ok(false),
        (false, false) => Err(invalid("email", "addresses of this domain may not sign up")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_of_no_listed_domain_waits_or_is_refused() {
        let of = |approval: bool, domains: &[&str], email: &str| {
            let settings = SignUp {
                approval,
                domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
                ..SignUp::default()
            };
            waits(&settings, &Email::parse(email).expect("an address")).map_err(|refused| refused.status)
        };

        assert_eq!(of(true, &[], "a@b.org"), Ok(true));
        assert_eq!(of(true, &["*.edu"], "a@mit.edu"), Ok(false));
        assert_eq!(of(true, &["*.edu"], "a@b.org"), Ok(true));
        assert_eq!(of(false, &[], "a@b.org"), Ok(false));
        assert_eq!(of(false, &["*.edu"], "a@b.org"), Err(400));
        assert_eq!(of(false, &["*.edu"], "a@mit.edu"), Ok(false));
    }
}
