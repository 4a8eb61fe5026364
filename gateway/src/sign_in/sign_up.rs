//! `POST /auth/signup`: people make accounts of their own, where that is allowed. Those of a listed domain may sign in at
//! once, others wait for an administrator, who enables them. An address that has an account is answered as any other: a
//! letter says the rest, or nobody does.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use schemas::account::email::Email;
use schemas::account::{Account, Hash};
use schemas::catalog::Role;
use schemas::catalog::user::User;
use schemas::failure::{Failure, FailureCode};
use schemas::id::TenantId;
use schemas::secret::Secret;
use serde::{Deserialize, Serialize};

use super::attempts::{self, Of};
use super::errand::{self, Errand};
use super::mail::letter::Occasion;
use super::member::New;
use super::settings::SignUp;
use super::{Asked, accounts, hashing, invalid, login, member, on, reset};
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
    /// The password, of 8 to 256 characters. Where mail is sent it is not kept: the letter has one choose it.
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

/// An account was made, if the address had none.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignedUp")]
pub(crate) struct Made {
    /// What comes next, for people.
    #[schemars(with = "String")]
    message: &'static str,
    /// The address of mail to sign in by.
    email: String,
    /// An administrator has to enable him first.
    requires_approval: bool,
}

pub(crate) const SIGN_UP: Operation = Operation::ask::<Wanted, Made>("Makes an account of one's own")
    .of_everybody()
    .answering(201)
    .failing(&[403, 404, 429, 503]);

/// Who signs up, for what is done behind the answer.
pub(super) struct Application {
    pub(super) email: Email,
    name: Option<Arc<str>>,
    tenant: TenantId,
    /// An administrator has to let him in.
    waits: bool,
    pub(super) asked: Asked,
}

/// What an answer says for people.
const WRITTEN_TO: &str = "a letter is on its way: it says how to go on";
const WAITS: &str =
    "if the address has no account yet, one is made and waits for the approval of an administrator";
const MADE: &str = "if the address has no account yet, one is made: sign in";

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
    let made = Made {
        message: match (state.sign_in.errands.sends_mail(), waits) {
            (true, _) => WRITTEN_TO,
            (false, true) => WAITS,
            (false, false) => MADE,
        },
        email: email.to_string(),
        requires_approval: waits,
    };
    let application = Application {
        email,
        name,
        tenant: settings.tenant.clone(),
        waits,
        asked: arrival.into(),
    };
    if state.sign_in.errands.sends_mail() {
        let letters = state.config.sign_in.logins_of_email;
        attempts::count(state, Of::Forgotten(&application.email), letters).await?;
        errand::leave(state, Errand::SignUp(Box::new(application)))?;
        return Ok(made);
    }
    let salt = state.ports.mint.random();
    let password = state.sign_in.hasher.hash(wanted.password, salt).await?;
    if waits {
        // He cannot sign in now in any case: how long it takes to make him tells nobody whether he was there.
        errand::leave(state, Errand::Make(Box::new(application), password))?;
        return Ok(made);
    }
    match make(state, &application, Some(password)).await {
        Ok(_) => Ok(made),
        Err(failure) if failure.code == FailureCode::AlreadyExists => Ok(made),
        Err(failure) => Err(failure),
    }
}

/// Makes the account of whoever signed up; it has no password where he is to choose it.
async fn make(state: &Shared, application: &Application, password: Option<Hash>) -> Result<Account, Failure> {
    let mut account = member::fresh(state, &application.tenant, application.email.clone());
    account.password = password;
    account.is_new = true;
    let new = New {
        account: account.clone(),
        name: application.name.clone(),
        role: Role::Free,
        disabled: application.waits,
    };
    member::make(state, new, ("sign-up", application.asked)).await?;
    Ok(account)
}

/// Makes the account of somebody who waits for approval; an address that is somebody's stays his.
pub(super) async fn wait(state: &Shared, application: &Application, password: Hash) -> Result<(), Failure> {
    match make(state, application, Some(password)).await {
        Err(failure) if failure.code != FailureCode::AlreadyExists => Err(failure),
        _ => Ok(()),
    }
}

/// What whoever signed up is written: how to choose the password of the account that is made, or that there was one. One
/// that was never signed in to, and has no password, counts as made just now; and who is a member with that address gets
/// his account by it, since he shows that it is his.
pub(super) async fn applied(state: &Shared, application: &Application) -> Result<Occasion, Failure> {
    let account = match accounts::by_email(state, &application.email).await? {
        Some(found) if !found.is_new || found.password.is_some() => return Ok(Occasion::Known),
        Some(found) => found,
        None => match is_member(state, application) {
            Some((_, false)) => return Ok(Occasion::Known),
            Some((member, true)) => let_in(state, application, &member).await?,
            None => make(state, application, None).await?,
        },
    };
    member::known(state, (&account.tenant, &account.user)).await;
    let waits = member::waits(&state.ports.catalog.load(), &account);
    reset::first(state, &account, (waits, application.asked)).await
}

/// The member whose address it is, and whether he may sign in.
fn is_member(state: &Shared, application: &Application) -> Option<(User, bool)> {
    let catalog = state.ports.catalog.load();
    let member = member::of_address(&catalog, &application.email, &application.tenant)?;
    let may_enter = member::may_enter(&catalog, &member);
    Some((member, may_enter))
}

/// Makes the account of whoever is a member already.
async fn let_in(state: &Shared, application: &Application, member: &User) -> Result<Account, Failure> {
    let mut account = member::of_member(member, application.email.clone());
    account.is_new = true;
    accounts::create(state, &account, application.asked.at).await?;
    Ok(account)
}

/// Whether an administrator has to enable the account of an address; refuses those that nobody may have.
pub(super) fn waits(settings: &SignUp, email: &Email) -> Result<bool, Failure> {
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
