//! Streamed answers of Anthropic Messages, to and from the superset.
//!
//! The encoder cannot write an illegal sequence: `message_start` once and first, one block open at a time, indexes
//! without gaps, `message_delta` and `message_stop` once and last. What comes for a block that is not open is held
//! back until its turn.

use bytes::{Bytes, BytesMut};

use self::blocks::{Blocks, Call};
use self::reading::Reading;
use super::usage::Figures;
use super::{proof, reason};
use crate::chat::usage::UsageFacts;
use crate::sse;
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Reply, Sink};

pub(crate) mod arguments;
mod blocks;
mod reading;
mod write;

/// Reads an upstream's stream.
#[derive(Debug, Default)]
pub struct Decoder(Reading);

impl Decoder {
    /// Reads one event. Comments are not given to it. After an error nothing more is read.
    pub fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.0.event(&event.data, sink)
    }

    /// True once the stream's own end mark was read.
    pub const fn ended(&self) -> bool {
        self.0.ended()
    }

    /// The stream is over: whether the answer is whole. One that told its stop reason is, with or without an end mark.
    pub fn finish(&mut self, _sink: &mut dyn Sink) -> Result<(), Broken> {
        self.0.finish()
    }
}

/// Writes a stream for a caller.
#[derive(Debug)]
pub struct Encoder {
    reply: Reply,
    progress: Progress,
    blocks: Blocks,
    usage: Option<UsageFacts>,
    finish: Option<(Finish, Option<String>)>,
    /// The answer has calls.
    calls: bool,
    /// The answer says no in words.
    refused: bool,
    /// Bytes of generated text.
    output_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Fresh,
    Begun,
    Ended,
}

impl Encoder {
    /// For one answer.
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            progress: Progress::Fresh,
            blocks: Blocks::default(),
            usage: None,
            finish: None,
            calls: false,
            refused: false,
            output_bytes: 0,
        }
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        if let Event::Usage(facts) = event {
            self.usage = Some(facts);
        }
        if self.progress == Progress::Ended || self.finish.is_some() {
            return;
        }
        if self.progress == Progress::Fresh {
            self.progress = Progress::Begun;
            write::message_start(&self.reply, out);
        }
        self.output_bytes = self.output_bytes.saturating_add(event.output_bytes());
        match event {
            Event::Begin | Event::Usage(_) => {}
            Event::Thinking(_) | Event::Proof { .. } if self.reply.hides_thinking => {}
            Event::Thinking(text) => self.blocks.thinking(text, out),
            Event::Proof {
                maker,
                text,
                redacted: true,
            } => self.blocks.redacted(proof::write(maker, text), out),
            Event::Proof { maker, text, .. } => self.blocks.signature(proof::write(maker, text), out),
            Event::Text(text) => self.blocks.text(text, out),
            Event::Refusal(text) => {
                self.refused = true;
                self.blocks.text(text, out);
            }
            Event::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => {
                self.calls = true;
                let call = Call::begin(call, id, (namespace, name), custom);
                self.blocks.call(call, out);
            }
            Event::Arguments { call, piece } => self.blocks.arguments(call, piece, out),
            Event::CallProof { call, maker, text } => self.blocks.call_proof(call, maker, text, out),
            Event::Finish {
                finish,
                stop_sequence,
            } => {
                self.blocks.finish(out);
                self.finish = Some((finish, stop_sequence.map(ToOwned::to_owned)));
            }
        }
    }

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`]; without it,
    /// there is nothing to be said: an answer that did not end has no end.
    pub fn end(&mut self) -> Bytes {
        let Some((finish, stop_sequence)) = self.finish.take() else {
            return Bytes::new();
        };
        self.progress = Progress::Ended;
        let word = reason::write(finish, self.calls, self.refused);
        let stop_sequence = stop_sequence.filter(|_| word == "stop_sequence");
        let figures = Figures::of(self.usage, &self.reply, self.output_bytes);
        let mut out = BytesMut::new();
        write::message_end(word, stop_sequence.as_deref(), &figures, &mut out);
        out.freeze()
    }
}

#[cfg(test)]
mod tests;
