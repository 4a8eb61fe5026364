//! What travels: messages to publish and messages as the log stored them.

use bytes::Bytes;

/// A message for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where it belongs (`schemas::subject::event`).
    pub subject: String,
    /// The event id: published twice within the duplicate window, it is stored once.
    pub id: String,
    /// The envelope's bytes.
    pub payload: Bytes,
}

/// A message at its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its place: dense, from 1.
    pub sequence: u64,
    /// What was published.
    pub message: Message,
}

/// The state of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// Microseconds since the epoch at which the log was made: a younger log is another log.
    pub created_at_micros: i64,
    /// The oldest sequence there is; `last + 1` when it is empty.
    pub first: u64,
    /// The newest sequence; 0 when nothing was ever stored.
    pub last: u64,
}

/// A revision of a KV record: grows over the whole bucket.
pub type Revision = u64;

/// A KV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its value; `None` marks a deletion.
    pub value: Option<Bytes>,
    /// When it was written, as a place in the bucket.
    pub revision: Revision,
}

/// What a write expects to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there.
    Any,
    /// Nothing, or a deletion.
    Absent,
    /// This revision.
    Revision(Revision),
}
