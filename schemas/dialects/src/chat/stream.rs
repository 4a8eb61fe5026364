//! Streamed answers of OpenAI chat completions, to and from the superset.

mod calls;
mod decode;
mod encode;
mod like;

use bytes::{Bytes, BytesMut};

use crate::sse;
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Reply, Sink};

/// Reads an upstream's stream, of whatever server: calls without numbers or ids, names in pieces, arguments that are
/// no text, ends that do not fit the turn. Arguments of functions begin as an object does; an upstream that writes
/// something else ends as [`Broken::Malformed`] unless it can be told what was meant.
#[derive(Debug, Default)]
pub struct Decoder(decode::Machine);

impl Decoder {
    /// Reads one event. Comments are not given to it. After an error nothing more is read.
    pub fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.0.event(event, sink)
    }

    /// True once the stream's own end mark was read.
    pub const fn ended(&self) -> bool {
        self.0.ended()
    }

    /// The stream is over: whether the answer is whole.
    pub fn finish(&mut self, _sink: &mut dyn Sink) -> Result<(), Broken> {
        self.0.whole()
    }
}

/// Writes a stream for a caller: a chunk with the role, a chunk per piece, and at the end the chunk with the reason,
/// the usage where it was asked for, and the end mark.
#[derive(Debug)]
pub struct Encoder(encode::Machine);

impl Encoder {
    /// For one answer.
    #[expect(clippy::needless_pass_by_value, reason = "every encoder takes it")]
    pub fn new(reply: Reply) -> Self {
        Self(encode::Machine::new(&reply))
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        self.0.event(event, out);
    }

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`].
    pub fn end(&mut self) -> Bytes {
        self.0.end()
    }
}

#[cfg(test)]
mod tests;
