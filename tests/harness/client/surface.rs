//! The ways to ask a model for text: where each call goes, and the smallest body that is legal there.

use serde_json::{Value, json};

use super::{PROMPT_CANARY, chat};

/// An API that callers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surface {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// OpenAI's older completions.
    Completions,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Surface {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Completions, Self::Responses, Self::Messages];
    /// Those that know thoughts, tools and images.
    pub const RICH: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// The path of its calls.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// A plain body whose prompt holds [`PROMPT_CANARY`]. Nothing of it is to be stored.
    pub fn ask(self, model: &str) -> Value {
        let prompt = format!("say hi, {PROMPT_CANARY}");
        match self {
            Self::Chat => chat(model),
            Self::Completions => json!({"model": model, "prompt": prompt}),
            Self::Responses => json!({"model": model, "input": prompt, "store": false}),
            Self::Messages => {
                json!({"model": model, "max_tokens": 1024, "messages": [{"role": "user", "content": prompt}]})
            }
        }
    }

    /// The same, streamed.
    pub fn ask_streamed(self, model: &str) -> Value {
        let mut body = self.ask(model);
        body["stream"] = Value::Bool(true);
        body
    }

    /// The same, streamed and with usage, which some dialects tell anyway.
    pub fn ask_streamed_with_usage(self, model: &str) -> Value {
        let mut body = self.ask_streamed(model);
        if matches!(self, Self::Chat | Self::Completions) {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    /// The error of an error body or of the event that ends a broken stream.
    pub fn error_of(told: &Value) -> &Value {
        if told["response"].is_object() {
            &told["response"]["error"]
        } else {
            &told["error"]
        }
    }
}
