//! A whole answer.

use super::request::{Call, Part, Proof};
use crate::chat::error::UpstreamError;
use crate::chat::usage::UsageFacts;

/// What a model answered. One choice: more are never asked of an upstream of another dialect.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Thoughts, texts, refusals and calls, in order; nothing else.
    pub parts: Vec<Part>,
    /// Why it ended.
    pub finish: Finish,
    /// The text that ended it, where the upstream tells.
    pub stop_sequence: Option<String>,
    /// What the upstream reported, its classes read by the rules of its dialect.
    pub usage: Option<UsageFacts>,
}

impl Answer {
    /// Its calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// True when something was generated.
    pub fn has_content(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Text { text, .. } | Part::Refusal(text) => !text.is_empty(),
            Part::Thinking { text, proof } => {
                !text.is_empty() || proof.as_ref().is_some_and(|proof: &Proof| proof.redacted)
            }
            _ => true,
        })
    }

    /// Bytes of generated text, thoughts and arguments included.
    pub fn output_bytes(&self) -> usize {
        self.parts.iter().map(part_bytes).sum()
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text, .. } | Part::Refusal(text) | Part::Thinking { text, .. } => text.len(),
        Part::ToolCall(call) => call.name.len() + call.arguments.len(),
        _ => 0,
    }
}

/// Why an answer ended. Made of the whole turn: an answer that ended well and has a call ended to have it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finish {
    /// At its natural end.
    #[default]
    Stop,
    /// At a text the caller named.
    StopSequence,
    /// At the limit of tokens, the caller's or the model's.
    Length,
    /// The model's context is full.
    ContextFull,
    /// To have tools called.
    ToolCalls,
    /// A filter, or the model itself, refused.
    Refused,
    /// A pause of a long turn with tools of the upstream's own.
    Paused,
}

/// Why an upstream's answer, or what is left of its stream, is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The upstream says that it failed.
    Told(Box<UpstreamError>),
    /// Not of its dialect.
    Malformed,
    /// The upstream says that generation was aborted.
    Aborted,
    /// There is nothing in it: no choice, no end.
    Empty,
    /// The stream ended before the answer did.
    Cut,
    /// More than can be kept where an answer is repeated at its end.
    TooLarge,
}
