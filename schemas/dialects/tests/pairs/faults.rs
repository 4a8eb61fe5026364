//! The checkers are checked: a stream that is right passes, and each of ten planted faults is called by its name, in
//! every dialect that can have it.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::grammar::reading::{Call, Checked, Fault, Reading, Stop, Used, Violation, compare};
use crate::grammar::{chat, completions, messages, responses};

/// A stream as a list of events, so that faults can be planted in it.
type Script = Vec<Value>;

fn named(script: &Script) -> Vec<u8> {
    let mut stream = String::new();
    for event in script {
        let name = event["type"].as_str().expect("a type");
        write!(stream, "event: {name}\ndata: {event}\n\n").expect("text");
    }
    stream.into_bytes()
}

fn bare(script: &Script) -> Vec<u8> {
    let mut stream = String::new();
    for event in script {
        let data = if event == "end" {
            "[DONE]".to_owned()
        } else {
            event.to_string()
        };
        write!(stream, "data: {data}\n\n").expect("text");
    }
    stream.into_bytes()
}

/// What all scripts below say.
fn meant() -> Reading {
    let call = |id: &str, name: &str, arguments: &str| Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        custom: false,
    };
    Reading {
        text: "Two of them.".to_owned(),
        thinking: "hm, yes".to_owned(),
        calls: vec![
            call("call_a", "weather", "{\"city\":\"Oslo\"}"),
            call("call_b", "time", "{}"),
        ],
        stop: Some(Stop::Calls),
        usage: Some(Used {
            input: 10,
            cached: 3,
            written: 2,
            output: 7,
            reasoning: 4,
        }),
        ..Reading::default()
    }
}

fn chat_script() -> Script {
    let chunk = |choices: Value| json!({"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": choices});
    let delta =
        |delta: Value, finish: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]));
    let piece = |call: Value| delta(json!({"tool_calls": [call]}), Value::Null);
    let start = |index: u32, id: &str, name: &str| {
        piece(
            json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}),
        )
    };
    let more = |index: u32, text: &str| piece(json!({"index": index, "function": {"arguments": text}}));
    let mut usage = chunk(json!([]));
    usage["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 4}});
    vec![
        delta(json!({"role": "assistant", "content": ""}), Value::Null),
        delta(json!({"reasoning_content": "hm, yes"}), Value::Null),
        delta(json!({"content": "Two of "}), Value::Null),
        delta(json!({"content": "them."}), Value::Null),
        start(0, "call_a", "weather"),
        more(0, "{\"city\":"),
        start(1, "call_b", "time"),
        more(1, "{}"),
        more(0, "\"Oslo\"}"),
        delta(json!({}), json!("tool_calls")),
        usage,
        json!("end"),
    ]
}

fn messages_script() -> Script {
    let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let tool = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let input = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    let usage = |output: u32| {
        json!({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2,
            "output_tokens": output, "output_tokens_details": {"thinking_tokens": 4}})
    };
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage(0)}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm, yes"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Two of "})),
        delta(1, json!({"type": "text_delta", "text": "them."})),
        stop(1),
        start(2, tool("call_a", "weather")),
        delta(2, input("{\"city\":")),
        delta(2, input("\"Oslo\"}")),
        stop(2),
        start(3, tool("call_b", "time")),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": usage(7)}),
        json!({"type": "message_stop"}),
    ]
}

fn numbered(mut script: Script) -> Script {
    for (number, event) in script.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    script
}

fn response(status: &str, output: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 5, "model": "m", "status": status, "output": output,
        "tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "error": null, "incomplete_details": null,
        "usage": null})
}

/// The four items of the Responses script, whole.
fn items() -> [Value; 4] {
    let part = json!({"type": "output_text", "text": "Two of them.", "annotations": []});
    [
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm, yes"}]}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}),
        function("fc_1", ("call_a", "weather", "{\"city\":\"Oslo\"}"), "completed"),
        function("fc_2", ("call_b", "time", "{}"), "completed"),
    ]
}

