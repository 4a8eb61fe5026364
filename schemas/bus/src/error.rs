//! Why the bus did not do what was asked. Each variant says what the caller can do.

/// An operation on the bus failed.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The newest revision is not the expected one: read again and decide again.
    #[error("the record was changed by somebody else")]
    Conflict,
    /// The stream is full: keep the message and try later.
    #[error("the stream is full")]
    Full,
    /// Nobody answers this query.
    #[error("nobody answers {subject}")]
    NoResponder {
        /// Where the query went.
        subject: String,
    },
    /// No answer in time. A write may still be applied later.
    #[error("the bus did not answer in time")]
    Timeout,
    /// The stream begins after the sequence asked for: `first` is the oldest there is.
    #[error("the stream begins at {first}")]
    Trimmed {
        /// The oldest sequence there is.
        first: u64,
    },
    /// The disk refused.
    #[error("the log on disk failed")]
    Disk(#[source] std::io::Error),
    /// The bus is away (not connected, no leader, no responder). What was asked was not done, or, where an
    /// id or a revision goes with it, may be asked again without harm.
    #[error("the bus is away")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The bus refuses what was asked, and will refuse it again: permissions, size, a missing feature.
    #[error("the bus refuses: {reason}")]
    Refused {
        /// What it says, and what to do about it.
        reason: String,
    },
    /// The bus is shutting down.
    #[error("the bus is closed")]
    Closed,
}
