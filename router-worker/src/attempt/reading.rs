//! Reads an upstream's stream on its way to the caller: pure, fed with pieces of any size. What comes before
//! the first content is held; then bytes pass as they came, but for the model's name, the usage the caller
//! did not ask for, comments, broken events and the end mark.
//!
//! Guarantees: the same stream gives the same events to the caller wherever it is cut; pieces that are taken
//! together are one buffer; no more is held than one event and [`HELD_BYTES_MAX`].

use bytes::{BufMut, Bytes, BytesMut};
use dialects::chat::chunk::skimmer::Skimmer;
use dialects::chat::chunk::{self, Chunk};
use dialects::chat::error;
use dialects::chat::usage::UsageFacts;
use dialects::sse::{Error as FramingError, Event, Framer};

use crate::fault::{Fault, Refusal, Unusable};

/// Most bytes that are held before the first content.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// Name of the event by which some upstreams tell that they failed.
const ERROR_EVENT: &[u8] = b"error";

/// How a stream is read.
pub(super) struct Manner<'a> {
    /// What the answer's `model` must say, as a JSON string.
    pub(super) model_json: &'a [u8],
    /// The caller asked for usage.
    pub(super) include_usage: bool,
    /// Longest event, in bytes.
    pub(super) event_bytes_max: usize,
}

/// A stream as far as it was read.
pub(super) struct Reading<'a> {
    manner: Manner<'a>,
    framer: Framer,
    skimmer: Skimmer,
    output: Output,
    stage: Stage,
    /// A data event came with the last piece.
    progressed: bool,
    /// The end mark was read.
    done: bool,
    finished_choices: usize,
    usage: Option<UsageFacts>,
    /// Bytes of generated text in the output not yet taken.
    output_bytes: u64,
    dropped: u64,
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    /// Nothing was generated: all is held.
    Held,
    /// A choice ended without anything generated.
    Ended,
    /// Something was generated.
    Content,
}

/// What is to be sent, gathered without a copy where one event is all.
#[derive(Default)]
struct Output {
    whole: Option<Bytes>,
    gathered: BytesMut,
}

impl Output {
    fn len(&self) -> usize {
        self.whole.as_ref().map_or(0, Bytes::len) + self.gathered.len()
    }

    fn pass(&mut self, bytes: Bytes) {
        if self.len() == 0 {
            self.whole = Some(bytes);
        } else {
            self.buffer().extend_from_slice(&bytes);
        }
    }

    /// The buffer to append to.
    fn buffer(&mut self) -> &mut BytesMut {
        if let Some(whole) = self.whole.take() {
            self.gathered.extend_from_slice(&whole);
        }
        &mut self.gathered
    }

    fn take(&mut self) -> Bytes {
        self.whole
            .take()
            .unwrap_or_else(|| self.gathered.split().freeze())
    }
}

impl<'a> Reading<'a> {
    pub(super) fn new(manner: Manner<'a>) -> Self {
        Self {
            framer: Framer::new(manner.event_bytes_max),
            skimmer: Skimmer::default(),
            manner,
            output: Output::default(),
            stage: Stage::Held,
            progressed: false,
            done: false,
            finished_choices: 0,
            usage: None,
            output_bytes: 0,
            dropped: 0,
        }
    }

