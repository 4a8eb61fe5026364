//! Streams as they come, cut anywhere.

use super::*;
use crate::sse::Kind;
use crate::testing::framed;

/// What a decoder tells of a stream, each event as text.
fn read(stream: &str) -> Result<Vec<String>, Broken> {
    read_in_pieces(stream.as_bytes(), stream.len().max(1))
}

fn read_in_pieces(stream: &[u8], bytes: usize) -> Result<Vec<String>, Broken> {
    let (mut decoder, mut told) = (Decoder::default(), Vec::new());
    let mut sink = |event: Event<'_>| told.push(format!("{event:?}"));
    let pieces: Vec<&[u8]> = stream.chunks(bytes).collect();
    for event in framed(&pieces).iter().filter(|event| event.kind == Kind::Data) {
        decoder.event(event, &mut sink)?;
    }
    decoder.finish(&mut sink)?;
    Ok(told)
}

fn stream(chunks: &[&str]) -> String {
    let event = |chunk: &&str| format!("data: {chunk}\r\n\r\n");
    chunks.iter().map(event).collect::<Vec<_>>().concat()
}

const THOUGHT: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Hm é","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}"#;
const TEXT: &str = r#"{"candidates":[{"content":{"parts":[{"text":"So "},{"text":"be it","thoughtSignature":"c2ln"}],"role":"model"},"index":0}],"responseId":"r1"}"#;
const CALLS: &str = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"w","args":{"city":"A"}},"thoughtSignature":"c2ln"},{"functionCall":{"id":"given","name":"w","args":{}}}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":6,"thoughtsTokenCount":3,"totalTokenCount":13},"responseId":"r1"}"#;

#[test]
fn thoughts_texts_signatures_and_calls_come_in_their_order() {
    let told = read(&stream(&[THOUGHT, TEXT, CALLS])).expect("whole");

    assert_eq!(told[0], "Begin");
    assert!(told[1].contains("prompt_tokens: Some(4)"));
    assert_eq!(told[2], r#"Thinking("Hm é")"#);
    assert_eq!(told[3], r#"Text("So ")"#);
    assert_eq!(
        told[4],
        r#"Proof { maker: Gemini, text: "c2ln", redacted: false }"#
    );
    assert_eq!(told[5], r#"Text("be it")"#);
    assert!(
        told[6].contains("completion_tokens: Some(9)") && told[6].contains("reasoning_tokens: Some(3)"),
        "{}",
        told[6]
    );
    assert!(
        told[7].starts_with(r#"Call { call: 0, id: "call_"#),
        "{}",
        told[7]
    );
    assert_eq!(told[8], r#"CallProof { call: 0, maker: Gemini, text: "c2ln" }"#);
    assert_eq!(told[9], r#"Arguments { call: 0, piece: "{\"city\":\"A\"}" }"#);
    assert!(told[10].starts_with(r#"Call { call: 1, id: "given""#));
    assert_eq!(told[12], "Finish { finish: ToolCalls, stop_sequence: None }");
    assert_eq!(told.len(), 13);
}

#[test]
fn a_stream_tells_the_same_wherever_it_is_cut() {
    let windows = stream(&[THOUGHT, TEXT, CALLS]);
    let unix = windows.replace("\r\n", "\n");
    let whole = read(&windows).expect("whole");
    for bytes in 1..64 {
        assert_eq!(
            read_in_pieces(windows.as_bytes(), bytes),
            Ok(whole.clone()),
            "{bytes}"
        );
        assert_eq!(
            read_in_pieces(unix.as_bytes(), bytes),
            Ok(whole.clone()),
            "{bytes}"
        );
    }
}

#[test]
fn calls_of_two_answers_never_share_an_id() {
    let id = |response: &str| {
        let chunk = CALLS.replace("r1", response).replace(r#""id":"given","#, "");
        let told = read(&stream(&[&chunk])).expect("whole");
        let ids: Vec<String> = told
            .iter()
            .filter(|event| event.starts_with("Call {"))
            .map(|event| event.split('"').nth(1).expect("an id").to_owned())
            .collect();
        assert_ne!(ids[0], ids[1]);
        ids
    };

    assert_eq!(id("r1"), id("r1"));
    assert!(id("r2").iter().all(|other| !id("r1").contains(other)));
}

#[test]
fn a_stream_that_never_said_why_it_ended_is_cut_off() {
    assert_eq!(read(&stream(&[THOUGHT, TEXT])), Err(Broken::Cut));
    assert_eq!(read(""), Err(Broken::Cut));
}

#[test]
fn a_reason_on_every_piece_ends_the_answer_once() {
    let piece = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#;
    let told = read(&stream(&[piece, piece])).expect("whole");

    assert_eq!(
        told[1..],
        [
            r#"Text("a")"#,
            r#"Text("a")"#,
            "Finish { finish: Stop, stop_sequence: None }"
        ]
    );
}

#[test]
fn a_blocked_prompt_and_an_error_are_told_as_such() {
    let blocked = read(&stream(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]));
    let Err(Broken::Told(told)) = blocked else {
        panic!("{blocked:?}");
    };
    assert_eq!(
        (told.status, told.kind.as_deref()),
        (Some(400), Some("content_filter"))
    );

    for error in [
        r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#,
        r#"[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]"#,
    ] {
        let failed = read(&stream(&[THOUGHT, error]));
        let Err(Broken::Told(told)) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(
            (told.status, told.kind.as_deref()),
            (Some(503), Some("UNAVAILABLE"))
        );
    }
}

#[test]
fn what_is_not_of_the_dialect_is_malformed() {
    for chunk in [
        "nothing",
        "{",
        r#"{"candidates":3}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"args":{}}}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"w","args":"x"}}]}}]}"#,
        // What would be lost on the caller.
        r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"YQ=="}}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"1"}}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"w","willContinue":true}}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"w","partialArgs":[{"jsonPath":"$.a"}]}}]}}]}"#,
    ] {
        assert_eq!(read(&stream(&[chunk])), Err(Broken::Malformed), "{chunk}");
    }
    for reason in [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "OTHER",
    ] {
        let aborted = format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#);
        assert_eq!(read(&stream(&[&aborted])), Err(Broken::Aborted), "{reason}");
    }
}

#[test]
fn an_answer_is_over_once_its_reason_and_its_usage_were_told_and_nothing_came_after() {
    let finished = |chunks: &[&str]| {
        let mut decoder = Decoder::default();
        for event in framed(&[stream(chunks).as_bytes()]) {
            decoder.event(&event, &mut |_: Event<'_>| {}).expect("readable");
        }
        decoder.finished()
    };
    let reason = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#;
    let usage = r#"{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":1}}"#;

    assert!(!finished(&[THOUGHT, TEXT]), "no reason");
    assert!(!finished(&[reason]), "no usage");
    assert!(finished(&[reason, usage]));
    assert!(finished(&[THOUGHT, TEXT, CALLS]));
    assert!(
        !finished(&[reason, usage, TEXT]),
        "a reason with each piece is no end"
    );
    let both = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":1}}"#;
    assert!(!finished(&[both]), "the first of its kind, perhaps");
    assert!(finished(&[TEXT, both]));
    let silent = both.replace(r#"{"text":"a"}"#, "");
    assert!(finished(&[&silent]), "nothing to go on with");
}
