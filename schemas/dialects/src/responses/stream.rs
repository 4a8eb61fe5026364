//! Streamed answers of OpenAI Responses, to and from the superset.

use bytes::{Bytes, BytesMut};

use crate::sse;
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Reply, Sink};

pub(in crate::responses) mod frame;
mod open;
mod queue;
pub(in crate::responses) mod reading;
pub(in crate::responses) mod writing;

/// Reads an upstream's stream. Servers that number nothing, that tell arguments or texts only when they are whole, or
/// that end a truncated answer with `response.completed` are understood.
#[derive(Debug, Default)]
pub struct Decoder(reading::Reader);

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
        if self.0.ended() { Ok(()) } else { Err(Broken::Cut) }
    }
}

/// Writes a stream for a caller: `response.created` and `response.in_progress`, items that open in the order of their
/// numbers and close with all that their pieces said, and one of `response.completed` and `response.incomplete`, which
/// repeats them. Ids are made of the reply's: `resp_…`, and `msg_…`, `rs_…`, `fc_…`, `ctc_…` with the item's number.
#[derive(Debug)]
pub struct Encoder(writing::Writer);

impl Encoder {
    /// For one answer.
    pub fn new(reply: Reply) -> Self {
        Self(writing::Writer::new(reply))
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        self.0.event(event);
        let written = self.0.written();
        out.extend_from_slice(written);
        written.clear();
    }

    /// Bytes of generated text so far: all of it is kept, to be repeated at the end.
    pub const fn kept_bytes(&self) -> u64 {
        self.0.output_bytes()
    }

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`].
    pub fn end(&mut self) -> Bytes {
        self.0.end();
        std::mem::take(self.0.written()).into()
    }
}

#[cfg(test)]
pub(in crate::responses) mod tests;
