//! What passes from an upstream of Messages to a caller of Messages, looked at where it stands: one pass, no copy of
//! any text. Blocks, deltas and events of tomorrow pass untouched; what breaks the order of the dialect does not.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::{Block, Delta, Frame, Message, Told, text, word};
use super::usage::Tally;
use crate::chat::answer::{Answer, Error};
use crate::chat::chunk::Finish;
use crate::chat::error::{UpstreamError, parse_upstream_error};
use crate::passage::hidden::{Hidden, list_edit, number_edit};
use crate::passage::{Foreign, Seen};
use crate::splice::Edit;
use crate::sse;

pub(crate) mod history;

/// Looks at the events of one stream.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Thoughts that were left out, for a caller who does not want to see them.
    hidden: Option<Hidden>,
    progress: Progress,
    /// Indexes of the blocks that are open.
    open: Vec<u64>,
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

impl Skimmer {
    /// Leaves thoughts out.
    #[must_use]
    pub fn without_thoughts(mut self) -> Self {
        self.hidden = Some(Hidden::default());
        self
    }

    /// The blocks that are open, by the number that the caller knows them by, in rising order.
    pub(crate) fn open_blocks(&self) -> Vec<u64> {
        let mut open: Vec<u64> = match &self.hidden {
            None => self.open.clone(),
            Some(hidden) => {
                let shown = self.open.iter().filter(|index| !hidden.hides(**index));
                shown.map(|index| hidden.renumbered(*index)).collect()
            }
        };
        open.sort_unstable();
        open
    }

    /// Looks at the next event that is no comment.
    pub fn skim(&mut self, event: &sse::Event) -> Result<Seen, Foreign> {
        let data: &[u8] = &event.data;
        let frame = Frame::read(data).ok_or(Foreign)?;
        let (index, thinks) = (frame.index, frame.content_block.as_ref().is_some_and(thinks));
        let mut seen = self.look(data, frame)?;
        if let (Some(hidden), Some(index)) = (&mut self.hidden, index) {
            if thinks {
                hidden.hide(index);
            }
            seen.hidden = hidden.hides(index);
            if !seen.hidden {
                seen.edits.extend(renumbered(hidden, data));
            }
        }
        Ok(seen)
    }

    fn look(&mut self, data: &[u8], frame: Frame<'_>) -> Result<Seen, Foreign> {
        match (word(frame.kind), self.progress) {
            ("error", _) => Ok(failed(data)),
            ("", _) if frame.error.is_some() => Ok(failed(data)),
            ("message_start", Progress::Fresh) => {
                self.progress = Progress::Begun;
                Ok(self.start(data, &frame.message.unwrap_or_default()))
            }
            ("content_block_start", Progress::Begun) => {
                self.block_start(frame.index, &frame.content_block.unwrap_or_default())
            }
            ("content_block_delta", Progress::Begun) => {
                let open = frame.index.is_some_and(|index| self.open.contains(&index));
                let delta = frame.delta.filter(|_| open).ok_or(Foreign)?;
                Ok(block_delta(&delta))
            }
            ("content_block_stop", Progress::Begun) => {
                let at = self.open.iter().position(|open| Some(*open) == frame.index);
                self.open.swap_remove(at.ok_or(Foreign)?);
                Ok(Seen::default())
            }
            ("message_delta", Progress::Begun | Progress::Finished) => {
                Ok(self.message_delta(frame.usage, &frame.delta.unwrap_or_default()))
            }
            ("message_stop", Progress::Finished) => {
                self.progress = Progress::Ended;
                Ok(Seen {
                    end: true,
                    ..Seen::default()
                })
            }
            (_, Progress::Ended)
            | (
                ""
                | "message_start"
                | "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop",
                _,
            ) => Err(Foreign),
            _ => Ok(Seen::default()),
        }
    }

    fn start(&mut self, data: &[u8], message: &Message<'_>) -> Seen {
        Seen {
            model_span: span(data, message.model),
            usage: self.tally.start(message.usage),
            ..Seen::default()
        }
    }

    fn block_start(&mut self, index: Option<u64>, block: &Block<'_>) -> Result<Seen, Foreign> {
        let index = index.filter(|index| !self.open.contains(index)).ok_or(Foreign)?;
        self.open.push(index);
        let output_bytes = block_bytes(block);
        // Texts and thoughts begin empty; whatever else there is, is something.
        let content = output_bytes > 0 || !matches!(word(block.kind), "text" | "thinking");
        Ok(Seen {
            content,
            called: word(block.kind).ends_with("tool_use"),
            output_bytes,
            ..Seen::default()
        })
    }

