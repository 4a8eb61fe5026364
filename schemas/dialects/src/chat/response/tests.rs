//! Whole answers, read and written.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::superset::request::{self, ProofMaker};
use crate::testing;

fn reply() -> Reply {
    Reply {
        include_usage: false,
        ..testing::reply()
    }
}

/// The body of a recorded answer.
fn recorded(text: &str) -> Vec<u8> {
    let whole: Value = serde_json::from_str(text).expect("JSON");
    whole.get("body").unwrap_or(&whole).to_string().into_bytes()
}

fn read(answer: &Value) -> Result<Answer, Broken> {
    decode(answer.to_string().as_bytes())
}

fn written(answer: &Answer, reply: &Reply) -> Value {
    serde_json::from_slice(&encode(answer, reply)).expect("JSON")
}

fn text(answer: &Answer) -> String {
    let texts = answer.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn with_call(arguments: &Value, reason: &str) -> Value {
    json!({"id": "x", "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": null,
        "tool_calls": [{"id": "", "type": "function", "function": {"name": "f", "arguments": arguments}}]}}]})
}

#[test]
fn what_engines_answer_is_read_whole() {
    let plain = [
        include_str!("../../../tests/transcripts/llama.cpp/chat_nonstream.json"),
        include_str!("../../../tests/transcripts/llama.cpp/chat_json_schema.json"),
        include_str!("../../../tests/transcripts/llama.cpp/chat_tool_parallel.json"),
        include_str!("../../../tests/transcripts/vllm/chat_nonstream.json"),
        include_str!("../../../tests/transcripts/vllm/chat_json_schema.json"),
    ];

    for transcript in plain {
        let answer = decode(&recorded(transcript)).expect("an answer");

        assert!(!text(&answer).is_empty());
        assert!(
            answer
                .usage
                .is_some_and(|usage| usage.completion_tokens > Some(0))
        );
        assert_eq!(answer.calls().count(), 0);
    }
}

#[test]
fn failures_of_engines_are_told() {
    let failures = [
        include_str!("../../../tests/transcripts/llama.cpp/err_context_overflow.json"),
        include_str!("../../../tests/transcripts/vllm/err_unknown_model.json"),
        include_str!("../../../tests/transcripts/vllm/err_engine_dead.json"),
    ];

    for transcript in failures {
        assert!(matches!(decode(&recorded(transcript)), Err(Broken::Told(_))));
    }
    assert_eq!(read(&json!({"choices": []})).err(), Some(Broken::Empty));
    assert_eq!(read(&json!({})).err(), Some(Broken::Empty));
    assert_eq!(decode(b"<html>").err(), Some(Broken::Malformed));
    let aborted = json!({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "abort"}]});
    assert_eq!(read(&aborted).err(), Some(Broken::Aborted));
}

