//! What the readers of answers must object to: each test plants one fault in a stream that is fine without it.

use serde_json::{Value, json};

use super::*;

fn read(surface: Surface, events: &[Value]) -> Told {
    let events: Vec<&Value> = events.iter().collect();
    Told::streamed(surface, &events, true)
}

/// Whether reading these events panics.
fn refused(surface: Surface, events: Vec<Value>) -> bool {
    std::panic::catch_unwind(move || read(surface, &events)).is_err()
}

fn chat() -> Vec<Value> {
    let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let call = |call: Value| chunk(json!({"tool_calls": [call]}), Value::Null);
    vec![
        chunk(json!({"role": "assistant", "content": "hi"}), Value::Null),
        call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}})),
        call(json!({"index": 0, "function": {"arguments": "}"}})),
        chunk(json!({}), json!("tool_calls")),
        json!({"id": "c", "model": "m", "choices": [],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
                "prompt_tokens_details": {"cached_tokens": 4}}}),
    ]
}

fn messages() -> Vec<Value> {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 5, "output_tokens": 0, "cache_read_input_tokens": 4}});
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 2}}),
    ]
}

fn responses() -> Vec<Value> {
    let response = |status: &str, output: Value, usage: Value| {
        json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m",
            "output": output, "tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "usage": usage})
    };
    let begun = response("in_progress", json!([]), Value::Null);
    let part = json!({"type": "output_text", "text": "hi", "annotations": []});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]});
    let call = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": arguments});
    let usage = json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 11});
    let of = |kind: &str, item: &str, index: u64, more: Value| {
        let mut event = more;
        event["type"] = json!(format!("response.{kind}"));
        event["item_id"] = json!(item);
        event["output_index"] = json!(index);
        event
    };
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": message}),
        of("output_text.delta", "msg_1", 0, json!({"delta": "hi"})),
        of("output_text.done", "msg_1", 0, json!({"text": "hi"})),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}),
        of("function_call_arguments.delta", "fc_1", 1, json!({"delta": "{}"})),
        of(
            "function_call_arguments.done",
            "fc_1",
            1,
            json!({"arguments": "{}"}),
        ),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call("{}")}),
        json!({"type": "response.completed", "response": response("completed", json!([message, call("{}")]), usage)}),
    ];
    for (place, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(place);
    }
    events
}

#[test]
fn the_same_answer_reads_the_same_in_every_dialect() {
    for (surface, events) in [
        (Surface::Chat, chat()),
        (Surface::Messages, messages()),
        (Surface::Responses, responses()),
    ] {
        let told = read(surface, &events);

        assert_eq!(
            (told.text.as_str(), told.finish.as_str()),
            ("hi", "tool_calls"),
            "{surface:?}"
        );
        let call = told.calls.first().expect("a call");
        assert_eq!(
            (call.id.as_str(), call.name.as_str(), call.input()),
            ("a", "f", json!({}))
        );
        let counts = Counts {
            fresh: 5,
            cached: 4,
            written: 0,
            output: 2,
        };
        assert_eq!(told.usage, Some(counts), "{surface:?}");
    }
}

#[test]
fn an_event_that_is_missing_or_doubled_is_noticed() {
    for (surface, events, needed) in [
        (Surface::Chat, chat(), vec![1, 3]),
        (Surface::Messages, messages(), vec![0, 1, 3, 4, 6, 7]),
        (Surface::Responses, responses(), (0..11).collect()),
    ] {
        for place in needed {
            let mut without = events.clone();
            without.remove(place);
            assert!(refused(surface, without), "{surface:?} without {place}");
        }
    }
    for (surface, events, once) in [
        (Surface::Chat, chat(), vec![3]),
        (Surface::Messages, messages(), vec![0, 1, 3, 4, 6]),
        (Surface::Responses, responses(), (0..11).collect()),
    ] {
        for place in once {
            let mut twice = events.clone();
            twice.insert(place, events[place].clone());
            assert!(refused(surface, twice), "{surface:?} with {place} twice");
        }
    }
}

#[test]
fn a_member_that_is_wrong_is_noticed() {
    for (surface, events, place, pointer, wrong) in [
        (Surface::Chat, chat(), 2, "/id", json!("d")),
        (
            Surface::Chat,
            chat(),
            2,
            "/choices/0/delta/tool_calls/0/index",
            json!(2),
        ),
        (Surface::Chat, chat(), 2, "/choices/0/index", Value::Null),
        (Surface::Messages, messages(), 2, "/index", json!(1)),
        (
            Surface::Messages,
            messages(),
            5,
            "/delta/type",
            json!("text_delta"),
        ),
        (Surface::Messages, messages(), 7, "/usage", Value::Null),
        (Surface::Responses, responses(), 3, "/item_id", json!("msg_2")),
        (Surface::Responses, responses(), 7, "/delta", json!("{")),
        (Surface::Responses, responses(), 7, "/output_index", json!(0)),
        (
            Surface::Responses,
            responses(),
            10,
            "/response/id",
            json!("resp_2"),
        ),
    ] {
        let mut changed = events;
        let member = changed[place].pointer_mut(pointer).expect("a member");
        *member = wrong;
        assert!(refused(surface, changed), "{surface:?}, {place}, {pointer}");
    }
}
