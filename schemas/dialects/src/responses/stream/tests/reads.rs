//! What servers send.

use serde_json::{Value, json};

use super::*;

fn sent(events: &[Value]) -> String {
    let events = events.iter().map(|event| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or("x")
        )
    });
    events.collect()
}

#[test]
fn a_server_without_numbers_that_mixes_items_is_understood_however_it_is_cut() {
    // The shape of llama-server's streams.
    let message = |text: &str| json!({"type": "message", "id": "msg_a", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let function = |arguments: &str| json!({"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "f", "arguments": arguments});
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_a", "object": "response", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "item": {"type": "message", "id": "msg_a", "content": []}}),
        json!({"type": "response.content_part.added", "item_id": "msg_a", "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_a", "delta": "In"}),
        json!({"type": "response.output_item.added", "item": function("")}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_a", "delta": "{\"a\":"}),
        json!({"type": "response.output_text.delta", "item_id": "msg_a", "delta": "deed"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_a", "delta": "1}"}),
        json!({"type": "response.output_item.done", "item": message("Indeed")}),
        json!({"type": "response.output_item.done", "item": function("{\"a\":1}")}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [message("Indeed"), function("{\"a\":1}")],
            "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}}, "timings": {}}),
    ];
    let stream = sent(&events);
    let crlf = stream.replace('\n', "\r\n");

    for (stream, size) in (1..80)
        .map(|size| (&stream, size))
        .chain((1..9).map(|size| (&crlf, size)))
    {
        let (said, over) = read(stream, size);

        assert_eq!(over, Ok(()));
        let expected = [
            Said::Begin,
            text("In"),
            Said::Call(0, "call_a".to_owned(), "f".to_owned(), None, false),
            arguments(0, "{\"a\":"),
            text("deed"),
            arguments(0, "1}"),
        ];
        assert_eq!(said[..6], expected);
        assert!(matches!(&said[6], Said::Usage(usage) if usage.cached_tokens == Some(4)));
        assert_eq!(said[7..], [Said::Finish(Finish::ToolCalls, None)]);
    }
}

#[test]
fn a_truncated_answer_may_end_with_completed_and_thoughts_may_be_told_as_they_were() {
    // The shape of vLLM's streams.
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": {"status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs", "summary": []}}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "item_id": "rs", "content_index": 0, "delta": "a"}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "sum"}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 1, "delta": "b"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "other", "summary": [],
            "content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "bc"}]}}),
        json!({"type": "response.completed", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "reasoning", "id": "third", "summary": []}]}}),
    ];

    let (said, over) = read(&sent(&events), 64);

    assert_eq!(over, Ok(()));
    let expected = [
        Said::Begin,
        Said::Thinking("a\n\nbc".to_owned()),
        Said::Finish(Finish::Length, None),
    ];
    assert_eq!(joined(said), expected);
}

#[test]
fn a_server_that_tells_items_only_when_they_are_whole_is_understood() {
    let call = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "namespace": "g", "arguments": "{}"});
    let thought = json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "gAAA"});
    let message = json!({"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}]});
    let whole = json!({"type": "response.completed", "response": {"status": "completed", "output": [thought, message, call]}});

    let alone = read(&sent(std::slice::from_ref(&whole)), 9);
    let done = |item: &Value, index: u64| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let each = read(
        &sent(&[done(&thought, 0), done(&message, 1), done(&call, 2), whole]),
        9,
    );

    let expected = vec![
        Said::Begin,
        Said::Thinking("t".to_owned()),
        Said::Proof(ProofMaker::OpenAi, "gAAA".to_owned(), false),
        text("x"),
        Said::Refusal("no".to_owned()),
        Said::Call(0, "c".to_owned(), "f".to_owned(), Some("g".to_owned()), false),
        arguments(0, "{}"),
        Said::Finish(Finish::ToolCalls, None),
    ];
    assert_eq!(alone, (expected.clone(), Ok(())));
    assert_eq!(each, (expected, Ok(())));
}

#[test]
fn failures_in_a_stream_are_told_and_nothing_is_read_behind_an_end() {
    let failing = |event: Value| match read(&sent(&[event]), 99).1 {
        Err(Broken::Told(error)) => error.message,
        other => panic!("{other:?}"),
    };
    let message = Some("too much".to_owned());

    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "too much"}}});
    assert_eq!(failing(failed), message);
    let completed = json!({"type": "response.completed", "response": {"status": "failed", "error": {"message": "too much"}}});
    assert_eq!(failing(completed), message);
    assert_eq!(
        failing(json!({"type": "error", "code": "x", "message": "too much", "param": null})),
        message
    );
    assert_eq!(failing(json!({"error": {"message": "too much"}})), message);
    let cancelled = json!({"type": "response.cancelled", "response": {}});
    assert_eq!(read(&sent(&[cancelled]), 9).1, Err(Broken::Aborted));
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let behind = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x"});
    let (said, over) = read(&sent(&[end, behind, json!("[DONE]")]), 9);
    assert_eq!((said.len(), over), (2, Ok(())));
}

