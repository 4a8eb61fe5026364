//! Two nodes: a policy counts on the other within two seconds. A cluster wherever it runs.

use std::time::Duration;

use harness::{Behaviour, Plan, Scene, Upstream, chat, chat_streamed};
use serde_json::json;

use super::{models, operator, routed, until};
use crate::control::done;
use crate::retries::tireless;
use crate::rows::{assert_row, endpoint, tried_endpoints};

/// How long a change may take to count on every node.
const SPREAD_MAX: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_changed_policy_counts_on_the_other_node_within_two_seconds() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let all = models(&o1, &o2);
    let mut scene = Scene::start_cluster_on(Plan::default(), (o1, o2), |node| node.models(&all)).await;
    scene.o1.default(Behaviour::chat("cheap"));
    scene.o2.default(Behaviour::chat("dear"));
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let change = async |path: &str, body| {
        done(&operator(&scene).at(a), "PUT", path, body).await;
    };
    let client = scene.client.at(b);

    let config = "/api/v1/system/inference-config";
    change(
        config,
        json!({"auto_routing_enabled": true, "auto_routing_strategy": "cost"}),
    )
    .await;
    assert!(until(&client, |answer| routed(answer) == "cheap").await.1 < SPREAD_MAX);
    let policy = "/api/v1/models/routing-policies?name=cheap";
    change(policy, json!({"routing_enabled": false})).await;
    assert!(until(&client, |answer| routed(answer) == "dear").await.1 < SPREAD_MAX);
    let session = client.with_header("x-session-id", "over nodes");
    until(&session, |answer| routed(answer) == "dear").await;
    change(policy, json!({"routing_enabled": true})).await;
    let here = scene.client.at(a);
    assert!(until(&here, |answer| routed(answer) == "cheap").await.1 < SPREAD_MAX);
    let session = here.with_header("x-session-id", "over nodes");
    let answer = session.post_chat(&chat("auto")).await;
    assert_eq!(routed(&answer), "dear", "a session is known on both");
    change(config, json!({"auto_routing_enabled": false})).await;
    assert!(until(&client, |answer| answer.status == 404).await.1 < SPREAD_MAX);
    scene.finish().await;
}

#[tokio::test]
async fn where_routers_are_apart_a_model_that_fails_is_followed_by_the_next_too() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let all = models(&o1, &o2);
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    let scene = Scene::start_cluster_on(plan, (o1, o2), |node| tireless(node).models(&all)).await;
    scene.o1.default(Behaviour::error(500, "boom"));
    scene
        .o2
        .default(Behaviour::chat("from the dear one").usage(1_000, 100));
    super::set(&scene, true, "cost").await;
    until(&scene.client, |answer| answer.status == 200).await;

    let answer = scene.client.post_chat(&chat("auto")).await;
    let streamed = scene.client.stream_chat(&chat_streamed("auto")).await;

    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "dear"),
        "{}",
        answer.text()
    );
    assert_eq!(streamed.header("x-routed-model"), "dear");
    let streamed = streamed.collect().await;
    assert_eq!(streamed.whole(), "from the dear one");
    for request in [answer.request_id(), streamed.request_id()] {
        let row = scene.row(request).await;
        assert_row(
            &row,
            &json!({"model": "auto", "served_model": "dear", "cost_nano_usd": 12_000_000}),
        );
        let attempts = tried_endpoints(&row);
        assert_eq!(attempts.first(), Some(&endpoint("cheap", &scene.o1)));
        assert_eq!(attempts.last(), Some(&endpoint("dear", &scene.o2)));
    }
    scene.finish().await;
}
