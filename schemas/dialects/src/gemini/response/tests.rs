//! Whole answers.

use super::*;
use crate::superset::answer::Finish;

#[test]
fn a_whole_answer_has_the_parts_of_its_stream() {
    let body = br#"{
      "candidates": [{"content": {"parts": [
          {"text": "first", "thought": true}, {"text": "Sun"}, {"text": "ny"},
          {"functionCall": {"name": "w", "args": {"n": 1.0}}, "thoughtSignature": "c2ln"}], "role": "model"},
        "finishReason": "STOP", "index": 0}],
      "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
      "responseId": "r"}"#;

    let answer = decode(body).expect("an answer");

    assert!(matches!(&answer.parts[0], Part::Thinking { text, proof: None } if text == "first"));
    assert!(matches!(&answer.parts[1], Part::Text { text, .. } if text == "Sunny"));
    let call = answer.calls().next().expect("a call");
    assert_eq!(
        (call.name.as_str(), call.arguments.as_str()),
        ("w", r#"{"n": 1.0}"#)
    );
    assert_eq!(call.proof.as_ref().map(|proof| proof.text.as_str()), Some("c2ln"));
    assert_eq!(answer.finish, Finish::ToolCalls);
    assert_eq!(answer.usage.and_then(|usage| usage.completion_tokens), Some(2));
}

#[test]
fn an_empty_answer_that_ended_is_one_and_nothing_is_none() {
    let empty = br#"{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS"}]}"#;
    let answer = decode(empty).expect("an answer");
    assert_eq!((answer.parts.len(), answer.finish), (0, Finish::Length));

    assert_eq!(decode(b"{}").expect_err("nothing"), Broken::Empty);
    assert_eq!(decode(b"").expect_err("nothing"), Broken::Malformed);
    let endless = br#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#;
    assert_eq!(decode(endless).expect("an answer").finish, Finish::Stop);
}
