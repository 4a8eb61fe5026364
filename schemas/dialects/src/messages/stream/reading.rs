//! Reads the events of an upstream's Messages stream into those of the superset.

use crate::chat::error::parse_upstream_error;
use crate::messages::frame::{Block, Delta, Frame, Message, Told, text, word};
use crate::messages::usage::Tally;
use crate::messages::{call, reason};
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Sink};
use crate::superset::request::ProofMaker;

/// What was read of a stream.
#[derive(Debug, Default)]
pub(super) struct Reading {
    progress: Progress,
    /// Blocks that are open, by their indexes.
    open: Vec<(u64, Open)>,
    ids: call::Ids,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Progress {
    #[default]
    Fresh,
    Begun,
    Finished,
    Ended,
}

/// A block that is open.
#[derive(Debug)]
enum Open {
    Text,
    Thinking,
    Call {
        number: u32,
        /// Its input as the block began, if there was any.
        input: Option<String>,
        /// It got arguments.
        told: bool,
    },
    /// One of no interest to other dialects.
    Other,
}

impl Reading {
    pub(super) const fn ended(&self) -> bool {
        matches!(self.progress, Progress::Ended)
    }

    pub(super) const fn finish(&self) -> Result<(), Broken> {
        match self.progress {
            Progress::Finished | Progress::Ended => Ok(()),
            Progress::Fresh => Err(Broken::Empty),
            Progress::Begun => Err(Broken::Cut),
        }
    }

    pub(super) fn event(&mut self, data: &[u8], sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.ended() {
            return Ok(());
        }
        let frame = Frame::read(data).ok_or(Broken::Malformed)?;
        let kind = word(frame.kind);
        match (kind, self.progress) {
            ("error", _) => Err(told(data)),
            ("", _) if frame.error.is_some() => Err(told(data)),
            ("ping", _) => Ok(()),
            ("message_start", Progress::Fresh) => {
                self.start(&frame.message.unwrap_or_default(), sink);
                Ok(())
            }
            ("content_block_start", Progress::Begun) => {
                let index = frame.index.ok_or(Broken::Malformed)?;
                self.block_start(index, &frame.content_block.unwrap_or_default(), sink)
            }
            ("content_block_delta", Progress::Begun) => {
                let index = frame.index.ok_or(Broken::Malformed)?;
                self.block_delta(index, &frame.delta.unwrap_or_default(), sink)
            }
            ("content_block_stop", Progress::Begun) => {
                let index = frame.index.ok_or(Broken::Malformed)?;
                self.block_stop(index, sink)
            }
            ("message_delta", Progress::Begun | Progress::Finished) => {
                self.message_delta(frame.usage, &frame.delta.unwrap_or_default(), sink)
            }
            ("message_stop", Progress::Finished) => {
                self.progress = Progress::Ended;
                Ok(())
            }
            ("message_stop", Progress::Begun) => Err(Broken::Cut),
            ("message_start" | "message_delta" | "message_stop" | "", _) => Err(Broken::Malformed),
            (block, _) if block.starts_with("content_block_") => Err(Broken::Malformed),
            _ => Ok(()),
        }
    }

    fn start(&mut self, message: &Message<'_>, sink: &mut dyn Sink) {
        self.progress = Progress::Begun;
        self.ids = call::Ids::of(message.id);
        sink.event(Event::Begin);
        if let Some(facts) = self.tally.start(message.usage) {
            sink.event(Event::Usage(facts));
        }
    }

    fn block_start(&mut self, index: u64, block: &Block<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.open.iter().any(|(open, _)| *open == index) {
            return Err(Broken::Malformed);
        }
        let opened = match word(block.kind) {
            "text" => {
                piece(block.text, sink, |text| Event::Text(text))?;
                Open::Text
            }
            "thinking" => {
                piece(block.thinking, sink, |text| Event::Thinking(text))?;
                piece(block.signature, sink, |text| proof(text, false))?;
                Open::Thinking
            }
            "redacted_thinking" => {
                piece(block.data, sink, |text| proof(text, true))?;
                Open::Other
            }
            "tool_use" => self.call(block, sink)?,
            _ => Open::Other,
        };
        self.open.push((index, opened));
        Ok(())
    }

