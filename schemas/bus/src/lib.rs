//! How it travels: the ports through which roles meet, and their embedded adapters.
//!
//! ```text
//!  gateway ──append──► Spool ──publish──► Bus (durable log) ──read──► ledger ──mark──► Kv ──trim──► Spool
//!  gateway ──dispatch─► Dispatcher ─► router-worker           gateway ──ask──► Bus ──► ledger
//!  files, command line ──put──► Kv (catalogue) ──watch──► every role's snapshot
//! ```
//!
//! A port states its promise in its documentation and is proven by one function per promise in
//! `conformance`, run by every adapter. The embedded adapters are the default product, not stubs.

pub mod clock;
pub mod counter;
pub mod dispatch;
pub mod embedded;
pub mod error;
pub mod follow;
mod json;
pub mod layout;
pub mod message;
pub mod mint;
pub mod nats;
pub mod passage;
pub mod pools;
pub mod publisher;
pub mod registry;
pub mod remote;
pub mod revisions;
pub mod segment;
mod share;
pub mod spool;
mod sync;
pub mod waiting;
pub mod watching;
pub mod wire;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(test, feature = "conformance"))]
pub mod faulty;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

pub use error::BusError;
pub use message::{Entry, Expected, LogState, Message, Revision, Stored};

/// Most messages in one publish or read.
pub const BATCH_MESSAGES_MAX: usize = 512;

/// The durable log, and questions to whoever listens.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Stores messages in order and returns their places. A message whose id is in the duplicate window is
    /// stored once and gets its first place. After an error any prefix may have been stored: publish again.
    async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError>;

    /// Messages at and after `from`, in order, at most `messages_max`; waits up to `wait` for the first. A number
    /// is left out only where the log has lost or dropped that message for good. Reading takes nothing away and keeps no state: the reader's own cursor says where.
    async fn read(&self, from: u64, messages_max: usize, wait: Duration) -> Result<Vec<Stored>, BusError>;

    /// Where the log begins and ends.
    async fn state(&self) -> Result<LogState, BusError>;

    /// Asks whoever serves `subject` and waits for one answer.
    async fn ask(&self, subject: &str, question: Bytes, wait: Duration) -> Result<Bytes, BusError>;

    /// Serves questions to `subject` from now on; several servers share them.
    async fn serve(&self, subject: &str) -> Result<mpsc::Receiver<Question>, BusError>;
}

/// A question and the way back.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub payload: Bytes,
    /// Takes the answer; dropping it leaves the asker to his timeout.
    pub reply: tokio::sync::oneshot::Sender<Bytes>,
}

/// Small facts every role may know.
#[async_trait]
pub trait Kv: Send + Sync {
    /// The newest value; `None` when there is none or it was deleted.
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError>;

    /// Writes if what is there is `expected`, else [`BusError::Conflict`]. Durable when it returns.
    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError>;

    /// As [`Kv::put`], for a value that lives so long and is then as if it had never been written, whether anybody is
    /// there or not. The lifetime is the value's: what is written over it has its own, or none. It is at least a second,
    /// and may last a second longer than was asked. Watches are not told of its end. An adapter that keeps no
    /// lifetimes refuses.
    async fn put_for(
        &self,
        (bucket, key): (&str, &str),
        _value: Bytes,
        _expected: Expected,
        _life: Duration,
    ) -> Result<Revision, BusError> {
        Err(BusError::Refused {
            reason: format!("no value of {bucket:?} can have a lifetime here, nor {key:?}"),
        })
    }

    /// Deletes if what is there is `expected`; deleting nothing is fine with [`Expected::Any`].
    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError>;

    /// Every current entry of the bucket, then a marker ([`Change::Current`]), then every change in order; of a key that
    /// changes again before it is told, the newest value may stand for those before.
    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError>;
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An entry as it stands, or a change (deletions have no value).
    Entry(Entry),
    /// Everything there was has been told; changes follow.
    Current,
}