fn function(id: &str, (call_id, name, arguments): (&str, &str, &str), status: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": status})
}

fn item(what: &str, index: u32, item: &Value) -> Value {
    json!({"type": format!("response.output_item.{what}"), "output_index": index, "item": item})
}

/// An event inside an item.
fn inside(kind: &str, (index, id): (u32, &str), more: &Value) -> Value {
    let mut event = json!({"type": format!("response.{kind}"), "output_index": index, "item_id": id});
    for (name, value) in more.as_object().expect("members") {
        event[name] = value.clone();
    }
    event
}

fn arguments(kind: &str, of: (u32, &str), more: &Value) -> Value {
    inside(&format!("function_call_arguments.{kind}"), of, more)
}

#[expect(clippy::too_many_lines, reason = "one event a line")]
fn responses_script() -> Script {
    let whole = items();
    let [thought, message, first, second] = &whole;
    let mut end = response("completed", &json!(whole));
    end["usage"] = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 17});
    numbered(vec![
        json!({"type": "response.created", "response": response("in_progress", &json!([]))}),
        json!({"type": "response.in_progress", "response": response("in_progress", &json!([]))}),
        item(
            "added",
            0,
            &json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        ),
        inside(
            "reasoning_summary_part.added",
            (0, "rs_1"),
            &json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ),
        inside(
            "reasoning_summary_text.delta",
            (0, "rs_1"),
            &json!({"summary_index": 0, "delta": "hm, yes"}),
        ),
        inside(
            "reasoning_summary_text.done",
            (0, "rs_1"),
            &json!({"summary_index": 0, "text": "hm, yes"}),
        ),
        inside(
            "reasoning_summary_part.done",
            (0, "rs_1"),
            &json!({"summary_index": 0, "part": {"type": "summary_text", "text": "hm, yes"}}),
        ),
        item("done", 0, thought),
        item(
            "added",
            1,
            &json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}),
        ),
        inside(
            "content_part.added",
            (1, "msg_1"),
            &json!({"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}),
        ),
        inside(
            "output_text.delta",
            (1, "msg_1"),
            &json!({"content_index": 0, "delta": "Two of "}),
        ),
        inside(
            "output_text.delta",
            (1, "msg_1"),
            &json!({"content_index": 0, "delta": "them."}),
        ),
        inside(
            "output_text.done",
            (1, "msg_1"),
            &json!({"content_index": 0, "text": "Two of them."}),
        ),
        inside(
            "content_part.done",
            (1, "msg_1"),
            &json!({"content_index": 0, "part": message["content"][0]}),
        ),
        item("done", 1, message),
        item(
            "added",
            2,
            &function("fc_1", ("call_a", "weather", ""), "in_progress"),
        ),
        arguments("delta", (2, "fc_1"), &json!({"delta": "{\"city\":"})),
        item(
            "added",
            3,
            &function("fc_2", ("call_b", "time", ""), "in_progress"),
        ),
        arguments("delta", (3, "fc_2"), &json!({"delta": "{}"})),
        arguments("delta", (2, "fc_1"), &json!({"delta": "\"Oslo\"}"})),
        arguments("done", (2, "fc_1"), &json!({"arguments": "{\"city\":\"Oslo\"}"})),
        item("done", 2, first),
        arguments("done", (3, "fc_2"), &json!({"arguments": "{}"})),
        item("done", 3, second),
        json!({"type": "response.completed", "response": end}),
    ])
}

