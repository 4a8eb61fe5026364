//! The scripted answer as Gemini's generateContent tells it.

use base64::Engine;
use serde_json::{Value, json};

use super::super::behaviour::{Shape, UsageWhen};
use super::told::{Told, words};
use super::{Line, Writer};

impl Writer<'_> {
    /// Parts of the answer, one a chunk. The first call carries a signature that strict upstreams want to see again.
    fn gemini_parts(&self) -> Vec<Value> {
        let mut parts: Vec<Value> = words(&self.chat.reasoning)
            .iter()
            .map(|word| json!({"text": word, "thought": true}))
            .collect();
        parts.extend(words(&self.text).iter().map(|word| json!({"text": word})));
        for (index, call) in self.chat.tool_calls.iter().enumerate() {
            let args: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            let mut part = json!({"functionCall": {"name": call.name, "args": args}});
            if index == 0 {
                let proof = format!("sig:{}:{index}", self.word);
                part["thoughtSignature"] = json!(base64::engine::general_purpose::STANDARD.encode(proof));
            }
            parts.push(part);
        }
        parts
    }

    /// What was used when so many tokens were put out.
    fn gemini_usage(&self, output: u64) -> Value {
        if let Some(usage) = &self.chat.usage {
            return usage.clone();
        }
        let prompt = self.chat.prompt_tokens;
        json!({"promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output})
    }

    fn gemini_chunk(&self, parts: &[Value], finish: Option<&str>, usage: Option<Value>) -> Value {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        let mut chunk =
            json!({"candidates": [candidate], "modelVersion": self.gemini_model(), "responseId": self.word});
        if let Some(usage) = usage {
            chunk["usageMetadata"] = usage;
        }
        chunk
    }

    /// The model stands in the path.
    fn gemini_model(&self) -> &str {
        let after = self.target.rsplit_once("models/").map_or("", |(_, rest)| rest);
        after.split(':').next().unwrap_or_default()
    }

    fn gemini_finish(&self) -> Option<&str> {
        Some(match self.chat.finish.as_deref()? {
            "stop" | "tool_calls" => "STOP",
            "length" => "MAX_TOKENS",
            "content_filter" => "SAFETY",
            other => other,
        })
    }

    pub(super) fn gemini_told(&self, shape: &Shape) -> Told {
        let tells = self.chat.usage_when != UsageWhen::Never;
        let parts = self.gemini_parts();
        let output = self.output_tokens(parts.len());
        let line = |chunk: &Value| Line::Data(chunk.to_string());
        let mut told = Told::default();
        for (index, part) in parts.iter().enumerate() {
            let usage = tells.then(|| self.gemini_usage((index as u64 + 1).min(output)));
            told.content.push(vec![line(&self.gemini_chunk(
                std::slice::from_ref(part),
                None,
                usage,
            ))]);
        }
        if let Some(finish) = self.gemini_finish() {
            let usage = tells.then(|| self.gemini_usage(output));
            let last = self.gemini_chunk(&[json!({"text": ""})], Some(finish), usage);
            told.ending.push((shape.finish_delay, line(&last)));
        }
        told
    }

    pub(super) fn gemini_whole(&self) -> Value {
        let parts = self.gemini_parts();
        let tells = self.chat.usage_when != UsageWhen::Never;
        self.gemini_chunk(
            &parts,
            self.gemini_finish(),
            tells.then(|| self.gemini_usage(self.output_tokens(parts.len()))),
        )
    }
}
