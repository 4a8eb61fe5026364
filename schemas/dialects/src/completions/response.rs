//! Whole answers of OpenAI completions, from the superset: the answer's text. Thoughts have no place in this dialect
//! and are left out; calls cannot be, since no tool can be asked for.

use bytes::Bytes;
use serde::Serialize;

use crate::chat::response::usage::Usage;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::{Answer, Finish};
use crate::superset::event::Reply;
use crate::superset::request::Part;

#[derive(Serialize)]
pub(super) struct Completion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
pub(super) struct Choice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

impl<'a> Completion<'a> {
    /// An object with one choice.
    pub(super) fn of(reply: &'a Reply, text: &'a str, finish: Option<Finish>) -> Self {
        Self {
            choices: vec![Choice {
                index: 0,
                text,
                logprobs: None,
                finish_reason: finish.map(word),
            }],
            ..Self::bare(reply, None)
        }
    }

    /// An object without choices.
    pub(super) fn bare(reply: &'a Reply, usage: Option<UsageFacts>) -> Self {
        Self {
            id: format!("cmpl-{}", reply.id),
            object: "text_completion",
            created: reply.created,
            model: &reply.model,
            choices: Vec::new(),
            usage: usage.map(Usage::of),
        }
    }

    /// Its JSON.
    pub(super) fn json(&self) -> Vec<u8> {
        // Text and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::ContextFull => "length",
        Finish::Refused => "content_filter",
        Finish::Stop | Finish::StopSequence | Finish::ToolCalls | Finish::Paused => "stop",
    }
}

/// Writes an answer for a caller.
pub fn encode(answer: &Answer, reply: &Reply) -> Bytes {
    let texts = answer.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } | Part::Refusal(text) => Some(text.as_str()),
        _ => None,
    });
    let text: String = texts.collect();
    let mut whole = Completion::of(reply, &text, Some(answer.finish));
    whole.usage = answer.usage.map(Usage::of);
    whole.json().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reply;

    #[test]
    fn each_class_of_input_is_told() {
        let details = serde_json::json!({"cached_tokens": 4, "cache_write_tokens": 3});
        let told = serde_json::json!({"prompt_tokens": 17, "completion_tokens": 4, "prompt_tokens_details": details});
        let facts = UsageFacts::read(&told.to_string()).expect("usage");

        let usage = serde_json::to_value(Usage::of(facts)).expect("json");

        assert_eq!(usage["prompt_tokens"], 17);
        assert_eq!(usage["prompt_tokens_details"], details);
    }

    #[test]
    fn an_answer_is_a_text_completion() {
        let answer = Answer {
            parts: vec![
                Part::Thinking {
                    text: "hm".to_owned(),
                    proof: None,
                },
                Part::Text {
                    text: "upon a time".to_owned(),
                    cache: None,
                },
            ],
            finish: Finish::Length,
            usage: UsageFacts::read(r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}"#),
            stop_sequence: None,
        };

        let body: serde_json::Value = serde_json::from_slice(&encode(&answer, &reply())).expect("json");

        assert_eq!(
            body,
            serde_json::json!({
                "id": "cmpl-07", "object": "text_completion", "created": 5, "model": "m",
                "choices": [{"index": 0, "text": "upon a time", "logprobs": null, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}},
            })
        );
    }
}
