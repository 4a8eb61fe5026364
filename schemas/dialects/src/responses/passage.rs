//! Streams and answers of Responses that pass: looked at where they stand. Their last event is the end mark: nothing
//! follows it.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::told::{Details, Item, Kind, Told, text, words};
use super::usage;
use crate::chat::answer::{Answer, Error};
use crate::chat::chunk::Finish;
use crate::chat::error::{UpstreamError, parse_upstream_error};
use crate::passage::hidden::{Hidden, list_edit, number_edit};
use crate::passage::{Foreign, Seen};
use crate::splice::Edit;
use crate::sse;

pub mod follow;
pub(crate) mod history;

/// What some servers send at the end although it is no event of the dialect.
const DONE: &[u8] = b"[DONE]";

/// Reads the events of one passing stream.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Thoughts that were left out, for a caller who does not want to see them.
    hidden: Option<Hidden>,
    /// Bytes that came in pieces of items that are not done.
    in_pieces: usize,
}

/// An event, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
    response: Told<'a>,
    item: Told<'a>,
    delta: Told<'a>,
    error: Told<'a>,
}

/// A response, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Response<'a> {
    #[serde(borrow)]
    model: Told<'a>,
    status: Told<'a>,
    incomplete_details: Option<Details<'a>>,
    usage: Told<'a>,
    error: Told<'a>,
    output: Option<Vec<Item<'a>>>,
}

impl Skimmer {
    /// Leaves thoughts out.
    #[must_use]
    pub fn without_thoughts(mut self) -> Self {
        self.hidden = Some(Hidden::default());
        self
    }

    /// Reads one event that is no comment.
    pub fn skim(&mut self, event: &sse::Event) -> Result<Seen, Foreign> {
        let mut seen = self.look(event)?;
        if let Some(hidden) = &mut self.hidden {
            conceal(hidden, event, &mut seen);
        }
        Ok(seen)
    }

    fn look(&mut self, event: &sse::Event) -> Result<Seen, Foreign> {
        let data = std::str::from_utf8(&event.data).map_err(|_| Foreign)?;
        if data.trim_ascii().as_bytes() == DONE {
            return Ok(Seen::default());
        }
        let frame: Frame<'_> = serde_json::from_str(data).map_err(|_| Foreign)?;
        let named = event
            .name
            .as_deref()
            .and_then(|name| std::str::from_utf8(name).ok());
        let told = text(frame.kind);
        let kind = told.as_deref().or(named).unwrap_or_default();
        let Some(kind) = kind.strip_prefix("response.") else {
            if kind == "error" || frame.error.is_some() {
                return Ok(Seen {
                    error: Some(parse_upstream_error(&event.data).unwrap_or_default()),
                    ..Seen::default()
                });
            }
            // Events of a later version of the dialect pass; what is no event of it does not.
            return if kind.is_empty() {
                Err(Foreign)
            } else {
                Ok(Seen::default())
            };
        };
        let mut seen = Seen::default();
        if let Some(raw) = frame.response {
            whole(kind, raw, data, &mut seen)?;
        }
        match kind {
            "completed" | "incomplete" => {
                seen.finished = seen.error.is_none();
                seen.end = seen.finished;
            }
            "failed" => seen.error = Some(seen.error.unwrap_or_default()),
            "cancelled" => seen.aborted = true,
            "output_item.added" | "output_item.done" => {
                if let Some(raw) = frame.item {
                    self.item(kind, raw, &mut seen)?;
                }
            }
            _ if kind.strip_suffix(".delta").is_some() => {
                let bytes = words(frame.delta).map_or(1, |delta| delta.len());
                self.in_pieces = self.in_pieces.saturating_add(bytes);
                seen.called = kind.contains("call");
                seen.output_bytes = bytes;
                seen.content = bytes > 0;
            }
            _ => {}
        }
        Ok(seen)
    }

    /// An item that opens or is done. Of what it says whole, what came in pieces before does not count again.
    fn item(&mut self, kind: &str, raw: &RawValue, seen: &mut Seen) -> Result<(), Foreign> {
        let item: Item<'_> = serde_json::from_str(raw.get()).map_err(|_| Foreign)?;
        seen.called = matches!(item.kind(), Kind::Call { .. });
        if kind == "output_item.added" {
            seen.output_bytes = text(item.name).map_or(0, |name| name.len());
            seen.content = matches!(item.kind(), Kind::Call { .. });
            return Ok(());
        }
        let bytes = generated(&item);
        seen.content = bytes > 0 || matches!(item.kind(), Kind::Call { .. });
        seen.output_bytes = bytes.saturating_sub(self.in_pieces);
        self.in_pieces = self.in_pieces.saturating_sub(bytes);
        Ok(())
    }
}

/// What numbers or lists items in an event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Places<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
    item: Option<Item<'a>>,
    output_index: Told<'a>,
    sequence_number: Told<'a>,
    response: Option<Listing<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Listing<'a> {
    #[serde(borrow)]
    output: Told<'a>,
}

