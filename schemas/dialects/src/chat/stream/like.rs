//! Chunks that differ from an earlier one in their text alone, byte for byte all around it: most of a stream. They say
//! the same, and are not parsed again.

use std::borrow::Cow;

use crate::chat::response::wire::{Frame, Said};
use crate::superset::event::Event;

/// A chunk that said one piece of text and nothing else, without that text.
#[derive(Debug, Default)]
pub(super) struct Like {
    /// Up to the text, the opening quote included; empty before anything was learned.
    before: Vec<u8>,
    /// From the closing quote on.
    after: Vec<u8>,
    /// The text is a thought.
    thought: bool,
}

impl Like {
    /// What `data` says, if it differs in the text alone and the text needs no escapes.
    pub(super) fn event<'d>(&self, data: &'d [u8]) -> Option<Event<'d>> {
        if self.before.is_empty() {
            return None;
        }
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let plain = |byte: &u8| *byte >= 0x20 && !matches!(*byte, b'"' | b'\\');
        if text.is_empty() || !text.iter().all(plain) {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        Some(if self.thought {
            Event::Thinking(text)
        } else {
            Event::Text(text)
        })
    }

    /// Learns from a chunk, which was read from `data` and went well.
    pub(super) fn learn(&mut self, frame: &Frame<'_>, data: &[u8]) {
        let silent = frame.usage.is_none() && frame.x_groq.is_none() && frame.timings.is_none();
        let Some((text, thought)) = frame
            .choices
            .first
            .as_ref()
            .filter(|_| silent)
            .and_then(|choice| {
                let bare = choice.finish_reason.is_empty() && choice.text.is_empty();
                choice.delta.as_ref().filter(|_| bare).and_then(only_text)
            })
        else {
            return;
        };
        let start = text.as_ptr().addr().saturating_sub(data.as_ptr().addr());
        let around = (data.get(..start), data.get(start.saturating_add(text.len())..));
        if let (Some(before), Some(after)) = around
            && before.ends_with(b"\"")
            && after.starts_with(b"\"")
        {
            self.before.clear();
            self.before.extend_from_slice(before);
            self.after.clear();
            self.after.extend_from_slice(after);
            self.thought = thought;
        }
    }
}

/// The text where it stands, of a delta that says one text and nothing else; and whether it is a thought.
fn only_text<'s>(said: &'s Said<'_>) -> Option<(&'s str, bool)> {
    let calls = said.tool_calls.is_some() || said.function_call.is_some();
    if calls || said.reasoning_details.is_some() || !said.refusal.is_empty() {
        return None;
    }
    let (content, thoughts) = (&said.content.text, &said.content.thoughts);
    let told = [content, thoughts, &said.reasoning_content.0, &said.reasoning.0];
    let mut told = told.into_iter().enumerate().filter(|(_, text)| !text.is_empty());
    match (told.next(), told.next()) {
        (Some((at, Cow::Borrowed(text))), None) => Some((text, at > 0)),
        _ => None,
    }
}
