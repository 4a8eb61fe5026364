//! Calls that make a record and bring an idempotency key: made once, over any number of nodes, and shown again to
//! whoever sends the same again.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bus::{BusError, Expected};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemas::catalog::change::Made;
use schemas::failure::Failure;
use schemas::idempotency::creation::{self, Binding};
use schemas::idempotency::{self, REPLAY_HEADER, Refusal, Scope};
use schemas::subject::IDEMPOTENCY_BUCKET;
use serde::Serialize;
use tokio::time::timeout;

use super::records::{self, Written};
use crate::caller::Caller;
use crate::idempotency::{key, sha256};
use crate::state::Shared;

const X_REPLAY: HeaderName = HeaderName::from_static(REPLAY_HEADER);

/// How long the bus may take over one operation.
const WITHIN: Duration = Duration::from_secs(2);

/// What is made, and by which call.
#[derive(Debug)]
pub(super) struct Creation {
    /// Its id: that of the first call with the same key, or the one that was asked for.
    pub(super) id: Arc<str>,
    /// By which call, where that brought a key.
    pub(super) made: Option<Made>,
}

/// Binds the key of a call to what it asks for. `id` is what is made if the key is new; `path` and `body` are what two
/// calls with the same key have in common.
pub(super) async fn begin(
    state: &Shared,
    caller: &Caller,
    headers: &HeaderMap,
    (path, body): (&str, &[u8]),
    id: Arc<str>,
) -> Result<Creation, Failure> {
    let Some(key) = key(headers)? else {
        return Ok(Creation { id, made: None });
    };
    let scope = Scope {
        tenant: caller.tenant().clone(),
        key_id: caller.key.id.clone(),
    };
    let digest = creation::digest(&scope, &key, sha256);
    let made = Made {
        key: digest,
        asked: idempotency::fingerprint("POST", path, body, sha256),
    };
    let mine = Binding {
        asked: made.asked,
        id,
    };
    let bound = bind(state, &creation::place(&scope, digest), mine).await;
    let id = bound
        .and_then(|bound| creation::id_of(&bound, made))
        .map_err(Refusal::failure)?;
    Ok(Creation { id, made: Some(made) })
}

/// Binds a key, or finds to what it is bound.
async fn bind(state: &Shared, place: &str, mine: Binding) -> Result<Binding, Refusal> {
    let away = || Refusal::StoreUnavailable;
    let value = serde_json::to_vec(&mine).map_err(|_| away())?;
    let life = Duration::from_millis(creation::LIFE_MS);
    let kv = &state.ports.kv;
    let put = kv.put_for((IDEMPOTENCY_BUCKET, place), value.into(), Expected::Absent, life);
    match timeout(WITHIN, put).await {
        Ok(Ok(_)) => return Ok(mine),
        Ok(Err(BusError::Conflict)) => {}
        // It may be bound and may not; who comes again is told.
        Ok(Err(_)) | Err(_) => return Err(away()),
    }
    let found = timeout(WITHIN, kv.get(IDEMPOTENCY_BUCKET, place)).await;
    let value = found
        .ok()
        .and_then(Result::ok)
        .flatten()
        .and_then(|entry| entry.value);
    value
        .and_then(|value| serde_json::from_slice(&value).ok())
        .ok_or_else(away)
}

/// The answer to a call that made a record, or whose record is there.
pub(super) fn answer<T, S: Serialize>(written: &Written<T>, shown: &S) -> Response {
    let mut response = records::shown(shown, written.revision);
    *response.status_mut() = StatusCode::CREATED;
    if written.repeated {
        mark_repeated(&mut response);
    }
    response
}

/// Says that what the call asks for was made before.
pub(super) fn mark_repeated(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(X_REPLAY, HeaderValue::from_static("true"));
}
