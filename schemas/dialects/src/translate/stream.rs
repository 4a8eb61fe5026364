//! One stream on its way from an upstream's dialect to a caller's: decoder, processor, names, encoder. What passes is
//! noted on the way, as the caller sees it; an answer whose calls cannot be made does not end.

use bytes::{Bytes, BytesMut};

use super::arguments::Watch;
use super::names::Renamer;
use super::{Decoder, Encoder, Way};
use crate::chat::usage::UsageFacts;
use crate::processor::Processor;
use crate::sse;
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Sink};

/// Most bytes of an answer that are kept to be repeated at its end: as many as a whole answer may have.
const KEPT_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// What was heard of an answer so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// Something generated.
    pub content: bool,
    /// A call.
    pub called: bool,
    /// That it has ended.
    pub finished: bool,
    /// Bytes of generated text.
    pub output_bytes: u64,
    /// The usage that was told, of each class the last figure.
    pub usage: Option<UsageFacts>,
}

impl Heard {
    fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Usage(usage) => self.usage = UsageFacts::after(self.usage, *usage),
            Event::Call { .. } => self.called = true,
            Event::Finish { .. } => self.finished = true,
            _ => {}
        }
        self.content |= event.is_content();
        let bytes = u64::try_from(event.output_bytes()).unwrap_or(u64::MAX);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }
}

/// A stream that is being translated.
#[derive(Debug)]
pub struct Translation {
    decoder: Decoder,
    processor: Option<Processor>,
    watch: Watch,
    renamer: Renamer,
    encoder: Encoder,
    heard: Heard,
    /// Estimated tokens of the prompt.
    prompt_tokens: u64,
    over: Option<Result<(), Broken>>,
}

impl Translation {
    /// Of an answer on this way.
    pub fn new(way: Way) -> Self {
        let processor = way.processor();
        Self {
            decoder: Decoder::new(way.upstream),
            processor,
            watch: Watch::default(),
            renamer: Renamer::new(way.names),
            prompt_tokens: way.reply.prompt_tokens,
            encoder: Encoder::new(way.caller, way.reply),
            heard: Heard::default(),
            over: None,
        }
    }

    /// The decoder, and where its events go.
    fn parts<'t>(&'t mut self, out: &'t mut BytesMut) -> (&'t mut Decoder, Line<'t>) {
        let line = Line {
            processor: self.processor.as_mut(),
            watch: &mut self.watch,
            renamer: &mut self.renamer,
            writer: Writer {
                encoder: &mut self.encoder,
                heard: &mut self.heard,
                out,
            },
        };
        (&mut self.decoder, line)
    }

    /// Reads one event of the upstream that is no comment, and appends whole events for the caller to `out`. After an
    /// error nothing more is read.
    pub fn event(&mut self, event: &sse::Event, out: &mut BytesMut) -> Result<(), Broken> {
        let (decoder, mut line) = self.parts(out);
        decoder.event(event, &mut line)?;
        if self.watch.failed() {
            return Err(Broken::Malformed);
        }
        if self.encoder.kept_bytes() > KEPT_BYTES_MAX {
            return Err(Broken::TooLarge);
        }
        Ok(())
    }

    /// The upstream's stream is over: whether the answer is whole. May be asked again.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Broken> {
        if let Some(over) = &self.over {
            return over.clone();
        }
        let (decoder, mut line) = self.parts(out);
        let over = match decoder.finish(&mut line) {
            Ok(()) if self.watch.failed() => Err(Broken::Malformed),
            // What ends a stream for the caller must not stand behind an answer that has none.
            Ok(()) if !self.heard.finished => Err(Broken::Cut),
            over => over,
        };
        if over.is_ok() {
            self.complete_usage(out);
        }
        self.over = Some(over.clone());
        over
    }

    /// Ends the answer where it is, as one that ran into its maximum of tokens, with this usage. [`Self::finish`] then
    /// gives `Ok`.
    pub fn stop(&mut self, usage: UsageFacts, out: &mut BytesMut) {
        let mut line = Line {
            processor: self.processor.as_mut(),
            watch: &mut self.watch,
            renamer: &mut self.renamer,
            writer: Writer {
                encoder: &mut self.encoder,
                heard: &mut self.heard,
                out,
            },
        };
        line.event(Event::Usage(usage));
        if !line.writer.heard.finished {
            line.event(Event::Finish {
                finish: Finish::Length,
                stop_sequence: None,
            });
        }
        self.over = Some(Ok(()));
    }

    /// Has the caller told in full what the upstream told in part or not at all: as it is in the books.
    fn complete_usage(&mut self, out: &mut BytesMut) {
        let told = self.heard.usage;
        let whole = told.unwrap_or_default();
        let whole = whole.completed(self.prompt_tokens, self.heard.output_bytes);
        self.heard.usage = told.map(|_| whole);
        if Some(whole) != told {
            self.encoder.event(Event::Usage(whole), out);
        }
    }

    /// True once the upstream's end mark was read.
    pub fn ended(&self) -> bool {
        self.decoder.ended()
    }

    /// True once the answer is over: what may follow is its usage or its end mark, or nothing.
    pub fn finished(&self) -> bool {
        self.heard.finished || self.decoder.finished()
    }

    /// What ends the stream for the caller. Called once, after [`Self::finish`] gave `Ok`.
    pub fn end(&mut self) -> Bytes {
        self.encoder.end()
    }

    /// What was heard so far.
    pub const fn heard(&self) -> &Heard {
        &self.heard
    }
}

/// Where the decoder's events go.
struct Line<'l> {
    processor: Option<&'l mut Processor>,
    watch: &'l mut Watch,
    renamer: &'l mut Renamer,
    writer: Writer<'l>,
}

impl Sink for Line<'_> {
    fn event(&mut self, event: Event<'_>) {
        let (watch, renamer, writer) = (&mut *self.watch, &mut *self.renamer, &mut self.writer);
        let mut passed = |event: Event<'_>| {
            if watch.passes(&event) {
                renamer.event(event, writer);
            }
        };
        match &mut self.processor {
            Some(processor) => processor.event(event, &mut passed),
            None => passed(event),
        }
    }
}

/// Notes an event and writes it.
struct Writer<'w> {
    encoder: &'w mut Encoder,
    heard: &'w mut Heard,
    out: &'w mut BytesMut,
}

impl Sink for Writer<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.heard.note(&event);
        // The caller is told what counts.
        let event = match (event, self.heard.usage) {
            (Event::Usage(_), None) => return,
            (Event::Usage(_), Some(usage)) => Event::Usage(usage),
            (event, _) => event,
        };
        self.encoder.event(event, self.out);
    }
}
