//! Sizes: what fits passes unchanged, what does not is refused early, in the caller's dialect, and counted. In the room
//! of this file: what tenants, members and keys may use.

use std::time::Duration;

use harness::{CALLER_KEY, PROMPT_CANARY, RawAnswer, RawSocket, Scene, chat, raw};
use serde_json::{Value, json};
use tokio::time::Instant;

mod admission;
mod away;
mod cases;
mod changed;
mod clients;
mod fleet;
mod layers;
mod money;
mod restart;
mod shown;
mod size;
mod stops;
pub(crate) mod under;

const MB: usize = 1_000_000;
const CHUNK_BYTES: usize = 64 * 1024;

/// A chat body of about so many bytes.
fn body_of(bytes: usize) -> String {
    let filler = "a".repeat(bytes.saturating_sub(120));
    json!({"model": "m", "messages": [{"role": "user", "content": format!("{PROMPT_CANARY} {filler}")}]})
        .to_string()
}

fn head(more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: waybill\r\nauthorization: Bearer {CALLER_KEY}\r\n\
         content-type: application/json\r\nconnection: close\r\n{more}\r\n\r\n"
    )
}

/// Sends a body in chunks until it is all sent or the node has had enough; gives how much was taken.
async fn send_chunked(socket: &mut RawSocket, body: &[u8]) -> usize {
    socket.send(head("transfer-encoding: chunked").as_bytes()).await;
    let mut sent = 0;
    for piece in body.chunks(CHUNK_BYTES) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        if socket.send(&chunk).await < chunk.len() {
            return sent;
        }
        sent += piece.len();
    }
    socket.send(b"0\r\n\r\n").await;
    sent
}

