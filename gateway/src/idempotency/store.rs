//! What the machines of keys ask for, done on the bus. An operation that is not answered in time is unknown.

use std::time::Duration;

use bus::{BusError, Expected};
use bytes::Bytes;
use schemas::idempotency::record::Record;
use schemas::idempotency::room::Kind;
use schemas::idempotency::{Read, Write, Written};
use schemas::subject::IDEMPOTENCY_BUCKET;
use tokio::time::timeout;
use tracing::warn;

use crate::state::State;

/// How long one operation may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Writes what lies under `key`, if what is there is what is expected.
pub(super) async fn write(state: &State, key: &str, write: &Write) -> Written {
    let bytes = match write.record.encode() {
        Ok(bytes) => bytes,
        Err(problem) => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the record of an idempotency key cannot be written"
            );
            return Written::Refused;
        }
    };
    let bytes = Bytes::from(bytes);
    let size = u64::try_from(bytes.len() + key.len()).unwrap_or(u64::MAX);
    if !has_room(state, key, size, write) {
        return without_room(state, key, write).await;
    }
    let expected = write.expected.map_or(Expected::Absent, Expected::Revision);
    let (place, life) = ((IDEMPOTENCY_BUCKET, key), Duration::from_millis(write.life_ms));
    let put = state.ports.kv.put_for(place, bytes, expected, life);
    match timeout(WITHIN, put).await {
        Ok(Ok(revision)) => {
            took(state, key, size, write);
            Written::At(revision)
        }
        Ok(Err(BusError::Conflict)) => Written::Conflict,
        Ok(Err(problem @ (BusError::Full | BusError::Refused { .. }))) => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the record of an idempotency key is not taken"
            );
            Written::Refused
        }
        Ok(Err(_)) | Err(_) => Written::Unknown,
    }
}

/// What a record is to the bucket.
fn kind(record: &Record) -> Kind {
    match record {
        Record::Done(done) if done.answer.is_replayable() => Kind::Answer,
        Record::Running(_) | Record::Done(_) | Record::Freed(_) => Kind::Bare,
    }
}

/// Whether this write leaves room for the keys of other tenants. What replaces a lock always does, but for an answer.
fn has_room(state: &State, key: &str, size: u64, write: &Write) -> bool {
    let kind = kind(&write.record);
    if kind == Kind::Bare && write.expected.is_some() {
        return true;
    }
    let now_ms = state.ports.clock.monotonic_ms();
    let gateways = state.ports.nodes.gateways();
    let mut room = state.keys.room.lock();
    room.admits(kind, (owner(key), size), gateways, now_ms)
}

/// What becomes of a write for which there is no room: a key that is there already is still told of.
async fn without_room(state: &State, key: &str, write: &Write) -> Written {
    if write.expected.is_some() {
        return Written::Refused;
    }
    match timeout(WITHIN, state.ports.kv.get(IDEMPOTENCY_BUCKET, key)).await {
        Ok(Ok(Some(entry))) if entry.value.is_some() => Written::Conflict,
        Ok(Ok(_)) => {
            warn!(
                tenant = owner(key),
                "a tenant holds so much under idempotency keys that no further key of it is taken"
            );
            Written::Refused
        }
        Ok(Err(_)) | Err(_) => Written::Unknown,
    }
}

/// Notes what stays after its request: locks are replaced.
fn took(state: &State, key: &str, size: u64, write: &Write) {
    if !matches!(write.record, Record::Running(_)) {
        let now_ms = state.ports.clock.monotonic_ms();
        let mut room = state.keys.room.lock();
        room.took(kind(&write.record), (owner(key), size), write.life_ms, now_ms);
    }
}

/// The tenant of a record's key.
fn owner(key: &str) -> &str {
    key.split_once('.').map_or(key, |(tenant, _)| tenant)
}

/// Reads what lies under `key`, from wherever the newest is.
pub(super) async fn read(state: &State, key: &str) -> Read {
    let get = state.ports.kv.get(IDEMPOTENCY_BUCKET, key);
    let Ok(Ok(entry)) = timeout(WITHIN, get).await else {
        return Read::Failed;
    };
    let found = entry.and_then(|entry| Some((entry.value?, entry.revision)));
    let mut sightings = state.keys.sightings.lock();
    let Some((value, revision)) = found else {
        sightings.drop_key(key);
        return Read::Nothing;
    };
    let now_ms = state.ports.clock.monotonic_ms();
    let record = Record::decode(&value);
    let seen_ms = if let Some(Record::Running(_)) = &record {
        sightings.see(key, revision, now_ms)
    } else {
        sightings.drop_key(key);
        now_ms
    };
    Read::Found {
        record: record.map(Box::new),
        revision,
        seen_ms,
    }
}