#[test]
fn calls_get_ids_that_no_other_call_has() {
    let added = |index: u64, id: &str| {
        json!({"type": "response.output_item.added", "output_index": index,
        "item": {"type": "function_call", "call_id": id, "name": "f"}})
    };

    let (said, _) = read(&sent(&[added(0, "c"), added(1, "c"), added(2, "")]), 50);

    let ids: Vec<&str> = said
        .iter()
        .filter_map(|said| match said {
            Said::Call(_, id, ..) => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["c", "call_1_c", "call_2_"]);
}

#[test]
fn arguments_that_are_no_object_are_not_told_unless_they_mean_one() {
    let item = |arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": arguments});
    let stream = |arguments: &str, told_whole: bool| {
        let mut events = vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": &arguments[..1]}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": &arguments[1..]}),
        ];
        if told_whole {
            events.push(
                json!({"type": "response.output_item.done", "output_index": 0, "item": item(arguments)}),
            );
        }
        events.push(json!({"type": "response.completed", "response": {"status": "completed", "output": []}}));
        read(&sent(&events), 33)
    };
    let told = |said: &[Said]| -> Vec<Said> {
        let arguments = said.iter().filter(|said| matches!(said, Said::Arguments(..)));
        arguments.cloned().collect()
    };

    for none in ["true", "[1]", "\"x\""] {
        let (said, over) = stream(none, true);
        assert_eq!((told(&said), over), (vec![], Err(Broken::Malformed)), "{none}");
    }
    for (meant, object) in [
        ("null", "{}"),
        (r#""{\"a\":1}""#, r#"{"a":1}"#),
        (" {\"b\":2}", " {\"b\":2}"),
    ] {
        let (said, over) = stream(meant, true);
        assert_eq!(
            (told(&said), over),
            (vec![arguments(0, object)], Ok(())),
            "{meant}"
        );
    }
    assert_eq!(stream("true", false).1, Err(Broken::Malformed));
}

#[test]
fn a_text_with_half_a_character_breaks_the_answer_wherever_it_stands() {
    let delta = |kind: &str, delta: &str| {
        format!(r#"{{"type":"response.{kind}.delta","item_id":"a","output_index":0,"delta":"{delta}"}}"#)
    };
    let done =
        |item: &str| format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
    let call = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"a","call_id":"c","name":"f"}}"#;
    let streams = [
        // One character in two pieces.
        vec![delta("output_text", r"a\ud83d"), delta("output_text", r"\ude42b")],
        vec![delta("refusal", r"\ud83d")],
        vec![delta("reasoning_summary_text", r"\ude42")],
        vec![delta("reasoning_text", r"\ude42")],
        vec![call.to_owned(), delta("function_call_arguments", r"{\ud83d")],
        vec![done(
            r#"{"type":"message","content":[{"type":"output_text","text":"\ud83d"}]}"#,
        )],
        vec![done(
            r#"{"type":"message","content":[{"type":"refusal","refusal":"\ud83d"}]}"#,
        )],
        vec![done(r#"{"type":"reasoning","summary":[{"text":"\ud83d"}]}"#)],
        vec![done(r#"{"type":"reasoning","content":[{"text":"\ud83d"}]}"#)],
        vec![done(
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":\"\ud83d\"}"}"#,
        )],
        vec![done(
            r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"\ud83d"}"#,
        )],
    ];
    for events in streams {
        let stream = format!("data: {}\n\n", events.join("\n\ndata: "));

        let (said, over) = read(&stream, stream.len());

        assert_eq!(over, Err(Broken::Malformed), "{stream}");
        assert!(
            !said
                .iter()
                .any(|said| matches!(said, Said::Text(_) | Said::Finish(..))),
            "{stream}"
        );
    }
}
