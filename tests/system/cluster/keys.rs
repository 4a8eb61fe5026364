//! One state for both nodes: rows, keys, revocations.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use harness::{Behaviour, CALLER_KEY, Client, End, OPERATOR_KEY, Plan, Scene, chat, chat_streamed};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// How long a change of the catalogue may take to reach the other node.
const SPREAD_MAX: Duration = Duration::from_secs(2);

#[tokio::test]
async fn the_row_of_a_call_on_one_node_is_read_on_the_other() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());

    let on_a = scene.client.at(a).post_chat(&chat("m")).await;
    let on_b = scene.client.at(b).post_chat(&chat("m")).await;

    assert_eq!(
        (on_a.status, on_b.status),
        (200, 200),
        "{} {}",
        on_a.text(),
        on_b.text()
    );
    let row_of_a = scene.cluster().node("b").wait_row(on_a.request_id()).await;
    let row_of_b = scene.row(on_b.request_id()).await;
    for row in [&row_of_a, &row_of_b] {
        assert_eq!(
            (&row["outcome"], &row["tenant"]),
            (&json!("ok"), &json!("acme")),
            "{row}"
        );
    }
    assert_ne!(row_of_a["node"], row_of_b["node"]);
    assert_ne!(row_of_a["source"], row_of_b["source"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_key_works_and_is_revoked_on_the_other_node_within_two_seconds() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.at(a).with_key(OPERATOR_KEY);
    let body = json!({"name": "fresh", "tenant": "acme"}).to_string();
    let made = operator
        .call("POST", "/api/v1/tenant/api-keys", body.into())
        .await
        .expect("an answer")
        .json();
    let key = made["key"].as_str().expect("a key");
    let other = scene.client.at(b).with_key(key);

    assert!(until(&other, 200).await < SPREAD_MAX);

    let path = format!("/api/v1/tenant/api-keys/{}", made["id"].as_str().expect("an id"));
    let revoked = operator
        .call("DELETE", &path, Bytes::new())
        .await
        .expect("an answer");
    assert!(revoked.status < 300, "{}", revoked.text());
    assert!(until(&other, 401).await < SPREAD_MAX);
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_cannot_hear_of_revocations_serves_nobody_until_it_can_again() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let stale_max = Duration::from_secs(3);
    let mut scene = Scene::start_cluster(plan, |node| {
        node.setting("auth", json!({"stale_seconds_max": stale_max.as_secs()}))
    })
    .await;
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);

    scene.cluster().services.nats_proxy.cut();
    sleep(stale_max / 3).await;
    for _ in 0..2 {
        let soon = scene.client.post_chat(&chat("m")).await;
        assert_eq!(soon.status, 200, "{}", soon.text());
    }
    sleep(stale_max).await;
    // Who calls is not known then, so there is no row: the scene's own client expects one.
    let nodes = [scene.node.addr(), scene.cluster().node("b").addr()];
    for (node, key) in nodes.into_iter().zip([CALLER_KEY, OPERATOR_KEY]) {
        let late = Client::new(node, key).post_chat(&chat("m")).await;
        assert_eq!(late.status, 503, "{}", late.text());
        assert_eq!(late.error_code(), "store_unavailable");
        assert_ne!(late.header("retry-after"), "");
    }

    scene.cluster().services.nats_proxy.heal();
    for node in nodes {
        until(&Client::new(node, CALLER_KEY), 200).await;
    }
    scene.foreign_calls();
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_19_a_stream_outlives_its_key_to_its_own_end_or_its_time_cap_and_no_call_begins() {
    const CAP: Duration = Duration::from_secs(4);
    // The machine may be busy.
    const ENDED_MAX: Duration = Duration::from_secs(5);
    let mut scene = Scene::start_cluster(Plan::default(), |node| {
        let cap = CAP.as_secs_f64().to_string();
        node.env("STREAM_REQUEST_TIMEOUT_SECONDS", &cap)
    })
    .await;
    let nodes = [scene.node.addr(), scene.cluster().node("b").addr()];
    let operator = scene.client.at(nodes[0]).with_key(OPERATOR_KEY);
    let body = json!({"name": "fresh", "tenant": "acme"}).to_string();
    let made = operator
        .call("POST", "/api/v1/tenant/api-keys", body.into())
        .await;
    let made = made.expect("an answer").json();
    let key = made["key"].as_str().expect("a key");
    let clients = nodes.map(|node| scene.client.at(node).with_key(key));
    for client in &clients {
        until(client, 200).await;
    }
    // One that comes to its end by itself, and one that would go on for ever.
    let every = Duration::from_millis(25);
    let behaviours = [40, 4_000].map(|chunks| Behaviour::chat("").chunks(chunks, every).usage(9, 40));
    let mut streams = Vec::new();
    for behaviour in behaviours {
        for client in &clients {
            scene.o1.script([behaviour.clone()]);
            let begun = Instant::now();
            let mut stream = client.stream_chat(&chat_streamed("m")).await;
            stream.read_content(2).await;
            streams.push((begun, stream));
        }
    }

    let path = format!("/api/v1/tenant/api-keys/{}", made["id"].as_str().expect("an id"));
    let revoked = operator
        .call("DELETE", &path, Bytes::new())
        .await
        .expect("an answer");
    assert!(revoked.status < 300, "{}", revoked.text());
    for client in &clients {
        assert!(until(client, 401).await < SPREAD_MAX);
    }
    let ended = streams.into_iter().map(async |(begun, stream)| {
        let told = stream.collect().await;
        (begun.elapsed(), told)
    });
    let ended = join_all(ended).await;

    for (place, (took, told)) in ended.iter().enumerate() {
        let row = scene.row(told.request_id()).await;
        let outcome = row["outcome"].as_str().expect("an outcome");
        if place < clients.len() {
            assert_eq!((&told.end, outcome), (&End::Done, "ok"), "{row}");
            assert_eq!(row["key_id"], made["id"]);
            continue;
        }
        assert!(matches!(told.end, End::ErrorEvent(_)), "{:?}", told.end);
        assert_eq!(outcome, "timeout", "{row}");
        assert!(*took >= CAP && *took < CAP + ENDED_MAX, "{took:?}");
    }
    for client in &clients {
        assert_eq!(client.post_chat(&chat("m")).await.status, 401);
    }
    scene.finish().await;
}

/// Calls until the status is this one; gives how long that took.
async fn until(client: &Client, status: u16) -> Duration {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(&chat("m")).await;
        if answer.status == status {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < 3 * SPREAD_MAX,
            "still {}: {}",
            answer.status,
            answer.text()
        );
        sleep(Duration::from_millis(20)).await;
    }
}
