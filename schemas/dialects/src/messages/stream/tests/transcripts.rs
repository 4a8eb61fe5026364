//! Streams written down, and what they must become.

use super::*;

const CALL: Event<'_> = Event::Call {
    call: 0,
    id: "t0",
    name: "look",
    namespace: None,
    custom: false,
};
const SECOND: Event<'_> = Event::Call {
    call: 1,
    id: "t:1",
    name: "look",
    namespace: None,
    custom: false,
};
const END: Event<'_> = Event::Finish {
    finish: Finish::Stop,
    stop_sequence: None,
};

fn more(call: u32, piece: &str) -> Event<'_> {
    Event::Arguments { call, piece }
}

/// A stream of these data lines.
fn stream(lines: &[&str]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| format!("data: {line}\r\n\r\n").into_bytes())
        .collect()
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn an_answer_is_written_event_by_event() {
    let bytes = encoded(
        reply(),
        &[
            Event::Begin,
            Event::Thinking("hm"),
            Event::Text("a"),
            Event::Text("\"b"),
            CALL,
            more(0, "{\"x\""),
            more(0, ":1}"),
            Event::Usage(UsageFacts {
                prompt_tokens: Some(17),
                cached_tokens: Some(4),
                cache_write_tokens: Some(3),
                completion_tokens: Some(20),
                reasoning_tokens: Some(5),
                ..UsageFacts::default()
            }),
            END,
        ],
    );

    let expected = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_0123456789abcdef0123456789abcdef","type":"message","role":"assistant","model":"public","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"waybill.none"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\"b"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t0","name":"look","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}

event: message_stop
data: {"type":"message_stop"}

"#;
    assert_eq!(String::from_utf8(bytes), Ok(expected.to_owned()));
}

#[test]
fn a_call_is_streamed_at_once_when_the_one_before_is_whole() {
    let mut encoder = Encoder::new(reply());
    let mut out = BytesMut::new();
    for event in [
        Event::Begin,
        CALL,
        more(0, "{\"a\":\"}\"}"),
        SECOND,
        more(1, "{\"b\""),
    ] {
        encoder.event(event, &mut out);
    }

    let text = String::from_utf8(out.to_vec()).expect("text");

    assert!(
        text.ends_with(
            "\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"b\\\"\"}}\n\n"
        ),
        "{text}"
    );
}

#[test]
fn arguments_that_are_no_object_never_leave() {
    for pieces in [&["true"][..], &["[1", "]"], &["\"x\""], &[" "], &[]] {
        let mut events = vec![Event::Begin, CALL];
        events.extend(pieces.iter().map(|piece| more(0, piece)));
        events.extend([SECOND, more(1, "{}"), END]);

        let bytes = encoded(reply(), &events);

        checked(&bytes);
        let (arrived, _) = decoded(&bytes);
        let arguments: Vec<&str> = arrived.calls.iter().map(|call| call.2.as_str()).collect();
        assert_eq!(arguments, ["{}", "{}"], "{pieces:?}");
        assert!(
            arrived.calls[1].0.starts_with("t_1_"),
            "an id that can be sent back"
        );
    }
}

#[test]
fn what_another_upstream_wants_to_see_again_travels_before_its_call() {
    let proof = Event::CallProof {
        call: 0,
        maker: ProofMaker::Gemini,
        text: "U0lH",
    };
    for events in [
        vec![Event::Begin, CALL, proof, more(0, "{}"), END],
        vec![Event::Begin, CALL, more(0, "{"), proof, more(0, "}"), END],
    ] {
        let bytes = encoded(reply(), &events);

        checked(&bytes);
        let (arrived, _) = decoded(&bytes);
        assert_eq!(arrived.proofs, ["waybill.call.gemini.2.t0U0lH"]);
        assert_eq!(arrived.calls[0].2, "{}");
    }
}

