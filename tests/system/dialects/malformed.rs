//! Lists with an entry that is none: refused with its place, before anything is sent, whatever the upstream speaks.

use harness::Surface;
use serde_json::{Value, json};

use super::shapes::{self, Shape};
use crate::rows::assert_free;

/// A way to write a list with one entry at a place that is not its first, and the name of that place.
struct List {
    surface: Surface,
    with: fn(Value) -> Value,
    place: &'static str,
}

const LISTS: [List; 15] = [
    list(
        Surface::Chat,
        "messages.1",
        |entry| json!({"messages": [said(), entry]}),
    ),
    list(
        Surface::Chat,
        "messages.0.content.1",
        |entry| json!({"messages": [{"role": "user", "content": [text("text"), entry]}]}),
    ),
    list(
        Surface::Chat,
        "tools.1",
        |entry| json!({"tools": [tool(), entry]}),
    ),
    list(
        Surface::Messages,
        "messages.1",
        |entry| json!({"messages": [said(), entry]}),
    ),
    list(
        Surface::Messages,
        "messages.0.content.1",
        |entry| json!({"messages": [{"role": "user", "content": [text("text"), entry]}]}),
    ),
    list(
        Surface::Messages,
        "system.1",
        |entry| json!({"system": [text("text"), entry]}),
    ),
    list(
        Surface::Messages,
        "tools.1",
        |entry| json!({"tools": [{"name": "f", "input_schema": {"type": "object"}}, entry]}),
    ),
    list(
        Surface::Responses,
        "input.1",
        |entry| json!({"input": [said(), entry]}),
    ),
    list(
        Surface::Responses,
        "input.0.content.1",
        |entry| json!({"input": [{"role": "user", "content": [text("input_text"), entry]}]}),
    ),
    list(Surface::Responses, "input.2.output.1", |entry| {
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        let output = json!([text("input_text"), entry]);
        json!({"input": [said(), call, {"type": "function_call_output", "call_id": "c", "output": output}]})
    }),
    list(
        Surface::Responses,
        "tools.1",
        |entry| json!({"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, entry]}),
    ),
    list(
        Surface::Completions,
        "prompt.1",
        |entry| json!({"prompt": ["a", unless_tokens(entry)]}),
    ),
    list(
        Surface::Chat,
        "messages.0.content",
        |entry| json!({"messages": [{"role": "user", "content": unless_null(entry)}]}),
    ),
    list(
        Surface::Messages,
        "messages.0.content",
        |entry| json!({"messages": [{"role": "user", "content": unless_null(entry)}]}),
    ),
    list(
        Surface::Responses,
        "input.0.content",
        |entry| json!({"input": [{"role": "user", "content": unless_null(entry)}]}),
    ),
];

const fn list(surface: Surface, place: &'static str, with: fn(Value) -> Value) -> List {
    List { surface, with, place }
}

fn said() -> Value {
    json!({"role": "user", "content": "zebra-echo"})
}

fn text(kind: &str) -> Value {
    json!({"type": kind, "text": "zebra-echo"})
}

fn tool() -> Value {
    json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})
}

/// No content at all is one, and so is a list of nothing.
fn unless_null(entry: Value) -> Value {
    if entry.is_null() || entry == json!([]) {
        json!(7)
    } else {
        entry
    }
}

/// An empty list of tokens is the server's to judge.
fn unless_tokens(entry: Value) -> Value {
    if entry == json!([]) { json!({}) } else { entry }
}

#[tokio::test]
async fn an_entry_that_is_none_is_refused_with_its_place_before_anything_is_sent() {
    let scene = shapes::one_leg_scene(|node| node).await;
    let refused = scene
        .client
        .post(Surface::Chat, &json!({"model": "m", "messages": [null]}))
        .await;
    assert_free(
        &scene.row(refused.request_id()).await,
        "rejected",
        400,
        "invalid_request",
    );
    for list in &LISTS {
        for entry in [Value::Null, json!(true), json!(1.5), json!([])] {
            for shape in Shape::ALL {
                let mut body = list.surface.ask(shape.model());
                let members = (list.with)(entry.clone());
                for (name, value) in members.as_object().expect("members") {
                    body[name] = value.clone();
                }

                let answer = scene.client.post(list.surface, &body).await;

                let case = format!(
                    "{:?} {} {entry} {shape:?}: {}",
                    list.surface,
                    list.place,
                    answer.text()
                );
                assert_eq!(answer.status, 400, "{case}");
                let error = &answer.json()["error"];
                let message = error["message"].as_str().unwrap_or_default();
                assert!(message.contains(&format!("'{}'", list.place)), "{case}");
                assert!(!answer.text().contains("zebra"), "{case}");
                if list.surface != Surface::Messages {
                    assert_eq!(error["param"], list.place, "{case}");
                }
            }
        }
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}
