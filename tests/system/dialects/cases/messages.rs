//! Callers of Messages: what passes as it is, what is translated, and errors in their own words.

use std::time::Duration;

use bytes::Bytes;
use harness::{Behaviour, CALLER_KEY, Model, PROMPT_CANARY, Surface, Upstream};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, stream};
use crate::rows::{assert_billed, assert_free};

/// A request that only its own bytes can carry: blanks, unknown members, marks of caches, a signed thought.
fn odd_request(streams: bool) -> String {
    format!(
        r#"{{ "model": "am",  "max_tokens": 1e2, "stream":{streams},
  "system": [{{"type":"text","text":"be brief","cache_control":{{"type":"ephemeral","ttl":"1h"}}}}],
  "messages": [ {{"role":"user","content":"say hi, {PROMPT_CANARY}"}},
    {{"role":"assistant","content":[{{"type":"thinking","thinking":"…","signature":"sig-AbC=="}},{{"type":"text","text":"hi"}}]}},
    {{"role":"user","content":[{{"type":"text","text":"again","cache_control":{{"type":"ephemeral"}}}}]}} ],
  "context_management":{{"edits":[]}}, "some_day": {{"a":[1.0,2e1]}} }}"#
    )
}

/// An answer that only its own bytes can carry.
const ODD_ANSWER: &str = r#"{ "id":"msg_01", "type":"message","role":"assistant", "model":"am",
  "content":[ {"type":"thinking","thinking":"hm","signature":"sig-Zz=="},
    {"type":"text","text":"hi","citations":[{"type":"char_location","cited_text":"h"}]} ],
  "stop_reason":"end_turn","stop_sequence":null, "some_day":[1.0],
  "usage":{"input_tokens":9,"output_tokens":20,"service_tier":"standard"} }"#;

