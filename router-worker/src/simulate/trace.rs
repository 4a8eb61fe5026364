//! A trace: one request a line, as JSON. Traces that were published under the names `timestamp`, `input_length`,
//! `output_length` and `hash_ids` are read as they are.

use serde::{Deserialize, Serialize};

/// Requests of one trace.
const LINES_MAX: usize = 1_000_000;
/// Tokens of one prompt, and of one answer.
const TOKENS_MAX: u64 = 10_000_000;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// When it arrives, in milliseconds since the trace began.
    #[serde(alias = "timestamp")]
    pub at_ms: u64,
    /// The session that its caller names; absent for a request on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens of its prompt.
    #[serde(alias = "input_length")]
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    #[serde(alias = "output_length")]
    pub output_tokens: u64,
    /// The blocks of its prompt, in their order: two prompts that begin with the same numbers begin alike. The last one
    /// may be of a block that is not full, and is not cached then.
    #[serde(default, alias = "hash_ids")]
    pub blocks: Vec<u64>,
    /// How many of its blocks are instructions, which many sessions may have in common.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instruction_blocks: usize,
}

impl Line {
    /// Tokens of prompt and answer.
    pub(super) const fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }

    /// The blocks of its prompt that are full.
    pub(super) fn full_blocks(&self, block_tokens: u64) -> &[u64] {
        let full = self.prompt_tokens.checked_div(block_tokens).unwrap_or(0);
        let full = usize::try_from(full).unwrap_or(usize::MAX);
        self.blocks.get(..full).unwrap_or(&self.blocks)
    }
}

/// Requests, in the order in which they arrive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// They.
    pub lines: Vec<Line>,
}

/// Why a text is not a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Trace {
    /// Reads a trace whose blocks have so many tokens. Empty lines are passed over.
    pub fn parse(text: &str, block_tokens: u64) -> Result<Self, Error> {
        let mut lines = Vec::new();
        for (text, line) in text.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty()) {
            let wrong = |message: String| Error { line, message };
            let read: Line = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            if let Some(message) = wrong_in(&read, block_tokens) {
                return Err(wrong(message));
            }
            lines.push(read);
            if lines.len() > LINES_MAX {
                return Err(wrong(format!("there are more than {LINES_MAX} requests")));
            }
        }
        lines.sort_by_key(|line| line.at_ms);
        Ok(Self { lines })
    }

    /// The trace as text.
    pub fn written(&self) -> Result<String, serde_json::Error> {
        let lines = self.lines.iter().map(|line| {
            let mut text = serde_json::to_string(line)?;
            text.push('\n');
            Ok(text)
        });
        lines.collect()
    }

    /// The requests of a model; all where none is named.
    pub(super) fn of_model(&self, model: Option<&str>) -> Self {
        let is_meant = |line: &&Line| model.is_none() || line.model.as_deref() == model;
        Self {
            lines: self.lines.iter().filter(is_meant).cloned().collect(),
        }
    }
}

fn wrong_in(line: &Line, block_tokens: u64) -> Option<String> {
    for (name, tokens) in [
        ("prompt_tokens", line.prompt_tokens),
        ("output_tokens", line.output_tokens),
    ] {
        if !(1..=TOKENS_MAX).contains(&tokens) {
            return Some(format!("{name} has to be between 1 and {TOKENS_MAX}"));
        }
    }
    let full = line.prompt_tokens.checked_div(block_tokens).unwrap_or(0);
    let most = line.prompt_tokens.div_ceil(block_tokens.max(1));
    let blocks = u64::try_from(line.blocks.len()).unwrap_or(u64::MAX);
    if !(line.blocks.is_empty() || (full..=most).contains(&blocks)) {
        return Some(format!(
            "a prompt of {} tokens has {full} to {most} blocks of {block_tokens} tokens, not {blocks}; is block_tokens right?",
            line.prompt_tokens
        ));
    }
    (line.instruction_blocks > line.blocks.len())
        .then(|| "instruction_blocks is more than there are blocks".to_owned())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}
