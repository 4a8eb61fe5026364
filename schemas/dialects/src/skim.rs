//! One typed pass over a request of any dialect: what admission, the plan and the splice need, and where it stands in
//! the bytes. Nothing is copied but the model's name; members that are not named here pass unread.
//!
//! Guarantees: nesting is bounded before anything recursive runs; a member that decides something may occur
//! once, so that no upstream reads another value than we did.

use std::borrow::Cow;
use std::ops::Range;

use schemas::catalog::modality::Modalities;
use schemas::command::Splice;
use schemas::event::request::Surface;
use schemas::id::MODEL_NAME_BYTES_MAX;
use schemas::parameter::Parameters;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::scan::nests_deeper_than;
use spot::Spot;

mod body;
mod chat;
mod completions;
mod embedded;
mod embeddings;
mod messages;
mod prompt;
mod responses;
pub mod session;
pub mod spot;

/// Deepest nesting of arrays and objects that is accepted by default.
const DEPTH_MAX: usize = 64;
/// Most choices one request may ask for.
pub const CHOICES_MAX: u64 = 128;
/// Most texts or lists of tokens that one request may have embedded.
const INPUTS_MAX: u64 = 2048;

/// Bounds on a request body, beside its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Deepest nesting of arrays and objects; the body itself is the first level.
    pub depth_max: usize,
    /// Longest model name, in bytes.
    pub model_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth_max: DEPTH_MAX,
            model_bytes_max: MODEL_NAME_BYTES_MAX,
        }
    }
}

/// Why a request is refused. The messages may be shown to the caller; they repeat nothing he sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not UTF-8.
    #[error("the request body is not valid JSON (line {line}, column {column})")]
    InvalidJson {
        /// Line of the fault, from 1; 0 when it has no place.
        line: usize,
        /// Column of the fault in bytes, from 1; 0 when it has no place.
        column: usize,
    },
    /// JSON, but no object.
    #[error("the request body must be a JSON object")]
    NotAnObject,
    /// Nested deeper than the limit.
    #[error("the request body is nested too deep")]
    TooDeep,
    /// A member that decides something occurs twice.
    #[error("the member '{param}' occurs more than once")]
    DuplicateField {
        /// The member.
        param: &'static str,
    },
    /// A member that must be there is not, or is empty.
    #[error("the member '{param}' is required")]
    Missing {
        /// The member.
        param: &'static str,
    },
    /// The same in the words of the Messages dialect.
    #[error("Missing required field: {param}")]
    MissingField {
        /// The member.
        param: &'static str,
    },
    /// A member of the wrong type or out of its range.
    #[error("the member '{param}' must be {}", expected(param))]
    InvalidField {
        /// The member.
        param: &'static str,
    },
    /// Something in the list that a member is.
    #[error("the member '{param}{spot}' must be {}", expected_in(param, *spot))]
    InvalidEntry {
        /// The member.
        param: &'static str,
        /// Where in its value.
        spot: Spot,
    },
    /// What cannot be embedded.
    #[error("the member 'input' {fault}")]
    InvalidInput {
        /// Why.
        fault: InputFault,
    },
    /// A stream of what does not come in one.
    #[error("the member 'stream' must not be true: embeddings come in one piece")]
    NotStreamed,
}

/// Why something cannot be embedded; reads on from "the member 'input' ".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    /// A text without a character.
    #[error("must not hold an empty text")]
    EmptyText,
    /// A list of tokens without a token.
    #[error("must not hold an empty list of tokens")]
    EmptyTokens,
    /// Members of different kinds in one list.
    #[error("must be all texts, all tokens, or all lists of tokens, not a mixture")]
    Mixed,
    /// A negative number or a fraction.
    #[error("must have whole numbers of at least 0 as tokens")]
    NotAToken,
    /// More than one request may hold.
    #[error("must hold at most {INPUTS_MAX} texts or lists of tokens")]
    TooMany,
}

impl Error {
    /// The member at fault, where there is one.
    pub fn param(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::InvalidJson { .. } | Self::NotAnObject | Self::TooDeep => None,
            Self::Missing { param }
            | Self::MissingField { param }
            | Self::DuplicateField { param }
            | Self::InvalidField { param } => Some((*param).into()),
            Self::InvalidEntry { param, spot } => Some(format!("{param}{spot}").into()),
            Self::InvalidInput { .. } => Some("input".into()),
            Self::NotStreamed => Some("stream".into()),
        }
    }
}

/// What a member must be, in words.
fn expected(param: &str) -> &'static str {
    match param {
        "model" => "a string of at most 256 bytes",
        "messages" => "an array of messages, at least one",
        "input" | "prompt" => "text or a list, not empty",
        "system" | "instructions" | "suffix" => "text or a list of text blocks",
        "encoding_format" => "float or base64",
        "stream" | "store" | "background" => "true or false",
        "stream_options" => "an object whose include_usage is true or false",
        "temperature" => "a number from 0 to 2",
        "top_p" => "a number from 0 to 1",
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "dimensions" => {
            "an integer, at least 1"
        }
        "n" => "an integer from 1 to 128",
        "tools" | "functions" => "an array of tools",
        "response_format" | "output_format" => "an object with a type",
        "text" | "output_config" => "an object whose format has a type",
        "metadata" => "an object",
        _ => "of another type",
    }
}

