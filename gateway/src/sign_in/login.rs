//! `POST /auth/login`: by an address of mail and a password. Attempts are counted before anything is looked at, and an
//! address that is nobody's is answered as a wrong password is, with the same work. So is whoever waits for approval.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use schemas::account::Account;
use schemas::account::email::Email;
use schemas::failure::Failure;
use schemas::secret::Secret;
use serde::Deserialize;

use super::answer::SignedIn;
use super::attempts::{self, Of};
use super::{accounts, answer, member, not_let_in, on};
use crate::arrival::Arrival;
use crate::caller;
use crate::manage::description;
use crate::manage::openapi::Operation;
use crate::state::Shared;

/// Who wants to sign in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Login")]
pub(crate) struct Wanted {
    /// His address of mail.
    email: String,
    /// His password.
    #[schemars(with = "String")]
    password: Secret<String>,
}

const WANTED: &str = "expected email and password";

pub(crate) const LOGIN: Operation =
    Operation::ask::<Wanted, SignedIn>("Signs a member in; the cookie holds the refresh token")
        .of_everybody()
        .failing(&[401, 403, 404, 409, 429, 503]);

/// Signs a member in.
pub(crate) async fn login(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        on(&state)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        let account = checked(&state, &arrival, wanted).await?;
        member::known(&state, (&account.tenant, &account.user)).await;
        member::admitted(&state.ports.catalog.load(), &account)?;
        answer::open(&state, &account, &parts, (StatusCode::OK, arrival.at)).await
    };
    match done.await {
        Ok(response) => response,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The account that a password opens.
async fn checked(state: &Shared, arrival: &Arrival, wanted: Wanted) -> Result<Account, Failure> {
    let settings = &state.config.sign_in;
    caller::unblocked(state, arrival)?;
    attempts::count(state, Of::Address(address(arrival)), settings.logins_of_address).await?;
    let email = Email::parse(&wanted.email);
    if let Some(email) = &email {
        attempts::count(state, Of::Email(email), settings.logins_of_email).await?;
    }
    let found = match &email {
        Some(email) => accounts::by_email(state, email).await?,
        None => None,
    };
    let kept = found.as_ref().and_then(|account| account.password.as_ref());
    let is_right = state.sign_in.hasher.verify(wanted.password, kept).await?;
    let account = found.filter(|_| is_right);
    let waits = account
        .as_ref()
        .is_some_and(|account| member::waits(&state.ports.catalog.load(), account));
    account.filter(|_| !waits).ok_or_else(|| {
        caller::failed(state, arrival);
        not_let_in()
    })
}

/// Where a request comes from.
pub(super) fn address(arrival: &Arrival) -> IpAddr {
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    arrival.peer.map_or(nowhere, |peer| peer.ip())
}
