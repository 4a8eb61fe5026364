//! Ids that an upstream gives twice.

use std::collections::BTreeSet;

use harness::{Behaviour, Model, Surface};
use serde_json::{Value, json};

use super::super::surfaces::scene_of;

#[tokio::test]
async fn responses_that_their_upstream_calls_the_same_are_kept_apart() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "native")]).await;
    let told = |text: &str| {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        let item = json!({"type": "message", "id": format!("msg_{text}"), "role": "assistant", "status": "completed", "content": content});
        json!({
            "id": "resp_same", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": [item], "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
        })
    };
    let stream = |text: &str| {
        let begun = json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_same",
            "object": "response", "created_at": 1, "status": "in_progress", "model": "m", "output": []}});
        let done = json!({"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": told(text)["output"][0]});
        let ended = json!({"type": "response.completed", "sequence_number": 2, "response": told(text)});
        let named = |event: &Value| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().expect("a type")
            )
        };
        Behaviour::raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{}",
            [&begun, &done, &ended].map(named).concat()
        ))
    };
    scene.o1.script([
        Behaviour::status(200, told("one")),
        Behaviour::status(200, told("two")),
        stream("three"),
        Behaviour::status(200, told("four")),
    ]);

    let ask = |more: Value| {
        let mut body = json!({"model": "m", "input": "go on"});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    };
    let respond = async |more| {
        let answer = scene.client.post(Surface::Responses, &ask(more)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };

    let (one, two) = (respond(json!({})).await, respond(json!({})).await);
    let three = scene
        .client
        .stream(Surface::Responses, &ask(json!({"stream": true})))
        .await;
    let three = three.collect().await;
    let ids: Vec<&Value> = (three.chunks().into_iter())
        .filter(|event| event["response"].is_object())
        .map(|event| &event["response"]["id"])
        .collect();
    let four = respond(json!({"previous_response_id": one["id"]})).await;

    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    let all = [&one["id"], &two["id"], ids[0], &four["id"]];
    let distinct: BTreeSet<&str> = all.iter().filter_map(|id| id.as_str()).collect();
    assert_eq!(distinct.len(), 4, "{all:?}");
    for (id, text) in all.iter().zip(["one", "two", "three", "four"]) {
        let path = format!("/v1/responses/{}", id.as_str().expect("an id"));
        let shown = scene.client.get(&path).await;
        assert_eq!(shown.json()["output"][0]["content"][0]["text"], text);
        assert_eq!(shown.json()["id"], **id);
    }
    let sent = scene.o1.call(3).request.json();
    assert_eq!(sent["input"][1]["content"][0]["text"], "one", "{sent}");
    scene.finish().await;
}
