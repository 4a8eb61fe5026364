//! The gateway's own outbox: what "answered = billed" stands on. A waybill is in the spool before the last
//! byte of its answer leaves; it stays until the ledger's mark says that the books have it.
//!
//! Records are intents (a request is about to run; unnumbered) and events (numbered from 1 without holes, the
//! envelope as it is published). An append is one write. A record survives the process at once and the machine
//! within 20 ms; readers see only what survives the machine, so that nothing is published under a number that
//! could be given away again. A request whose intent was never followed by its waybill is an [`Orphan`].

mod ages;
mod read;
mod recover;
mod trim;
mod write;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use schemas::event::Fact;
use schemas::event::request::{RequestAccepted, RequestSettled};
use schemas::event::spool::SpoolLost;
use schemas::id::{EventId, RequestId, SpoolId, TenantId};
use schemas::limit::{Reservation, SPOOL_RESERVATION_BYTES};
use schemas::time::Timestamp;
use tokio::sync::Notify;

use self::ages::Ages;
use crate::Message;
use crate::clock::Clock;
use crate::mint::Mint;
use crate::segment::files::{Files, Unsynced};
use crate::sync::{Flusher, Target};

/// What a settled request survives before its answer's end mark leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// The death of the machine.
    Machine,
}

/// How to open a spool.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory, made when missing.
    pub dir: PathBuf,
    /// The cluster's name, a part of the source.
    pub cluster: String,
    /// Most bytes of records and reservations together, after which no new request is let in.
    pub bytes_max: u64,
    /// What a settled request survives.
    pub durability: Durability,
}

/// Why the spool did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has it.
    #[error("the spool {} is in use by another process", dir.display())]
    Locked {
        /// Its directory.
        dir: PathBuf,
    },
    /// Its directory holds records but not the id under which they were written.
    #[error("the spool {} has lost its file spool.id", dir.display())]
    Identity {
        /// Its directory.
        dir: PathBuf,
    },
    /// The disk refused; nothing was appended.
    #[error("the spool on disk failed")]
    Disk(#[from] std::io::Error),
    /// The record does not serialize.
    #[error("the record cannot be serialized")]
    Record(#[from] serde_json::Error),
    /// The record is larger than a record may be.
    #[error(transparent)]
    TooLarge(#[from] crate::segment::TooLarge),
}

/// No room for another running request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the spool is full")]
pub struct Full;

/// What a restart found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Requests that were running when the process died, oldest first. They stay orphans until settled.
    pub orphans: Vec<Orphan>,
    /// Ranges that nobody can read any more; already appended as events.
    pub lost: Vec<SpoolLost>,
}

/// A request that was admitted and never settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its intent.
    pub accepted: RequestAccepted,
}

/// A numbered record that is in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its place: from 1, without holes.
    pub sequence: u64,
    /// The event's id.
    pub id: EventId,
}

/// Figures for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Bytes on disk.
    pub bytes: u64,
    /// Most bytes of records and reservations together.
    pub bytes_max: u64,
    /// Bytes held by running requests.
    pub reserved_bytes: u64,
    /// Running requests that hold bytes.
    pub reservations_open: u64,
    /// Age of the oldest event that the ledger has not marked, within a second; 0 when there is none.
    pub oldest_seconds: u64,
    /// Newest sequence.
    pub appended: u64,
    /// Newest sequence up to which the ledger has everything.
    pub marked: u64,
    /// Events published once more since the start, because the log had lost them.
    pub republished: u64,
    /// The ledger has two events under one place of this spool, which is therefore not trimmed.
    pub contested: bool,
}

/// A spool; cheap to clone. The directory is free again when the last clone is gone.
#[derive(Clone)]
pub struct Spool {
    // Before `shared`: the thread ends before the directory is unlocked.
    flusher: Arc<Flusher>,
    shared: Arc<Shared>,
}

struct Shared {
    id: SpoolId,
    source: String,
    /// The source as a JSON string.
    source_json: String,
    bytes_max: u64,
    durability: Durability,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    state: Mutex<State>,
    /// Bytes on disk, as of the last write.
    bytes: AtomicU64,
    reserved_bytes: AtomicU64,
    reservations_open: AtomicU64,
    republished: AtomicU64,
    contested: AtomicBool,
    /// Nothing after this sequence is dropped, whatever is marked.
    kept_after: AtomicU64,
    /// Where the publisher reads on.
    reading: Mutex<Option<read::Reading>>,
    changed: Notify,
    _lock: File,
}