/// Leaves thoughts out of an event, or the event out.
fn conceal(hidden: &mut Hidden, event: &sse::Event, seen: &mut Seen) {
    let data: &[u8] = &event.data;
    let Ok(places) = serde_json::from_slice::<Places<'_>>(data) else {
        return;
    };
    let index = places.output_index.and_then(|raw| raw.get().parse::<u64>().ok());
    if let (Some(Kind::Reasoning), Some(index)) = (places.item.as_ref().map(Item::kind), index) {
        hidden.hide(index);
    }
    let kind = text(places.kind);
    let is_thought = kind.is_some_and(|kind| kind.starts_with("response.reasoning_"));
    if is_thought || index.is_some_and(|index| hidden.hides(index)) {
        hidden.drop_event();
        seen.hidden = true;
        return;
    }
    let edits = [
        number_edit(data, places.output_index, |index| hidden.renumbered(index)),
        number_edit(data, places.sequence_number, |number| hidden.event_number(number)),
        list_edit(
            data,
            places.response.and_then(|response| response.output),
            is_reasoning,
        ),
    ];
    seen.edits.extend(edits.into_iter().flatten());
    seen.edits.sort_by_key(|edit| edit.range.start);
}

fn is_reasoning(item: &RawValue) -> bool {
    serde_json::from_str(item.get()).is_ok_and(|item: Item<'_>| item.kind() == Kind::Reasoning)
}

/// What takes the thoughts out of a whole answer.
pub fn thoughts(body: &[u8]) -> Option<Edit> {
    let response: Listing<'_> = serde_json::from_slice(body).ok()?;
    list_edit(body, response.output, is_reasoning)
}

/// What an event about the response as a whole says.
fn whole(kind: &str, raw: &RawValue, data: &str, seen: &mut Seen) -> Result<(), Foreign> {
    let response: Response<'_> = serde_json::from_str(raw.get()).map_err(|_| Foreign)?;
    seen.model_span = response.model.and_then(|model| span(model, data));
    seen.usage = response.usage.and_then(|usage| usage::read(usage.get()));
    if kind == "failed" || text(response.status).as_deref() == Some("failed") {
        seen.error = Some(error(&response, raw.get()));
    }
    Ok(())
}

fn error(response: &Response<'_>, raw: &str) -> UpstreamError {
    let told = response.error.and_then(|_| parse_upstream_error(raw.as_bytes()));
    told.unwrap_or_default()
}

/// Where a string stands in the text that it was read from.
fn span(value: &RawValue, text: &str) -> Option<Range<usize>> {
    let value = Some(value.get()).filter(|value| value.starts_with('"'))?;
    let start = value.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some(start..start + value.len())
}

/// Bytes of generated text in an item; of one with text that is no valid Unicode, which passes as it came, one.
fn generated(item: &Item<'_>) -> usize {
    let bytes = match item.kind() {
        Kind::Message => item.said().map(|(said, refused)| said.len() + refused.len()),
        Kind::Reasoning => item.thought().and_then(|thought| {
            let summary = item.summary()?;
            Ok(thought.len() + summary.len())
        }),
        Kind::Call { custom } => item.arguments(custom).map(|arguments| arguments.len()),
        Kind::Other => Ok(0),
    };
    bytes.unwrap_or(1)
}

/// Reads a passing answer that came whole. It has one choice: the response, unless there is no output in it.
pub fn skim_answer(body: &[u8]) -> Result<Answer, Error> {
    let body = std::str::from_utf8(body).map_err(|_| Error::NotUtf8)?;
    let response: Response<'_> = serde_json::from_str(body).map_err(Error::Malformed)?;
    let items = response.output.as_deref().unwrap_or_default();
    let is_call = |item: &Item<'_>| matches!(item.kind(), Kind::Call { .. });
    let has_calls = items.iter().any(is_call);
    let names = items
        .iter()
        .filter(|item| is_call(item))
        .filter_map(|item| text(item.name));
    let output_bytes =
        items.iter().map(generated).sum::<usize>() + names.map(|name| name.len()).sum::<usize>();
    let status = text(response.status);
    let failed = status.as_deref() == Some("failed");
    let reason = response
        .incomplete_details
        .as_ref()
        .and_then(|details| text(details.reason));
    let finish = match status.as_deref() {
        // One that still runs is no answer: nobody would ever hear its end.
        Some("failed" | "cancelled" | "in_progress" | "queued") => Some(Finish::Failed),
        Some("incomplete") if reason.as_deref() == Some("content_filter") => Some(Finish::ContentFilter),
        Some("incomplete") => Some(Finish::Length),
        _ if response.output.is_none() => None,
        _ if has_calls => Some(Finish::ToolCalls),
        _ => Some(Finish::Stop),
    };
    Ok(Answer {
        model_span: response.model.and_then(|model| span(model, body)),
        choices: usize::from(response.output.is_some()),
        content: has_calls || output_bytes > 0,
        output_bytes,
        finish,
        usage: response.usage.and_then(|usage| usage::read(usage.get())),
        error: (failed || response.error.is_some()).then(|| error(&response, body)),
        ..Answer::default()
    })
}

#[cfg(test)]
mod tests;
