//! Every path on which a model is asked for something: what the router is offered, and in whose words a caller is
//! answered when that is not the model.

use std::time::Duration;

use schemas::event::request::Surface;
use schemas::failure::{Failure, FailureCode};
use schemas::outcome::Outcome;
use serde_json::json;

use crate::scene::{CALLER, PLAIN, Scene, request};
use crate::script::{Step, begin, chunk, end, failed, head, report, whole};

const MESSAGES: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
const PROMPT: &str = r#"{"model":"m","prompt":"hi"}"#;
const INPUT: &str = r#"{"model":"m","input":"hi"}"#;
const EMBED: &str = r#"{"model":"vectors","input":[[3,4],[1,2]]}"#;

fn streamed(body: &str) -> String {
    body.replacen('{', r#"{"stream":true,"#, 1)
}

#[tokio::test]
async fn every_path_offers_its_surface_with_the_body_as_it_was_sent() {
    let scene = Scene::new().await;
    let calls = [
        ("/v1/chat/completions", PLAIN, Surface::Chat),
        ("/v1/completions", PROMPT, Surface::Completions),
        ("/completion", PROMPT, Surface::Completions),
        ("/completion", PLAIN, Surface::Chat),
        ("/v1/embeddings", EMBED, Surface::Embeddings),
        ("/v1/responses", INPUT, Surface::Responses),
        ("/v1/messages?beta=true", MESSAGES, Surface::Messages),
        ("/anthropic/v1/messages", MESSAGES, Surface::Messages),
    ];

    for (path, body, surface) in calls {
        scene.script.push(whole(r#"{"ok":1}"#));
        let answer = scene.call(&format!("POST {path}"), CALLER, body).await;

        assert_eq!((answer.status, &*answer.body), (200, r#"{"ok":1}"#), "{path}");
        let dispatch = scene.script.told().dispatched.pop().expect("a dispatch");
        assert_eq!(dispatch.offer.surface, surface, "{path}");
        assert_eq!(dispatch.body, body.as_bytes());
        let (start, end) = dispatch.offer.splice.model;
        assert!(body[start..end] == *"\"m\"" || body[start..end] == *"\"vectors\"");
    }
    let rows = scene.rows(calls.len()).await;
    let surfaces: Vec<_> = rows.iter().map(|row| row.surface).collect();
    assert_eq!(surfaces, calls.map(|(_, _, surface)| surface));
}

#[tokio::test]
async fn what_headers_say_of_the_answer_reaches_the_router() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    let headers = "anthropic-version: 2023-06-01\r\nanthropic-beta: one\r\nanthropic-beta: two\r\n\
         x-reasoning-passthrough: false\r\nconnection: close\r\n";

    scene
        .raw(&request("POST /v1/messages", CALLER, headers, MESSAGES))
        .await;

    let offer = scene.script.told().dispatched.remove(0).offer;
    assert_eq!(offer.told.anthropic_version.as_deref(), Some("2023-06-01"));
    assert_eq!(offer.told.anthropic_beta.as_deref(), Some("one,two"));
    assert!(offer.told.hides_thinking);
    let long = format!("anthropic-beta: {}\r\nconnection: close\r\n", "x".repeat(3_000));
    let refused = scene
        .raw(&request("POST /v1/messages", CALLER, &long, MESSAGES))
        .await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn what_the_router_dropped_is_told_and_pages_may_read_it() {
    let scene = Scene::with(|config| config.cors_origins = vec!["https://app.example".to_owned()]).await;
    let mut dropping = head("application/json");
    dropping
        .headers
        .push(("x-waybill-dropped".to_owned(), "top_k, user".to_owned()));
    scene
        .script
        .push(vec![end(report(Outcome::Ok, None), "{}", Some(dropping))]);
    let headers = "origin: https://app.example\r\nconnection: close\r\n";

    let answer = scene
        .raw(&request("POST /v1/messages", CALLER, headers, MESSAGES))
        .await;

    assert_eq!(answer.header("x-waybill-dropped"), Some("top_k, user"));
    let exposed = answer.header("access-control-expose-headers");
    assert!(exposed.is_some_and(|list| list.contains("x-waybill-dropped")));
}

#[tokio::test]
async fn a_model_that_embeds_is_not_there_for_answers_nor_the_other_way() {
    let scene = Scene::new().await;

    let embedded = scene
        .call("POST /v1/embeddings", CALLER, &EMBED.replace("vectors", "m"))
        .await;
    let answered = scene.chat(&PLAIN.replace("\"m\"", "\"vectors\"")).await;
    let unknown = scene.chat(&PLAIN.replace("\"m\"", "\"nothing\"")).await;

    let body = |answer: &crate::scene::Answer| {
        let mut body = answer.json();
        body["error"]["request_id"].take();
        (answer.status, body)
    };
    assert_eq!(body(&embedded), body(&unknown));
    assert_eq!(body(&answered), body(&unknown));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json().as_object().map(serde_json::Map::len), Some(1));
}

#[tokio::test]
async fn refusals_on_paths_of_anthropic_are_in_its_shape_whatever_goes_wrong() {
    let scene = Scene::with(|config| config.body_bytes_max = 10_000).await;
    let call = async |line: &str, key: &str, body: &str| {
        let answer = scene.call(line, key, body).await;
        let told = answer.json();
        assert_eq!(told["type"], "error", "{line}");
        assert_eq!(told["request_id"].as_str(), answer.header("request-id"), "{line}");
        (
            answer.status,
            told["error"]["type"].as_str().unwrap_or("").to_owned(),
        )
    };
    let is = |status: u16, kind: &str| (status, kind.to_owned());
    let post = "POST /v1/messages";

    assert_eq!(
        call(post, "sk-nobody", MESSAGES).await,
        is(401, "authentication_error")
    );
    let hidden = MESSAGES.replace("\"m\"", "\"org/staff\"");
    assert_eq!(call(post, CALLER, &hidden).await, is(404, "not_found_error"));
    assert_eq!(call(post, CALLER, "{").await, is(400, "invalid_request_error"));
    let large = " ".repeat(10_001);
    assert_eq!(call(post, CALLER, &large).await, is(413, "request_too_large"));
    for line in [
        "POST /v1/messages/nothing",
        "GET /anthropic/nothing",
        "POST /anthropic/v1/v1/messages",
    ] {
        assert_eq!(call(line, CALLER, "").await, is(404, "not_found_error"));
    }
    assert_eq!(
        call("PUT /v1/messages", CALLER, "").await,
        is(405, "invalid_request_error")
    );
    scene.script.push(failed(Failure::new(
        FailureCode::UpstreamTimeout,
        "the upstream was too slow",
    )));
    assert_eq!(call(post, CALLER, MESSAGES).await.0, 504);
    scene.script.push(vec![Step::Panic]);
    assert_eq!(call(post, CALLER, MESSAGES).await, is(500, "api_error"));
    let many = "x-many: 1\r\n".repeat(150);
    let headers = format!("{many}connection: close\r\n");
    let answer = scene.raw(&request(post, CALLER, &headers, MESSAGES)).await;
    assert_eq!(
        (answer.status, answer.json()["type"].as_str()),
        (431, Some("error"))
    );
}

#[tokio::test]
async fn a_missing_field_of_messages_is_named_in_the_words_of_the_dialect() {
    let scene = Scene::new().await;

    let answer = scene
        .call(
            "POST /v1/messages",
            CALLER,
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
        )
        .await;

    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["error"]["message"],
        "Missing required field: max_tokens"
    );
}

#[tokio::test]
async fn a_base_url_that_says_the_version_twice_gets_a_hint() {
    let scene = Scene::new().await;

    let answer = scene.call("POST /v1/v1/chat/completions", CALLER, PLAIN).await;

    assert_eq!((answer.status, &*answer.code()), (404, "not_found"));
    let message = answer.json()["error"]["message"].as_str().map(str::to_owned);
    assert!(message.is_some_and(|text| text.contains("base URL")));
}

#[tokio::test]
async fn bases_that_clients_try_first_are_there() {
    let scene = Scene::new().await;

    for line in [
        "HEAD /",
        "HEAD /v1",
        "HEAD /anthropic",
        "HEAD /anthropic/v1",
        "HEAD /v1/models",
    ] {
        let answer = scene.call(line, CALLER, "").await;
        assert_eq!((answer.status, &*answer.body), (200, ""), "{line}");
    }
}

#[tokio::test]
async fn a_silent_messages_stream_gets_a_comment_before_it_begins_and_pings_after() {
    let scene = Scene::with(|config| config.keepalive_seconds = 1).await;
    let pause = || Step::Wait(Duration::from_millis(1_200));
    scene.script.push(vec![
        pause(),
        begin(),
        chunk("event: message_start\ndata: {}\n\n"),
        pause(),
        end(
            report(Outcome::Ok, None),
            "event: message_stop\ndata: {}\n\n",
            None,
        ),
    ]);

    let answer = scene.call("POST /v1/messages", CALLER, &streamed(MESSAGES)).await;

    assert_eq!(
        answer.body,
        ": keepalive\n\nevent: message_start\ndata: {}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n\
         event: message_stop\ndata: {}\n\n"
            .replace("{\"type\": \"ping\"}", "{\"type\":\"ping\"}")
    );
}

#[tokio::test]
async fn a_stream_that_breaks_says_so_in_the_words_of_its_surface() {
    let scene = Scene::new().await;
    let broken = |text: &'static str| {
        let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off");
        let cut = report(Outcome::UpstreamCut, Some(failure));
        vec![begin(), chunk(text), end(cut, "", None)]
    };

    scene.script.push(broken("event: message_start\ndata: {}\n\n"));
    let messages = scene.call("POST /v1/messages", CALLER, &streamed(MESSAGES)).await;
    scene.script.push(broken(
        "event: response.created\ndata: {\"sequence_number\":6}\n\n",
    ));
    let responses = scene.call("POST /v1/responses", CALLER, &streamed(INPUT)).await;
    scene.script.push(broken("data: {}\n\n"));
    let completions = scene
        .call("POST /v1/completions", CALLER, &streamed(PROMPT))
        .await;

    let last = |answer: &crate::scene::Answer| {
        let event = answer
            .body
            .trim_end()
            .rsplit("\n\n")
            .next()
            .unwrap_or("")
            .to_owned();
        let (name, data) = event.split_once("data: ").unwrap_or(("", ""));
        (
            name.trim().to_owned(),
            serde_json::from_str(data).unwrap_or(json!(null)),
        )
    };
    let (name, data) = last(&messages);
    assert_eq!(
        (&*name, &data["error"]["message"]),
        ("event: error", &json!("the answer broke off"))
    );
    let (name, data) = last(&responses);
    assert_eq!(
        (&*name, &data["sequence_number"]),
        ("event: response.failed", &json!(7))
    );
    assert_eq!(data["response"]["status"], "failed");
    assert_eq!(data["response"]["model"], "m");
    let (name, data) = last(&completions);
    assert_eq!(
        (&*name, &data["error"]["code"]),
        ("", &json!("stream_interrupted"))
    );
}

#[tokio::test]
async fn compressed_bodies_are_unfolded_before_anything_reads_them() {
    use async_compression::tokio::write::GzipEncoder;
    use tokio::io::AsyncWriteExt as _;

    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(INPUT.as_bytes()).await.expect("write");
    encoder.shutdown().await.expect("end");
    let packed = encoder.into_inner();
    let mut sent = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {CALLER}\r\ncontent-encoding: gzip\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        packed.len()
    )
    .into_bytes();
    sent.extend_from_slice(&packed);

    let answer = scene.raw(&sent).await;

    assert_eq!(answer.status, 200);
    assert_eq!(scene.script.told().dispatched[0].body, INPUT.as_bytes());
}
