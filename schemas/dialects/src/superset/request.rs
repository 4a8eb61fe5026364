//! A request for an answer of a language model.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::tool::{Tool, ToolChoice};

/// Everything a request asks for.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// The model's name, as the caller wrote it.
    pub model: String,
    /// The answer shall be streamed.
    pub stream: bool,
    /// The caller asked for usage on his stream (always true for dialects that always tell it).
    pub include_usage: bool,
    /// What was said, in order. Instructions are turns of [`Role::System`] or [`Role::Developer`].
    pub turns: Vec<Turn>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: Option<ToolChoice>,
    /// Several calls in one turn: `None` leaves it to the upstream.
    pub parallel_tool_calls: Option<bool>,
    /// Most tokens of the answer, reasoning included.
    pub max_tokens: Option<u64>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// The form of the answer.
    pub format: Format,
    /// How much to think, and what of it to show.
    pub reasoning: Reasoning,
    /// The caller's own customer, as he names him.
    pub user: Option<String>,
    /// Members without influence on the answer: carried where the other dialect has them, else dropped and reported.
    /// Never a member that has a field here.
    pub hints: Vec<Member>,
    /// Members that mean something and have no field here, their defaults left out: carried by an encoder that knows
    /// them by name, else refused by name.
    pub demands: Vec<Member>,
}

/// A member of a request's JSON object, kept as it was written.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name, or a path of names with dots (`tools.0.cache_control`).
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: Box<RawValue>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions of whoever runs the application.
    System,
    /// The same under its newer name.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The application, with results of calls: only [`Part::ToolResult`]s.
    Tool,
}

/// What one side said at once.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Who.
    pub role: Role,
    /// His name, where he has one.
    pub name: Option<String>,
    /// What, in order.
    pub parts: Vec<Part>,
}

/// A part of a turn.
#[derive(Debug, Clone)]
pub enum Part {
    /// Text.
    Text {
        /// It.
        text: String,
        /// A mark that a cache may keep everything up to here: a hint, as Anthropic writes it.
        cache: Option<Box<RawValue>>,
    },
    /// The model's no, in words.
    Refusal(String),
    /// An image.
    Image {
        /// Its bytes or where they are.
        source: Media,
        /// `low`, `high` or `auto`: a hint.
        detail: Option<String>,
    },
    /// Sound.
    Audio {
        /// `wav` or `mp3`.
        format: String,
        /// Its bytes in base64.
        data: String,
    },
    /// A document.
    File {
        /// Its bytes or where they are.
        source: Media,
        /// Its name.
        name: Option<String>,
    },
    /// What the model thought, in an assistant's turn.
    Thinking {
        /// In words, perhaps none.
        text: String,
        /// What proves it to the upstream that made it: nobody else can read it.
        proof: Option<Proof>,
    },
    /// A call, in an assistant's turn.
    ToolCall(Call),
    /// The result of a call, in a turn of [`Role::Tool`].
    ToolResult {
        /// The call's id.
        id: String,
        /// Texts and images.
        parts: Vec<Part>,
        /// The call failed.
        failed: bool,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its id, unique in the conversation.
    pub id: String,
    /// The tool's name, as the caller knows it.
    pub name: String,
    /// The group it belongs to, where there are groups.
    pub namespace: Option<String>,
    /// A JSON object as text, as it was written; the input itself where `custom`.
    pub arguments: String,
    /// A tool that takes free text.
    pub custom: bool,
    /// What the upstream wants to see again with the call.
    pub proof: Option<Proof>,
}

/// Opaque to everybody but the kind of upstream that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Who made it.
    pub maker: ProofMaker,
    /// It.
    pub text: String,
    /// The thought itself is only in here: an encrypted or redacted one.
    pub redacted: bool,
}

/// Who made a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofMaker {
    /// Claude, whoever serves it.
    Anthropic,
    /// Gemini.
    Gemini,
    /// A model behind OpenAI's Responses.
    OpenAi,
}

/// Where the bytes of an image or document are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// Here, in base64.
    Inline {
        /// `image/png`, `application/pdf`, …
        media_type: String,
        /// Base64.
        data: String,
    },
    /// There.
    Url(String),
    /// Plain text.
    Text(String),
    /// A file that was given to the upstream before.
    Id(String),
}

/// How tokens are drawn. Numbers are kept as they were written.
#[derive(Debug, Clone, Default)]
pub struct Sampling {
    /// `temperature`.
    pub temperature: Option<Box<RawValue>>,
    /// `top_p`.
    pub top_p: Option<Box<RawValue>>,
    /// `top_k`.
    pub top_k: Option<u64>,
    /// `min_p`.
    pub min_p: Option<Box<RawValue>>,
    /// `seed`.
    pub seed: Option<i64>,
    /// `frequency_penalty`; 0 is left out.
    pub frequency_penalty: Option<Box<RawValue>>,
    /// `presence_penalty`; 0 is left out.
    pub presence_penalty: Option<Box<RawValue>>,
}

