//! Reads an upstream's stream on its way to the caller: pure, fed with pieces of any size. What comes before
//! the first content is held. Where both sides speak the same dialect, bytes then pass as they came, but for the
//! model's name, numbers and ids of calls that are left out, the reason of a choice that called tools and says that it
//! just stopped, thoughts and usage that the caller did not ask for, comments, broken events and the end mark; else
//! events are written anew.
//!
//! Guarantees: the same stream gives the same events to the caller wherever it is cut; pieces that are taken
//! together are one buffer; no more is held than one event, [`HELD_BYTES_MAX`] and [`ECHOES`] of the
//! request; what ends the stream for the caller is never among what is taken, but in [`Reading::tail`].

mod stopping;

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use dialects::chat::shares::Shares;
use dialects::chat::usage::UsageFacts;
use dialects::dialect::Dialect;
use dialects::passage::request::Asked;
use dialects::passage::{Seen, Skimmer, end_mark, may_call, private, speaks};
use dialects::responses::passage::follow::Follower;
use dialects::sse::{Error as FramingError, Event, Framer};
use dialects::superset::answer::Broken;
use dialects::translate::Way;
use dialects::translate::stream::Translation;
use serde::de::IgnoredAny;

use crate::fault::{Fault, Refusal, Unusable};

/// Most bytes that are held before the first content, beside those that repeat the request.
const HELD_BYTES_MAX: usize = 1024 * 1024;
/// How much of the request events before the first content may repeat: two repeat it, and escapes may double it.
const ECHOES: usize = 4;

/// How a stream is read.
pub(super) struct Manner<'a> {
    /// What the caller speaks.
    pub(super) caller: Dialect,
    /// How the answer becomes one for him; `None` where it passes.
    pub(super) way: Option<&'a Way>,
    /// What the answer's `model` must say, as a JSON string.
    pub(super) model_json: &'a [u8],
    /// The caller asked for usage.
    pub(super) include_usage: bool,
    /// The caller does not want to see thoughts.
    pub(super) hides_thinking: bool,
    /// The upstream tells who served behind it, which is not for callers.
    pub(super) names_providers: bool,
    /// Longest event, in bytes.
    pub(super) event_bytes_max: usize,
    /// Tokens of all its answers after which it is ended, because it holds no more of its limits.
    pub(super) output_tokens_held: Option<u64>,
    /// Estimated tokens of the prompt.
    pub(super) prompt_tokens: u64,
    /// The caller's own body.
    pub(super) asked: &'a [u8],
    /// Size of the request, in bytes: events before the first content may repeat it.
    pub(super) request_bytes: usize,
}

/// A stream as far as it was read.
pub(super) struct Reading<'a> {
    manner: Manner<'a>,
    framer: Framer,
    course: Course,
    output: Output,
    stage: Stage,
    /// A data event came with the last piece.
    progressed: bool,
    /// Whether more of it is read.
    over: Over,
    /// A tool was called.
    called: bool,
    finished_choices: usize,
    told: Shares,
    /// Bytes of generated text in the output not yet taken.
    output_bytes: u64,
    /// Bytes of generated text that the translation has written in all.
    heard_bytes: u64,
    /// Bytes of generated text in all.
    generated_bytes: u64,
    /// Events in which something was generated.
    pieces: u64,
    dropped: u64,
}

/// What is done with events.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and there is one per stream"
)]
enum Course {
    /// They pass.
    Passing {
        skimmer: Skimmer,
        /// The event that ended the stream, where it is one of the upstream's own.
        end: Option<Bytes>,
        /// The data of the last event that passed, of a stream that may have to be ended here.
        last: Bytes,
        /// What was said so far, of such a stream of Responses.
        follower: Option<Box<Follower>>,
    },
    /// They are written anew.
    Translated(Box<Translation>),
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing was generated: all is held.
    Held,
    /// A choice ended without anything generated.
    Ended,
    /// Something was generated.
    Content,
}

