//! Streamed answers of Gemini's generateContent, to and from the superset.

use crate::sse;
use crate::superset::answer::Broken;
use crate::superset::event::Sink;

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
