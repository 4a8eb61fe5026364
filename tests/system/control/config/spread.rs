//! Two nodes: what a file changes at one is in force at both. These tests are clusters wherever they run.

use harness::Plan;

use super::*;
use crate::control::SPREAD_MAX;

#[tokio::test]
async fn limits_that_a_file_changes_are_in_force_at_both_nodes_within_two_seconds() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let mut settings: Value = serde_json::from_str(&read(&scene, "waybill.yaml")).expect("JSON");
    settings["tenants"] = json!([{"id": "acme", "limits": {"daily_calls": 0, "rpm": 1}}, {"id": "zenith"}]);
    write(&scene, "waybill.yaml", &settings.to_string());
    let (code, output) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(0), "{output}");

    let caller = scene.client.with_key(CALLER_KEY);
    let both = [caller.at(a), caller.at(b)];
    let start = Instant::now();
    for client in &both {
        until(client, 429).await;
    }
    assert!(start.elapsed() < SPREAD_MAX + SPREAD_MAX, "{:?}", start.elapsed());

    let standing = scene.client.with_key(OPERATOR_KEY).at(b);
    let told = until_shown(&standing, "/admin/config", |told| {
        let nodes = told["nodes"].as_array().expect("nodes");
        nodes
            .iter()
            .filter(|node| !node["configuration"]["set"].is_null())
            .count()
            >= 2
    })
    .await;
    assert!(
        told["catalog_revision"]
            .as_u64()
            .is_some_and(|revision| revision > 0),
        "{told}"
    );
    scene.finish().await;
}