    /// Reads the next piece of the stream. After an error nothing more is read.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<(), Fault> {
        self.progressed = false;
        self.push_more(piece)
    }

    /// The same with a piece that counts as one with the last.
    pub(super) fn push_more(&mut self, piece: Bytes) -> Result<(), Fault> {
        self.framer.push(piece);
        while let Some(event) = self.framer.next().map_err(too_long)? {
            self.event(&event)?;
        }
        self.check_held()
    }

    /// The stream has ended: reads what is left of it.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        while let Some(event) = self.framer.finish().map_err(too_long)? {
            self.event(&event)?;
        }
        Ok(())
    }

    /// What the caller is to get now, and the bytes of generated text in it; `None` while all is held.
    pub(super) fn take(&mut self) -> Option<(Bytes, u64)> {
        if !self.begun() || self.output.len() == 0 {
            return None;
        }
        Some((self.output.take(), std::mem::take(&mut self.output_bytes)))
    }

    /// Bytes that were read and not yet taken.
    pub(super) fn bytes(&self) -> usize {
        self.output.len()
    }

    /// The end mark was read.
    pub(super) const fn done(&self) -> bool {
        self.done
    }

    /// Something generated, or the end of a choice, was read.
    pub(super) fn begun(&self) -> bool {
        self.stage > Stage::Held
    }

    /// Something generated was read.
    pub(super) fn content(&self) -> bool {
        self.stage == Stage::Content
    }

    /// Choices that have ended.
    pub(super) const fn finished_choices(&self) -> usize {
        self.finished_choices
    }

    /// The last piece completed an event with data.
    pub(super) const fn progressed(&self) -> bool {
        self.progressed
    }

    /// The usage that was told last.
    pub(super) const fn usage(&self) -> Option<UsageFacts> {
        self.usage
    }

    /// Events that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn event(&mut self, event: &Event) -> Result<(), Fault> {
        if event.is_comment() || self.done {
            return Ok(());
        }
        if chunk::is_done(&event.data) {
            self.done = true;
            self.progressed = true;
            return Ok(());
        }
        if event.name.as_deref().is_some_and(|name| name == ERROR_EVENT) {
            let told = error::parse_upstream_error(&event.data).unwrap_or_default();
            return Err(Fault::from(Refusal::inside(told)));
        }
        let Ok(mut chunk) = self.skimmer.skim(&event.data) else {
            self.dropped += 1;
            return Ok(());
        };
        self.progressed = true;
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage);
        }
        if let Some(error) = chunk.error.take() {
            return Err(Fault::from(Refusal::inside(error)));
        }
        if !chunk.listed && chunk.usage.is_none() {
            // No chunk: whatever it says is not for callers.
            self.dropped += 1;
            return Ok(());
        }
        if chunk.finish.is_some_and(chunk::Finish::failed) {
            return Err(Fault::Unusable(Unusable::Aborted));
        }
        self.finished_choices += chunk.finished_choices;
        if chunk.content {
            self.stage = Stage::Content;
        } else if chunk.finish.is_some() && self.stage == Stage::Held {
            self.stage = Stage::Ended;
        }
        self.output_bytes += u64::try_from(chunk.output_bytes).unwrap_or(u64::MAX);
        if self.manner.include_usage || !chunk::usage_only(&chunk) {
            self.pass(event, &chunk);
        }
        Ok(())
    }

    /// Appends the event to the output, in the one form that every client reads.
    fn pass(&mut self, event: &Event, chunk: &Chunk) {
        let other_model = chunk
            .model_span
            .clone()
            .filter(|span| event.data.get(span.clone()) != Some(self.manner.model_json));
        if other_model.is_none() && plain(event) {
            self.output.pass(event.raw.clone());
            return;
        }
        let out = self.output.buffer();
        out.reserve(event.data.len() + self.manner.model_json.len() + 8);
        out.put_slice(b"data: ");
        let start = out.len();
        let parts =
            other_model.and_then(|span| Some((event.data.get(..span.start)?, event.data.get(span.end..)?)));
        match parts {
            Some((before, after)) => {
                out.put_slice(before);
                out.put_slice(self.manner.model_json);
                out.put_slice(after);
            }
            None => out.put_slice(&event.data),
        }
        if !plain(event) {
            // A line end in valid JSON is only ever space between its parts.
            for byte in out
                .iter_mut()
                .skip(start)
                .filter(|byte| matches!(byte, b'\n' | b'\r'))
            {
                *byte = b' ';
            }
        }
        out.put_slice(b"\n\n");
    }

    fn check_held(&self) -> Result<(), Fault> {
        if !self.begun() && self.output.len() > HELD_BYTES_MAX {
            return Err(Fault::Unusable(Unusable::TooLarge));
        }
        Ok(())
    }
}

/// True when the event is `data: `, one line of JSON and a blank line, and nothing else.
fn plain(event: &Event) -> bool {
    event.raw.len() == event.data.len() + 8
        && event.raw.starts_with(b"data: ")
        && event.raw.ends_with(b"\n\n")
}

fn too_long(_: FramingError) -> Fault {
    Fault::Unusable(Unusable::TooLarge)
}

#[cfg(test)]
mod tests;
