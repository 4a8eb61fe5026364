//! Room in the bucket of responses. A full one lets the oldest go whosever they are: so that no owner pushes out
//! another's, the nodes that write to it look now and then, and make room before that as the embedded bus does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use schemas::subject::RESPONSE_BUCKET;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::api::Api;
use super::kv::{self, Buckets};
use super::pull::{Event, Pull, Pulled, Start};
use crate::layout::{bucket_stream, bucket_subject};
use crate::share::{self, Held};
use crate::{BusError, Expected, Revision};

/// A node looks again when it has written so small a part of the bound.
const LOOK_EVERY_PART: u64 = 64;
/// From so many eighths of its bound on, room is made.
const EIGHTHS_MAX: u64 = 7;
/// What is left of it then.
const EIGHTHS_KEPT: u64 = 6;
/// Records of one request.
const REQUEST_MESSAGES: usize = 256;
/// How long the next record is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// The header that tells the size of a payload that was left out.
const SIZE: &str = "Nats-Msg-Size";

/// When this node looks.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes it wrote since it looked last.
    written: AtomicU64,
    /// After so many it looks again; 0 before it has looked at all.
    every_bytes: AtomicU64,
    /// It is looking.
    looks: AtomicBool,
}

/// The leave to look: nobody else on this node does meanwhile.
#[derive(Debug)]
pub(super) struct Look(Arc<Room>);

impl Room {
    /// Notes `bytes` that were written; gives leave to look if that is due.
    pub(super) fn look(self: &Arc<Self>, bytes: u64) -> Option<Look> {
        let written = self
            .written
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        if written < self.every_bytes.load(Ordering::Relaxed) || self.looks.swap(true, Ordering::Acquire) {
            return None;
        }
        self.written.store(0, Ordering::Relaxed);
        Some(Look(Arc::clone(self)))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.looks.store(false, Ordering::Release);
    }
}

impl Look {
    /// Looks, and makes room if there is too little.
    pub(super) async fn run(self, api: Api, shutdown: CancellationToken) {
        let made = tokio::select! {
            made = self.0.make(&api) => made,
            () = shutdown.cancelled() => return,
        };
        match made {
            Ok(0) => {}
            Ok(gone) => info!(gone, "the bucket of responses was short of room"),
            Err(problem) => warn!(
                error = &problem as &dyn std::error::Error,
                "no room can be made in the bucket of responses: the oldest of all owners go"
            ),
        }
    }
}

impl Room {
    /// Lets the oldest of whoever holds most go, if the bucket is short of room; returns how many records went.
    async fn make(&self, api: &Api) -> Result<usize, BusError> {
        let stream = bucket_stream(RESPONSE_BUCKET);
        let Some(info) = api.stream_info(&stream).await? else {
            return Ok(0);
        };
        let bytes_max = u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX);
        self.every_bytes
            .store(bytes_max / LOOK_EVERY_PART, Ordering::Relaxed);
        if info.state.bytes <= bytes_max / 8 * EIGHTHS_MAX {
            return Ok(0);
        }
        let held = records(api, &stream).await?;
        // What a server counts of a message is more than its key and value: what may be left is less in proportion.
        let counted: u64 = held.iter().map(|(_, _, bytes)| bytes).sum();
        let kept = u128::from(bytes_max / 8 * EIGHTHS_KEPT) * u128::from(counted)
            / u128::from(info.state.bytes.max(1));
        let records = held.iter().map(|(key, revision, bytes)| Held {
            key,
            revision: *revision,
            bytes: *bytes,
        });
        let gone = share::beyond(records, u64::try_from(kept).unwrap_or(u64::MAX));
        let buckets = Buckets::new(api.clone());
        for key in &gone {
            let place = (RESPONSE_BUCKET, *key);
            let deleted = buckets.write(place, (None, None), Expected::Any);
            deleted.await?;
        }
        Ok(gone.len())
    }
}

/// Every record that has a value, with its place and its size in bytes.
async fn records(api: &Api, stream: &str) -> Result<Vec<(String, Revision, u64)>, BusError> {
    let prefix = bucket_subject(RESPONSE_BUCKET);
    let mut pull = Pull::open(api, stream, &format!("{prefix}>"), Start::Sizes).await?;
    let mut records = Vec::new();
    if pull.pending == 0 {
        return Ok(records);
    }
    loop {
        pull.ask_now(REQUEST_MESSAGES).await?;
        let mut came = 0;
        loop {
            match pull.next(SILENCE_MAX).await? {
                Event::Message(pulled) => {
                    came += 1;
                    records.extend(record(&prefix, &pulled));
                }
                Event::Done => break,
                Event::Alive => {}
            }
        }
        if came < REQUEST_MESSAGES {
            return Ok(records);
        }
    }
}

fn record(prefix: &str, pulled: &Pulled) -> Option<(String, Revision, u64)> {
    let key = pulled.message.subject.strip_prefix(prefix)?;
    let headers = pulled.message.headers.as_ref()?;
    if kv::is_deletion(headers) {
        return None;
    }
    let size: u64 = headers.get(SIZE)?.as_str().parse().ok()?;
    let key_bytes = u64::try_from(key.len()).unwrap_or(u64::MAX);
    Some((key.to_owned(), pulled.sequence, size.saturating_add(key_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_looks_at_its_first_write_then_after_so_many_bytes_and_never_twice_at_once() {
        let room = Arc::new(Room::default());

        let first = room.look(1);
        assert!(first.is_some());
        assert!(room.look(1).is_none(), "one looks already");
        room.every_bytes.store(100, Ordering::Relaxed);
        drop(first);
        assert!(room.look(98).is_none());
        assert!(room.look(1).is_some(), "what was written meanwhile counts");
        assert!(room.look(99).is_none());
    }
}
