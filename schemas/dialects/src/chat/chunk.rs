//! One chunk of a streamed answer: skimmed and checked once, where it stands, without allocation for plain
//! content.

use std::ops::Range;

use super::ends::Ends;
use super::error::UpstreamError;
use super::frame;
use super::usage::UsageFacts;

pub mod skimmer;

/// The data of the event that ends a stream.
pub const DONE: &[u8] = b"[DONE]";

/// Why data is no chunk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not UTF-8.
    #[error("the chunk is not UTF-8")]
    NotUtf8,
    /// Not a JSON object, or of a shape that no client understands.
    #[error("the chunk is not a JSON object of the expected shape")]
    Malformed(#[source] serde_json::Error),
}

/// How a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// At its natural end or a stop sequence.
    Stop,
    /// At the limit of tokens.
    Length,
    /// To have tools called.
    ToolCalls,
    /// A filter ended it.
    ContentFilter,
    /// For a reason that is not known here.
    Other,
    /// It did not end well: "error" or "abort".
    Failed,
}

impl Finish {
    /// From the word an upstream uses; `None` for the empty word, which some send until the end.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "" => return None,
            "stop" | "eos" | "eos_token" | "stop_sequence" => Self::Stop,
            "length" | "max_tokens" => Self::Length,
            "tool_calls" | "function_call" => Self::ToolCalls,
            "content_filter" => Self::ContentFilter,
            "error" | "abort" => Self::Failed,
            _ => Self::Other,
        })
    }

    /// True when the answer is broken rather than whole.
    pub const fn failed(self) -> bool {
        matches!(self, Self::Failed)
    }
}

/// A breach of the dialect that strict clients stumble over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A choice has no `index`.
    ChoiceWithoutIndex,
    /// A piece of a tool call has no `index`.
    ToolCallWithoutIndex,
    /// There is more than one `model`, of which one would be replaced.
    SecondModel,
}

/// What one chunk says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// The JSON string value of `model`, quotes included, in bytes of the data.
    pub model_span: Option<Range<usize>>,
    /// It has the list of choices that makes it a chunk, be it empty.
    pub listed: bool,
    /// Choices in it; 0 also when the member is missing.
    pub choices: usize,
    /// The index of its choice, where there is one and no more.
    pub choice: Option<u64>,
    /// Something generated is in it: text, reasoning, a tool call, audio, or their log probabilities.
    pub content: bool,
    /// Bytes of generated text as UTF-8, reasoning and arguments of tools included: for estimates.
    pub output_bytes: usize,
    /// How the last of its choices that ended did; a failure outweighs the others.
    pub finish: Option<Finish>,
    /// Usage, wherever it was told. It replaces what an earlier chunk told.
    pub usage: Option<UsageFacts>,
    /// Beside the usage stands what llama.cpp tells of one choice: it is of one, too.
    pub usage_of_one: bool,
    /// The answer failed.
    pub error: Option<UpstreamError>,
    /// The first breach of the dialect, if any.
    pub grammar: Option<Fault>,
    /// The ends of its choices.
    pub ends: Ends,
}

/// Reads the data of one event. `data` is not [`DONE`]: ask [`is_done`] first.
pub fn skim(data: &[u8]) -> Result<Chunk, Error> {
    read(data).map(|(chunk, _)| chunk)
}

/// The chunk, and where its last content stands if that is a string without escapes.
fn read(data: &[u8]) -> Result<(Chunk, Option<Range<usize>>), Error> {
    let text = std::str::from_utf8(data).map_err(|_| Error::NotUtf8)?;
    let frame = frame::read(text).map_err(Error::Malformed)?;
    let chunk = Chunk {
        model_span: frame.model_span,
        listed: frame.found.listed,
        choices: frame.found.choices,
        choice: (frame.found.first.filter(|_| frame.found.choices == 1)).map(|(index, _)| index),
        content: frame.found.content,
        output_bytes: frame.found.output_bytes,
        finish: frame.found.finish,
        usage: frame.usage,
        usage_of_one: frame.usage_of_one,
        error: frame.error,
        grammar: frame.found.fault,
        ends: frame.ends,
    };
    Ok((chunk, frame.content_span))
}

/// True for the data that ends a stream.
pub fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == DONE
}

/// True for the chunk that carries the usage and nothing else: it is for callers who asked for it.
pub const fn usage_only(chunk: &Chunk) -> bool {
    chunk.choices == 0 && chunk.usage.is_some() && chunk.error.is_none()
}
