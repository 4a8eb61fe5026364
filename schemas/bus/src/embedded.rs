//! The bus inside one process: a log and KV buckets on disk, questions in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::{Bus, BusError, Change, Entry, Expected, Kv, LogState, Message, Question, Revision, Stored};

/// How to open the embedded bus.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most bytes of the log; beyond it publishing answers [`BusError::Full`].
    pub log_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log_bytes_max: 4 << 30,
        }
    }
}

/// The bus inside one process.
pub struct Embedded {
    _options: Options,
}

impl Embedded {
    /// Opens or makes the bus of a directory and takes it for this process.
    pub fn open(dir: &Path, options: Options, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BusError> {
        let _ = (dir, options, clock);
        unimplemented!()
    }

    /// Lets old messages at and before `upto` go.
    pub fn release(&self, upto: u64) {
        let _ = upto;
        unimplemented!()
    }
}

#[async_trait]
impl Bus for Embedded {
    async fn publish(&self, _messages: &[Message]) -> Result<Vec<u64>, BusError> {
        unimplemented!()
    }

    async fn read(&self, _from: u64, _messages_max: usize, _wait: Duration) -> Result<Vec<Stored>, BusError> {
        unimplemented!()
    }

    async fn state(&self) -> Result<LogState, BusError> {
        unimplemented!()
    }

    async fn ask(&self, _subject: &str, _question: Bytes, _wait: Duration) -> Result<Bytes, BusError> {
        unimplemented!()
    }

    async fn serve(&self, _subject: &str) -> Result<mpsc::Receiver<Question>, BusError> {
        unimplemented!()
    }
}

#[async_trait]
impl Kv for Embedded {
    async fn get(&self, _bucket: &str, _key: &str) -> Result<Option<Entry>, BusError> {
        unimplemented!()
    }

    async fn put(
        &self,
        _bucket: &str,
        _key: &str,
        _value: Bytes,
        _expected: Expected,
    ) -> Result<Revision, BusError> {
        unimplemented!()
    }

    async fn delete(&self, _bucket: &str, _key: &str, _expected: Expected) -> Result<Revision, BusError> {
        unimplemented!()
    }

    async fn watch(&self, _bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        unimplemented!()
    }
}
