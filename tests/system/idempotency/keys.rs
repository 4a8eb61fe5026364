//! What a key may be, and nodes that die while they hold one.

use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, RawSocket, Scene, chat, chat_streamed};
use serde_json::json;

use super::{after_progress, billed, is_replay, keyed};

#[tokio::test]
async fn a_key_has_1_to_128_printable_characters() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = chat("m").to_string();
    let longest = "k".repeat(128);
    let longer = "k".repeat(129);
    let lines = [
        (format!("idempotency-key: {longest}\r\n"), 200),
        ("idempotency-key: a b/c:d~\r\n".to_owned(), 200),
        (format!("idempotency-key: {longer}\r\n"), 400),
        ("idempotency-key: \r\n".to_owned(), 400),
        ("idempotency-key: a\tb\r\n".to_owned(), 400),
        ("idempotency-key: schl\u{fc}ssel\r\n".to_owned(), 400),
        ("idempotency-key: a\r\nidempotency-key: b\r\n".to_owned(), 400),
    ];
    for (line, status) in lines {
        let mut socket = RawSocket::connect(scene.client.addr()).await;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {CALLER_KEY}\r\n{line}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.send(head.as_bytes()).await;
        let answer = socket.read_to_end().await.text();

        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line:?}: {answer}"
        );
        if status == 400 {
            assert!(
                answer.contains(r#""param":"idempotency-key""#)
                    && answer.contains(r#""code":"invalid_request""#),
                "{answer}"
            );
        }
    }
    assert_eq!(scene.o1.calls(), 2);
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_dies_amid_a_call_leaves_the_key_to_the_next_one() {
    let mut scene = Scene::start_with(|node| node.setting("idempotency", json!({"lease_seconds": 3}))).await;
    scene.o1.script([Behaviour::chat("")
        .chunks(100, Duration::from_millis(100))
        .usage(60, 40)]);
    scene.o1.default(Behaviour::chat("again").usage(60, 40));
    let body = chat_streamed("m");
    let mut stream = keyed(&scene.client, "k-1").stream_chat(&body).await;
    stream.read_content(3).await;
    let id = stream.request_id().to_owned();

    scene.kill_and_restart().await;
    drop(stream);
    let client = keyed(&scene.client, "k-1");
    let again = after_progress(&client, &body).await;

    assert_eq!(again.status, 200, "{}", again.text());
    assert!(!is_replay(&again));
    assert!(again.text().contains("again"));
    let replay = client.post_chat(&body).await;
    assert!(is_replay(&replay) && replay.body == again.body);
    assert_eq!(scene.o1.calls(), 2);
    let lost = scene.row(&id).await;
    assert_eq!(
        (&lost["outcome"], &lost["cost_nano_usd"]),
        (&json!("lost"), &json!(0)),
        "{lost}"
    );
    let (cost, rows) = billed(&scene, 2).await;
    assert_eq!((cost, rows.len()), (440_000, 1), "{rows:?}");
    scene.finish().await;
}