fn completions_script() -> Script {
    let chunk = |text: &str, finish: Value| {
        json!({"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "text": text, "finish_reason": finish, "logprobs": null}]})
    };
    vec![
        chunk("Two of ", Value::Null),
        chunk("them.", json!("stop")),
        json!("end"),
    ]
}

fn read_chat(script: &Script) -> Checked<Reading> {
    chat::check(&bare(script))
}

fn read_messages(script: &Script) -> Checked<Reading> {
    messages::check(&named(script))
}

fn read_responses(script: &Script) -> Checked<Reading> {
    responses::check(&named(script))
}

/// The fault that a change of a script is found as; what is read must also be what was meant.
fn found(script: Script, read: fn(&Script) -> Checked<Reading>, change: impl FnOnce(&mut Script)) -> Fault {
    let mut script = script;
    change(&mut script);
    let judged = read(&script).and_then(|reading| compare(&reading, &meant()));
    let Violation { fault, .. } = judged.expect_err("the fault is found");
    fault
}

/// The same in a Responses script, whose events are numbered again.
fn found_in_responses(change: fn(&mut Script)) -> Fault {
    found(responses_script(), read_responses, |script| {
        change(script);
        *script = numbered(std::mem::take(script));
    })
}

#[test]
fn a_stream_that_is_right_is_put_together_in_every_dialect() {
    for reading in [
        read_chat(&chat_script()),
        read_messages(&messages_script()),
        read_responses(&responses_script()),
    ] {
        assert_eq!(reading, Ok(meant()));
    }
    let reading = completions::check(&bare(&completions_script())).expect("a right stream");
    assert_eq!(
        (reading.text.as_str(), reading.stop),
        ("Two of them.", Some(Stop::End))
    );
}

#[test]
fn ten_faults_planted_in_chat_are_called_by_their_names() {
    let of = |change: fn(&mut Script)| found(chat_script(), read_chat, change);

    assert_eq!(of(|script| drop(script.remove(0))), Fault::StartMissing);
    assert_eq!(
        of(|script| script.insert(1, script[0].clone())),
        Fault::StartTwice
    );
    assert_eq!(
        of(|script| script[6]["choices"][0]["delta"]["tool_calls"][0]["index"] = json!(3)),
        Fault::WrongIndex
    );
    assert_eq!(
        of(|script| script.insert(10, script[3].clone())),
        Fault::AfterStop
    );
    assert_eq!(of(|script| drop(script.remove(4))), Fault::Unopened);
    assert_eq!(of(|script| script[3]["id"] = json!("c2")), Fault::ChangedId);
    assert_eq!(
        of(
            |script| script[8]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] =
                json!("\"Osl\"}")
        ),
        Fault::Lost
    );
    assert_eq!(
        of(|script| script[9]["choices"][0]["finish_reason"] = json!("stop")),
        Fault::WrongStop
    );
    assert_eq!(
        of(|script| script.insert(11, script[10].clone())),
        Fault::UsageTwice
    );
    assert_eq!(of(|script| drop(script.pop())), Fault::EndMissing);
    assert_eq!(of(|script| script.push(script[3].clone())), Fault::AfterEnd);
}

#[test]
fn ten_faults_planted_in_messages_are_called_by_their_names() {
    let of = |change: fn(&mut Script)| found(messages_script(), read_messages, change);

    assert_eq!(of(|script| drop(script.remove(0))), Fault::StartMissing);
    assert_eq!(
        of(|script| script.insert(1, script[0].clone())),
        Fault::StartTwice
    );
    assert_eq!(of(|script| script[9]["index"] = json!(3)), Fault::WrongIndex);
    assert_eq!(
        of(|script| script.insert(16, script[6].clone())),
        Fault::AfterStop
    );
    assert_eq!(of(|script| drop(script.remove(9))), Fault::Unopened);
    assert_eq!(
        of(|script| script[13]["content_block"]["id"] = json!("call_a")),
        Fault::DoubleId
    );
    assert_eq!(
        of(|script| script[11]["delta"]["partial_json"] = json!("\"Osl\"}")),
        Fault::Lost
    );
    assert_eq!(
        of(|script| script[15]["delta"]["stop_reason"] = json!("end_turn")),
        Fault::WrongStop
    );
    assert_eq!(
        of(|script| script.insert(16, script[15].clone())),
        Fault::UsageTwice
    );
    assert_eq!(of(|script| drop(script.pop())), Fault::EndMissing);
    assert_eq!(of(|script| drop(script.remove(8))), Fault::Unclosed);
    assert_eq!(of(|script| script.push(script[1].clone())), Fault::AfterEnd);
}

#[test]
fn ten_faults_planted_in_responses_are_called_by_their_names() {
    let of = found_in_responses;

    assert_eq!(of(|script| drop(script.remove(0))), Fault::StartMissing);
    assert_eq!(
        of(|script| script.insert(1, script[0].clone())),
        Fault::StartTwice
    );
    assert_eq!(
        of(|script| script[8]["output_index"] = json!(2)),
        Fault::WrongIndex
    );
    assert_eq!(
        of(|script| script.insert(15, script[10].clone())),
        Fault::AfterStop
    );
    assert_eq!(of(|script| drop(script.remove(2))), Fault::Unopened);
    assert_eq!(
        of(|script| script[10]["item_id"] = json!("msg_2")),
        Fault::ChangedId
    );
    assert_eq!(of(|script| script[19]["delta"] = json!("\"Osl\"}")), Fault::Lost);
    assert_eq!(
        of(|script| script[24]["response"]["status"] = json!("incomplete")),
        Fault::WrongStop
    );
    assert_eq!(of(|script| script.push(script[24].clone())), Fault::AfterEnd);
    assert_eq!(of(|script| drop(script.pop())), Fault::EndMissing);
    assert_eq!(of(|script| drop(script.remove(14))), Fault::Unclosed);
    assert_eq!(
        of(|script| script[24]["response"]["usage"] = Value::Null),
        Fault::Usage
    );
    assert_eq!(
        found(
            responses_script(),
            read_responses,
            |script| script[7]["sequence_number"] = json!(9)
        ),
        Fault::WrongIndex
    );
}

#[test]
fn faults_planted_in_completions_are_called_by_their_names() {
    let of = |change: fn(&mut Script)| {
        let mut script = completions_script();
        change(&mut script);
        completions::check(&bare(&script))
            .expect_err("the fault is found")
            .fault
    };

    assert_eq!(of(|script| drop(script.pop())), Fault::EndMissing);
    assert_eq!(of(|script| drop(script.remove(1))), Fault::EndMissing);
    assert_eq!(of(|script| script[1]["id"] = json!("cmpl-2")), Fault::ChangedId);
    assert_eq!(
        of(|script| script[0]["choices"][0]["index"] = json!(1)),
        Fault::WrongIndex
    );
    assert_eq!(
        of(|script| script[0]["choices"][0]["finish_reason"] = json!("stop")),
        Fault::AfterStop
    );
    assert_eq!(
        of(|script| script[1]["choices"][0]["finish_reason"] = json!("tool_calls")),
        Fault::WrongStop
    );
}

#[test]
fn a_stream_that_failed_visibly_is_read_as_failed_and_not_as_whole() {
    let mut script = chat_script();
    script.truncate(4);
    script.push(json!({"error": {"message": "the upstream failed", "type": "server_error", "code": "upstream_error"}}));
    let reading = read_chat(&script).expect("a visible failure");
    assert_eq!(
        (reading.stop, reading.failed.as_deref()),
        (None, Some("server_error"))
    );

    let mut script = messages_script();
    script.truncate(7);
    script.push(json!({"type": "error", "error": {"type": "api_error", "message": "the upstream failed"}}));
    let reading = read_messages(&script).expect("a visible failure");
    assert_eq!(
        (reading.stop, reading.failed.as_deref()),
        (None, Some("api_error"))
    );

    let mut script = responses_script();
    script.truncate(11);
    let mut failed = response("failed", &json!([]));
    failed["error"] = json!({"code": "server_error", "message": "the upstream failed"});
    script.push(json!({"type": "response.failed", "response": failed}));
    let reading = read_responses(&numbered(script)).expect("a visible failure");
    assert_eq!(
        (reading.stop, reading.failed.as_deref()),
        (None, Some("server_error"))
    );
}
