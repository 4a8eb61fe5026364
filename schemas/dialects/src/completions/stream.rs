//! Streamed answers of OpenAI completions, to and from the superset.

use bytes::{Bytes, BytesMut};

use crate::superset::event::{Event, Reply};

/// Writes a stream for a caller.
#[derive(Debug)]
pub struct Encoder {
    _reply: Reply,
}

impl Encoder {
    /// For one answer.
    pub fn new(reply: Reply) -> Self {
        Self { _reply: reply }
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, _event: Event<'_>, _out: &mut BytesMut) {}

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`].
    pub fn end(&mut self) -> Bytes {
        Bytes::new()
    }
}
