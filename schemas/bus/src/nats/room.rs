//! Room in the log. A full log takes nothing, and would not for a week: so the oldest of what is in the books is let go
//! of before that. What the books do not have is never let go of here.

use bytes::Bytes;
use schemas::subject;
use serde::Deserialize;
use serde_json::json;

use super::api::Api;
use super::failure;
use crate::BusError;
use crate::publisher::LedgerCursor;

/// The log is short of room from three quarters of its size on; then the oldest quarter of its events goes.
const SHORT_PARTS: u64 = 3;
const PARTS: u64 = 4;

/// What a server says to a purge.
#[derive(Debug, Deserialize)]
struct Purged {
    purged: u64,
}

/// Lets go of the oldest events up to `cursor` if the log is short of room; returns how many. Nothing when the cursor is
/// one of another log.
pub(super) async fn make(api: &Api, cursor: LedgerCursor) -> Result<u64, BusError> {
    let Some(info) = api.stream_info(subject::EVENTS_STREAM).await? else {
        return Ok(0);
    };
    let created = info.created.unix_timestamp_nanos() / 1_000;
    let size = u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX);
    if i128::from(cursor.stream_created) != created || info.state.bytes < size / PARTS * SHORT_PARTS {
        return Ok(0);
    }
    let (first, count) = (info.state.first_sequence, info.state.messages);
    let kept_from = (first + count.div_ceil(PARTS)).min(cursor.sequence.saturating_add(1));
    if kept_from <= first {
        return Ok(0);
    }
    let question = Bytes::from(json!({ "seq": kept_from }).to_string());
    let operation = format!("STREAM.PURGE.{}", subject::EVENTS_STREAM);
    match api.request(&operation, question).await? {
        Ok(Purged { purged }) => Ok(purged),
        Err(said) => Err(failure::away(said)),
    }
}
