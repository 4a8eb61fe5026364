//! Whole answers, as engines were recorded sending them.

use bytes::Bytes;
use serde_json::Value;

use crate::chat::answer;
use crate::chat::chunk::Finish;
use crate::splice::{Edit, splice};

/// Bodies, how they end, and their choices.
const RECORDED: [(&str, Finish, usize); 8] = [
    (
        include_str!("../../../tests/transcripts/llama.cpp/chat_nonstream.json"),
        Finish::Length,
        1,
    ),
    (
        include_str!("../../../tests/transcripts/llama.cpp/chat_n2.json"),
        Finish::Length,
        2,
    ),
    (
        include_str!("../../../tests/transcripts/llama.cpp/chat_tool_required.json"),
        Finish::ToolCalls,
        1,
    ),
    (
        include_str!("../../../tests/transcripts/llama.cpp/chat_logprobs.json"),
        Finish::Length,
        1,
    ),
    (
        include_str!("../../../tests/transcripts/vllm/chat_nonstream.json"),
        Finish::Length,
        1,
    ),
    (
        include_str!("../../../tests/transcripts/vllm/chat_n2.json"),
        Finish::Length,
        2,
    ),
    (
        include_str!("../../../tests/transcripts/vllm/chat_tool_named.json"),
        Finish::Stop,
        1,
    ),
    (
        include_str!("../../../tests/transcripts/vllm/chat_logprobs.json"),
        Finish::Length,
        1,
    ),
];

/// Bytes of generated text in a choice.
fn text_bytes(choice: &Value) -> usize {
    let call = &choice["message"]["tool_calls"][0]["function"];
    let texts = [&choice["message"]["content"], &call["name"], &call["arguments"]];
    texts.iter().filter_map(|text| text.as_str()).map(str::len).sum()
}

#[test]
fn recorded_answers_are_skimmed_as_a_full_parser_reads_them() {
    for (body, finish, choices) in RECORDED {
        let answer = answer::skim(body.as_bytes()).expect("an answer");

        let full: Value = serde_json::from_str(body).expect("JSON");
        let usage = answer.usage.expect("usage");
        let told = &full["usage"];
        assert_eq!(usage.prompt_tokens, told["prompt_tokens"].as_u64(), "{body}");
        assert_eq!(usage.completion_tokens, told["completion_tokens"].as_u64());
        assert_eq!(
            usage.cached_tokens,
            told["prompt_tokens_details"]["cached_tokens"].as_u64()
        );
        assert_eq!((answer.choices, answer.finish), (choices, Some(finish)));
        assert!(answer.content && answer.error.is_none());
        let bytes: usize = full["choices"]
            .as_array()
            .expect("choices")
            .iter()
            .map(text_bytes)
            .sum();
        assert_eq!(answer.output_bytes, bytes);
    }
}

#[test]
fn the_model_of_a_recorded_answer_can_be_replaced() {
    for (body, ..) in RECORDED {
        let span = answer::skim(body.as_bytes())
            .expect("an answer")
            .model_span
            .expect("a model");
        let edit = Edit {
            range: span,
            with: Bytes::from_static(b"\"public\""),
        };

        let spliced = splice(&Bytes::from_static(body.as_bytes()), &[edit]);

        let mut expected: Value = serde_json::from_str(body).expect("JSON");
        expected["model"] = Value::from("public");
        assert_eq!(serde_json::from_slice::<Value>(&spliced).expect("JSON"), expected);
    }
}

#[test]
fn an_error_inside_a_status_200_is_seen() {
    let answer =
        answer::skim(br#"{"error":{"message":"no","code":"502"},"choices":null}"#).expect("an object");

    assert_eq!(answer.error.and_then(|error| error.status), Some(502));
    assert_eq!((answer.choices, answer.content), (0, false));
    assert!(matches!(
        answer::skim(b"<html>"),
        Err(answer::Error::Malformed(_))
    ));
    assert!(matches!(answer::skim(b"\xFF"), Err(answer::Error::NotUtf8)));
}

#[test]
fn half_a_character_does_not_make_an_answer_unreadable() {
    let body =
        r#"{"choices":[{"index":0,"message":{"content":"a\ud83c"},"finish_reason":"stop"}],"model":"m"}"#;

    let answer = answer::skim(body.as_bytes()).expect("an answer");

    assert!(answer.content && answer.finish == Some(Finish::Stop));
    let model = answer.model_span.and_then(|span| body.get(span));
    assert_eq!(model, Some("\"m\""));
}
