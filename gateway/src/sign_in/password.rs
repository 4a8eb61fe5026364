//! Passwords are changed by whoever knows the old one, and chosen anew by whoever has a token for it (see
//! [`super::reset`]). A changed password ends the member's sessions on every node.

use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::account::{Account, Hash};
use schemas::failure::{Failure, FailureCode};
use schemas::secret::Secret;
use serde::Deserialize;

use super::answer::{self, Done};
use super::attempts::{self, Of};
use super::{accounts, audit, hashing, invalid, login, member, on, refresh, reset, wrong_password};
use crate::arrival::Arrival;
use crate::caller::{self, Caller};
use crate::manage::openapi::Operation;
use crate::manage::{description, json};
use crate::state::Shared;

/// What a password is to be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PasswordChange")]
pub(crate) struct Change {
    /// The password as it is.
    #[schemars(with = "String")]
    current_password: Secret<String>,
    /// What it is to be, of 8 to 256 characters.
    #[schemars(with = "String")]
    new_password: Secret<String>,
}

const CHANGE_WANTED: &str = "expected current_password and new_password";

/// What a password is to be for whoever has a token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PasswordChoice")]
pub(crate) struct Choice {
    /// The token that an administrator gave him.
    #[schemars(with = "String")]
    token: Secret<String>,
    /// The password, of 8 to 256 characters.
    #[schemars(with = "String")]
    new_password: Secret<String>,
}

const CHOICE_WANTED: &str = "expected token and new_password";

pub(crate) const CHANGE: Operation = Operation::ask::<Change, Done>("Changes the caller's password")
    .of_callers()
    .failing(&[404, 409]);
pub(crate) const CHOOSE: Operation = Operation::ask::<Choice, Done>("Chooses a password with a token")
    .of_everybody()
    .failing(&[404, 409, 429, 503]);

/// Changes the caller's own password.
pub(crate) async fn change(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let session = refresh::of_bearer(&state, &parts.headers, arrival.at).map(|(.., session)| session);
    let done = async {
        on(&state)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted = description::read(&bytes, CHANGE_WANTED)?;
        changed(&state, (&arrival, &caller), wanted, session.as_deref()).await
    };
    match done.await {
        Ok(()) => json(&Done {
            message: "the password is changed",
        }),
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn changed(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    wanted: Change,
    session: Option<&str>,
) -> Result<(), Failure> {
    let user = caller.key.user.as_ref();
    let none = || Failure::new(FailureCode::NotFound, "the credential belongs to no account");
    let who = (caller.tenant(), user.ok_or_else(none)?);
    let account = accounts::of(state, who).await?.ok_or_else(none)?;
    let settings = &state.config.sign_in;
    attempts::count(state, Of::Email(&account.email), settings.logins_of_email).await?;
    let hasher = &state.sign_in.hasher;
    let kept = account.password.as_ref();
    if !hasher.verify(wanted.current_password, kept).await? {
        caller::failed(state, arrival);
        // The credential itself is good, so that this is no 401.
        return Err(wrong_password().with_status(400).param("current_password"));
    }
    hashing::acceptable(&wanted.new_password, account.email.as_str(), "new_password")?;
    let password = hasher
        .hash(wanted.new_password, state.ports.mint.random())
        .await?;
    let replace = |found: &Account| {
        if found.password != account.password {
            return Err(wrong_password().with_status(400).param("current_password"));
        }
        Ok(Some(found.with_password(password.clone(), session)))
    };
    let written = accounts::change(state, who, replace).await?;
    audit::tell(state, &written, caller.author(arrival), audit::What::Password);
    Ok(())
}

/// Chooses a password with a token.
pub(crate) async fn choose(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        on(&state)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        chosen(&state, &arrival, description::read(&bytes, CHOICE_WANTED)?).await
    };
    match done.await {
        Ok(()) => answer::signed_out(&state, &parts, "the password is chosen: sign in"),
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn chosen(state: &Shared, arrival: &Arrival, wanted: Choice) -> Result<(), Failure> {
    caller::unblocked(state, arrival)?;
    let allowance = state.config.sign_in.logins_of_address;
    attempts::count(state, Of::Address(login::address(arrival)), allowance).await?;
    let wrong = || {
        caller::failed(state, arrival);
        invalid("token", "the token is not good: ask for another")
    };
    let token = wanted.token.reveal();
    let (tenant, user) = reset::member_of(token).ok_or_else(wrong)?;
    let digest = reset::digest_of(state, token);
    let found = accounts::of(state, (&tenant, &user)).await?;
    let account = found
        .filter(|account| account.is_reset_by(&digest, arrival.at))
        .ok_or_else(wrong)?;
    hashing::acceptable(&wanted.new_password, account.email.as_str(), "new_password")?;
    let salt = state.ports.mint.random();
    let password: Hash = state.sign_in.hasher.hash(wanted.new_password, salt).await?;
    let replace = |found: &Account| {
        if !found.is_reset_by(&digest, arrival.at) {
            return Err(wrong());
        }
        Ok(Some(found.with_chosen_password(password.clone())))
    };
    let written = accounts::change(state, (&tenant, &user), replace).await?;
    let author = member::author(&written.0, "password-reset", arrival.into());
    audit::tell(state, &written, author, audit::What::Password);
    Ok(())
}
