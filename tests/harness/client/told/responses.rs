//! OpenAI's Responses: numbered events, items that open and close, and all of it again in the last event.

use serde_json::Value;

use super::{Counts, Told, ToldCall, count, list, number, text};

pub(super) fn whole(body: &Value) -> Told {
    let mut told = opened(body);
    for item in list(body, "output") {
        match text(item, "type") {
            "message" => {
                assert_eq!(text(item, "role"), "assistant");
                for part in list(item, "content") {
                    let member = if text(part, "type") == "refusal" {
                        "refusal"
                    } else {
                        "text"
                    };
                    told.text.push_str(text(part, member));
                }
            }
            "reasoning" => told.reasoning.push_str(&thoughts(item)),
            "function_call" => told.calls.push(call(item)),
            _ => {}
        }
    }
    told.finish = finish(body, &told);
    told.usage = counts(&body["usage"]);
    told
}

pub(super) fn streamed(events: &[&Value], ended: bool) -> Told {
    let mut reading = Reading::default();
    for (place, event) in events.iter().enumerate() {
        assert_eq!(number(event, "sequence_number"), place as u64, "{event}");
        reading.take(place, event);
    }
    if ended {
        let last = events.last().expect("an event");
        reading.compare(&last["response"]);
        return whole(&last["response"]);
    }
    reading.told
}

/// An item under way.
struct Item {
    id: String,
    /// What its pieces made so far, by event: `output_text`, `function_call_arguments` and so on.
    pieces: Vec<(String, String)>,
    done: Option<Value>,
}

#[derive(Default)]
struct Reading {
    told: Told,
    items: Vec<Item>,
}

impl Reading {
    fn take(&mut self, place: usize, event: &Value) {
        let kind = text(event, "type")
            .strip_prefix("response.")
            .expect("an event of a response");
        match (place, kind) {
            (0, "created") => self.told = opened(&event["response"]),
            (1, "in_progress") => assert_eq!(text(&event["response"], "id"), self.told.id),
            (0 | 1, _) => panic!("created and in_progress come first: {event}"),
            (_, "output_item.added") => self.add(event),
            (_, "output_item.done") => self.done(event),
            (_, "completed" | "incomplete") => assert_eq!(text(&event["response"], "id"), self.told.id),
            _ => match kind.rsplit_once('.') {
                Some((of, "delta")) => self.go_on(of, event),
                Some((of, "done")) => self.said(of, event),
                _ => drop(self.item(event)),
            },
        }
    }

    fn add(&mut self, event: &Value) {
        assert_eq!(number(event, "output_index"), self.items.len() as u64, "{event}");
        let item = &event["item"];
        let id = text(item, "id").to_owned();
        let known = self.items.iter().any(|item| item.id == id);
        assert!(
            !known && !id.is_empty(),
            "an item without an id of its own: {event}"
        );
        if text(item, "type") == "function_call" {
            assert_eq!(
                text(item, "arguments"),
                "",
                "arguments before their time: {event}"
            );
        }
        self.items.push(Item {
            id,
            pieces: Vec::new(),
            done: None,
        });
    }

    /// The open item that an event is about.
    fn item(&mut self, event: &Value) -> &mut Item {
        let index = usize::try_from(number(event, "output_index")).expect("a small index");
        let item = self.items.get_mut(index);
        let item = item.unwrap_or_else(|| panic!("an item that was never opened: {event}"));
        assert_eq!(item.id, text(event, "item_id"), "{event}");
        assert!(item.done.is_none(), "the item has ended: {event}");
        item
    }

    fn go_on(&mut self, of: &str, event: &Value) {
        let piece = text(event, "delta");
        match of {
            "output_text" => self.told.text.push_str(piece),
            "reasoning_text" | "reasoning_summary_text" => self.told.reasoning.push_str(piece),
            _ => {}
        }
        let item = self.item(event);
        match item.pieces.iter_mut().find(|(name, _)| name == of) {
            Some((_, so_far)) => so_far.push_str(piece),
            None => item.pieces.push((of.to_owned(), piece.to_owned())),
        }
    }