#[test]
fn thoughts_are_not_told_to_those_who_want_none() {
    let hidden = Reply {
        hides_thinking: true,
        ..reply()
    };
    let bytes = encoded(
        hidden,
        &[Event::Begin, Event::Thinking("hm"), Event::Text("a"), END],
    );

    let events = checked(&bytes);

    assert!(
        !events
            .iter()
            .any(|event| event["content_block"]["type"] == "thinking")
    );
}

#[test]
fn words_of_refusal_make_the_answer_one() {
    let events = checked(&encoded(reply(), &[Event::Begin, Event::Refusal("no"), END]));

    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "refusal");
}

#[test]
fn usage_that_was_not_told_is_estimated() {
    let events = checked(&encoded(
        reply(),
        &[Event::Begin, Event::Text(&"a".repeat(36)), END],
    ));

    let usage = &events[events.len() - 2]["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&7.into(), &10.into())
    );
}

#[test]
fn an_answer_that_did_not_end_has_no_end() {
    assert!(Encoder::new(reply()).end().is_empty());
}

#[test]
fn an_upstreams_answer_is_read_with_all_classes_of_its_usage() {
    let bytes = stream(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"\u00e9\n"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{}}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"vertex_event","index":"x"}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}"#,
        STOP,
    ]);

    let (arrived, whole) = decoded(&bytes);

    assert_eq!(whole, Ok(()));
    assert_eq!((arrived.thinking.as_str(), arrived.text.as_str()), ("hm", "aé\n"));
    assert_eq!(arrived.proofs, ["c2ln"]);
    assert_eq!(arrived.calls, [("t".to_owned(), "f".to_owned(), "{}".to_owned())]);
    assert_eq!(arrived.finish, Some((Finish::ToolCalls, None)));
    assert_eq!(
        arrived.usage,
        Some(UsageFacts {
            prompt_tokens: Some(17),
            completion_tokens: Some(20),
            cached_tokens: Some(4),
            cache_write_tokens: Some(3),
            reasoning_tokens: Some(5),
            ..UsageFacts::default()
        })
    );
}

#[test]
fn a_cut_stream_is_never_whole() {
    let block = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
    let told =
        r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"x"},"usage":{}}"#;

    assert_eq!(decoded(b"").1, Err(Broken::Empty));
    assert_eq!(decoded(&stream(&[START])).1, Err(Broken::Cut));
    assert_eq!(decoded(&stream(&[START, block])).1, Err(Broken::Cut));
    assert_eq!(decoded(&stream(&[START, block, STOP])).1, Err(Broken::Cut));
    let (arrived, whole) = decoded(&stream(&[START, block, told]));
    assert_eq!(whole, Ok(()));
    assert_eq!(arrived.finish, Some((Finish::StopSequence, Some("x".to_owned()))));
}

#[test]
fn an_upstream_that_fails_says_so_and_one_that_breaks_the_order_is_not_believed() {
    let failed = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let (_, broken) = decoded(&stream(&[START, failed]));
    let Err(Broken::Told(error)) = broken else {
        panic!("{broken:?}");
    };
    assert_eq!(error.kind.as_deref(), Some("overloaded_error"));
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    for lines in [&[delta][..], &[START, delta], &[START, START], &["x"], &["{}"]] {
        assert_eq!(decoded(&stream(lines)).1, Err(Broken::Malformed), "{lines:?}");
    }
}

#[test]
fn arguments_that_are_no_object_break_the_answer() {
    let call = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#;
    let delta = |json: &str| {
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{json}"}}}}"#
        )
    };
    let end =
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{}}"#;

    for none in ["true", "[", "\\\"x\\\""] {
        let (arrived, over) = decoded(&stream(&[START, call, &delta(none), end]));
        assert_eq!(over, Err(Broken::Malformed), "{none}");
        assert_eq!(arrived.calls[0].2, "", "{none}");
    }
    let (arrived, over) = decoded(&stream(&[START, call, &delta("\\n"), &delta("\\t{}"), end]));
    assert_eq!((arrived.calls[0].2.as_str(), over), ("\n\t{}", Ok(())));
}
