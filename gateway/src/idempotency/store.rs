//! What the machines of keys ask for, done on the bus. An operation that is not answered in time is unknown.

use std::time::Duration;

use bus::{BusError, Expected};
use schemas::idempotency::record::Record;
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
    let expected = write.expected.map_or(Expected::Absent, Expected::Revision);
    let (place, life) = ((IDEMPOTENCY_BUCKET, key), Duration::from_millis(write.life_ms));
    let put = state.ports.kv.put_for(place, bytes.into(), expected, life);
    match timeout(WITHIN, put).await {
        Ok(Ok(revision)) => Written::At(revision),
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