/// What a segment's owner notes about it.
#[derive(Debug, Default)]
struct Notes {
    /// Newest sequence in this file or before it.
    last: u64,
    /// Intents here that are not settled.
    intents_open: u32,
}

struct State {
    files: Files<Notes>,
    /// The next sequence.
    next: u64,
    marked: u64,
    open: HashMap<RequestId, Intent>,
    ages: Ages,
    /// Used again by each append.
    record: Vec<u8>,
}

/// Where an intent that is not settled stands.
#[derive(Debug, Clone, Copy)]
struct Intent {
    ordinal: u64,
    offset: u64,
    bytes: usize,
}

impl Spool {
    /// Opens or makes the spool of a directory and takes it for this process.
    pub fn open(
        options: Options,
        clock: Arc<dyn Clock>,
        mint: Arc<Mint>,
    ) -> Result<(Self, Recovered), Error> {
        recover::open(options, clock, mint)
    }

    /// Goes on with the number after `taken`, the newest one that the ledger knows of this spool: files that lost
    /// their end, or come from a copy, would give it away again, and the mark of then would pass over the events of
    /// now. What the ledger does not have of the numbers left out is declared lost. To be called before anything is
    /// appended; does nothing on a spool that holds all of its events.
    pub fn begin_after(&self, taken: u64) -> Result<(), Error> {
        let gone = self.shared.state.lock().begin_after(taken)?;
        let Some(gone) = gone else {
            return Ok(());
        };
        let hole = SpoolLost {
            spool: self.id().clone(),
            from: *gone.start(),
            to: *gone.end(),
            cause: "missing_end".to_owned(),
        };
        recover::declare(self, &[hole])
    }

    /// Its id, minted with the directory.
    pub fn id(&self) -> &SpoolId {
        &self.shared.id
    }

    /// The source of its events.
    pub fn source(&self) -> &str {
        &self.shared.source
    }

    /// Holds room for the records of one request. A full spool refuses here and nowhere else.
    pub fn reserve(&self) -> Result<Reservation, Full> {
        let shared = &*self.shared;
        let held = shared
            .reserved_bytes
            .fetch_add(SPOOL_RESERVATION_BYTES, Ordering::AcqRel);
        let wanted = shared
            .bytes
            .load(Ordering::Acquire)
            .saturating_add(held)
            .saturating_add(SPOOL_RESERVATION_BYTES);
        if wanted > shared.bytes_max {
            shared
                .reserved_bytes
                .fetch_sub(SPOOL_RESERVATION_BYTES, Ordering::AcqRel);
            return Err(Full);
        }
        shared.reservations_open.fetch_add(1, Ordering::AcqRel);
        Ok(Reservation {
            spool_bytes: SPOOL_RESERVATION_BYTES,
        })
    }

    /// Whether a request could be let in now.
    pub fn has_room(&self) -> bool {
        let held = self.shared.reserved_bytes.load(Ordering::Acquire);
        let taken = self.shared.bytes.load(Ordering::Acquire).saturating_add(held);
        taken.saturating_add(SPOOL_RESERVATION_BYTES) <= self.shared.bytes_max
            && !self.flusher.synced().failed
    }