/// Whether a stream is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// It is not.
    Runs,
    /// Its end mark was read.
    Ended,
    /// It was ended here.
    Stopped,
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
        let course = match manner.way {
            Some(way) => Course::Translated(Box::new(Translation::new(way.clone()))),
            None => Course::Passing {
                skimmer: if manner.hides_thinking {
                    Skimmer::new(manner.caller).without_thoughts()
                } else {
                    Skimmer::new(manner.caller)
                },
                end: None,
                last: Bytes::new(),
                follower: (manner.caller == Dialect::Responses && manner.output_tokens_held.is_some())
                    .then(Box::default),
            },
        };
        Self {
            framer: Framer::new(manner.event_bytes_max),
            course,
            manner,
            output: Output::default(),
            stage: Stage::Held,
            progressed: false,
            over: Over::Runs,
            called: false,
            finished_choices: 0,
            told: Shares::default(),
            output_bytes: 0,
            heard_bytes: 0,
            generated_bytes: 0,
            pieces: 0,
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
            if self.exceeds() && self.stop() {
                break;
            }
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

    /// Whether the answer may end here: its end mark was read, or nothing but the mark is missing. `choices` counts
    /// those that were asked for.
    pub(super) fn may_end(&mut self, choices: impl FnOnce() -> usize) -> Result<(), Fault> {
        match &mut self.course {
            Course::Translated(translation) => {
                let over = translation.finish(self.output.buffer());
                self.hear();
                over.map_err(Fault::from)
            }
            Course::Passing { .. } if self.over != Over::Runs => Ok(()),
            Course::Passing { .. } => {
                let ended = self.finished_choices > 0
                    && end_mark(self.manner.caller).is_some()
                    && self.finished_choices >= choices();
                if ended { Ok(()) } else { Err(Fault::Cut) }
            }
        }
    }

    /// What ends the stream for the caller. Asked for once, of an answer that may end.
    pub(super) fn tail(&mut self) -> Bytes {
        match &mut self.course {
            Course::Translated(translation) => translation.end(),
            Course::Passing { end, .. } => end
                .take()
                .unwrap_or_else(|| Bytes::from_static(end_mark(self.manner.caller).unwrap_or_default())),
        }
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
        !matches!(self.over, Over::Runs)
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

    /// The usage that was told, of each class the last figure; of choices that are told apart their sum.
    pub(super) fn usage(&self) -> Option<UsageFacts> {
        let manner = &self.manner;
        self.told
            .usage(|| Asked::read(manner.caller, manner.asked, manner.prompt_tokens))
    }

    /// Usage was told of all choices that were heard of.
    pub(super) fn usage_is_whole(&self) -> bool {
        self.told.is_whole()
    }

    /// Events that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn event(&mut self, event: &Event) -> Result<(), Fault> {
        if event.is_comment() || self.done() {
            return Ok(());
        }
        match &mut self.course {
            Course::Passing { skimmer, .. } => {
                if let Ok(seen) = skimmer.skim(event) {
                    return self.passes(event, seen);
                }
                self.drop(event)
            }
            Course::Translated(translation) => {
                let read = translation.event(event, self.output.buffer());
                if translation.ended() {
                    self.over = Over::Ended;
                }
                self.hear();
                if matches!(read, Err(Broken::Malformed)) && !is_json(&event.data) {
                    // As where events pass. What is missing for it is found out by what follows.
                    return self.drop(event);
                }
                self.progressed = true;
                read.map_err(Fault::from)
            }
        }
    }

    /// Leaves out an event that cannot be read. One that is damaged may have held a piece of a call, and a call without
    /// it would be another: then the answer is broken, as it is without one that is whole and tells of something
    /// generated in a form, or at a place, that no client understands.
    fn drop(&mut self, event: &Event) -> Result<(), Fault> {
        let data = &event.data;
        let lost = if is_damaged(data) {
            self.called || may_call(data)
        } else {
            speaks(data)
        };
        if lost {
            return Err(Fault::Unusable(Unusable::Malformed));
        }
        self.dropped += 1;
        Ok(())
    }

    /// Takes over what the translation heard.
    fn hear(&mut self) {
        let Course::Translated(translation) = &mut self.course else {
            return;
        };
        let heard = *translation.heard();
        self.pieces += u64::from(heard.output_bytes > self.heard_bytes);
        self.generated_bytes = heard.output_bytes;
        self.output_bytes += heard.output_bytes - self.heard_bytes;
        self.heard_bytes = heard.output_bytes;
        if let Some(usage) = heard.usage {
            self.told = Shares::of(usage);
        }
        self.finished_choices = usize::from(translation.finished());
        self.called = heard.called;
        if heard.content {
            self.stage = Stage::Content;
        } else if heard.finished {
            self.stage = self.stage.max(Stage::Ended);
        }
    }

    fn passes(&mut self, event: &Event, mut seen: Seen) -> Result<(), Fault> {
        self.progressed = true;
        self.told.hear(&seen);
        if let Some(error) = seen.error.take() {
            return Err(Fault::from(Refusal::inside(error)));
        }
        if seen.aborted {
            return Err(Fault::Unusable(Unusable::Aborted));
        }
        self.called |= seen.called;
        self.finished_choices += match self.manner.caller {
            // A choice that says more than once that it ended is one.
            Dialect::Chat | Dialect::Completions => seen.choices_ended,
            _ => usize::from(seen.finished),
        };
        if seen.content {
            self.stage = Stage::Content;
        } else if seen.finished && self.stage == Stage::Held {
            self.stage = Stage::Ended;
        }
        let said = u64::try_from(seen.output_bytes).unwrap_or(u64::MAX);
        self.output_bytes += said;
        self.generated_bytes = self.generated_bytes.saturating_add(said);
        self.pieces += u64::from(said > 0);
        if seen.usage.is_some() || self.manner.names_providers {
            seen.edits
                .extend(private::edits(&event.data, self.manner.names_providers));
            seen.edits.sort_by_key(|edit| edit.range.start);
        }
        if seen.end {
            self.over = Over::Ended;
            self.end(event, &seen);
        } else if !seen.hidden && (self.manner.include_usage || !seen.usage_alone) {
            self.pass(event, &seen);
        }
        Ok(())
    }

    /// Keeps the event that ends the stream, where it is more than a mark.
    fn end(&mut self, event: &Event, seen: &Seen) {
        let Course::Passing { end, .. } = &mut self.course else {
            return;
        };
        if matches!(self.manner.caller, Dialect::Chat | Dialect::Completions) {
            return;
        }
        let mut output = Output::default();
        write(&mut output, event, seen, &self.manner);
        *end = Some(output.take());
    }

    /// Appends the event to the output, in the one form that every client reads.
    fn pass(&mut self, event: &Event, seen: &Seen) {
        if self.manner.output_tokens_held.is_none() {
            write(&mut self.output, event, seen, &self.manner);
            return;
        }
        let mut output = Output::default();
        write(&mut output, event, seen, &self.manner);
        let written = output.take();
        if let Course::Passing { last, follower, .. } = &mut self.course {
            *last = event.data.clone();
            if let Some(follower) = follower {
                follower.event(&written);
            }
        }
        self.output.pass(written);
    }

    fn check_held(&self) -> Result<(), Fault> {
        let echoed = self.manner.request_bytes.saturating_mul(ECHOES);
        if !self.begun() && self.output.len() > HELD_BYTES_MAX.saturating_add(echoed) {
            return Err(Fault::Unusable(Unusable::TooLarge));
        }
        Ok(())
    }
}

