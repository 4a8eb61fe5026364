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
    /// The bus is shutting down.
    #[error("the bus is closed")]
    Closed,
}