/// The form of an answer.
#[derive(Debug, Clone, Default)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// Some JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// Its name; `output` where a dialect has none.
        name: String,
        /// For the model to read.
        description: Option<String>,
        /// It, key order kept.
        schema: Box<RawValue>,
        /// Nothing else is allowed.
        strict: Option<bool>,
    },
}

/// How much to think.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasoning {
    /// How much, in the one of the two forms that the caller used.
    pub effort: Option<Effort>,
    /// Thoughts shall be told: `None` leaves it to the dialect.
    pub shown: Option<bool>,
}

/// How much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Not at all.
    Off,
    /// As the model likes.
    Adaptive,
    /// `minimal`.
    Minimal,
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `high`.
    High,
    /// `xhigh`.
    ExtraHigh,
    /// `max`.
    Max,
    /// At most so many tokens.
    Budget(u64),
}

/// Something a caller wrote that is no request of his dialect. Shown to him; repeats nothing he sent but names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not JSON, or not UTF-8.
    #[error("the request body is not valid JSON")]
    InvalidJson,
    /// A member is missing, of the wrong type, or out of its range.
    #[error("the member '{param}' {problem}")]
    Invalid {
        /// Its path with dots: `messages.3.content.0.type`.
        param: Cow<'static, str>,
        /// What is wrong with it: "must be an array of messages".
        problem: Cow<'static, str>,
    },
    /// Of the dialect, and nothing that this gateway can do.
    #[error("the parameter '{param}' is not supported: {problem}")]
    Unsupported {
        /// Its path with dots.
        param: Cow<'static, str>,
        /// Why.
        problem: Cow<'static, str>,
    },
}

/// Something an upstream's dialect cannot say. The caller is told, in a 400 that names the parameter, unless another
/// endpoint can take it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the parameter '{param}' is not supported by the provider of this model: {problem}")]
pub struct Unmappable {
    /// The parameter as it is called in chat requests or in the caller's own dialect.
    pub param: Cow<'static, str>,
    /// Why, in words for the caller.
    pub problem: Cow<'static, str>,
}

/// What an encoder must know of the upstream.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The upstream's name of the model.
    pub model: &'a str,
    /// What a server of its kind tolerates.
    pub profile: &'a crate::profile::Profile,
    /// Words of effort that the model takes; empty for all of them.
    pub efforts: &'a [String],
    /// Most tokens of an answer where the dialect demands a figure and the caller gave none.
    pub max_tokens_default: u64,
    /// Most tokens that the model answers; `None` where that is not known.
    pub max_tokens_limit: Option<u64>,
    /// The route drops what cannot be mapped, and reports it, instead of refusing it.
    pub drop_params: bool,
}

/// Words for how much to think, from the least to the most.
const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

impl Target<'_> {
    /// Whether the model is known to take this word of effort.
    pub fn lists(&self, word: &str) -> bool {
        self.efforts.iter().any(|known| known == word)
    }

    /// What the model is told for a word of effort that stands for what its caller asked otherwise, such as a number of
    /// tokens: the word itself where it takes it, else the next one below, else the next above. Not to think at all is
    /// no effort, and stays.
    #[must_use]
    pub fn effort(&self, word: &'static str) -> &'static str {
        let Some(place) = EFFORTS.iter().position(|known| *known == word) else {
            return word;
        };
        if self.efforts.is_empty() {
            return word;
        }
        let (below, above) = EFFORTS.split_at(place + 1);
        let known = below.iter().rev().chain(above).find(|known| self.lists(known));
        known.copied().unwrap_or(word)
    }
}

/// The name by which encoders report thoughts of earlier answers that an upstream is not sent: chat's own.
pub const THOUGHTS: &str = "messages.reasoning_content";

/// A request as an upstream reads it.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// The body.
    pub body: bytes::Bytes,
    /// Headers that belong to it: lower-case names (`anthropic-beta`, `anthropic-version`).
    pub headers: Vec<(&'static str, String)>,
    /// Parameters that were dropped, by their names.
    pub dropped: Vec<Cow<'static, str>>,
    /// Tools that have other names there.
    pub names: super::tool::Names,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_effort_becomes_the_next_one_that_the_model_takes() {
        let told = |efforts: &[&str], word| {
            let efforts: Vec<String> = efforts.iter().map(ToString::to_string).collect();
            let target = Target {
                model: "m",
                profile: &crate::profile::DEFAULT,
                efforts: &efforts,
                max_tokens_default: 1,
                max_tokens_limit: None,
                drop_params: false,
            };
            target.effort(word)
        };

        assert_eq!(told(&[], "medium"), "medium");
        assert_eq!(told(&["low", "medium"], "medium"), "medium");
        assert_eq!(told(&["low", "high"], "medium"), "low");
        assert_eq!(told(&["high", "low"], "max"), "high");
        assert_eq!(told(&["high", "max"], "low"), "high");
        assert_eq!(told(&["low", "high"], "none"), "none");
        assert_eq!(told(&["other"], "low"), "low");
    }
}
