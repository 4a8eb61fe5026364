//! `POST /auth/refresh` and `/auth/logout`: the paths on which the cookie counts. Each refresh token is good once, and for
//! some seconds gives again what it gave; one that comes later was stolen, or its thief came first: the session ends, on
//! every node.

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use schemas::account::{Account, Turned};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{TenantId, UserId};
use schemas::time::Timestamp;
use tracing::warn;

use super::answer::{Done, SignedIn};
use super::token::{Read, Refresh};
use super::{accounts, answer, cookie, member, on, origin};
use crate::arrival::Arrival;
use crate::caller;
use crate::manage::openapi::{Audience, Operation};
use crate::state::Shared;

pub(crate) const REFRESH: Operation =
    Operation::read::<SignedIn>("Gives the next access token to whoever has the cookie")
        .of(Audience::Others)
        .failing(&[404, 409]);
pub(crate) const LOGOUT: Operation = Operation::read::<Done>("Signs a member out")
    .of_everybody()
    .failing(&[403, 404, 409, 503]);

/// What became of a session.
enum Came {
    Next(u32),
    Reused,
    Disabled,
}

/// Gives the next tokens of a session.
pub(crate) async fn refresh(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    match refreshed(&state, &arrival, &parts).await {
        Ok(response) => response,
        Err(failure) => {
            let mut response = arrival.refuse_unread(&failure);
            if failure.status == 401 {
                answer::put_cookie(&state, &mut response, "", &parts);
            }
            response
        }
    }
}

async fn refreshed(state: &Shared, arrival: &Arrival, parts: &Parts) -> Result<Response, Failure> {
    let signer = on(state)?;
    caller::unblocked(state, arrival)?;
    let token = cookie::of(&parts.headers, &state.config.sign_in.cookie_name).ok_or_else(over)?;
    from_ours(state, parts)?;
    let Some(presented) = signer.read_refresh(token) else {
        caller::failed(state, arrival);
        return Err(over());
    };
    let (account, came) = turned(state, &presented, arrival.at).await?;
    match came {
        Came::Next(turn) => {
            let next = Refresh { turn, ..presented };
            answer::signed_in(state, &account, (&next, parts), (StatusCode::OK, arrival.at))
        }
        Came::Reused => {
            warn!(
                tenant = %presented.tenant,
                user = %presented.user,
                request.id = %arrival.request_id,
                "a refresh token was used twice: its session is ended"
            );
            caller::failed(state, arrival);
            Err(over())
        }
        Came::Disabled => Err(over()),
    }
}

/// Turns a session.
async fn turned(state: &Shared, presented: &Refresh, now: Timestamp) -> Result<(Account, Came), Failure> {
    let life = state.config.sign_in.refresh_seconds;
    let catalog = state.ports.catalog.load();
    let mut came = Came::Disabled;
    let who = (&presented.tenant, &presented.user);
    let turn = |account: &Account| {
        if member::admitted(&catalog, account).is_err() {
            came = Came::Disabled;
            return Ok(account.signed_out(&presented.session));
        }
        match account.turned((&presented.session, presented.turn), now, life) {
            Turned::Next(after, turn) => {
                came = Came::Next(turn);
                Ok(Some(after))
            }
            Turned::Again(turn) => {
                came = Came::Next(turn);
                Ok(None)
            }
            Turned::Reused(after) => {
                came = Came::Reused;
                Ok(Some(after))
            }
            Turned::Over => Err(over()),
        }
    };
    let changed = accounts::change(state, who, turn).await;
    let (account, _) = changed.map_err(|failure| match failure.code {
        FailureCode::NotFound => over(),
        _ => failure,
    })?;
    Ok((account, came))
}

/// Ends the session of whoever asks: of the cookie, and of the access token.
pub(crate) async fn logout(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let ended = async {
        let signer = on(&state)?;
        let token = cookie::of(&parts.headers, &state.config.sign_in.cookie_name);
        if token.is_some() {
            from_ours(&state, &parts)?;
        }
        if let Some(refresh) = token.and_then(|token| signer.read_refresh(token)) {
            end(&state, (&refresh.tenant, &refresh.user), &refresh.session).await?;
        }
        if let Some((tenant, user, session)) = of_bearer(&state, &parts.headers, arrival.at) {
            end(&state, (&tenant, &user), &session).await?;
        }
        Ok::<(), Failure>(())
    };
    match ended.await {
        Ok(()) => answer::signed_out(&state, &parts, "signed out"),
        Err(failure) => arrival.refuse_unread(&failure),
    }
}

/// The session of the access token that a request brings.
pub(super) fn of_bearer(
    state: &Shared,
    headers: &HeaderMap,
    now: Timestamp,
) -> Option<(TenantId, UserId, String)> {
    match caller::session::claims(state, caller::credential(headers)?, now) {
        Read::Good(claims) => Some((claims.tenant, claims.sub, claims.sid)),
        Read::Over | Read::Foreign => None,
    }
}

/// Ends a session; one that is over stays over.
async fn end(state: &Shared, who: accounts::Who<'_>, session: &str) -> Result<(), Failure> {
    let ended = accounts::change(state, who, |account| Ok(account.signed_out(session))).await;
    match ended {
        Err(failure) if failure.code != FailureCode::NotFound => Err(failure),
        _ => Ok(()),
    }
}

/// Refuses the cookie of a request that another page may have sent.
fn from_ours(state: &Shared, parts: &Parts) -> Result<(), Failure> {
    match origin::of(
        &parts.headers,
        origin::authority(&parts.headers, &parts.uri),
        &state.cors_origins,
    ) {
        origin::From::Ours => Ok(()),
        origin::From::Unknown | origin::From::Elsewhere => {
            let text = "the cookie counts for pages of this site only: see cors.origins";
            Err(Failure::new(FailureCode::InsufficientScope, text).param("origin"))
        }
    }
}

fn over() -> Failure {
    let text = "the session is over: sign in again";
    Failure::new(FailureCode::InvalidApiKey, text)
}
