//! The durable log in one process: segment files, one write per publish, reading straight from the files.
//!
//! ```text
//! message  sequence u64 · id length u16 · id · subject length u16 · subject · payload
//! ```

mod duplicates;
mod open;
mod reading;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::time::Timestamp;
use tokio::time::timeout;
use tracing::warn;

use self::duplicates::Duplicates;
use self::reading::Readings;
use crate::clock::Clock;
use crate::segment;
use crate::segment::files::{Files, Unsynced};
use crate::sync::{Flusher, Synced, Target};
use crate::{BATCH_MESSAGES_MAX, BusError, LogState, Message, Stored};

/// Kind of a message's record.
const MESSAGE: u8 = 1;
/// Released files older than this go although there is room.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);

/// The log. Dropping it syncs what was written.
pub(super) struct Log {
    // Before `shared`: the thread ends first.
    flusher: Flusher,
    shared: Arc<Shared>,
}

struct Shared {
    created_at_micros: i64,
    bytes_max: u64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    readings: Readings,
}

/// When the newest message of a file was written.
#[derive(Debug, Clone, Copy, Default)]
struct Notes {
    written_at: Timestamp,
}

struct State {
    files: Files<Notes>,
    /// The next sequence.
    next: u64,
    duplicates: Duplicates,
    /// Used again by each publish.
    batch: Vec<u8>,
}

/// Takes a message's payload apart; `None` for bytes that no writer of this version wrote.
fn read_message(record: &Bytes) -> Option<Stored> {
    let (sequence, rest) = record.split_first_chunk::<8>()?;
    let (id, rest) = segment::read_text(rest)?;
    let (subject, payload) = segment::read_text(rest)?;
    let message = Message {
        subject: subject.to_owned(),
        id: id.to_owned(),
        payload: record.slice(record.len() - payload.len()..),
    };
    Some(Stored {
        sequence: u64::from_le_bytes(*sequence),
        message,
    })
}

fn write_message(out: &mut Vec<u8>, sequence: u64, message: &Message) -> Result<(), segment::TooLarge> {
    let start = segment::begin(out, MESSAGE);
    out.extend_from_slice(&sequence.to_le_bytes());
    segment::write_text(out, &message.id)?;
    segment::write_text(out, &message.subject)?;
    out.extend_from_slice(&message.payload);
    segment::finish(out, start)
}

impl Log {
    pub(super) fn open(
        dir: &Path,
        bytes_max: u64,
        duplicates_max: usize,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let (created_at_micros, state) = open::open(dir, bytes_max, duplicates_max, &*clock)?;
        let synced = state.next - 1;
        let (state, readings) = (Mutex::new(state), Readings::default());
        let shared = Arc::new(Shared {
            created_at_micros,
            bytes_max,
            clock,
            state,
            readings,
        });
        let flusher = Flusher::start("wb-log-sync", Arc::clone(&shared) as _, synced)?;
        Ok(Self { flusher, shared })
    }

    pub(super) fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        if self.flusher.synced().failed {
            return Err(sync_failed());
        }
        let now = self.shared.clock.now();
        let places = self
            .shared
            .state
            .lock()
            .publish(messages, self.shared.bytes_max, now)?;
        self.flusher.written();
        Ok(places)
    }

    pub(super) async fn read(
        &self,
        from: u64,
        messages_max: usize,
        wait: Duration,
    ) -> Result<Vec<Stored>, BusError> {
        let first = self.shared.state.lock().first();
        if from < first {
            return Err(BusError::Trimmed { first });
        }
        let mut follow = self.flusher.follow();
        let has_more = |synced: &Synced| synced.upto >= from || synced.failed;
        match timeout(wait, follow.wait_for(has_more)).await {
            Ok(Ok(synced)) if synced.upto >= from => {
                let upto = synced.upto;
                drop(synced);
                self.shared
                    .read((from, upto), messages_max.min(BATCH_MESSAGES_MAX))
            }
            Ok(Ok(_)) => Err(sync_failed()),
            Ok(Err(_)) => Err(BusError::Closed),
            Err(_) => Ok(Vec::new()),
        }
    }

    pub(super) fn state(&self) -> LogState {
        let created_at_micros = self.shared.created_at_micros;
        let first = self.shared.state.lock().first();
        LogState {
            created_at_micros,
            first,
            last: self.flusher.synced().upto.max(first - 1),
        }
    }

    pub(super) fn release(&self, upto: u64) {
        let now = self.shared.clock.now();
        self.shared.state.lock().release(upto, self.shared.bytes_max, now);
    }
}

fn sync_failed() -> BusError {
    BusError::Disk(std::io::Error::other("a sync of the log failed"))
}

impl Target for Shared {
    fn begin(&self) -> (Unsynced, u64) {
        let mut state = self.state.lock();
        (state.files.take_unsynced(), state.next - 1)
    }
}

impl State {
    /// The oldest sequence there is.
    fn first(&self) -> u64 {
        self.files.row().front().map_or(self.next, |oldest| oldest.first)
    }

    fn publish(
        &mut self,
        messages: &[Message],
        bytes_max: u64,
        now: Timestamp,
    ) -> Result<Vec<u64>, BusError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let begun = self.next;
        let places = self.write(messages, &mut batch, bytes_max, now);
        if places.is_err() {
            // Nothing is stored, so nothing is known.
            self.duplicates.forget_from(begun);
            self.next = begun;
        }
        self.batch = batch;
        places
    }

    fn write(
        &mut self,
        messages: &[Message],
        batch: &mut Vec<u8>,
        bytes_max: u64,
        now: Timestamp,
    ) -> Result<Vec<u64>, BusError> {
        let begun = self.next;
        let mut places = Vec::with_capacity(messages.len());
        for message in messages {
            let place = if let Some(known) = self.duplicates.place(&message.id) {
                known
            } else {
                write_message(batch, self.next, message).map_err(|error| {
                    BusError::Disk(std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
                })?;
                self.duplicates.note(&message.id, self.next);
                self.next += 1;
                self.next - 1
            };
            places.push(place);
        }
        if batch.is_empty() {
            return Ok(places);
        }
        let bytes = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        if self.files.bytes().saturating_add(bytes) > bytes_max {
            return Err(BusError::Full);
        }
        self.files.append(batch, begun).map_err(BusError::Disk)?;
        if let Some(newest) = self.files.newest_mut() {
            newest.notes.written_at = now;
        }
        self.duplicates.shrink();
        Ok(places)
    }

    fn release(&mut self, upto: u64, bytes_max: u64, now: Timestamp) {
        let age_max_ms = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
        loop {
            let row = self.files.row();
            let (Some(oldest), Some(second)) = (row.front(), row.get(1)) else {
                break;
            };
            let aged = now.millis_since(oldest.notes.written_at) > age_max_ms;
            if second.first > upto.saturating_add(1) || !(aged || self.files.bytes() > bytes_max / 2) {
                break;
            }
            self.files.drop_oldest();
        }
        if self.files.bytes() > bytes_max / 2 && upto + 1 == self.next && self.files.row().len() == 1 {
            // A log of one file has no leading ones.
            match self.files.roll(self.next) {
                Ok(()) => self.files.drop_oldest(),
                Err(problem) => warn!(
                    error = &problem as &dyn std::error::Error,
                    "the log cannot begin a new segment"
                ),
            }
        }
    }
}
