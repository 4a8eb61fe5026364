//! The gateway's own outbox: what "answered = billed" stands on.

use std::path::PathBuf;
use std::sync::Arc;

use schemas::event::Fact;
use schemas::event::request::{RequestAccepted, RequestSettled};
use schemas::event::spool::SpoolLost;
use schemas::id::{EventId, SpoolId, TenantId};
use schemas::limit::Reservation;
use schemas::time::Timestamp;

use crate::Message;
use crate::clock::Clock;
use crate::mint::Mint;

/// What survives what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A record survives the death of the process.
    #[default]
    Process,
    /// A record survives the death of the machine.
    Machine,
}

/// How to open a spool.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory, made when missing.
    pub dir: PathBuf,
    /// The cluster's name, a part of the source.
    pub cluster: String,
    /// Most bytes of records and reservations together.
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
    /// Its directory holds records but not the id they were written under.
    #[error("the spool {} has no readable spool.id", dir.display())]
    Identity {
        /// Its directory.
        dir: PathBuf,
    },
    /// The disk refused.
    #[error("the spool on disk failed")]
    Disk(#[source] std::io::Error),
    /// The record does not serialize, or is larger than a record may be.
    #[error("the record cannot be written")]
    Record(#[source] serde_json::Error),
    /// The record is larger than a record may be.
    #[error("the record has {bytes} bytes, more than a record may have")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// No room for another running request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the spool is full")]
pub struct Full;

/// What a restart found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Requests that were running when the process died.
    pub orphans: Vec<Orphan>,
    /// Ranges that no reader can recover; already declared as events.
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
    /// Its place: dense per spool, from 1.
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
    /// Age of the oldest event that the ledger has not marked; 0 when there is none.
    pub oldest_seconds: u64,
    /// Newest sequence.
    pub appended: u64,
    /// Newest sequence up to which the ledger has everything.
    pub marked: u64,
}

/// A spool; cheap to clone.
#[derive(Clone)]
pub struct Spool {
    shared: Arc<Shared>,
}

struct Shared {
    id: SpoolId,
    source: String,
}

impl Spool {
    /// Opens or makes the spool of a directory and takes it for this process.
    pub fn open(
        options: Options,
        clock: Arc<dyn Clock>,
        mint: Arc<Mint>,
    ) -> Result<(Self, Recovered), Error> {
        let _ = (options, clock, mint);
        unimplemented!()
    }

    /// Its id, minted with the directory.
    pub fn id(&self) -> &SpoolId {
        &self.shared.id
    }

    /// The source of its events.
    pub fn source(&self) -> &str {
        &self.shared.source
    }

    /// Holds room for the records of one request.
    pub fn reserve(&self) -> Result<Reservation, Full> {
        unimplemented!()
    }

    /// Gives a reservation back.
    pub fn give_back(&self, reservation: Reservation) {
        let _ = reservation;
        unimplemented!()
    }

    /// Notes that a request is about to run: an unnumbered record.
    pub fn intend(&self, intent: &RequestAccepted) -> Result<(), Error> {
        let _ = intent;
        unimplemented!()
    }

    /// Appends a fact as a numbered envelope.
    pub fn append<F: Fact>(&self, tenant: &TenantId, now: Timestamp, fact: &F) -> Result<Appended, Error> {
        let _ = (tenant, now, fact);
        unimplemented!()
    }

    /// Appends a waybill and closes the intent of its request.
    pub fn settle(&self, now: Timestamp, settled: &RequestSettled) -> Result<Appended, Error> {
        let _ = (now, settled);
        unimplemented!()
    }

    /// Returns once the record is as durable as the options say.
    pub async fn durable(&self, sequence: u64) {
        let _ = sequence;
        unimplemented!()
    }

    /// Events at and after `from`, in order, at most `messages_max`: those that are on disk for good.
    pub fn read(&self, from: u64, messages_max: usize) -> Result<Vec<(u64, Message)>, Error> {
        let _ = (from, messages_max);
        unimplemented!()
    }

    /// Notes that the ledger has everything up to `mark`, and drops what nobody needs.
    pub fn trim(&self, mark: u64) {
        let _ = mark;
        unimplemented!()
    }

    /// Newest sequence.
    pub fn appended(&self) -> u64 {
        unimplemented!()
    }

    /// Newest sequence up to which the ledger has everything.
    pub fn marked(&self) -> u64 {
        unimplemented!()
    }

    /// Figures for metrics.
    pub fn gauges(&self) -> Gauges {
        unimplemented!()
    }

    /// Returns when there is more to read.
    pub async fn changed(&self) {
        unimplemented!()
    }
}
