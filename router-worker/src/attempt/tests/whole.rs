//! Unstreamed answers.

use std::io::Write as _;

use async_compression::tokio::write::GzipEncoder;
use schemas::outcome::Outcome;
use schemas::usage::Usage;
use tokio::io::AsyncWriteExt as _;

use crate::testing::{Act, MODEL, PLAIN, Scene, Server, UPSTREAM_MODEL, chat, config, ok};

#[tokio::test]
async fn an_answer_is_one_frame_under_the_public_name_with_its_usage() {
    let server = Server::always(vec![Act::Send(chat("hi"))]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    let end = played.end();
    let head = end.head.as_ref().expect("a head");
    assert_eq!(head.status, 200);
    assert_eq!(
        head.headers,
        [("content-type".to_owned(), "application/json".to_owned())]
    );
    let body: serde_json::Value = serde_json::from_slice(&end.tail).expect("JSON");
    assert_eq!(body["model"], MODEL);
    assert_eq!(body["choices"][0]["message"]["content"], "hi");
    assert_eq!(end.report.outcome, Outcome::Ok);
    assert_eq!(
        end.report.usage,
        Some(Usage {
            input_tokens: 3,
            output_tokens: 2,
            ..Usage::default()
        })
    );
    assert_eq!(end.report.delivered.output_bytes, 2);
    assert!(end.report.delivered.ttft_ms.is_some());
    assert_eq!(played.statuses(), [Some(200)]);
    assert_eq!(played.served(), Some("e1"));
}

#[tokio::test]
async fn an_upstream_sees_our_headers_its_own_model_name_and_no_options_of_streams() {
    let server = Server::always(vec![Act::Send(chat("hi"))]).await;
    let mut endpoint = crate::testing::endpoint("e1", &[&server.url()]);
    endpoint.credentials = vec![schemas::catalog::CredentialRef("k1".to_owned())];
    endpoint.extra_headers = vec![("x-title".to_owned(), "waybill".to_owned())];
    endpoint.extra_body = r#""top_k":4,"model":"never""#.to_owned();
    endpoint.query = "api-version=1".to_owned();
    let model = crate::testing::model(vec![crate::testing::route("e1", 0)]);
    let scene = Scene::new(config(), &[endpoint], &model).await;

    scene.call(PLAIN).await;

    let request = server.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    assert_eq!(
        lines.next(),
        Some("POST /v1/chat/completions?api-version=1 HTTP/1.1")
    );
    let mut names: Vec<_> = lines.clone().filter_map(|line| line.split(':').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-title"
        ]
    );
    assert!(lines.any(|line| line == "authorization: Bearer secret-k1"));
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["model"], UPSTREAM_MODEL);
    assert_eq!(body["top_k"], 4);
    assert!(body.get("stream_options").is_none());
}

