//! Calls that make a record and bring an idempotency key: made once, over any number of nodes, and shown again to
//! whoever sends the same again.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bus::{BusError, Entry, Expected, Revision};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemas::catalog::change::{Author, Made};
use schemas::digest::Digest;
use schemas::failure::{Failure, FailureCode};
use schemas::idempotency::creation::{self, Binding, Done};
use schemas::idempotency::{self, REPLAY_HEADER, Refusal, Scope};
use schemas::subject::IDEMPOTENCY_BUCKET;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use tracing::debug;

use super::records::{self, Place, Written};
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
    /// To what that key is bound.
    bound: Option<Bound>,
}

/// A key that is bound.
#[derive(Debug)]
struct Bound {
    place: String,
    binding: Binding,
    revision: Revision,
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
        return Ok(Creation {
            id,
            made: None,
            bound: None,
        });
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
        done: None,
    };
    let bound = bind(state, (creation::place(&scope, digest), digest), mine).await;
    let bound = bound.map_err(Refusal::failure)?;
    let id = creation::id_of(&bound.binding, made).map_err(Refusal::failure)?;
    Ok(Creation {
        id,
        made: Some(made),
        bound: Some(bound),
    })
}

/// Binds a key, or finds to what it is bound.
async fn bind(state: &Shared, (place, digest): (String, Digest), mine: Binding) -> Result<Bound, Refusal> {
    let away = || Refusal::StoreUnavailable;
    match put(state, &place, &mine, Expected::Absent).await {
        Ok(revision) => {
            return Ok(Bound {
                place,
                binding: mine,
                revision,
            });
        }
        Err(BusError::Conflict) => {}
        // It may be bound and may not; who comes again is told.
        Err(_) => return Err(away()),
    }
    let entry = get(state, &place).await?.ok_or_else(away)?;
    let value = entry.value.unwrap_or_default();
    let mut binding: Binding = serde_json::from_slice(&value).map_err(|_| away())?;
    if binding.done.is_none()
        && let Some(gone) = get(state, &creation::gone_place(digest)).await?
    {
        binding.done = Some(Done {
            shown: None,
            revision: gone.revision,
        });
    }
    Ok(Bound {
        place,
        binding,
        revision: entry.revision,
    })
}

async fn put(
    state: &Shared,
    place: &str,
    binding: &Binding,
    expected: Expected,
) -> Result<Revision, BusError> {
    let value = serde_json::to_vec(binding).unwrap_or_default();
    let life = Duration::from_millis(creation::LIFE_MS);
    let kv = &state.ports.kv;
    let put = kv.put_for((IDEMPOTENCY_BUCKET, place), value.into(), expected, life);
    timeout(WITHIN, put).await.unwrap_or(Err(BusError::Timeout))
}

async fn get(state: &Shared, place: &str) -> Result<Option<Entry>, Refusal> {
    let found = timeout(WITHIN, state.ports.kv.get(IDEMPOTENCY_BUCKET, place)).await;
    match found {
        Ok(Ok(entry)) => Ok(entry.filter(|entry| entry.value.is_some())),
        Ok(Err(_)) | Err(_) => Err(Refusal::StoreUnavailable),
    }
}

/// Notes that what a call with a key made is taken away, so that the same call does not make it again.
pub(super) async fn note_gone(state: &Shared, made: Made) -> Result<(), Failure> {
    let place = creation::gone_place(made.key);
    let life = Duration::from_millis(creation::LIFE_MS);
    let kv = &state.ports.kv;
    let put = kv.put_for((IDEMPOTENCY_BUCKET, &place), "{}".into(), Expected::Any, life);
    match timeout(WITHIN, put).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Refusal::StoreUnavailable.failure()),
    }
}

impl Creation {
    /// Makes the record, or finds the one that a call with the same key made; `None` where that is gone since, which is
    /// to be answered with [`Self::again`].
    pub(super) async fn make<T>(
        &self,
        state: &Shared,
        place: &Place,
        record: T,
        author: Author,
    ) -> Result<Option<Written<T>>, Failure>
    where
        T: Serialize + DeserializeOwned,
    {
        if self.is_done() {
            return records::made(state, place, self.made, &author.actor).await;
        }
        let made = records::create(state, place, record, self.made, author).await;
        made.map(Some)
    }

    /// The answer to the first call with the same key, for one whose record is gone. Fails where that is not kept.
    pub(super) fn again(&self) -> Result<Response, Failure> {
        let done = self.done().ok_or_else(gone)?;
        let shown = done.shown.as_ref().ok_or_else(gone)?;
        let mut response = created(shown, done.revision);
        mark_repeated(&mut response);
        Ok(response)
    }

    /// True where a call with the same key made what it asked for.
    pub(super) fn is_done(&self) -> bool {
        self.done().is_some()
    }

    fn done(&self) -> Option<&Done> {
        self.bound.as_ref()?.binding.done.as_ref()
    }

    /// The answer to a call that made a record, or whose record is there; kept for whoever sends the same again.
    pub(super) async fn answer<T, S: Serialize>(
        &self,
        state: &Shared,
        written: &Written<T>,
        shown: &S,
    ) -> Response {
        let kept = serde_json::to_value(shown).ok();
        self.keep(state, kept, written.revision).await;
        let mut response = created(shown, written.revision);
        if written.repeated {
            mark_repeated(&mut response);
        }
        response
    }

    /// Keeps what the call was answered. Where that fails the record says by which call it was made.
    pub(super) async fn keep(&self, state: &Shared, shown: Option<Value>, revision: u64) {
        let Some(bound) = self.bound.as_ref().filter(|_| !self.is_done()) else {
            return;
        };
        let done = Binding {
            done: Some(Done { shown, revision }),
            ..bound.binding.clone()
        };
        if let Err(problem) = put(state, &bound.place, &done, Expected::Revision(bound.revision)).await {
            debug!(
                error = &problem as &dyn std::error::Error,
                "the answer to a call with an idempotency key is not kept"
            );
        }
    }
}

/// What was made is gone, and so is its answer.
pub(super) fn gone() -> Failure {
    let text =
        "what a call with this idempotency key made was taken away since: use another key to make it anew";
    Failure::new(FailureCode::Conflict, text).param("idempotency-key")
}

fn created<S: Serialize>(shown: &S, revision: u64) -> Response {
    let mut response = records::shown(shown, revision);
    *response.status_mut() = StatusCode::CREATED;
    response
}

/// Says that what the call asks for was made before.
pub(super) fn mark_repeated(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(X_REPLAY, HeaderValue::from_static("true"));
}
