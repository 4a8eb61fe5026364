//! What was said so far on a passing stream of Responses: enough to close what is open and to repeat all of it, for a
//! stream that is ended before its upstream ends it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::passage::stop::Ending;

/// Most bytes of what was said that are held; a stream that says more cannot be ended so.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream so far.
#[derive(Debug, Default)]
pub struct Follower {
    response: Map<String, Value>,
    items: BTreeMap<u64, Item>,
    /// The number of the next event.
    next: u64,
    held_bytes: usize,
}

#[derive(Debug)]
struct Item {
    members: Map<String, Value>,
    is_done: bool,
    parts: BTreeMap<u64, Part>,
    arguments: String,
}

#[derive(Debug)]
struct Part {
    members: Map<String, Value>,
    text: String,
    is_done: bool,
}

impl Follower {
    /// Notes an event as it leaves for the caller.
    pub fn event(&mut self, raw: &[u8]) {
        let mut lines = raw.split(|byte| *byte == b'\n');
        let data = lines.find_map(|line| line.strip_prefix(b"data:"));
        let told = data.and_then(|data| serde_json::from_slice::<Map<String, Value>>(data).ok());
        if let Some(told) = told.filter(|_| self.held_bytes <= HELD_BYTES_MAX) {
            self.held_bytes += raw.len();
            self.note(told);
        }
    }

    fn note(&mut self, mut told: Map<String, Value>) {
        let number = |told: &Map<String, Value>, name: &str| told.get(name).and_then(Value::as_u64);
        if let Some(sequence) = number(&told, "sequence_number") {
            self.next = sequence.saturating_add(1);
        }
        let kind = told
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if let Some(Value::Object(response)) = told.remove("response") {
            self.response = response;
        }
        let Some(place) = number(&told, "output_index") else {
            return;
        };
        if let Some(Value::Object(item)) = told.remove("item") {
            let is_done = kind == "response.output_item.done";
            let begun = || Item {
                members: Map::new(),
                is_done,
                parts: BTreeMap::new(),
                arguments: String::new(),
            };
            let known = self.items.entry(place).or_insert_with(begun);
            (known.members, known.is_done) = (item, is_done);
            return;
        }
        let Some(item) = self.items.get_mut(&place) else {
            return;
        };
        let text = |name: &str| told.get(name).and_then(Value::as_str).unwrap_or_default();
        match (kind.as_str(), number(&told, "content_index")) {
            ("response.content_part.added" | "response.content_part.done", Some(index)) => {
                if let Some(Value::Object(part)) = told.get("part") {
                    let part = Part {
                        text: String::new(),
                        members: part.clone(),
                        is_done: kind.strip_suffix(".done").is_some(),
                    };
                    item.parts.insert(index, part);
                }
            }
            (kind, Some(index)) if kind.strip_suffix(".delta").is_some() => {
                if let Some(part) = item.parts.get_mut(&index) {
                    part.text.push_str(text("delta"));
                }
            }
            (kind, None) if kind.contains("call") && kind.strip_suffix(".delta").is_some() => {
                item.arguments.push_str(text("delta"));
            }
            _ => {}
        }
    }

    /// Ends the stream with these tokens of prompt and answer; `None` where too much was said to repeat it, or nothing.
    pub(crate) fn stop(&self, (prompt, said): (u64, u64)) -> Option<Ending> {
        if self.response.is_empty() || self.held_bytes > HELD_BYTES_MAX {
            return None;
        }
        let mut events = Events {
            next: self.next,
            out: Vec::new(),
        };
        let closed = self
            .items
            .iter()
            .map(|(place, item)| item.close(*place, &mut events));
        let output: Vec<Value> = closed.collect();
        let mut response = self.response.clone();
        response.insert("status".to_owned(), json!("incomplete"));
        response.insert(
            "incomplete_details".to_owned(),
            json!({"reason": "max_output_tokens"}),
        );
        response.insert("output".to_owned(), output.into());
        let usage = json!({
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt.saturating_add(said),
        });
        response.insert("usage".to_owned(), usage);
        let leaves = std::mem::take(&mut events.out);
        events.put("response.incomplete", json!({"response": response}));
        Some(Ending {
            events: leaves,
            mark: Bytes::from(events.out),
        })
    }
}

/// Events that are written with their numbers.
struct Events {
    next: u64,
    out: Vec<u8>,
}

impl Events {
    fn put(&mut self, kind: &str, mut members: Value) {
        members["type"] = kind.into();
        members["sequence_number"] = self.next.into();
        self.next = self.next.saturating_add(1);
        let event = format!("event: {kind}\ndata: {members}\n\n");
        self.out.extend_from_slice(event.as_bytes());
    }
}

impl Item {
    /// Closes what is open of it, and tells it as it is at the end.
    fn close(&self, place: u64, events: &mut Events) -> Value {
        if self.is_done {
            return Value::Object(self.members.clone());
        }
        let id = self.members.get("id").cloned().unwrap_or_default();
        let mut item = self.members.clone();
        let kind = item
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let parts = self
            .parts
            .iter()
            .map(|(index, part)| part.close((place, *index), &id, events));
        let content: Vec<Value> = parts.collect();
        if kind == "message" || !content.is_empty() {
            item.insert("content".to_owned(), content.into());
        }
        match kind.as_str() {
            "function_call" => {
                let members = json!({"item_id": id, "output_index": place, "arguments": self.arguments});
                events.put("response.function_call_arguments.done", members);
                item.insert("arguments".to_owned(), self.arguments.as_str().into());
            }
            "custom_tool_call" => {
                let members = json!({"item_id": id, "output_index": place, "input": self.arguments});
                events.put("response.custom_tool_call_input.done", members);
                item.insert("input".to_owned(), self.arguments.as_str().into());
            }
            _ => {}
        }
        item.insert("status".to_owned(), json!("incomplete"));
        events.put(
            "response.output_item.done",
            json!({"output_index": place, "item": item}),
        );
        Value::Object(item)
    }
}

impl Part {
    fn close(&self, (place, index): (u64, u64), id: &Value, events: &mut Events) -> Value {
        let mut part = self.members.clone();
        if self.is_done {
            return Value::Object(part);
        }
        let at = |member: &str| json!({"item_id": id, "output_index": place, "content_index": index, member: self.text});
        let member = match part.get("type").and_then(Value::as_str) {
            Some("refusal") => "refusal",
            _ => "text",
        };
        part.insert(member.to_owned(), self.text.as_str().into());
        let mut done = at(member);
        match (member, part.get("type").and_then(Value::as_str)) {
            ("refusal", _) => events.put("response.refusal.done", done),
            (_, Some("reasoning_text")) => events.put("response.reasoning_text.done", done),
            _ => {
                done["logprobs"] = json!([]);
                events.put("response.output_text.done", done);
            }
        }
        events.put(
            "response.content_part.done",
            json!({"item_id": id, "output_index": place, "content_index": index, "part": part}),
        );
        Value::Object(part)
    }
}
