//! Passing streams and answers of Messages.

use bytes::Bytes;

use super::*;
use crate::chat::usage::UsageFacts;
use crate::testing::framed_data as event;

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"up","usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":1}}}"#;

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
    assert_eq!(answer.finish, Some(Finish::ToolCalls));
    assert_eq!(answer.usage.and_then(|usage| usage.completion_tokens), Some(20));
    let failed =
        skim_answer(br#"{"type":"error","error":{"type":"api_error","message":"m"}}"#).expect("an answer");
    assert_eq!(failed.error.and_then(|error| error.message).as_deref(), Some("m"));
    assert!(skim_answer(b"x").is_err());
    assert!(skim_answer(b"\xff").is_err());
}

/// What a caller gets of a stream who does not want to see thoughts: each event's data after its edits.
fn without_thoughts(lines: &[&str]) -> Vec<String> {
    let mut skimmer = Skimmer::default().without_thoughts();
    let seen = |line: &&str| {
        (
            skimmer.skim(&event(line)).expect("of the dialect"),
            Bytes::from((*line).to_owned()),
        )
    };
    let shown = lines.iter().map(seen).filter(|(seen, _)| !seen.hidden);
    shown
        .map(|(seen, data)| {
            let edited = crate::splice::splice(&data, &seen.edits);
            String::from_utf8(edited.to_vec()).expect("text")
        })
        .collect()
}

#[test]
fn thoughts_are_left_out_and_blocks_are_numbered_without_them() {
    let thought = |index: u32| {
        [
            format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"thinking","thinking":"","signature":""}}}}"#
            ),
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"thinking_delta","thinking":"hm"}}}}"#
            ),
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"signature_delta","signature":"s"}}}}"#
            ),
            format!(r#"{{"type":"content_block_stop","index":{index}}}"#),
        ]
    };
    let text = |index: u32| {
        [
            format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text","text":""}}}}"#
            ),
            format!(
                r#"{{"type": "content_block_delta", "index" : {index} ,"delta":{{"type":"text_delta","text":"a"}}}}"#
            ),
            format!(r#"{{"type":"content_block_stop","index":{index}}}"#),
        ]
    };
    let secret =
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"A"}}"#;
    let secret = [
        secret.to_owned(),
        r#"{"type":"content_block_stop","index":2}"#.to_owned(),
    ];
    let (opening, closing) = ([START.to_owned()], [TOLD.to_owned(), END.to_owned()]);
    let came = [&opening[..], &thought(0), &text(1), &secret, &text(3), &closing].concat();

    let got = without_thoughts(&came.iter().map(String::as_str).collect::<Vec<_>>());

    let expected = [&opening[..], &text(0), &text(1), &closing].concat();
    assert_eq!(got, expected);
}

#[test]
fn a_whole_answer_loses_its_thoughts_and_nothing_else() {
    let body = r#"{"type":"message","content" : [ {"type":"thinking","thinking":"hm","signature":"s"}, {"type":"text","text":"a, [b]"},{"type":"redacted_thinking","data":"A"}],"model":"up"}"#;

    let edit = thoughts(body.as_bytes()).expect("an edit");

    let edited = crate::splice::splice(&Bytes::from(body), &[edit]);
    assert_eq!(
        edited,
        r#"{"type":"message","content" : [{"type":"text","text":"a, [b]"}],"model":"up"}"#
    );
    assert_eq!(thoughts(br#"{"content":[{"type":"text","text":"a"}]}"#), None);
    assert_eq!(thoughts(b"{}"), None);
}