    fn call(&mut self, block: &Block<'_>, sink: &mut dyn Sink) -> Result<Open, Broken> {
        let (number, id) = self.ids.next(block.id)?;
        let name = text(block.name).filter(|name| !name.is_empty());
        sink.event(Event::Call {
            call: number,
            id: &id,
            name: &name.ok_or(Broken::Malformed)?,
            namespace: None,
            custom: false,
        });
        let input = block
            .input
            .map(|raw| raw.get().to_owned())
            .filter(|input| input.starts_with('{'));
        Ok(Open::Call {
            number,
            input,
            told: false,
        })
    }

    fn block_delta(&mut self, index: u64, delta: &Delta<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let open = self.open.iter_mut().find(|(open, _)| *open == index);
        let (_, open) = open.ok_or(Broken::Malformed)?;
        match (word(delta.kind), open) {
            ("text_delta", Open::Text) => piece(delta.text, sink, |text| Event::Text(text)),
            ("thinking_delta", Open::Thinking) => piece(delta.thinking, sink, |text| Event::Thinking(text)),
            ("signature_delta", Open::Thinking) => piece(delta.signature, sink, |text| proof(text, false)),
            ("input_json_delta", Open::Call { number, told, .. }) => {
                let json = text(delta.partial_json).ok_or(Broken::Malformed)?;
                let begins = json.trim_ascii_start();
                // What begins as no object is of no use to anybody.
                if !*told && !begins.is_empty() && !begins.starts_with('{') {
                    return Err(Broken::Malformed);
                }
                *told |= !begins.is_empty();
                let call = *number;
                piece(delta.partial_json, sink, |piece| Event::Arguments { call, piece })
            }
            (
                "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta",
                Open::Text | Open::Thinking | Open::Call { .. },
            ) => Err(Broken::Malformed),
            _ => Ok(()),
        }
    }

    fn block_stop(&mut self, index: u64, sink: &mut dyn Sink) -> Result<(), Broken> {
        let at = self.open.iter().position(|(open, _)| *open == index);
        let (_, open) = self.open.remove(at.ok_or(Broken::Malformed)?);
        close(&open, sink);
        Ok(())
    }

    fn message_delta(
        &mut self,
        usage: Told<'_>,
        delta: &Delta<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Broken> {
        if let Some(facts) = self.tally.read(usage) {
            sink.event(Event::Usage(facts));
        }
        let why = word(delta.stop_reason);
        if why.is_empty() || self.progress == Progress::Finished {
            return Ok(());
        }
        for (_, open) in self.open.drain(..) {
            close(&open, sink);
        }
        let sequence = text(delta.stop_sequence).ok_or(Broken::Malformed)?;
        sink.event(Event::Finish {
            finish: reason::read(why, self.ids.any()),
            stop_sequence: Some(&*sequence).filter(|sequence| !sequence.is_empty()),
        });
        self.progress = Progress::Finished;
        Ok(())
    }
}

/// A block closes: a call without arguments has those it began with, or none.
fn close(open: &Open, sink: &mut dyn Sink) {
    if let Open::Call {
        number,
        input,
        told: false,
    } = open
    {
        sink.event(Event::Arguments {
            call: *number,
            piece: input.as_deref().unwrap_or("{}"),
        });
    }
}

/// Tells a string, unless it is empty.
fn piece(
    raw: Told<'_>,
    sink: &mut dyn Sink,
    event: impl for<'a> FnOnce(&'a str) -> Event<'a>,
) -> Result<(), Broken> {
    let text = text(raw).ok_or(Broken::Malformed)?;
    if !text.is_empty() {
        sink.event(event(&text));
    }
    Ok(())
}

const fn proof(text: &str, redacted: bool) -> Event<'_> {
    Event::Proof {
        maker: ProofMaker::Anthropic,
        text,
        redacted,
    }
}

fn told(data: &[u8]) -> Broken {
    Broken::Told(Box::new(parse_upstream_error(data).unwrap_or_default()))
}
