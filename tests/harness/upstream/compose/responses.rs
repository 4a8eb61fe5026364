//! The scripted answer as OpenAI's Responses tells it.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::behaviour::{Shape, UsageWhen};
use super::Writer;
use super::told::{Told, fragments, named, words};

/// What a delta of an item is called, and where it stands.
type Piece = (&'static str, Value);

impl Writer<'_> {
    /// Items of the answer, whole, with the pieces they come in.
    fn responses_items(&self) -> Vec<(Value, Vec<Piece>)> {
        let mut items = Vec::new();
        let delta = |place: &str, word: &str| json!({place: 0, "delta": word});
        if !self.chat.reasoning.is_empty() {
            let whole = json!({"type": "reasoning", "id": format!("rs_{}", self.word),
                "summary": [{"type": "summary_text", "text": self.chat.reasoning}],
                "encrypted_content": format!("enc-{}", self.word)});
            let pieces = words(&self.chat.reasoning);
            let deltas = pieces
                .iter()
                .map(|word| ("reasoning_summary_text", delta("summary_index", word)));
            items.push((whole, deltas.collect()));
        }
        if !self.text.is_empty() {
            let part = json!({"type": "output_text", "text": self.text, "annotations": []});
            let whole = json!({"type": "message", "id": format!("msg_{}", self.word), "role": "assistant",
                "status": "completed", "content": [part]});
            let deltas = words(&self.text)
                .iter()
                .map(|word| ("output_text", delta("content_index", word)))
                .collect();
            items.push((whole, deltas));
        }
        for (index, call) in self.chat.tool_calls.iter().enumerate() {
            let whole = json!({"type": "function_call", "id": format!("fc_{}{index}", self.word), "call_id": call.id,
                "name": call.name, "arguments": call.arguments, "status": "completed"});
            let pieces = fragments(&call.arguments);
            let deltas = pieces
                .iter()
                .map(|piece| ("function_call_arguments", json!({"delta": piece})))
                .collect();
            items.push((whole, deltas));
        }
        items
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        json!({"id": format!("resp_{}", self.word), "object": "response", "created_at": 1_700_000_000, "status": status,
            "model": self.model, "output": output, "tools": [], "tool_choice": "auto", "parallel_tool_calls": true,
            "error": null, "incomplete_details": null, "usage": null})
    }

    pub(super) fn responses_whole(&self) -> Value {
        let items = self.responses_items();
        let pieces: usize = items.iter().map(|(_, pieces)| pieces.len()).sum();
        let output: Vec<Value> = items.into_iter().map(|(item, _)| item).collect();
        let reason = match self.chat.finish.as_deref() {
            Some("length") => Some("max_output_tokens"),
            Some("content_filter") => Some("content_filter"),
            _ => None,
        };
        let mut response = self.response(
            if reason.is_some() {
                "incomplete"
            } else {
                "completed"
            },
            &output,
        );
        if let Some(reason) = reason {
            response["incomplete_details"] = json!({"reason": reason});
        }
        if let Some(usage) = &self.chat.usage {
            response["usage"] = usage.clone();
        } else if self.chat.usage_when != UsageWhen::Never {
            let (prompt, output) = (self.chat.prompt_tokens, self.output_tokens(pieces));
            response["usage"] = json!({"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + output});
        }
        response
    }

    pub(super) fn responses_told(&self, shape: &Shape) -> Told {
        let created = self.response("in_progress", &[]);
        let opening = [("response.created", &created), ("response.in_progress", &created)]
            .map(|(kind, response)| json!({"type": kind, "response": response}));
        let mut groups: Vec<Vec<Value>> = vec![opening.to_vec()];
        let mut carried = Vec::new();
        for (index, (item, pieces)) in self.responses_items().into_iter().enumerate() {
            carried.extend(opened(index, &item));
            for (kind, mut piece) in pieces {
                piece["type"] = json!(format!("response.{kind}.delta"));
                piece["output_index"] = json!(index);
                piece["item_id"] = item["id"].clone();
                let mut group = std::mem::take(&mut carried);
                group.push(piece);
                groups.push(group);
            }
            carried.extend(closed(index, &item));
        }
        groups.push(carried);
        if self.chat.finish.is_some() && self.chat.done {
            let whole = self.responses_whole();
            let kind = format!("response.{}", whole["status"].as_str().unwrap_or_default());
            groups.push(vec![json!({"type": kind, "response": whole})]);
        }
        let mut number = 0;
        let mut lines = groups.into_iter().map(|group| {
            let mut numbered = Vec::new();
            for mut event in group {
                event["sequence_number"] = json!(number);
                number += 1;
                numbered.push(named(&event));
            }
            numbered
        });
        let opening = lines.next().unwrap_or_default();
        let mut content: Vec<_> = lines.collect();
        let last = if self.chat.finish.is_some() && self.chat.done {
            content.pop()
        } else {
            None
        };
        let before = content.pop().unwrap_or_default();
        let mut ending: Vec<_> = before.into_iter().map(|line| (Duration::ZERO, line)).collect();
        ending.extend(last.into_iter().flatten().map(|line| (shape.finish_delay, line)));
        Told {
            opening,
            content,
            ending,
        }
    }
}

fn inside(kind: &str, index: usize, item: &Value, more: Value) -> Value {
    let mut event = more;
    event["type"] = json!(format!("response.{kind}"));
    event["output_index"] = json!(index);
    event["item_id"] = item["id"].clone();
    event
}

fn opened(index: usize, item: &Value) -> Vec<Value> {
    let mut empty = item.clone();
    let mut events = Vec::new();
    let kind = item["type"].as_str().unwrap_or_default();
    match kind {
        "reasoning" => {
            empty["summary"] = json!([]);
            let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
            events.push(inside("reasoning_summary_part.added", index, item, part));
        }
        "message" => {
            empty["content"] = json!([]);
            empty["status"] = json!("in_progress");
            let part =
                json!({"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}});
            events.push(inside("content_part.added", index, item, part));
        }
        _ => {
            empty["arguments"] = json!("");
            empty["status"] = json!("in_progress");
        }
    }
    events.insert(
        0,
        json!({"type": "response.output_item.added", "output_index": index, "item": empty}),
    );
    events
}

fn closed(index: usize, item: &Value) -> Vec<Value> {
    let kind = item["type"].as_str().unwrap_or_default();
    let mut events = match kind {
        "reasoning" => {
            let part = &item["summary"][0];
            vec![
                inside(
                    "reasoning_summary_text.done",
                    index,
                    item,
                    json!({"summary_index": 0, "text": part["text"]}),
                ),
                inside(
                    "reasoning_summary_part.done",
                    index,
                    item,
                    json!({"summary_index": 0, "part": part}),
                ),
            ]
        }
        "message" => {
            let part = &item["content"][0];
            vec![
                inside(
                    "output_text.done",
                    index,
                    item,
                    json!({"content_index": 0, "text": part["text"]}),
                ),
                inside(
                    "content_part.done",
                    index,
                    item,
                    json!({"content_index": 0, "part": part}),
                ),
            ]
        }
        _ => {
            let all = json!({"arguments": item["arguments"], "name": item["name"]});
            vec![inside("function_call_arguments.done", index, item, all)]
        }
    };
    events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    events
}
