//! Waybills as they are booked, read by whom they belong to: pages, and streams that go on where they broke off.

use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, OPERATOR_KEY, OTHER_KEY, RawAnswer, RawSocket, Scene, chat};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::control::call;

/// What a stream has told: its events with their ids.
fn told(answer: &RawAnswer) -> Vec<(u64, Value)> {
    let (mut told, mut place) = (Vec::new(), 0);
    for line in answer.body().lines() {
        if let Some(id) = line.strip_prefix("id: ") {
            place = id.trim().parse().expect("a place");
        } else if let Some(data) = line.strip_prefix("data: ") {
            told.push((place, serde_json::from_str(data).expect("an envelope")));
        }
    }
    told
}

fn requests(told: &[(u64, Value)]) -> Vec<String> {
    told.iter()
        .map(|(_, event)| event["data"]["request_id"].as_str().expect("an id").to_owned())
        .collect()
}

/// Opens a stream of events and reads until it says where it is.
async fn open(scene: &Scene, key: &str, more: &str) -> (RawSocket, RawAnswer) {
    let mut socket = RawSocket::connect(scene.client.addr()).await;
    let head = format!(
        "GET /api/v1/usage/events HTTP/1.1\r\nhost: waybill\r\nauthorization: Bearer {key}\r\n\
         accept: text/event-stream\r\n{more}\r\n"
    );
    socket.send(head.as_bytes()).await;
    let answer = socket.read_until(|bytes| find(bytes, b"\nid: ")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "text/event-stream");
    (socket, answer)
}

fn find(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Reads on until so many events came, and gives all of them.
async fn until(socket: &mut RawSocket, events: usize) -> Vec<(u64, Value)> {
    let mut all = Vec::new();
    while all.len() < events {
        let answer = socket
            .read_until(|bytes| bytes.ends_with(b"\n\n\r\n") && find(bytes, b"data: "))
            .await;
        assert!(!answer.closed, "the stream ended: {}", answer.text());
        let text = format!("x\r\n\r\n{}", answer.text());
        let answer = RawAnswer {
            bytes: text.into_bytes(),
            closed: false,
        };
        all.extend(told(&answer));
    }
    all
}

#[tokio::test]
async fn whoever_goes_on_from_the_last_place_he_has_misses_nothing_and_sees_nobody_elses() {
    let scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("hello").usage(9, 20));
    let other = scene.client.with_key(OTHER_KEY);
    let before = scene.client.post_chat(&chat("m")).await.request_id().to_owned();
    scene.row(&before).await;

    let (mut socket, _) = open(&scene, CALLER_KEY, "").await;
    let mut own = Vec::new();
    for _ in 0..2 {
        own.push(scene.client.post_chat(&chat("m")).await.request_id().to_owned());
        other.post_chat(&chat("m")).await;
    }
    let first = until(&mut socket, 2).await;
    let mut seen = requests(&first);
    drop(socket);
    for _ in 0..3 {
        other.post_chat(&chat("m")).await;
        own.push(scene.client.post_chat(&chat("m")).await.request_id().to_owned());
    }
    let last = first.last().expect("an event").0;
    let (mut socket, answer) = open(&scene, CALLER_KEY, &format!("last-event-id: {last}\r\n")).await;
    let mut second = told(&answer);
    second.extend(until(&mut socket, 3 - second.len().min(3)).await);
    seen.extend(requests(&second));
    // In the order of the books, which is that of one caller's calls.
    assert_eq!(seen, own);
    let event = &second[0].1;
    assert_eq!(event["type"], "waybill.request.settled.v1");
    assert_eq!(
        (&event["data"]["input_tokens"], &event["data"]["output_tokens"]),
        (&json!(9), &json!(20))
    );

    // The same by pages, from the beginning of all.
    let (mut paged, mut after) = (Vec::new(), 0);
    loop {
        let page = scene
            .client
            .get(&format!("/api/v1/usage/events?limit=2&after={after}"))
            .await
            .json();
        let data = page["data"].as_array().expect("a list");
        paged.extend(
            data.iter()
                .map(|told| (told["place"].as_u64().expect("a place"), told["event"].clone())),
        );
        after = page["next"].as_u64().expect("a place");
        if page["more"] == false {
            break;
        }
    }
    own.insert(0, before);
    assert_eq!(requests(&paged), own);
    assert_eq!(paged[1..3], first[..]);

    // A key reads what it did and an operator what all did; a key asks for nobody else's.
    let all = scene
        .client
        .with_key(OPERATOR_KEY)
        .get("/api/v1/usage/events?limit=500")
        .await;
    assert_eq!(
        all.json()["data"].as_array().expect("a list").len(),
        own.len() + 5
    );
    let refused = scene.client.get("/api/v1/usage/events?tenant=other").await;
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (403, "insufficient_scope")
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_credential_that_is_revoked_ends_its_streams() {
    let scene = Scene::start().await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let made = call(
        &operator,
        "POST",
        "/api/v1/tenant/api-keys",
        json!({"name": "reader"}),
    )
    .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let (id, key) = (made.json()["id"].clone(), made.json()["key"].clone());
    let (id, key) = (id.as_str().expect("an id"), key.as_str().expect("a key"));
    let (mut socket, _) = open(&scene, key, "").await;

    let revoked = Instant::now();
    let gone = call(
        &operator,
        "DELETE",
        &format!("/api/v1/tenant/api-keys/{id}"),
        Value::Null,
    )
    .await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    let answer = socket.read_until(|bytes| bytes.ends_with(b"0\r\n\r\n")).await;

    assert!(answer.text().ends_with("0\r\n\r\n"), "{}", answer.text());
    assert!(
        revoked.elapsed() < Duration::from_secs(2),
        "the stream outlived its key"
    );
    scene.finish().await;
}