#[test]
fn arguments_are_an_object_or_the_answer_is_of_no_use() {
    let arguments = |arguments: Value, reason: &str| -> Result<String, Broken> {
        let answer = read(&with_call(&arguments, reason))?;
        let call = answer.calls().next().expect("a call");
        assert!(call.id.starts_with("call_"));
        Ok(call.arguments.clone())
    };

    assert_eq!(arguments(json!({"a": 1}), "stop"), Ok(r#"{"a":1}"#.to_owned()));
    assert_eq!(
        arguments(json!("{\"a\": 1.0}"), "stop"),
        Ok(r#"{"a": 1.0}"#.to_owned())
    );
    assert_eq!(arguments(json!(""), "tool_calls"), Ok("{}".to_owned()));
    assert_eq!(arguments(Value::Null, "tool_calls"), Ok("{}".to_owned()));
    assert_eq!(arguments(json!("true"), "tool_calls"), Err(Broken::Malformed));
    assert_eq!(arguments(json!("{\"a\":"), "tool_calls"), Err(Broken::Malformed));
    assert_eq!(arguments(json!("{\"a\":"), "length"), Ok("{\"a\":".to_owned()));
    let named = include_str!("../../../tests/transcripts/vllm/chat_tool_named.json");
    assert_eq!(decode(&recorded(named)).err(), Some(Broken::Malformed));
}

#[test]
fn an_answer_that_ended_with_calls_ended_for_them() {
    let finish = |reason: &str| read(&with_call(&json!("{}"), reason)).expect("an answer").finish;

    assert_eq!(finish("stop"), Finish::ToolCalls);
    assert_eq!(finish("length"), Finish::Length);
    let text = json!({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "tool_calls"}]});
    assert_eq!(read(&text).expect("an answer").finish, Finish::Stop);
}

#[test]
fn a_caller_who_wants_no_thoughts_gets_none_and_an_empty_text() {
    let answer = Answer {
        parts: vec![Part::Thinking {
            text: "hm".to_owned(),
            proof: Some(Proof {
                maker: ProofMaker::Anthropic,
                text: "sig".to_owned(),
                redacted: false,
            }),
        }],
        ..Answer::default()
    };
    let hiding = Reply {
        hides_thinking: true,
        ..reply()
    };

    let shown = &written(&answer, &reply())["choices"][0]["message"];
    assert_eq!(shown["reasoning_content"], "hm");
    assert_eq!(shown["reasoning_details"][0]["signature"], "sig");
    assert_eq!(
        written(&answer, &hiding)["choices"][0]["message"],
        json!({"role": "assistant", "content": ""})
    );
}

#[test]
fn usage_adds_up() {
    let answer = Answer {
        usage: crate::chat::usage::UsageFacts::read(
            r#"{"prompt_tokens":17,"completion_tokens":4,"total_tokens":99,
                "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3}}"#,
        ),
        ..Answer::default()
    };

    assert_eq!(
        written(&answer, &reply())["usage"],
        json!({"prompt_tokens": 17, "completion_tokens": 4, "total_tokens": 21,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0}})
    );
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let text = || "[a-z\"\\\\\n\u{1}é漢]{1,6}";
    let proof = |redacted: bool| {
        (text(), 0_usize..3).prop_map(move |(text, maker)| Proof {
            maker: [ProofMaker::Anthropic, ProofMaker::Gemini, ProofMaker::OpenAi][maker],
            text,
            redacted,
        })
    };
    let thought =
        (text(), proptest::option::of(proof(false))).prop_map(|(text, proof)| Part::Thinking { text, proof });
    let hidden = proof(true).prop_map(|proof| Part::Thinking {
        text: String::new(),
        proof: Some(proof),
    });
    let call =
        (text(), any::<bool>(), proptest::option::of(proof(false))).prop_map(|(text, custom, proof)| {
            Part::ToolCall(request::Call {
                id: String::new(),
                name: "f".to_owned(),
                namespace: None,
                arguments: if custom {
                    text
                } else {
                    json!({ "a": text }).to_string()
                },
                custom,
                proof,
            })
        });
    let thoughts = proptest::collection::vec(prop_oneof![thought, hidden], 0..3);
    (
        thoughts,
        text(),
        proptest::option::of(text()),
        proptest::collection::vec(call, 0..3),
    )
        .prop_map(|(mut parts, text, refusal, calls)| {
            // Thoughts without any proof are told as one.
            let proven = parts
                .iter()
                .any(|part| matches!(part, Part::Thinking { proof: Some(_), .. }));
            if !proven {
                parts.truncate(1);
            }
            parts.push(Part::Text { text, cache: None });
            parts.extend(refusal.map(Part::Refusal));
            parts.extend(calls);
            for (number, part) in (0..).zip(&mut parts) {
                if let Part::ToolCall(call) = part {
                    call.id = format!("id{number}");
                }
            }
            parts
        })
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(parts in parts(), length in any::<bool>()) {
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let finish = match (length, calls) {
            (true, _) => Finish::Length,
            (false, true) => Finish::ToolCalls,
            (false, false) => Finish::Stop,
        };
        let answer = Answer { parts, finish, ..Answer::default() };

        let mut read = decode(&encode(&answer, &reply())).expect("an answer");
        for part in &mut read.parts {
            if let Part::ToolCall(call) = part {
                call.id = crate::chat::signed::read(&call.id).0.to_owned();
            }
        }

        prop_assert_eq!(read.finish, finish);
        prop_assert_eq!(format!("{:?}", read.parts), format!("{:?}", answer.parts));
    }

    #[test]
    fn nothing_makes_the_reader_panic(body in "(\\{|\\}|\\[|\\]|\"|,|:|choices|message|tool_calls|id|0|function|[a-z]){0,40}") {
        drop(decode(body.as_bytes()));
    }
}
