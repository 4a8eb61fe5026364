//! The bus inside one process: the default product, not a stub. The log and the KV buckets are on disk in the
//! segment format, counters of minutes in a file, questions and counters of seconds in memory.
//!
//! A message that was published survives the process at once and the machine within 20 ms; readers see it
//! when it survives the machine, so that no cursor can ever be ahead of the log. A KV write returns when it
//! survives the machine.

mod counters;
mod kv;
mod log;
mod questions;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemas::time::Timestamp;
use tokio::sync::mpsc;

use self::counters::Table;
use self::kv::{Buckets, Written};
use self::log::Log;
use self::questions::Questions;
use crate::clock::Clock;
use crate::counter::{Counters, Slice};
use crate::{Bus, BusError, Change, Entry, Expected, Kv, LogState, Message, Question, Revision, Stored};

/// How to open the embedded bus.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Most bytes of the log; beyond it publishing answers [`BusError::Full`].
    pub log_bytes_max: u64,
    /// Most bytes of the responses that callers let us keep, all of which are in memory; beyond, the oldest go.
    pub responses_bytes_max: u64,
    /// Most bytes of what lies under idempotency keys, all of which is in memory; beyond, writing answers
    /// [`BusError::Full`].
    pub idempotency_bytes_max: u64,
    /// Most event ids among which a repeated publish is recognized.
    pub duplicates_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log_bytes_max: 4 << 30,
            responses_bytes_max: 32 << 20,
            idempotency_bytes_max: 256 << 20,
            duplicates_max: 100_000,
        }
    }
}

/// The bus inside one process.
pub struct Embedded {
    log: Log,
    buckets: Buckets,
    questions: Questions,
    counters: Table,
    _lock: File,
}

impl Embedded {
    /// Opens or makes the bus of a directory and takes it for this process; [`BusError::Disk`] with
    /// [`io::ErrorKind::ResourceBusy`] when another process has it.
    pub fn open(dir: &Path, options: Options, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BusError> {
        std::fs::create_dir_all(dir).map_err(BusError::Disk)?;
        let lock = lock(dir).map_err(BusError::Disk)?;
        let Options {
            log_bytes_max,
            responses_bytes_max,
            idempotency_bytes_max,
            duplicates_max,
        } = options;
        let counters = Table::open(dir.join("minutes"), Arc::clone(&clock)).map_err(BusError::Disk)?;
        let log = Log::open(
            &dir.join("log"),
            log_bytes_max,
            duplicates_max,
            Arc::clone(&clock),
        )
        .map_err(BusError::Disk)?;
        let bounds = kv::Bounds {
            responses_bytes_max,
            idempotency_bytes_max,
        };
        let buckets = Buckets::open(&dir.join("kv"), bounds, clock).map_err(BusError::Disk)?;
        Ok(Arc::new(Self {
            log,
            buckets,
            questions: Questions::default(),
            counters,
            _lock: lock,
        }))
    }

    /// The ledger has everything up to `upto`: whole leading files of the log before it go once the log is
    /// more than half full, or when they are a week old.
    pub fn release(&self, upto: u64) {
        self.log.release(upto);
    }
}

fn lock(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("bus.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("{} is in use by another process", dir.display()),
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[async_trait]
impl Bus for Embedded {
    async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        self.log.publish(messages)
    }

    async fn read(&self, from: u64, messages_max: usize, wait: Duration) -> Result<Vec<Stored>, BusError> {
        self.log.read(from, messages_max, wait).await
    }

    async fn state(&self) -> Result<LogState, BusError> {
        Ok(self.log.state())
    }

    async fn ask(&self, subject: &str, question: Bytes, wait: Duration) -> Result<Bytes, BusError> {
        self.questions.ask(subject, question, wait).await
    }

    async fn serve(&self, subject: &str) -> Result<mpsc::Receiver<Question>, BusError> {
        Ok(self.questions.serve(subject))
    }
}

#[async_trait]
impl Kv for Embedded {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        Ok(self.buckets.get(bucket, key))
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let value = Written::for_good(value);
        self.buckets.write((bucket, key), Some(value), expected).await
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        let value = Written::living(value, life);
        self.buckets.write(place, Some(value), expected).await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.buckets.write((bucket, key), None, expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        Ok(self.buckets.watch(bucket))
    }
}

#[async_trait]
impl Counters for Embedded {
    async fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
        self.counters.add(slice, name, amount)
    }

    async fn since(&self, slice: Slice) -> Result<Option<Timestamp>, BusError> {
        Ok(self.counters.since(slice))
    }
}

#[cfg(test)]
mod tests;
