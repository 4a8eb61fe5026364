//! A strict upstream takes what its provider takes and refuses what it refuses, one example a rule.

use serde_json::{Value, json};

use super::super::request::Received;
use super::refusal;

fn of(target: &str, header: (&str, &str), body: &Value) -> Option<String> {
    refusal(&Received {
        target: target.to_owned(),
        headers: vec![
            (header.0.to_owned(), header.1.to_owned()),
            ("x-api-key".to_owned(), "k".to_owned()),
        ],
        body: body.to_string().into(),
        ..Received::default()
    })
}

/// Each change of a body that is fine is refused with words that hold these.
fn refused(target: &str, header: (&str, &str), fine: &Value, changes: &[(&str, Value, &str)]) {
    assert_eq!(of(target, header, fine), None);
    for (pointer, value, why) in changes {
        let mut body = fine.clone();
        let (parent, member) = pointer.rsplit_once('/').expect("a pointer");
        let parent = body.pointer_mut(parent).expect("a place");
        match member.parse::<usize>() {
            Ok(at) => parent[at] = value.clone(),
            Err(_) if value.is_null() => drop(parent.as_object_mut().expect("an object").remove(member)),
            Err(_) => parent[member] = value.clone(),
        }
        let told = of(target, header, &body);
        assert!(
            told.as_ref().is_some_and(|told| told.contains(why)),
            "{pointer} = {value}: {told:?}"
        );
    }
}

#[test]
fn messages_refuses_what_anthropic_refuses() {
    let fine = json!({"model": "c", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}, {"type": "text", "text": "go"}]},
    ], "tools": [{"name": "f", "input_schema": {"type": "object"}}]});
    let changes = [
        ("/unknown", json!(1), "unknown"),
        ("/max_tokens", Value::Null, "max_tokens"),
        ("/temperature", json!(1.5), "temperature"),
        ("/messages/0/role", json!("assistant"), "first message"),
        ("/messages/0/content", json!(""), "non-empty"),
        ("/messages/1/content/0/id", json!("a.b"), "legal"),
        ("/messages/1/content/0/input", json!(true), "input"),
        (
            "/messages/2/content/0/tool_use_id",
            json!("t2"),
            "without tool_result",
        ),
        ("/messages/2/content", json!("no"), "without tool_result"),
        ("/messages/2/content/1/text", json!(" "), "non-whitespace"),
        ("/tools/0/input_schema", json!({}), "input_schema"),
        (
            "/tool_choice",
            json!({"type": "tool", "name": "g"}),
            "no such tool",
        ),
        (
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 2000}),
            "max_tokens",
        ),
    ];

    refused(
        "/v1/messages",
        ("anthropic-version", "2023-06-01"),
        &fine,
        &changes,
    );
    let warm = [("/temperature", json!(0.5), "temperature")];
    refused("/v1/messages", ("anthropic-version", "2026-10-21"), &fine, &warm);
    assert!(of("/v1/messages", ("anthropic-version", "x"), &fine).is_some());
}

#[test]
fn gemini_refuses_what_google_refuses() {
    let fine = json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2lnOjE="}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "x"}}}]},
    ], "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}]});
    let changes = [
        ("/unknown", json!(1), "unknown"),
        ("/contents/0/role", json!("model"), "first turn"),
        ("/contents/0/parts/0/text", json!(""), "empty text"),
        (
            "/contents/1/parts/0/thoughtSignature",
            Value::Null,
            "missing a thought_signature",
        ),
        (
            "/contents/1/parts/0/thoughtSignature",
            json!("AAAA"),
            "invalid thought signature",
        ),
        (
            "/contents/2/parts/0/functionResponse/name",
            json!("g"),
            "answered by",
        ),
        (
            "/contents/2/parts/0/functionResponse/response",
            json!("x"),
            "no function response",
        ),
        (
            "/generationConfig",
            json!({"stopSequences": ["a", "b", "c", "d", "e", "f"]}),
            "too many",
        ),
        ("/generationConfig", json!({"max_tokens": 1}), "max_tokens"),
        (
            "/toolConfig",
            json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}}),
            "not declared",
        ),
    ];

    refused(
        "/v1beta/models/g:generateContent",
        ("x-goog-api-key", "k"),
        &fine,
        &changes,
    );
    assert!(
        of(
            "/v1beta/models/g:generateContent?key=k",
            ("x-goog-api-key", "k"),
            &fine
        )
        .is_some()
    );
    assert!(
        of(
            "/v1beta/models/g:streamGenerateContent",
            ("x-goog-api-key", "k"),
            &fine
        )
        .is_some()
    );
}

#[test]
fn chat_refuses_what_openai_refuses() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let fine = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]});
    let changes = [
        ("/top_k", json!(1), "top_k"),
        ("/stream_options", json!({}), "stream_options"),
        ("/stop", json!(["a", "b", "c", "d", "e"]), "stop"),
        ("/messages/0/role", json!("robot"), "role"),
        ("/messages/1/tool_calls/0/id", json!("c".repeat(41)), "too long"),
        (
            "/messages/1/tool_calls/0/function/arguments",
            json!({}),
            "arguments",
        ),
        ("/messages/2/tool_call_id", json!("c2"), "must follow"),
        ("/messages/2/role", json!("user"), "tool_call_id"),
        ("/tools/0/function/name", json!("a.b"), "legal"),
        (
            "/tool_choice",
            json!({"type": "function", "function": {"name": "g"}}),
            "tool_choice",
        ),
    ];

    refused("/v1/chat/completions", ("a", "b"), &fine, &changes);
}

#[test]
fn responses_refuses_what_openai_refuses() {
    let fine = json!({"model": "m", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
    ], "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false}]});
    let changes = [
        ("/messages", json!([]), "messages"),
        ("/max_output_tokens", json!(3), "max_output_tokens"),
        ("/input/0/content/0/type", json!("output_text"), "no place"),
        ("/input/1/id", json!("x_1"), "fc_"),
        ("/input/2/call_id", json!("c2"), "no tool call found"),
        (
            "/input/2",
            json!({"role": "user", "content": "x"}),
            "no tool output",
        ),
    ];

    refused("/v1/responses", ("a", "b"), &fine, &changes);
}
