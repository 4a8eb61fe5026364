//! Calls as servers tell of them, and as callers get them.

use serde_json::{Value, json};

use super::*;
use crate::chat::chunk;
use crate::splice::splice;

/// Chunks with these lists of pieces, as they pass.
fn passed(lists: &[Value]) -> Vec<Value> {
    let mut numbers = Numbers::default();
    let pass = |calls: &Value| {
        let data = json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}).to_string();
        let fault = chunk::skim(data.as_bytes()).expect("a chunk").grammar;
        let edits = numbers.edits(data.as_bytes(), fault);
        let passed = splice(&Bytes::from(data), &edits);
        serde_json::from_slice::<Value>(&passed).expect("JSON")["choices"][0]["delta"]["tool_calls"].clone()
    };
    lists.iter().map(pass).collect()
}

/// Arguments by number and id, put together as clients do.
fn put_together(lists: &[Value]) -> Vec<(String, String)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for list in passed(lists) {
        for piece in list.as_array().expect("pieces") {
            let at = usize::try_from(piece["index"].as_u64().expect("a number")).expect("small");
            assert!(at <= calls.len(), "{piece}");
            if at == calls.len() {
                let id = piece["id"].as_str().expect("an id");
                calls.push((id.to_owned(), String::new()));
            }
            let id = piece["id"].as_str().filter(|id| !id.is_empty());
            assert!(id.is_none_or(|id| calls[at].0 == id), "{piece}");
            calls[at].1 += piece["function"]["arguments"].as_str().unwrap_or_default();
        }
    }
    calls
}

fn owned(id: &str, arguments: &str) -> (String, String) {
    (id.to_owned(), arguments.to_owned())
}

#[test]
fn calls_that_are_told_as_they_should_be_stay_as_they_are() {
    let lists = [
        json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        json!([{"index": 0, "function": {"arguments": "{\"name\":"}}]),
        json!([{"index": 1, "id": "b", "function": {"name": "f", "arguments": "{}"}}]),
        json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}]),
        json!([{"index": 2, "id": "b", "function": {"name": "f"}}, {"index": 2, "function": {"arguments": "{}"}}]),
    ];

    assert_eq!(passed(&lists), lists);
}

#[test]
fn numbers_that_are_left_out_are_those_in_which_calls_begin() {
    let lists = [
        json!([{"id": "a", "function": {"name": "f", "arguments": ""}}]),
        json!([{"function": {"arguments": "{}"}}]),
        json!([{"id": "b", "index": null, "function": {"name": "f", "arguments": "{"}}, {"function": {"arguments": "}"}}]),
        json!([{"id": "b", "function": {"name": "f", "arguments": " "}}]),
    ];

    assert_eq!(put_together(&lists), [owned("a", "{}"), owned("b", "{} ")]);
}

#[test]
fn calls_that_all_have_the_number_0_are_told_apart_by_their_ids() {
    let lists = [
        json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]),
        json!([{"index": 0, "id": "b", "function": {"name": "f", "arguments": "{"}}]),
        json!([{"index": 0, "function": {"arguments": "}"}}]),
    ];

    assert_eq!(put_together(&lists), [owned("a", "{}"), owned("b", "{}")]);
}

#[test]
fn calls_without_ids_get_one_each() {
    let calls = put_together(&[
        json!([{"index": 0, "function": {"name": "f", "arguments": "{"}}]),
        json!([{"index": 0, "id": "", "function": {"name": "f", "arguments": "}"}}]),
        json!([{"index": 1, "id": null, "function": {"name": "f", "arguments": "{}"}}]),
    ]);

    assert_eq!((calls[0].1.as_str(), calls[1].1.as_str()), ("{}", "{}"));
    assert!(calls.iter().all(|(id, _)| id.starts_with("call_")), "{calls:?}");
    assert_ne!(calls[0].0, calls[1].0);
    let nothing = put_together(&[
        json!([{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "f", "arguments": "{}"}}]),
    ]);
    assert_eq!(nothing.len(), 2);
    assert_ne!(nothing[0].0, nothing[1].0);
}

#[test]
fn an_id_is_the_same_however_it_is_escaped() {
    let mut numbers = Numbers::default();
    for id in ["é", r"\u00e9", r"\u00E9"] {
        let call = format!(r#"{{"index":0,"id":"{id}","function":{{"name":"f","arguments":"x"}}}}"#);
        let data = format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#);
        assert_eq!(numbers.edits(data.as_bytes(), None), [], "{id}");
    }
}

#[test]
fn choices_without_numbers_get_that_of_their_place() {
    let data = r#"{"choices":[{"delta":{"content":"a"}},{"index":null,"delta":{}},{}]}"#;
    let fault = chunk::skim(data.as_bytes()).expect("a chunk").grammar;

    let edits = Numbers::default().edits(data.as_bytes(), fault);

    assert_eq!(
        splice(&Bytes::from(data), &edits),
        r#"{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{}},{"index":2}]}"#
    );
}

#[test]
fn calls_of_a_whole_answer_get_the_ids_that_they_lack() {
    let call =
        |id: &Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({"choices": [{"index": 0, "message": {"tool_calls": [
        call(&json!("a")), call(&json!(null)), {"function": {"name": "f"}}]}}, {"index": 1, "message": {}}]});
    let text = body.to_string();

    let passed = splice(&Bytes::from(text.clone()), &ids(text.as_bytes()));

    let passed: Value = serde_json::from_slice(&passed).expect("JSON");
    let calls = &passed["choices"][0]["message"]["tool_calls"];
    let given: Vec<&str> = (0..3).filter_map(|at| calls[at]["id"].as_str()).collect();
    assert_eq!(given[0], "a");
    assert!(given[1].starts_with("call_") && given[2].starts_with("call_") && given[1] != given[2]);
    let whole = json!({"choices": [{"message": {"tool_calls": [call(&json!("a"))]}}]}).to_string();
    assert_eq!(ids(whole.as_bytes()), []);
}
