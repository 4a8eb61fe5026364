//! Anthropic's Messages: one block open at a time, counted from 0, usage at the start and at the end.

use serde_json::Value;

use super::{Counts, Told, ToldCall, count, list, number, text};

pub(super) fn whole(body: &Value) -> Told {
    let mut told = opened(body);
    for block in list(body, "content") {
        match text(block, "type") {
            "text" => told.text.push_str(text(block, "text")),
            "thinking" => told.reasoning.push_str(text(block, "thinking")),
            "tool_use" => told.calls.push(ToldCall {
                arguments: {
                    assert!(block["input"].is_object(), "an input that is no object: {block}");
                    block["input"].to_string()
                },
                ..call(block)
            }),
            _ => {}
        }
    }
    told.finish = finish(text(body, "stop_reason"));
    told.usage = counts(&body["usage"]);
    told
}

pub(super) fn streamed(events: &[&Value], ended: bool) -> Told {
    let mut reading = Reading::default();
    for event in events {
        reading.take(event);
    }
    assert!(
        !ended || !reading.told.finish.is_empty(),
        "message_stop without a reason before it"
    );
    reading.told
}

#[derive(Default)]
struct Reading {
    told: Told,
    started: bool,
    /// Number and type of the open block.
    open: Option<(u64, String)>,
    blocks: u64,
    delta: bool,
}

impl Reading {
    fn take(&mut self, event: &Value) {
        let kind = text(event, "type");
        assert!(
            self.started == (kind != "message_start"),
            "a stream has one message_start, and it is first: {event}"
        );
        let last = matches!(kind, "ping" | "message_delta");
        assert!(!self.delta || last, "after message_delta: {event}");
        match kind {
            "message_start" => {
                self.started = true;
                let message = &event["message"];
                assert_eq!(message["content"], serde_json::json!([]));
                self.told = opened(message);
                self.told.usage = counts(&message["usage"]);
            }
            "content_block_start" => self.begin(event),
            "content_block_delta" => self.go_on(event),
            "content_block_stop" => {
                let (index, _) = self.open.take().expect("a block is open");
                assert_eq!(number(event, "index"), index, "{event}");
            }
            "message_delta" => self.end(event),
            _ => {}
        }
    }

    fn begin(&mut self, event: &Value) {
        assert_eq!(self.open, None, "two blocks are open: {event}");
        assert_eq!(number(event, "index"), self.blocks, "{event}");
        self.blocks += 1;
        let block = &event["content_block"];
        let kind = text(block, "type");
        match kind {
            "text" => assert_eq!(text(block, "text"), ""),
            "tool_use" => {
                assert_eq!(block["input"], serde_json::json!({}));
                self.told.calls.push(call(block));
            }
            _ => {}
        }
        self.open = Some((self.blocks - 1, kind.to_owned()));
    }

    fn go_on(&mut self, event: &Value) {
        let (index, block) = self.open.as_ref().expect("a block is open");
        assert_eq!(number(event, "index"), *index, "{event}");
        let delta = &event["delta"];
        let kind = text(delta, "type");
        match (block.as_str(), kind) {
            ("text", "text_delta") => self.told.text.push_str(text(delta, "text")),
            ("thinking", "thinking_delta") => self.told.reasoning.push_str(text(delta, "thinking")),
            ("tool_use", "input_json_delta") => {
                let call = self.told.calls.last_mut().expect("a call is open");
                call.arguments.push_str(text(delta, "partial_json"));
            }
            ("thinking", "signature_delta") | ("text", "citations_delta") => {}
            (block, _) => panic!("a {kind} inside a block of type {block}: {event}"),
        }
    }

    fn end(&mut self, event: &Value) {
        assert_eq!(self.open, None, "a block is open at the end: {event}");
        self.delta = true;
        // Some upstreams tell the usage several times, the reason only at last.
        if let Some(reason) = event["delta"]["stop_reason"].as_str() {
            self.told.finish = finish(reason);
        }
        for call in &mut self.told.calls {
            if call.arguments.is_empty() {
                "{}".clone_into(&mut call.arguments);
            }
        }
        let usage = &event["usage"];
        assert_eq!(
            usage.is_null(),
            self.told.usage.is_none(),
            "usage stands at both ends or at neither: {event}"
        );
        // What the end tells replaces what the start told; what it leaves out stays.
        if let Some(counts) = &mut self.told.usage {
            counts.output = number(usage, "output_tokens");
            for (figure, member) in [
                (&mut counts.fresh, "input_tokens"),
                (&mut counts.cached, "cache_read_input_tokens"),
                (&mut counts.written, "cache_creation_input_tokens"),
            ] {
                *figure = usage[member].as_u64().unwrap_or(*figure);
            }
        }
    }
}

fn opened(message: &Value) -> Told {
    assert_eq!(
        (text(message, "type"), text(message, "role")),
        ("message", "assistant")
    );
    assert!(message.get("stop_reason").is_some() && message.get("stop_sequence").is_some());
    Told {
        id: text(message, "id").to_owned(),
        model: text(message, "model").to_owned(),
        ..Told::default()
    }
}

fn call(block: &Value) -> ToldCall {
    let legal = |id: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        !id.is_empty() && id.bytes().all(plain)
    };
    assert!(legal(text(block, "id")), "no id of a call: {block}");
    ToldCall {
        id: text(block, "id").to_owned(),
        name: text(block, "name").to_owned(),
        arguments: String::new(),
    }
}

fn finish(reason: &str) -> String {
    match reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        other => other,
    }
    .to_owned()
}

fn counts(usage: &Value) -> Option<Counts> {
    (!usage.is_null()).then(|| Counts {
        fresh: number(usage, "input_tokens"),
        cached: count(&usage["cache_read_input_tokens"]),
        written: count(&usage["cache_creation_input_tokens"]),
        output: number(usage, "output_tokens"),
    })
}
