//! What whoever signed in is given: an access token in the body, the refresh token in a cookie, and who he is.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use schemas::account::Account;
use schemas::failure::Failure;
use schemas::time::Timestamp;
use serde::Serialize;

use super::me::{self, Me};
use super::token::Refresh;
use super::{accounts, cookie, on, origin};
use crate::manage::json;
use crate::state::Shared;

/// A member is signed in.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignedIn")]
pub(crate) struct SignedIn {
    /// To be sent as `Authorization: Bearer`.
    access_token: String,
    /// How it is to be sent.
    #[schemars(with = "String")]
    token_type: &'static str,
    /// Seconds for which it is good.
    expires_in: u64,
    /// Who signed in.
    user: Me,
}

/// What was done, for people.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Done")]
pub(crate) struct Done {
    /// What was done.
    #[schemars(with = "String")]
    pub(super) message: &'static str,
}

/// Opens a session of an account that was checked to be `checked`, and answers with its tokens.
pub(super) async fn open(
    state: &Shared,
    checked: &Account,
    parts: &Parts,
    (status, now): (StatusCode, Timestamp),
) -> Result<Response, Failure> {
    let (account, refresh) = begin(state, checked, now).await?;
    signed_in(state, &account, (&refresh, parts), (status, now))
}

/// Opens a session of an account that was checked to be `checked`: by what one signs in to it must be the same still.
pub(super) async fn begin(
    state: &Shared,
    checked: &Account,
    now: Timestamp,
) -> Result<(Account, Refresh), Failure> {
    let session: Arc<str> = URL_SAFE_NO_PAD.encode(state.ports.mint.random::<16>()).into();
    let life = state.config.sign_in.refresh_seconds;
    let who = (&checked.tenant, &checked.user);
    let opened = |account: &Account| {
        if account.password != checked.password || account.identity != checked.identity {
            return Err(super::not_let_in());
        }
        Ok(Some(account.signed_in(Arc::clone(&session), now, life)))
    };
    let (account, _) = accounts::change(state, who, opened).await?;
    let refresh = Refresh {
        tenant: account.tenant.clone(),
        user: account.user.clone(),
        session: session.to_string(),
        turn: 0,
    };
    Ok((account, refresh))
}

/// Answers with the tokens of a session.
pub(super) fn signed_in(
    state: &Shared,
    account: &Account,
    (refresh, parts): (&Refresh, &Parts),
    (status, now): (StatusCode, Timestamp),
) -> Result<Response, Failure> {
    let signer = on(state)?;
    let life = state.config.sign_in.access_seconds;
    let shown = SignedIn {
        access_token: signer.access(refresh, now, life),
        token_type: "bearer",
        expires_in: life,
        user: me::of_account(account, &state.ports.catalog.load()),
    };
    let mut response = json(&shown);
    *response.status_mut() = status;
    put_cookie(state, &mut response, &signer.refresh(refresh), parts);
    Ok(response)
}

/// Answers that something was done, and takes the cookie away.
pub(super) fn signed_out(state: &Shared, parts: &Parts, message: &'static str) -> Response {
    let mut response = json(&Done { message });
    put_cookie(state, &mut response, "", parts);
    response
}

/// Puts the cookie of a token into an answer, which nobody in between may keep. A page that is not ours gets none: it
/// would have its visitor go on as whomever it likes.
pub(super) fn put_cookie(state: &Shared, response: &mut Response, token: &str, parts: &Parts) {
    let authority = origin::authority(&parts.headers, &parts.uri);
    let from = origin::of(&parts.headers, authority, &state.cors_origins);
    let is_theirs = from == origin::From::Elsewhere && !token.is_empty();
    let is_loopback = origin::is_loopback(authority);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(value) = cookie::set(&state.config.sign_in, token, is_loopback).filter(|_| !is_theirs) {
        headers.append(SET_COOKIE, value);
    }
}