    fn message_delta(&mut self, usage: Told<'_>, delta: &Delta<'_>) -> Seen {
        let finished = delta.stop_reason.is_some();
        if finished {
            self.progress = Progress::Finished;
        }
        Seen {
            usage: self.tally.read(usage),
            finished,
            ..Seen::default()
        }
    }
}

/// True for a block of thoughts, readable or not.
fn thinks(block: &Block<'_>) -> bool {
    matches!(word(block.kind), "thinking" | "redacted_thinking")
}

#[derive(Deserialize)]
struct Indexed<'a> {
    #[serde(borrow, default)]
    index: Told<'a>,
}

/// What gives the block of an event the number it has without the thoughts before it.
fn renumbered(hidden: &Hidden, data: &[u8]) -> Option<Edit> {
    let event: Indexed<'_> = serde_json::from_slice(data).ok()?;
    number_edit(data, event.index, |index| hidden.renumbered(index))
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow, default)]
    content: Told<'a>,
}

/// What takes the thoughts out of a whole answer.
pub fn thoughts(body: &[u8]) -> Option<Edit> {
    let message: Whole<'_> = serde_json::from_slice(body).ok()?;
    list_edit(body, message.content, |block| {
        serde_json::from_str(block.get()).is_ok_and(|block: Block<'_>| thinks(&block))
    })
}

fn block_delta(delta: &Delta<'_>) -> Seen {
    let output_bytes = bytes(delta.text) + bytes(delta.thinking) + bytes(delta.partial_json);
    let plain = matches!(
        word(delta.kind),
        "text_delta" | "thinking_delta" | "input_json_delta"
    );
    Seen {
        content: output_bytes > 0 || !plain,
        output_bytes,
        ..Seen::default()
    }
}

fn failed(data: &[u8]) -> Seen {
    Seen {
        error: Some(parse_upstream_error(data).unwrap_or_default()),
        ..Seen::default()
    }
}

/// Reads a whole answer that passes.
pub fn skim_answer(body: &[u8]) -> Result<Answer, Error> {
    let whole = std::str::from_utf8(body).map_err(|_| Error::NotUtf8)?;
    let message: Message<'_> = serde_json::from_str(whole).map_err(Error::Malformed)?;
    let failed = word(message.kind) == "error" || message.error.is_some();
    let error: Option<UpstreamError> = failed.then(|| parse_upstream_error(body).unwrap_or_default());
    let blocks = message.content.as_deref().unwrap_or_default();
    let finish = finish(word(message.stop_reason));
    Ok(Answer {
        model_span: span(body, message.model),
        choices: usize::from(message.content.is_some()),
        content: blocks
            .iter()
            .any(|block| block_bytes(block) > 0 || !matches!(word(block.kind), "text" | "thinking")),
        output_bytes: blocks.iter().map(whole_bytes).sum(),
        finish,
        usage: Tally::default().read(message.usage),
        error,
        ..Answer::default()
    })
}

/// Bytes of generated text in a block as it begins.
fn block_bytes(block: &Block<'_>) -> usize {
    bytes(block.text) + bytes(block.thinking) + bytes(block.name)
}

/// Bytes of generated text in a whole block.
fn whole_bytes(block: &Block<'_>) -> usize {
    let input = block.input.map_or(0, |raw| raw.get().len());
    block_bytes(block) + input
}

/// Bytes of a string as UTF-8.
fn bytes(raw: Told<'_>) -> usize {
    text(raw).map_or(0, |text| text.len())
}

fn finish(word: &str) -> Option<Finish> {
    Some(match word {
        "" => return None,
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "tool_use" => Finish::ToolCalls,
        "refusal" => Finish::ContentFilter,
        _ => Finish::Other,
    })
}

/// Where a string stands in the text it was read from.
fn span(whole: &[u8], raw: Option<&RawValue>) -> Option<Range<usize>> {
    let raw = raw.map(RawValue::get).filter(|raw| raw.starts_with('"'))?;
    let start = raw.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    Some(start..start.checked_add(raw.len())?)
}

#[cfg(test)]
mod tests;
