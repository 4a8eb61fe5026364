//! The scripted answer as Anthropic's Messages tells it.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::behaviour::{Shape, UsageWhen};
use super::told::{Told, fragments, named, words};
use super::{Line, Writer};

impl Writer<'_> {
    /// What a thought is signed with; strict upstreams want to see it again.
    fn signature(&self) -> String {
        format!("sig-{}", self.word)
    }

    fn messages_stop(&self) -> Option<&str> {
        Some(match self.chat.finish.as_deref()? {
            "stop" => "end_turn",
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            "content_filter" => "refusal",
            other => other,
        })
    }

    fn messages_usage(&self, output: u64) -> Value {
        if let Some(usage) = &self.chat.usage {
            return usage.clone();
        }
        json!({"input_tokens": self.chat.prompt_tokens, "output_tokens": output,
            "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0})
    }

    /// Blocks of the answer: what opens each, and its deltas.
    fn messages_blocks(&self) -> Vec<(Value, Vec<Value>)> {
        let mut blocks = Vec::new();
        if !self.chat.reasoning.is_empty() {
            let delta = |word: &&str| json!({"type": "thinking_delta", "thinking": word});
            let mut deltas: Vec<Value> = words(&self.chat.reasoning).iter().map(delta).collect();
            deltas.push(json!({"type": "signature_delta", "signature": self.signature()}));
            blocks.push((
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                deltas,
            ));
        }
        if !self.text.is_empty() {
            let deltas = words(&self.text)
                .iter()
                .map(|word| json!({"type": "text_delta", "text": word}))
                .collect();
            blocks.push((json!({"type": "text", "text": ""}), deltas));
        }
        for call in &self.chat.tool_calls {
            let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
            let pieces = fragments(&call.arguments);
            deltas.extend(
                pieces
                    .iter()
                    .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
            );
            blocks.push((
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}),
                deltas,
            ));
        }
        blocks
    }

    fn message(&self, usage: Option<Value>) -> Value {
        let mut message = json!({"id": format!("msg_{}", self.word), "type": "message", "role": "assistant",
            "model": self.model, "content": [], "stop_reason": null, "stop_sequence": null});
        if let Some(usage) = usage {
            message["usage"] = usage;
        }
        message
    }

    pub(super) fn messages_told(&self, shape: &Shape) -> Told {
        let tells = self.chat.usage_when != UsageWhen::Never;
        let message = self.message(tells.then(|| self.messages_usage(1)));
        let mut told = Told {
            opening: vec![
                named(&json!({"type": "message_start", "message": message})),
                named(&json!({"type": "ping"})),
            ],
            ..Told::default()
        };
        let mut carried: Vec<Line> = Vec::new();
        for (index, (block, deltas)) in self.messages_blocks().into_iter().enumerate() {
            carried.push(named(
                &json!({"type": "content_block_start", "index": index, "content_block": block}),
            ));
            for delta in deltas {
                let mut group = std::mem::take(&mut carried);
                group.push(named(
                    &json!({"type": "content_block_delta", "index": index, "delta": delta}),
                ));
                told.content.push(group);
            }
            carried.push(named(&json!({"type": "content_block_stop", "index": index})));
        }
        told.ending
            .extend(carried.into_iter().map(|line| (Duration::ZERO, line)));
        if let Some(reason) = self.messages_stop() {
            let delta = json!({"stop_reason": reason, "stop_sequence": null});
            let mut event = json!({"type": "message_delta", "delta": delta});
            if tells {
                event["usage"] = self.messages_usage(self.output_tokens(told.content.len()));
            }
            told.ending.push((shape.finish_delay, named(&event)));
        }
        if self.chat.done {
            told.ending
                .push((shape.usage_delay, named(&json!({"type": "message_stop"}))));
        }
        told
    }

    pub(super) fn messages_whole(&self) -> Value {
        let mut content = Vec::new();
        if !self.chat.reasoning.is_empty() {
            content.push(
                json!({"type": "thinking", "thinking": self.chat.reasoning, "signature": self.signature()}),
            );
        }
        if !self.text.is_empty() {
            content.push(json!({"type": "text", "text": self.text}));
        }
        for call in &self.chat.tool_calls {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        let tells = self.chat.usage_when != UsageWhen::Never;
        let deltas: usize = self
            .messages_blocks()
            .iter()
            .map(|(_, deltas)| deltas.len())
            .sum();
        let mut message = self.message(tells.then(|| self.messages_usage(self.output_tokens(deltas))));
        message["content"] = Value::Array(content);
        message["stop_reason"] = json!(self.messages_stop());
        message
    }
}
