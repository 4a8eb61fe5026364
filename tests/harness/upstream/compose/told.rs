//! An answer in a dialect other than chat, as groups of events: what opens it, one group for each piece of content,
//! what ends it. Interrupts and paces are the same in every dialect, so they are worked in here.

use std::time::Duration;

use serde_json::Value;

use super::super::behaviour::{Chat, Interrupt, Shape, Then};
use super::Line;

/// A streamed answer in groups of events.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) opening: Vec<Line>,
    pub(super) content: Vec<Vec<Line>>,
    /// Each after a wait of its own.
    pub(super) ending: Vec<(Duration, Line)>,
}

impl Told {
    /// The lines in order, up to an interrupt, and what follows them.
    pub(super) fn lines(self, chat: &Chat, shape: &Shape) -> (Vec<(Duration, Line)>, Then) {
        let mut lines: Vec<(Duration, Line)> = Vec::new();
        if chat.role {
            lines.extend(self.opening.into_iter().map(|line| (Duration::ZERO, line)));
        }
        let count = self.content.len();
        for (index, group) in self.content.into_iter().enumerate() {
            if let Some(then) = interrupt(chat, index, &mut lines) {
                return (lines, then);
            }
            for (place, line) in group.into_iter().enumerate() {
                let pace = if index == 0 || place > 0 {
                    Duration::ZERO
                } else {
                    shape.pace
                };
                lines.push((pace, line));
            }
        }
        if let Some(then) = interrupt(chat, count, &mut lines) {
            return (lines, then);
        }
        lines.extend(self.ending);
        (lines, Then::End)
    }
}

fn interrupt(chat: &Chat, count: usize, lines: &mut Vec<(Duration, Line)>) -> Option<Then> {
    let (after, interrupt) = chat.interrupt.as_ref()?;
    if *after != count {
        return None;
    }
    let (line, then) = match interrupt {
        Interrupt::Then(then @ Then::Forever(_)) => (Some(Line::Comment), Some(*then)),
        Interrupt::Then(then) => (None, Some(*then)),
        Interrupt::Error(error) => {
            let typed = serde_json::from_str::<Value>(error).ok();
            let name = typed.and_then(|value| value["type"].as_str().map(str::to_owned));
            let line = match name {
                Some(name) => Line::Named(name, error.clone()),
                None => Line::Data(error.clone()),
            };
            (Some(line), Some(Then::End))
        }
        Interrupt::Failure { .. } => (None, None),
        Interrupt::BrokenJson => (Some(Line::Data("{\"type\":\"brok".to_owned())), None),
    };
    lines.extend(line.map(|line| (Duration::ZERO, line)));
    then
}

/// An event whose name is its type.
pub(super) fn named(event: &Value) -> Line {
    Line::Named(
        event["type"].as_str().unwrap_or_default().to_owned(),
        event.to_string(),
    )
}

/// The words of a text, each with the blank after it.
pub(super) fn words(text: &str) -> Vec<&str> {
    text.split_inclusive(' ').collect()
}

/// A text in pieces of a few characters.
pub(super) fn fragments(text: &str) -> Vec<String> {
    const FRAGMENT_CHARS: usize = 7;
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(FRAGMENT_CHARS)
        .map(|part| part.iter().collect())
        .collect()
}
