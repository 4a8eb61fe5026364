//! The scripted answer as OpenAI's completions and embeddings tell it, and a count of tokens.

use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

use super::super::behaviour::{Shape, UsageWhen};
use super::super::request::Received;
use super::told::{Told, words};
use super::{Line, Writer};

/// Numbers of an embedding.
const DIMENSIONS: usize = 4;

impl Writer<'_> {
    fn completion(&self, choices: &Value) -> Value {
        json!({"id": format!("cmpl-{}", self.word), "object": "text_completion", "created": 1_700_000_000,
            "model": self.model, "choices": choices})
    }

    pub(super) fn completions_told(&self, shape: &Shape, usage_asked: bool) -> Told {
        let choice = |text: &str, finish: Option<&str>| {
            let choice = json!({"index": 0, "text": text, "finish_reason": finish, "logprobs": null});
            Line::Data(self.completion(&json!([choice])).to_string())
        };
        let mut told = Told::default();
        told.content
            .extend(words(&self.text).iter().map(|word| vec![choice(word, None)]));
        if let Some(finish) = &self.chat.finish {
            told.ending.push((shape.finish_delay, choice("", Some(finish))));
        }
        let tells = match self.chat.usage_when {
            UsageWhen::Asked => usage_asked,
            UsageWhen::Always | UsageWhen::EachChunk => true,
            UsageWhen::Never => false,
        };
        if tells {
            let mut chunk = self.completion(&json!([]));
            chunk["usage"] = self.usage(told.content.len());
            told.ending
                .push((shape.usage_delay, Line::Data(chunk.to_string())));
        }
        if self.chat.done {
            told.ending
                .push((Duration::ZERO, Line::Data("[DONE]".to_owned())));
        }
        told
    }

    pub(super) fn completions_whole(&self, request: &Received) -> Value {
        let body = request.json();
        let prompts = body["prompt"]
            .as_array()
            .filter(|list| !list.iter().all(Value::is_number))
            .map_or(1, Vec::len);
        let count = prompts * usize::try_from(body["n"].as_u64().unwrap_or(1)).unwrap_or(1);
        let choice = |index| json!({"index": index, "text": self.text, "finish_reason": self.chat.finish, "logprobs": null});
        let choices: Vec<Value> = (0..count).map(choice).collect();
        let mut whole = self.completion(&json!(choices));
        if self.chat.usage_when != UsageWhen::Never {
            whole["usage"] = self.usage(words(&self.text).len());
        }
        whole
    }

    pub(super) fn embeddings_whole(&self, request: &Received) -> Value {
        let body = request.json();
        let inputs = match &body["input"] {
            Value::Array(list) if !list.iter().all(Value::is_number) => list.len(),
            _ => 1,
        };
        let numbers: Vec<f32> = (0_u8..)
            .map(|index| f32::from(index) / 8.0)
            .take(DIMENSIONS)
            .collect();
        let embedding = if body["encoding_format"] == "base64" {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            json!(base64::engine::general_purpose::STANDARD.encode(bytes))
        } else {
            json!(numbers)
        };
        let entry = |index| json!({"object": "embedding", "index": index, "embedding": embedding});
        let prompt = self.chat.prompt_tokens;
        json!({"object": "list", "model": self.model, "data": (0..inputs).map(entry).collect::<Vec<_>>(),
            "usage": {"prompt_tokens": prompt, "total_tokens": prompt}})
    }

    pub(super) fn count_whole(&self) -> Value {
        json!({"input_tokens": self.chat.prompt_tokens})
    }
}