/// What a place in a member must be, in words.
fn expected_in(param: &str, spot: Spot) -> &'static str {
    match (param, spot) {
        ("prompt", _) => "text, a token or a list of tokens",
        (_, Spot::Member(..)) => "text or a list of content blocks",
        (_, Spot::Part(..)) => "a content block",
        _ => "an object",
    }
}

/// What a request asks for. Spans are offsets in bytes of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one request"
)]
pub struct Skim {
    /// The model's name, decoded.
    pub model: String,
    /// The JSON string value of `model`, quotes included.
    pub model_span: Range<usize>,
    /// The caller asked for a stream.
    pub stream: bool,
    /// The value of `stream_options`, also when it is null; in dialects whose options ask for usage.
    pub stream_options_span: Option<Range<usize>>,
    /// The caller asked for usage on his stream, or his dialect always tells it.
    pub include_usage: bool,
    /// Right after the opening brace. The object is never empty.
    pub insert_at: usize,
    /// Most tokens of the answer: the larger of `max_completion_tokens` and `max_tokens` where there are two. 0 asks
    /// to have a prompt weighed, in completions; there are servers to which it is no end.
    pub max_tokens: Option<u64>,
    /// What servers of llama.cpp take in its place (`n_predict`); 0 where it is absent, the most there is where it has
    /// no end. Others pass it over, so it only adds to what an answer may use.
    pub max_tokens_otherwise: u64,
    /// Choices asked for, 1 to [`CHOICES_MAX`].
    pub n: u64,
    /// The most answers that a server makes of each prompt: `n`, or what single ones take beside it (`best_of`, of which
    /// not all are told, and `n_cmpl`).
    pub choices_most: u64,
    /// Prompts of vLLM that are no text (`prompt_embeds`): nothing tells their tokens, and no estimate has them.
    pub prompts_embedded: u64,
    /// Answers are to repeat their prompts, where their server knows of it.
    pub echoes: bool,
    /// There are tools or functions, or a choice among them other than "none".
    pub tools: bool,
    /// A format other than plain text is asked for.
    pub response_format: bool,
    /// What is asked for that a model may not take; values that stand for nothing ask for nothing.
    pub parameters: Parameters,
    /// The caller's own customer.
    pub user: Option<String>,
    /// Kinds of input in the messages.
    pub modalities: Modalities,
    /// Images in the messages.
    pub images: u64,
    /// Estimated tokens of messages and tools.
    pub prompt_tokens_estimate: u64,
}

impl Skim {
    /// What is assumed of a request of `model` that is not read further: one answer, without a stream.
    pub fn unread(model: String, prompt_tokens_estimate: u64) -> Self {
        Self {
            model,
            model_span: 0..0,
            stream: false,
            stream_options_span: None,
            include_usage: false,
            insert_at: 0,
            max_tokens: None,
            max_tokens_otherwise: 0,
            n: 1,
            choices_most: 1,
            prompts_embedded: 0,
            echoes: false,
            tools: false,
            response_format: false,
            parameters: Parameters::default(),
            user: None,
            modalities: Modalities::default(),
            images: 0,
            prompt_tokens_estimate,
        }
    }
}

/// Reads a request of any surface. Linear in the body; ignored values cost a scan.
pub fn skim(surface: Surface, body: &[u8], limits: &Limits) -> Result<Skim, Error> {
    match surface {
        Surface::Chat | Surface::Proxy => skim_chat(body, limits),
        Surface::Completions => body::read::<completions::Field>(checked(body, limits)?, limits),
        Surface::Embeddings => body::read::<embeddings::Field>(checked(body, limits)?, limits),
        Surface::Responses => body::read::<responses::Field>(checked(body, limits)?, limits),
        Surface::Messages => body::read::<messages::Field>(checked(body, limits)?, limits),
    }
}

/// Reads a chat request.
pub fn skim_chat(body: &[u8], limits: &Limits) -> Result<Skim, Error> {
    body::read::<chat::Field>(checked(body, limits)?, limits)
}

/// Reads a request of the Messages dialect that asks for its size alone.
pub fn skim_counted(body: &[u8], limits: &Limits) -> Result<Skim, Error> {
    body::read::<messages::Counted>(checked(body, limits)?, limits)
}

/// True when the body is an object with messages: what is asked for on a path that takes prompts as well.
pub fn has_messages(body: &[u8], limits: &Limits) -> bool {
    #[derive(Deserialize)]
    struct Told {
        messages: Option<IgnoredAny>,
    }

    let told = checked(body, limits).map(serde_json::from_str::<Told>);
    matches!(told, Ok(Ok(told)) if told.messages.is_some())
}

/// The body as text, its nesting bounded.
fn checked<'a>(body: &'a [u8], limits: &Limits) -> Result<&'a str, Error> {
    if nests_deeper_than(body, limits.depth_max) {
        return Err(Error::TooDeep);
    }
    std::str::from_utf8(body).map_err(|_| Error::InvalidJson { line: 0, column: 0 })
}

/// The part of a skim that a router needs to edit the body.
pub fn splice_facts(skim: &Skim) -> Splice {
    Splice {
        model: (skim.model_span.start, skim.model_span.end),
        stream_options: skim
            .stream_options_span
            .as_ref()
            .map(|span| (span.start, span.end)),
        insert_at: skim.insert_at,
        stream: skim.stream,
        include_usage: skim.include_usage,
    }
}

#[cfg(test)]
mod tests;
