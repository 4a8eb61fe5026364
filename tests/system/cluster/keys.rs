//! One state for both nodes: rows, keys, revocations.

use std::time::Duration;

use bytes::Bytes;
use harness::{CALLER_KEY, Client, OPERATOR_KEY, Plan, Scene, chat};
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