/// Panics unless it is an error of ours in the dialect of the caller; gives its code.
fn code_of(answer: &RawAnswer) -> String {
    let body: Value =
        serde_json::from_str(&answer.body()).unwrap_or_else(|_| panic!("no JSON: {}", answer.text()));
    assert_eq!(body["error"]["request_id"], answer.header("x-request-id"));
    assert_eq!(answer.header("x-request-id").len(), 36);
    body["error"]["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn bug_case_39_bodies_up_to_the_limit_reach_the_upstream_unchanged_however_they_are_framed() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();

    for (number, megabytes) in [1.9, 2.1, 9.0, 31.0].into_iter().enumerate() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size of a test"
        )]
        let body = body_of((megabytes * 1e6) as usize);
        let declared = scene
            .client
            .post_inference("/v1/chat/completions", body.clone())
            .await
            .expect("an answer");
        let mut socket = RawSocket::connect(scene.client.addr()).await;
        send_chunked(&mut socket, body.as_bytes()).await;
        let chunked = socket.read_to_end().await;

        assert_eq!((declared.status, chunked.status()), (200, 200), "{megabytes} MB");
        for call in [2 * number, 2 * number + 1] {
            let received = scene.o1.call(call).request;
            assert!(received.body == body.as_bytes(), "{megabytes} MB arrived changed");
            assert_eq!(
                received.header("content-length"),
                Some(body.len().to_string().as_str())
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_39_a_body_beyond_the_limit_is_refused_by_its_declared_length_before_a_byte_of_it_is_sent() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let started = Instant::now();

    let mut socket = RawSocket::connect(scene.client.addr()).await;
    socket
        .send(head(&format!("content-length: {}", 34 * MB)).as_bytes())
        .await;
    let refused = socket.read_until(|bytes| bytes.ends_with(b"}}")).await;

    assert_eq!(
        (refused.status(), code_of(&refused).as_str()),
        (413, "body_too_large")
    );
    assert_eq!(refused.header("connection"), "close");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(scene.o1.calls(), 0);
    assert!(scene.metric("waybill_limit_rejections_total").await >= 1.0);
    scene.finish().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_while_it_is_sent_in_chunks() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = body_of(60 * MB);

    let mut socket = RawSocket::connect(scene.client.addr()).await;
    let sent = send_chunked(&mut socket, body.as_bytes()).await;
    let refused = socket.read_to_end().await;

    assert_eq!(
        (refused.status(), code_of(&refused).as_str()),
        (413, "body_too_large")
    );
    assert!(refused.closed);
    assert!(sent < 50 * MB, "{sent} bytes were taken");
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_39_large_bad_json_and_deep_nesting_are_400_and_leave_the_node_well() {
    let scene = Scene::start().await;
    let mut bad = body_of(21 * MB / 10);
    bad.truncate(bad.len() - 3);
    let array = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let object = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let messages = "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]";

    let cases = [
        ("bad JSON of 2.1 MB", bad, "invalid_json"),
        (
            "an array 10,000 deep",
            format!("{{\"model\":\"m\",{messages},\"x\":{array}}}"),
            "",
        ),
        (
            "an object 10,000 deep",
            format!("{{\"model\":\"m\",{messages},\"x\":{object}}}"),
            "",
        ),
        ("nothing but depth", array, ""),
        ("an open array 10,000 deep", "[".repeat(10_000), ""),
        ("no body", String::new(), ""),
        ("not JSON", "hello".to_owned(), "invalid_json"),
        ("no object", "[]".to_owned(), ""),
        ("no model", format!("{{{messages}}}"), "invalid_request"),
        ("not UTF-8's idea of JSON", "{\"model\":\"\u{0}\"}".to_owned(), ""),
    ];
    for (case, body, code) in cases {
        let refused = scene
            .client
            .post_inference("/v1/chat/completions", body)
            .await
            .expect("an answer");
        assert_eq!(refused.status, 400, "{case}: {}", refused.text());
        assert_eq!(refused.json()["error"]["request_id"], refused.request_id());
        let told = refused.error_code();
        assert!(
            ["invalid_json", "invalid_request"].contains(&told.as_str()),
            "{case}: {told}"
        );
        assert!(code.is_empty() || told == code, "{case}: {told}");
    }
    assert_eq!(scene.o1.calls(), 0);
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_39_headers_beyond_the_limits_are_431() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let addr = scene.client.addr();
    let large = head(&format!("content-length: 0\r\nx-filler: {}", "a".repeat(100_000)));
    let many: Vec<String> = (0..140).map(|number| format!("x-{number}: 1")).collect();
    let many = head(&format!("content-length: 0\r\n{}", many.join("\r\n")));

    for (case, head) in [("100 KB", large), ("140 headers", many)] {
        let refused = raw(addr, head.as_bytes()).await;
        assert_eq!(refused.status(), 431, "{case}: {}", refused.text());
        assert_eq!(code_of(&refused), "headers_too_large", "{case}");
        assert!(refused.closed, "{case}");
    }

    let huge = head(&format!("content-length: 0\r\nx-filler: {}", "a".repeat(1 << 20)));
    let swarm: Vec<String> = (0..100_000).map(|number| format!("x-{number}: 1")).collect();
    let swarm = head(&format!("content-length: 0\r\n{}", swarm.join("\r\n")));
    for (case, head) in [("1 MB", huge), ("100,000 headers", swarm)] {
        let refused = raw(addr, head.as_bytes()).await;
        assert_eq!(refused.status(), 431, "{case}");
        assert!(refused.closed, "{case}");
    }
    assert_eq!(scene.o1.calls(), 0);
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_in_the_callers_dialect() {
    let scene = Scene::start().await;

    for (method, path, status, code) in [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "//v1/chat/completions/", 405, "method_not_allowed"),
        ("POST", "/v1/chat/completions/nothing", 404, "not_found"),
        ("POST", "/V1/CHAT/COMPLETIONS", 404, "not_found"),
        ("POST", "/v1/chat", 404, "not_found"),
        ("GET", "/nothing/here", 404, "not_found"),
    ] {
        let answer = scene
            .client
            .call(method, path, bytes::Bytes::new())
            .await
            .expect("an answer");
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (status, code),
            "{method} {path}"
        );
        assert_eq!(
            answer.json()["error"]["request_id"],
            answer.request_id(),
            "{method} {path}"
        );
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}
