//! A whole, unstreamed answer, skimmed in one pass. To replace its model's name, splice
//! [`Answer::model_span`].

use std::ops::Range;

use super::chunk::Finish;
use super::ends::Ends;
use super::error::UpstreamError;
use super::frame;
use super::usage::UsageFacts;

/// Why a body is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not UTF-8.
    #[error("the answer is not UTF-8")]
    NotUtf8,
    /// Not a JSON object, or of a shape that no client understands.
    #[error("the answer is not a JSON object of the expected shape")]
    Malformed(#[source] serde_json::Error),
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The JSON string value of `model`, quotes included, in bytes of the body.
    pub model_span: Option<Range<usize>>,
    /// Choices in it; 0 also when the member is missing.
    pub choices: usize,
    /// Something generated is in it: text, reasoning, a tool call or audio.
    pub content: bool,
    /// Bytes of generated text as UTF-8, reasoning and arguments of tools included: for estimates.
    pub output_bytes: usize,
    /// Those of its first choice.
    pub first_output_bytes: usize,
    /// How its choices ended; a failure outweighs the others.
    pub finish: Option<Finish>,
    /// Usage, wherever it was told: `usage`, `x_groq.usage`, or `timings`.
    pub usage: Option<UsageFacts>,
    /// Beside the usage stands what llama.cpp tells of one choice: it is of the first one alone.
    pub usage_of_one: bool,
    /// An error, which a status of 200 may carry.
    pub error: Option<UpstreamError>,
    /// The ends of its choices.
    pub ends: Ends,
}

/// Reads a body.
pub fn skim(body: &[u8]) -> Result<Answer, Error> {
    let text = std::str::from_utf8(body).map_err(|_| Error::NotUtf8)?;
    let frame = frame::read(text).map_err(Error::Malformed)?;
    Ok(Answer {
        model_span: frame.model_span,
        choices: frame.found.choices,
        content: frame.found.content,
        output_bytes: frame.found.output_bytes,
        first_output_bytes: frame.found.first.map_or(0, |(_, bytes)| bytes),
        finish: frame.found.finish,
        usage: frame.usage,
        usage_of_one: frame.usage_of_one,
        error: frame.error,
        ends: frame.ends,
    })
}