    /// Gives a reservation back.
    pub fn give_back(&self, reservation: Reservation) {
        if reservation.spool_bytes > 0 {
            self.shared
                .reserved_bytes
                .fetch_sub(reservation.spool_bytes, Ordering::AcqRel);
            self.shared.reservations_open.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that a request is about to run: an unnumbered record. Refused once a sync has failed, since what
    /// runs then might never be billed.
    pub fn intend(&self, intent: &RequestAccepted) -> Result<(), Error> {
        if self.flusher.synced().failed {
            return Err(Error::Disk(std::io::Error::other("a sync of the spool failed")));
        }
        self.shared.intend(intent)?;
        self.flusher.written();
        Ok(())
    }

    /// Appends a fact as a numbered envelope.
    pub fn append<F: Fact>(&self, tenant: &TenantId, now: Timestamp, fact: &F) -> Result<Appended, Error> {
        let id = self.shared.mint.event_id(now);
        self.append_as(id, tenant, now, fact)
    }

    /// As [`Spool::append`], under an id that is made of what the fact is about: said again, it is the same event.
    pub fn append_as<F: Fact>(
        &self,
        id: EventId,
        tenant: &TenantId,
        now: Timestamp,
        fact: &F,
    ) -> Result<Appended, Error> {
        let appended = self.shared.append(id, (tenant, now), fact, None)?;
        self.flusher.written();
        Ok(appended)
    }

    /// Appends a waybill and closes the intent of its request.
    pub fn settle(&self, now: Timestamp, settled: &RequestSettled) -> Result<Appended, Error> {
        let id = self.shared.mint.event_id(now);
        let appended = self
            .shared
            .append(id, (&settled.tenant, now), settled, Some(settled.request_id))?;
        self.flusher.written();
        Ok(appended)
    }

    /// Returns once the record is as durable as the options say: at once for [`Durability::Process`]. Under
    /// [`Durability::Machine`] it never returns after a sync has failed, for the end mark must not leave then.
    pub async fn durable(&self, sequence: u64) {
        match self.shared.durability {
            Durability::Process => {}
            Durability::Machine => {
                if !self.flusher.reach(sequence).await {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Events at and after `from`, in order, at most `messages_max`: those that survive the machine. One reader
    /// at a time reads fast: it goes on where the last read ended.
    pub fn read(&self, from: u64, messages_max: usize) -> Result<Vec<(u64, Message)>, Error> {
        self.shared.read(from, self.readable(), messages_max)
    }

    /// Newest sequence that [`Spool::read`] shows.
    pub fn readable(&self) -> u64 {
        self.flusher.synced().upto
    }

    /// Notes that the ledger has everything up to `mark`, and drops the leading files that nobody needs: every
    /// event in them is marked and every request that began in them is settled.
    pub fn trim(&self, mark: u64) {
        self.shared.trim(mark);
        self.flusher.written();
    }

    /// Events after `sequence` stay, whatever the ledger's mark says, until this is said again with another one:
    /// somebody else needs them at the next start. Nobody does as long as nothing is said. Drops what may go now.
    pub fn keep_after(&self, sequence: u64) {
        let before = self.shared.kept_after.swap(sequence, Ordering::AcqRel);
        if before < sequence {
            self.shared.trim(0);
        }
    }

    /// Newest sequence.
    pub fn appended(&self) -> u64 {
        self.shared.state.lock().next - 1
    }

    /// Newest sequence up to which the ledger has everything.
    pub fn marked(&self) -> u64 {
        self.shared.state.lock().marked
    }

    /// Figures for metrics.
    pub fn gauges(&self) -> Gauges {
        let shared = &*self.shared;
        let state = shared.state.lock();
        let unmarked = state.marked + 1;
        let oldest = if unmarked < state.next {
            state.ages.of(unmarked)
        } else {
            None
        };
        Gauges {
            bytes: shared.bytes.load(Ordering::Acquire),
            bytes_max: shared.bytes_max,
            reserved_bytes: shared.reserved_bytes.load(Ordering::Acquire),
            reservations_open: shared.reservations_open.load(Ordering::Acquire),
            oldest_seconds: oldest.map_or(0, |time| shared.clock.now().millis_since(time) / 1_000),
            appended: state.next - 1,
            marked: state.marked,
            republished: shared.republished.load(Ordering::Relaxed),
            contested: shared.contested.load(Ordering::Relaxed),
        }
    }

    /// Counts events that were published once more.
    pub(crate) fn note_republished(&self, events: usize) {
        let events = u64::try_from(events).unwrap_or(u64::MAX);
        self.shared.republished.fetch_add(events, Ordering::Relaxed);
    }

    /// Notes whether the ledger has two events under one place of this spool.
    pub(crate) fn set_contested(&self, contested: bool) {
        self.shared.contested.store(contested, Ordering::Relaxed);
    }

    /// Returns when there may be more to read than at the last call; for the one reader.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Target for Shared {
    fn begin(&self) -> (Unsynced, u64) {
        let mut state = self.state.lock();
        (state.files.take_unsynced(), state.next - 1)
    }

    fn done(&self) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