/// The same as a stream.
const ODD_STREAM: &str = concat!(
    "event: message_start\ndata: { \"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",",
    "\"role\":\"assistant\",\"model\":\"am\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,",
    "\"some_day\":1.0,\"usage\":{\"input_tokens\":9,\"output_tokens\":1}} }\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":",
    "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":",
    "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":",
    "{\"type\":\"signature_delta\",\"signature\":\"sig-Zz==\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":",
    "{\"type\":\"text\",\"text\":\"\",\"citations\":[]}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":",
    "{\"type\":\"text_delta\",\"text\":\"h\\u0069\"} , \"some_day\":null}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: some_day\ndata: {\"type\":\"some_day\",\"of\":[1.0]}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",",
    "\"stop_sequence\":null},\"usage\":{\"output_tokens\":20}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

#[tokio::test]
async fn to_an_upstream_of_messages_requests_and_answers_pass_byte_for_byte() {
    let mut scene = shapes::scene().await;
    let betas = "context-management-2025-06-27,some-day-2031-01-01";
    let client = scene.client.with_header("anthropic-beta", betas);
    scene.client = client.with_header("anthropic-version", "2023-06-01");
    let answer = |kind: &str, body: &str| {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: ";
        Behaviour::raw(format!("{head}{kind}\r\n\r\n{body}"))
    };
    scene.o1.script([
        answer("application/json", ODD_ANSWER),
        answer("text/event-stream", ODD_STREAM),
    ]);

    let path = Surface::Messages.path();
    let plain = scene
        .client
        .post_inference(path, odd_request(false))
        .await
        .expect("an answer");
    let body: Value = serde_json::from_str(&odd_request(true)).expect("JSON");
    let streamed = shapes::streamed(&scene, Surface::Messages, &body).await;

    assert_eq!(plain.text(), ODD_ANSWER);
    assert_eq!(streamed.raw, Bytes::from(ODD_STREAM));
    streamed.whole();
    assert_eq!(streamed.told().text, "hi");
    let sent = scene.o1.call(0).request;
    assert_eq!(String::from_utf8_lossy(&sent.body), odd_request(false));
    assert_eq!(
        String::from_utf8_lossy(&scene.o1.call(1).request.body),
        body.to_string()
    );
    assert_eq!(sent.header("anthropic-beta"), Some(betas));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(sent.header("x-api-key"), Some(harness::PROVIDER_KEY));
    assert!(sent.headers.iter().all(|(_, value)| !value.contains(CALLER_KEY)));
    for id in [plain.request_id(), streamed.request_id()] {
        assert_billed(&scene.row(id).await, 9, 20, 178_000);
    }
    scene.finish().await;
}

#[tokio::test]
async fn from_other_upstreams_callers_of_messages_get_messages() {
    let scene = shapes::scene().await;
    scene.o1.default(Behaviour::chat("hi there").usage(9, 20));
    for shape in [Shape::Chat, Shape::Gemini] {
        for path in ["/v1/messages", "/anthropic/v1/messages"] {
            let body = Surface::Messages.ask(shape.model());
            let plain = scene
                .client
                .post_inference(path, body.to_string())
                .await
                .expect("an answer");

            let told = plain.json();
            assert_eq!(told["type"], "message", "{told}");
            assert_eq!(
                told["content"],
                json!([{"type": "text", "text": "hi there"}]),
                "{told}"
            );
            assert_eq!(
                (&told["usage"]["input_tokens"], &told["usage"]["output_tokens"]),
                (&json!(9), &json!(20)),
                "{told}"
            );
            assert_eq!(
                (&told["stop_reason"], &told["stop_sequence"]),
                (&json!("end_turn"), &Value::Null)
            );
        }
        let streamed = stream(&scene, Surface::Messages, shape.model()).await;
        streamed.whole();
        assert_eq!(streamed.told().text, "hi there");
        let raw = String::from_utf8_lossy(&streamed.raw).into_owned();
        assert!(raw.starts_with("event: message_start\ndata: "), "{raw}");
        assert!(
            raw.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
            "{raw}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn errors_of_the_gateway_are_errors_of_messages() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let hidden = Shape::Chat
        .leg(Model::new("hidden"), &o1, 0)
        .set("required_role", "admin");
    let mut models: Vec<Model> = Shape::ALL
        .map(|shape| shape.leg(Model::new(shape.model()), &o1, 0))
        .to_vec();
    models.push(hidden);
    let scene = shapes::started(o1, o2, &models, |node| node.env("REQUEST_TIMEOUT_SECONDS", "0.3")).await;

    for path in ["/v1/messages", "/anthropic/v1/messages"] {
        let body = Surface::Messages.ask("m").to_string();
        let nobody = scene.client.with_key("");
        let nameless = nobody.post_inference(path, body).await.expect("an answer");
        assert_error(&nameless.json(), "authentication_error", nameless.request_id());
        assert_eq!(nameless.status, 401);
        let mut told = Vec::new();
        for model in ["unknown", "hidden"] {
            let body = Surface::Messages.ask(model).to_string();
            let answer = scene.client.post_inference(path, body).await.expect("an answer");
            assert_eq!(answer.status, 404);
            assert_error(&answer.json(), "not_found_error", answer.request_id());
            told.push(answer.text().replace(answer.request_id(), "ID"));
        }
        assert_eq!(told[0], told[1]);
    }
    scene.o1.default(Behaviour::hang());
    for shape in Shape::ALL {
        let late = ask(&scene, Surface::Messages, shape.model()).await;
        assert_eq!(late.status, 504, "{}", late.text());
        assert!(late.took < Duration::from_secs(2), "{:?}", late.took);
        assert_error(&late.json(), "api_error", late.request_id());
        assert_free(
            &scene.row(late.request_id()).await,
            "timeout",
            504,
            "upstream_timeout",
        );
    }
    scene.finish().await;
}

/// Panics unless this is an error of Messages.
fn assert_error(body: &Value, kind: &str, id: &str) {
    assert_eq!(
        (&body["type"], &body["error"]["type"]),
        (&json!("error"), &json!(kind)),
        "{body}"
    );
    assert!(
        body["error"]["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{body}"
    );
    assert_eq!(body["request_id"], id, "{body}");
}

#[tokio::test]
async fn tokens_are_counted_while_every_provider_is_down_and_for_no_hidden_model() {
    let (mut o1, o2) = (Upstream::start(), Upstream::start());
    let hidden = Shape::Chat
        .leg(Model::new("hidden"), &o1, 0)
        .set("required_role", "admin");
    let mut models: Vec<Model> = Shape::ALL
        .map(|shape| shape.leg(Model::new(shape.model()), &o1, 0))
        .to_vec();
    models.push(hidden);
    o1.stop().await;
    let scene = shapes::started(o1, o2, &models, |node| node).await;

    for path in [
        "/v1/messages/count_tokens",
        "/anthropic/v1/messages/count_tokens?beta=true",
    ] {
        for (model, status) in [
            ("m", 200),
            ("am", 200),
            ("gm", 200),
            ("hidden", 404),
            ("unknown", 404),
        ] {
            let mut body = Surface::Messages.ask(model);
            if let Some(members) = body.as_object_mut() {
                members.remove("max_tokens");
            }
            let answer = scene
                .client
                .call("POST", path, Bytes::from(body.to_string()))
                .await
                .expect("an answer");

            assert_eq!(answer.status, status, "{path}, {model}: {}", answer.text());
            if status == 200 {
                assert!(
                    answer.json()["input_tokens"].as_u64() > Some(5),
                    "{}",
                    answer.text()
                );
            } else {
                assert_eq!(answer.json()["error"]["type"], "not_found_error");
            }
        }
    }
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 0);
    scene.finish().await;
}