/// Appends an event with the model's public name and its edits, in the one form that every client reads.
fn write(output: &mut Output, event: &Event, seen: &Seen, manner: &Manner<'_>) {
    let name = match manner.caller {
        Dialect::Chat | Dialect::Completions => None,
        _ => event.name.as_deref(),
    };
    let plain = plain(event, name);
    let other_model = seen
        .model_span
        .clone()
        .filter(|span| event.data.get(span.clone()) != Some(manner.model_json));
    if other_model.is_none() && seen.edits.is_empty() && plain {
        output.pass(event.raw.clone());
        return;
    }
    let out = output.buffer();
    out.reserve(event.data.len() + manner.model_json.len() + name.map_or(0, <[u8]>::len) + 16);
    if let Some(name) = name {
        out.put_slice(b"event: ");
        out.put_slice(name);
        out.put_u8(b'\n');
    }
    out.put_slice(b"data: ");
    let start = out.len();
    let model = other_model.map(|span| (span, manner.model_json));
    let edits = seen.edits.iter().map(|edit| (edit.range.clone(), &*edit.with));
    put_edited(out, &event.data, (model, edits));
    if !plain {
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

/// A range of some data, and what stands there instead.
type Replaced<'w> = (Range<usize>, &'w [u8]);

/// Appends data with some ranges replaced: one anywhere, and others in rising order.
fn put_edited<'w>(
    out: &mut BytesMut,
    data: &[u8],
    (mut one, others): (Option<Replaced<'w>>, impl Iterator<Item = Replaced<'w>>),
) {
    let mut taken = 0;
    let mut replace = |(range, with): Replaced<'_>| {
        if let Some(kept) = data.get(taken..range.start) {
            out.put_slice(kept);
            out.put_slice(with);
            taken = range.end;
        }
    };
    for other in others {
        if let Some(one) = one.take_if(|one| one.0.start < other.0.start) {
            replace(one);
        }
        replace(other);
    }
    one.into_iter().for_each(&mut replace);
    out.put_slice(data.get(taken..).unwrap_or_default());
}

/// True when the event is its name's line if it has one, `data: `, one line of JSON and a blank line, and nothing else.
fn plain(event: &Event, name: Option<&[u8]>) -> bool {
    let raw: &[u8] = &event.raw;
    let rest = match name {
        None => Some(raw),
        Some(name) => raw
            .strip_prefix(b"event: ")
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix(b"\n")),
    };
    rest.is_some_and(|rest| {
        rest.len() == event.data.len() + 8 && rest.starts_with(b"data: ") && rest.ends_with(b"\n\n")
    })
}

fn is_json(data: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(data).is_ok()
}

/// True for what began as an object and is none.
fn is_damaged(data: &[u8]) -> bool {
    let readable = std::str::from_utf8(data).is_ok() && is_json(data);
    data.trim_ascii_start().starts_with(b"{") && !readable
}

fn too_long(_: FramingError) -> Fault {
    Fault::Unusable(Unusable::TooLarge)
}

#[cfg(test)]
mod tests;
