//! Two nodes: a policy counts on the other within two seconds. A cluster wherever it runs.

use std::time::Duration;

use harness::{Behaviour, Plan, Scene, Upstream};
use serde_json::json;

use super::{models, operator, routed, until};
use crate::control::done;

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
    let answer = session.post_chat(&harness::chat("auto")).await;
    assert_eq!(routed(&answer), "dear", "a session is known on both");
    change(config, json!({"auto_routing_enabled": false})).await;
    assert!(until(&client, |answer| answer.status == 404).await.1 < SPREAD_MAX);
    scene.finish().await;
}
