//! Streamed answers of OpenAI chat completions, to and from the superset.

use bytes::{Bytes, BytesMut};

use crate::sse;
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Reply, Sink};

/// Reads an upstream's stream.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// Reads one event. Comments are not given to it. After an error nothing more is read.
    pub fn event(&mut self, _event: &sse::Event, _sink: &mut dyn Sink) -> Result<(), Broken> {
        Err(Broken::Malformed)
    }

    /// True once the stream's own end mark was read.
    pub const fn ended(&self) -> bool {
        false
    }

    /// The stream is over: whether the answer is whole.
    pub fn finish(&mut self, _sink: &mut dyn Sink) -> Result<(), Broken> {
        Err(Broken::Cut)
    }
}

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
