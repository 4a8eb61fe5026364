//! Bytes that nobody means well with: every reader of requests, answers and streams takes any bytes without a panic,
//! and what it does take it can write for everybody. The bodies of the fuzz targets, run here on changed examples.

use bytes::{Bytes, BytesMut};
use dialects::profile;
use dialects::sse;
use dialects::superset::event::{Event, Reply};
use dialects::superset::request::Target;
use dialects::translate::{Decoder, Encoder, decode_answer, decode_request, encode_answer, encode_request};

use crate::dice::Dice;
use crate::speakers::{CALLERS, UPSTREAMS};

fn reply() -> Reply {
    Reply {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        created: 1,
        model: "m".to_owned(),
        include_usage: true,
        hides_thinking: false,
        prompt_tokens: 1,
        request: Bytes::from_static(b"{}"),
    }
}

/// Any bytes as a request of every dialect.
pub(crate) fn request(body: &[u8]) {
    for &caller in CALLERS {
        let Ok(conversation) = decode_request(caller, body) else {
            continue;
        };
        for &upstream in UPSTREAMS {
            for drop_params in [false, true] {
                let target = Target {
                    model: "u",
                    profile: &profile::DEFAULT,
                    efforts: &[],
                    max_tokens_default: 9,
                    max_tokens_limit: None,
                    drop_params,
                };
                if let Ok(encoded) = encode_request(upstream, &conversation, &target) {
                    let parsed = serde_json::from_slice::<&serde_json::value::RawValue>(&encoded.body);
                    assert!(parsed.is_ok(), "{caller:?} -> {upstream:?} writes no JSON");
                }
            }
        }
    }
}

/// Any bytes as a whole answer of every dialect.
pub(crate) fn answer(body: &[u8]) {
    for &upstream in UPSTREAMS {
        let Ok(answer) = decode_answer(upstream, body) else {
            continue;
        };
        for &caller in CALLERS {
            let written = encode_answer(caller, &answer, &reply());
            let parsed = serde_json::from_slice::<&serde_json::value::RawValue>(&written);
            assert!(parsed.is_ok(), "{upstream:?} -> {caller:?} writes no JSON");
        }
    }
}

/// Any bytes as a stream of every dialect, written for every caller.
pub(crate) fn stream(bytes: &[u8]) {
    for &upstream in UPSTREAMS {
        let mut framer = sse::Framer::new(1 << 16);
        framer.push(Bytes::copy_from_slice(bytes));
        let mut decoder = Decoder::new(upstream);
        let mut encoders: Vec<Encoder> = CALLERS
            .iter()
            .map(|caller| Encoder::new(*caller, reply()))
            .collect();
        let mut out = BytesMut::new();
        let mut finished = false;
        let mut sink = |event: Event<'_>| {
            assert!(
                !finished || matches!(event, Event::Usage(_)),
                "{upstream:?}: {event:?} after the finish"
            );
            finished |= matches!(event, Event::Finish { .. });
            for encoder in &mut encoders {
                encoder.event(event, &mut out);
            }
        };
        let mut broken = false;
        while let Ok(Some(event)) = framer.finish() {
            if !event.is_comment() && !decoder.ended() && decoder.event(&event, &mut sink).is_err() {
                broken = true;
                break;
            }
        }
        if !broken && decoder.finish(&mut sink).is_ok() && finished {
            for encoder in &mut encoders {
                drop(encoder.end());
            }
        }
    }
}

/// Any bytes as the choices of an answer, a pair of dialects and a way to cut the stream.
pub(crate) fn pair(bytes: &[u8]) {
    crate::streams::one(&mut Dice::given(bytes));
}

/// Changes some bytes: taken out, put in, doubled.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const WORDS: &[&str] = &[
        "null",
        "[]",
        "{}",
        "\"\"",
        "-1",
        "1e999",
        "true",
        "\\u0000",
        "\"",
        "}",
        "{\"a\":",
        "99999999999999999999",
    ];
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        let end = (at + dice.below(12)).min(bytes.len());
        match dice.below(3) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..end, dice.pick::<&str>(WORDS).bytes())),
            _ => {
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                drop(bytes.splice(at..at, piece));
            }
        }
    }
}

fn all_damaged(examples: &[&[u8]], judge: fn(&[u8])) {
    for example in examples {
        judge(example);
        for seed in 0..300 {
            let mut bytes = example.to_vec();
            damage(&mut bytes, &mut Dice::of(seed));
            judge(&bytes);
        }
    }
}

#[test]
fn no_bytes_make_a_reader_of_requests_panic() {
    let examples: [&[u8]; 4] = [
        br#"{"model":"m","stream":true,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aaaa"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","max_tokens":5,"stop":["a"]}"#,
        br#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"thinking":{"type":"enabled","budget_tokens":2000}}"#,
        br#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"u"}]},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{}}]},{"type":"custom","name":"p"}],"text":{"format":{"type":"json_schema","name":"o","schema":{}}}}"#,
        br#"{"model":"m","prompt":["a","b"],"max_tokens":4,"stop":"x","echo":false}"#,
    ];
    all_damaged(&examples, request);
}

#[test]
fn no_bytes_make_a_reader_of_answers_panic() {
    let examples: [&[u8]; 4] = [
        br#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x","reasoning_content":"r","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
        br#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"x"},{"type":"tool_use","id":"c","name":"f","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2}}"#,
        br#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"r"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]}]},{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}"#,
        br#"{"candidates":[{"content":{"role":"model","parts":[{"text":"r","thought":true},{"text":"x"},{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2}}"#,
    ];
    all_damaged(&examples, answer);
}

#[test]
fn no_bytes_make_a_reader_of_streams_panic() {
    for seed in 0..400 {
        let mut dice = Dice::of(seed);
        let mut bytes = crate::streams::any_stream(&mut dice);
        stream(&bytes);
        for _ in 0..4 {
            damage(&mut bytes, &mut dice);
            stream(&bytes);
        }
    }
}

#[test]
fn whatever_choices_bytes_stand_for_the_stream_is_legal() {
    for seed in 0..300_usize {
        let bytes: Vec<u8> = (0..200_usize)
            .map(|at| u8::try_from((at * 31 + seed * 57 + at * seed) % 251).unwrap_or(0))
            .collect();
        pair(&bytes);
    }
}