#[tokio::test]
async fn compressed_answers_are_read_whatever_was_asked_for() {
    let plain = String::from_utf8(chat("packed")).expect("text");
    let (_, body) = plain.split_once("\r\n\r\n").expect("a body");
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(body.as_bytes()).await.expect("write");
    encoder.shutdown().await.expect("finish");
    let server = Server::always(vec![Act::Send(coded("gzip", &encoder.into_inner()))]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    assert!(played.text().contains("packed"));
    assert!(played.end().report.usage.is_some());
}

#[tokio::test]
async fn a_bomb_is_cut_at_the_cap_and_named() {
    let mut encoder = GzipEncoder::new(Vec::new());
    for _ in 0..1024 {
        encoder.write_all(&[b' '; 4 * 1024]).await.expect("write");
    }
    encoder.shutdown().await.expect("finish");
    let bomb = encoder.into_inner();
    assert!(bomb.len() < 64 * 1024);
    let server = Server::always(vec![Act::Send(coded("gzip", &bomb))]).await;
    let mut config = config();
    config.answer_bytes_max = 1024 * 1024;
    let scene = Scene::with(config, &[&server]).await;

    let played = scene.call(PLAIN).await;

    let failure = played.end().report.failure.as_ref().expect("a failure");
    assert_eq!(failure.status, 502);
    assert!(failure.message.contains("size limit"));
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::always(vec![Act::Send(chat("hi"))]).await;
    let scene = Scene::over(&[&server]).await;

    for _ in 0..5 {
        assert_eq!(scene.call(PLAIN).await.end().report.outcome, Outcome::Ok);
    }

    assert_eq!((server.calls(), server.connections()), (5, 1));
}

#[tokio::test]
async fn a_reused_connection_that_died_in_silence_is_replaced_once_and_nobody_sees_it() {
    // Every second request on a connection is met by a close without a byte.
    let server = Server::start(|call| {
        if call % 2 == 0 {
            vec![Act::Send(chat("hi"))]
        } else {
            vec![Act::Close]
        }
    })
    .await;
    let scene = Scene::over(&[&server]).await;

    scene.call(PLAIN).await;
    let second = scene.call(PLAIN).await;

    assert_eq!(second.end().report.outcome, Outcome::Ok);
    assert_eq!(second.statuses(), [Some(200)], "one attempt");
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn a_new_connection_that_dies_is_a_failure() {
    let server = Server::always(vec![Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(server.calls(), 1, "a generation is not sent twice");
    assert_eq!(played.code(), Some("upstream_error"));
    assert_eq!(played.statuses(), [None]);
}

#[tokio::test]
async fn a_connection_that_answered_in_part_is_not_replaced() {
    let server = Server::start(|call| {
        if call == 0 {
            vec![Act::Send(chat("hi"))]
        } else {
            vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), Act::Close]
        }
    })
    .await;
    let scene = Scene::over(&[&server]).await;

    scene.call(PLAIN).await;
    let second = scene.call(PLAIN).await;

    assert_eq!(server.calls(), 2);
    assert_eq!(second.code(), Some("upstream_error"));
}

#[tokio::test]
async fn a_body_that_ends_early_is_cut() {
    let mut answer = chat("hi");
    answer.truncate(answer.len() - 10);
    let server = Server::always(vec![Act::Send(answer), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(played.code(), Some("upstream_error"));
    assert_eq!(played.end().report.attempts[0].outcome, Outcome::UpstreamCut);
    assert!(played.end().head.is_none() && played.end().tail.is_empty());
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure_and_the_fallback_serves() {
    let fallback = Server::always(vec![Act::Send(chat("from the fallback"))]).await;
    for body in [
        r#"{"choices":[]}"#,
        "not JSON",
        r#"{"error":{"message":"overloaded"}}"#,
        r#"{"error":{"message":"limit","code":403}}"#,
        r#"{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"error"}]}"#,
    ] {
        let server = Server::always(vec![Act::Send(ok("application/json", body.as_bytes()))]).await;
        let scene = Scene::over(&[&server, &fallback]).await;

        let played = scene.call(PLAIN).await;

        assert!(played.text().contains("from the fallback"), "{body}");
        assert_eq!(played.served(), Some("e2"), "{body}");
        assert_eq!(played.statuses(), [Some(200), Some(200)], "{body}");
    }
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    write!(
        answer,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .expect("write");
    answer.extend_from_slice(body);
    answer
}

#[tokio::test]
async fn choices_that_called_tools_are_not_said_to_have_just_stopped() {
    let call = r#"[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
    let answer = |model: &str, reasons: [&str; 3]| {
        let [first, second, third] = reasons;
        format!(
            r#"{{"id":"a","object":"chat.completion","choices":[{{"index":0,"finish_reason":"{first}","message":{{"role":"assistant","tool_calls":{call}}}}},{{"index":1,"message":{{"content":"x"}},"finish_reason":"{second}"}},{{"index":2,"message":{{"tool_calls":{call}}},"finish_reason":"{third}"}}],"model":"{model}"}}"#
        )
    };
    let came = answer(UPSTREAM_MODEL, ["stop", "stop", "length"]);
    let server = Server::always(vec![Act::Send(ok("application/json", came.as_bytes()))]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(played.text(), answer(MODEL, ["tool_calls", "stop", "length"]));
}
