//! Passing streams and answers of Messages.

use bytes::Bytes;

use super::*;
use crate::chat::usage::UsageFacts;

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"up","usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":1}}}"#;

fn event(data: &str) -> sse::Event {
    let mut framer = sse::Framer::new(1 << 16);
    framer.push(Bytes::from(format!("data: {data}\n\n")));
    framer.next().expect("framed").expect("an event")
}

/// Looks at a stream; what its last event says.
fn last(lines: &[&str]) -> Result<Seen, Foreign> {
    let mut skimmer = Skimmer::default();
    let mut seen = Ok(Seen::default());
    for line in lines {
        seen = skimmer.skim(&event(line));
    }
    seen
}

const TEXT: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const DELTA: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\u00e9a"}}"#;
const STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const TOLD: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20}}"#;
const END: &str = r#"{"type":"message_stop"}"#;

#[test]
fn the_model_is_found_where_it_stands() {
    let seen = last(&[START]).expect("of the dialect");

    assert_eq!(seen.model_span.and_then(|span| START.get(span)), Some(r#""up""#));
    assert!(!seen.content && !seen.finished);
    assert_eq!(seen.usage.and_then(|usage| usage.prompt_tokens), Some(14));
}

#[test]
fn usage_of_both_places_is_merged_and_never_added() {
    let seen = last(&[START, TEXT, DELTA, STOP, TOLD]).expect("of the dialect");

    assert!(seen.finished && !seen.end);
    assert_eq!(
        seen.usage,
        Some(UsageFacts {
            prompt_tokens: Some(14),
            completion_tokens: Some(20),
            cached_tokens: Some(4),
            ..UsageFacts::default()
        })
    );
    assert!(last(&[START, TOLD, END]).expect("of the dialect").end);
}

#[test]
fn content_is_what_was_generated() {
    let tool = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"look","input":{}}}"#;
    let redacted =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"A"}}"#;
    let empty = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#;
    let ping = r#"{"type":"ping"}"#;
    let cases = [
        (TEXT, false, 0),
        (tool, true, 4),
        (redacted, true, 0),
        (ping, false, 0),
        (r#"{"type":"an_event_of_tomorrow","index":"x"}"#, false, 0),
    ];
    for (line, content, bytes) in cases {
        let seen = last(&[START, line]).expect("of the dialect");
        assert_eq!((seen.content, seen.output_bytes), (content, bytes), "{line}");
    }
    let seen = last(&[START, TEXT, DELTA]).expect("of the dialect");
    assert_eq!((seen.content, seen.output_bytes), (true, 3));
    assert!(!last(&[START, TEXT, empty]).expect("of the dialect").content);
}

#[test]
fn an_error_event_is_a_failure_of_the_upstream() {
    let line = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;

    for lines in [&[line][..], &[START, line]] {
        let error = last(lines).expect("of the dialect").error.expect("an error");
        assert_eq!(error.kind.as_deref(), Some("overloaded_error"));
    }
}

#[test]
fn what_breaks_the_order_is_not_for_callers() {
    let broken = [
        &["x"][..],
        &["[DONE]"],
        &["{}"],
        &[DELTA],
        &[TEXT],
        &[TOLD],
        &[END],
        &[START, START],
        &[START, DELTA],
        &[START, STOP],
        &[START, TEXT, TEXT],
        &[START, TEXT, STOP, DELTA],
        &[START, END],
        &[START, TOLD, TEXT],
        &[START, TOLD, END, TOLD],
    ];
    for lines in broken {
        assert_eq!(last(lines), Err(Foreign), "{lines:?}");
    }
}

#[test]
fn a_whole_answer_is_skimmed() {
    let body = r#"{"id":"msg_1","type":"message","model":"up","content":[{"type":"text","text":"\u00e9a"},
        {"type":"tool_use","id":"t","name":"look","input":{"a":1}}],"stop_reason":"tool_use",
        "usage":{"input_tokens":10,"output_tokens":20}}"#;

    let answer = skim_answer(body.as_bytes()).expect("an answer");

    assert_eq!(
        answer.model_span.clone().and_then(|span| body.get(span)),
        Some(r#""up""#)
    );
    assert_eq!(
        (answer.choices, answer.content, answer.output_bytes),
        (1, true, 14)
    );
    assert_eq!(
        (answer.finish, answer.finished_choices),
        (Some(Finish::ToolCalls), 1)
    );
    assert_eq!(answer.usage.and_then(|usage| usage.completion_tokens), Some(20));
    let failed =
        skim_answer(br#"{"type":"error","error":{"type":"api_error","message":"m"}}"#).expect("an answer");
    assert_eq!(failed.error.and_then(|error| error.message).as_deref(), Some("m"));
    assert!(skim_answer(b"x").is_err());
    assert!(skim_answer(b"\xff").is_err());
}
