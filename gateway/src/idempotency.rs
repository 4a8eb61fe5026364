//! Idempotency keys: a request that brings one claims it before it takes anything, and runs only if the key is its own.
//! Whoever comes with the same key later is told that the first still runs, that the key is used up, or what the first
//! was answered. What is decided is in `schemas::idempotency`; here it is done.
//!
//! ```text
//!  admit ─► claim ─┬─► Held ─► limits ─► dispatch ─► relay ─► settle ─► finish | free
//!                  ├─► replay: the first answer's bytes, a row that costs nothing
//!                  └─► 409, 422, 503
//! ```
//!
//! A key that is held is renewed by a task of its own, which also writes what the request leaves. Whatever becomes of
//! the request, dropping its [`Held`] frees the key.

mod books;
mod claiming;
mod holding;
mod replay;
mod store;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use schemas::digest::Digest;
use schemas::failure::{Failure, FailureCode};
use schemas::idempotency::record::{Done, Running};
use schemas::idempotency::room::Room;
use schemas::idempotency::sightings::Sightings;
use schemas::idempotency::{self, Key, Refusal, Scope};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::body::Bodies;
use crate::caller::Caller;
use crate::config::Config;
use crate::state::{Ports, Shared};

pub(crate) use holding::{Ended, Held};
pub(crate) use replay::{Repeated, answer as replay};

/// Claims that may wait at once for a bus that does not answer.
const WAITING_MAX: usize = 1_000;
/// Claims that were given up and are not cleared yet, beyond which no key is claimed.
const CLEARING_MAX: usize = 10_000;
/// Bytes of answers that are held to be left under their keys; beyond, an answer is not kept.
const ANSWERS_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long an answer's end waits until what it leaves under its key is written. It is written later otherwise.
pub(crate) const HELD_BACK: Duration = Duration::from_secs(1);

const HEADER: HeaderName = HeaderName::from_static(idempotency::HEADER);

/// What a gateway knows of keys beside their records.
pub(crate) struct Keys {
    /// Since when it has been seeing the locks of others.
    sightings: Mutex<Sightings>,
    /// What each tenant has under keys.
    room: Mutex<Room>,
    /// Places for claims that wait.
    waiting: Semaphore,
    /// Clears up after claims that were given up.
    clearing: TaskTracker,
    /// Room for answers until they are left under their keys.
    pub(crate) answers: Arc<Bodies>,
    /// What its spool held when this run began: once the books have that, they know every request of the runs before.
    pub(crate) begun_at: u64,
}

impl Keys {
    /// To be made when what the runs before left open is settled. `bytes_max` bounds the bucket of keys.
    pub(crate) fn new(ports: &Ports, bytes_max: u64) -> Self {
        Self {
            sightings: Mutex::default(),
            room: Mutex::new(Room::new(bytes_max)),
            waiting: Semaphore::new(WAITING_MAX),
            clearing: TaskTracker::new(),
            answers: Arc::new(Bodies::new(ANSWERS_BYTES_MAX)),
            begun_at: ports.spool.appended(),
        }
    }
}

/// What a claim comes to.
pub(crate) enum Claimed {
    /// The key is the request's.
    Held(Held),
    /// The first request is over, and this is what it was answered.
    Replay(Box<Done>),
}

/// What is asked for under a key.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    /// Without its query.
    pub(crate) path: &'a str,
    /// As it was sent, unpacked.
    pub(crate) body: &'a [u8],
}

/// The key that a request brings.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<Key>, Failure> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let text = "the header 'Idempotency-Key' may be there once";
        return Err(Failure::new(FailureCode::InvalidRequest, text).param(idempotency::HEADER));
    }
    let key = Key::parse(value.as_bytes()).map_err(idempotency::KeyError::failure)?;
    Ok(Some(key))
}

/// Claims `key` for a request of `caller`. Goes on to its end also when nobody waits for it any more; the key is freed
/// then.
pub(crate) async fn claim(
    state: &Shared,
    (caller, request_id): (&Caller, schemas::id::RequestId),
    key: &Key,
    asked: Asked<'_>,
) -> Result<Claimed, Failure> {
    if state.keys.clearing.len() >= CLEARING_MAX {
        return Err(Refusal::StoreUnavailable.failure());
    }
    let scope = Scope {
        tenant: caller.tenant().clone(),
        key_id: caller.key.id.clone(),
    };
    let place = idempotency::record_key(&scope, key, sha256);
    let terms = state.config.idempotency;
    let mine = Running {
        request_id,
        boot: state.config.boot.clone(),
        spool: state.ports.spool.id().clone(),
        digest: idempotency::fingerprint(asked.method, asked.path, asked.body, sha256),
        lease_ms: terms.lease_ms,
    };
    let claiming = claiming::run(state.clone(), scope, place.into(), mine);
    let claimed = state.leaving.spawn(claiming).await;
    let claimed = claimed.unwrap_or(Err(Refusal::StoreUnavailable));
    state.metrics.claimed(match &claimed {
        Ok(Claimed::Held(_)) => "first",
        Ok(Claimed::Replay(_)) => "replay",
        Err(refusal) => refusal.as_str(),
    });
    claimed.map_err(Refusal::failure)
}

/// The digest of some parts, one after another.
pub(crate) fn sha256(parts: &[&[u8]]) -> Digest {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    Digest(digest.finalize().into())
}

/// The settings that say for how long what counts are those of a gateway.
impl Config {
    /// How long a claim waits for a bus that does not answer.
    fn claim_wait(&self) -> Duration {
        Duration::from_secs(self.admit_wait_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = http::HeaderValue::from_bytes(value).expect("a value");
            headers.append(HEADER, value);
        }
        headers
    }

    #[test]
    fn a_key_has_1_to_128_printable_bytes_and_is_there_once() {
        let longest = [b'k'; 128];
        let longer = [b'k'; 129];

        assert!(matches!(key(&headers(&[])), Ok(None)));
        assert!(matches!(key(&headers(&[b"k"])), Ok(Some(_))));
        assert!(matches!(key(&headers(&[&longest])), Ok(Some(_))));
        for values in [
            &[&b""[..]][..],
            &[&longer[..]],
            &["schl\u{fc}ssel".as_bytes()],
            &[b"a\tb"],
            &[b"a", b"b"],
        ] {
            let refused = key(&headers(values)).expect_err("no key");
            assert_eq!(
                (refused.code, refused.status, refused.param.as_deref()),
                (FailureCode::InvalidRequest, 400, Some("idempotency-key")),
                "{values:?}"
            );
        }
    }

    #[test]
    fn the_digest_is_that_of_the_parts_together() {
        assert_eq!(sha256(&[b"ab", b"", b"c"]), sha256(&[b"abc"]));
        assert_eq!(
            sha256(&[b"abc"]).to_string(),
            "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"
        );
    }
}