    /// What a part was in the end must be what its pieces made.
    fn said(&mut self, of: &str, event: &Value) {
        let item = self.item(event);
        let member = match of {
            "output_text" | "reasoning_text" | "reasoning_summary_text" => "text",
            "function_call_arguments" => "arguments",
            _ => return,
        };
        let pieces = item.pieces.iter().find(|(name, _)| name == of);
        let made = pieces.map_or("", |(_, made)| made.as_str());
        assert_eq!(text(event, member), made, "{event}");
    }

    fn done(&mut self, event: &Value) {
        let index = usize::try_from(number(event, "output_index")).expect("a small index");
        let item = self.items.get_mut(index).expect("an item that was opened");
        assert_eq!(item.id, text(&event["item"], "id"), "{event}");
        assert!(item.done.is_none(), "an item ends twice: {event}");
        let arguments = item
            .pieces
            .iter()
            .find(|(name, _)| name == "function_call_arguments");
        if let Some((_, made)) = arguments {
            assert_eq!(text(&event["item"], "arguments"), made, "{event}");
        }
        item.done = Some(event["item"].clone());
    }

    /// The last event holds the items as they were told.
    fn compare(&self, response: &Value) {
        let output = list(response, "output");
        let told: Vec<Value> = self.items.iter().filter_map(|item| item.done.clone()).collect();
        assert_eq!(
            told.len(),
            self.items.len(),
            "an item was never ended: {response}"
        );
        assert_eq!(output, told, "the last event says something else");
        let again = whole(response);
        assert_eq!(again.text, self.told.text);
        assert_eq!(again.reasoning, self.told.reasoning);
    }
}

fn opened(response: &Value) -> Told {
    assert_eq!(text(response, "object"), "response");
    for member in [
        "created_at",
        "status",
        "output",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "usage",
    ] {
        assert!(
            response.get(member).is_some(),
            "`{member}` is missing in {response}"
        );
    }
    Told {
        id: text(response, "id").to_owned(),
        model: text(response, "model").to_owned(),
        ..Told::default()
    }
}

/// The thoughts of an item, from its summary or its content.
fn thoughts(item: &Value) -> String {
    let parts = ["summary", "content"].map(|member| item[member].as_array());
    let parts = parts.into_iter().flatten().flatten();
    parts.map(|part| text(part, "text")).collect()
}

fn call(item: &Value) -> ToldCall {
    assert_ne!(text(item, "id"), text(item, "call_id"), "{item}");
    ToldCall {
        id: text(item, "call_id").to_owned(),
        name: text(item, "name").to_owned(),
        arguments: text(item, "arguments").to_owned(),
    }
}

fn finish(response: &Value, told: &Told) -> String {
    match (
        text(response, "status"),
        response["incomplete_details"]["reason"].as_str(),
    ) {
        ("completed", None) if told.calls.is_empty() => "stop",
        ("completed", None) => "tool_calls",
        ("incomplete", Some("max_output_tokens")) => "length",
        ("incomplete", Some("content_filter")) => "content_filter",
        (status, reason) => panic!("a response of status {status} for {reason:?}"),
    }
    .to_owned()
}

fn counts(usage: &Value) -> Option<Counts> {
    if usage.is_null() {
        return None;
    }
    let (input, output) = (number(usage, "input_tokens"), number(usage, "output_tokens"));
    assert_eq!(number(usage, "total_tokens"), input + output, "{usage}");
    let details = &usage["input_tokens_details"];
    let cached = number(details, "cached_tokens");
    let written = count(&details["cache_write_tokens"]);
    number(&usage["output_tokens_details"], "reasoning_tokens");
    Some(Counts {
        fresh: input - cached - written,
        cached,
        written,
        output,
    })
}
