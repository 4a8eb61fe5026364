//! `kill -9` of each part of a cluster, again and again, under load with faulty upstreams: every answer has its row,
//! none has two, sums are exact, and every cut request is explained by its row.

use std::time::Duration;

use harness::{End, Outcome, Plan, Scene};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{faulty_upstreams, load, told};

/// Between two kills.
const LIFE: Duration = Duration::from_millis(1_500);
/// Between a kill and the new start.
const DEATH: Duration = Duration::from_millis(500);

fn kills() -> u64 {
    told("WAYBILL_TEST_KILLS", 2)
}

/// Circuits that do not open: the faults of these tests are the upstream's, not the subject.
async fn scene(plan: Plan) -> Scene {
    Scene::start_cluster(plan, |node| {
        node.env("CIRCUIT_FAILURE_THRESHOLD", "1000")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await
}

/// Every answer that broke off has a row that says why.
async fn assert_explained(scene: &Scene) {
    for answer in Outcome::of(scene.client.log()).failed {
        if !matches!(
            answer.end,
            End::Broken(_) | End::EofWithoutDone | End::ErrorEvent(_)
        ) {
            continue;
        }
        let row = scene.row(&answer.request_id).await;
        let outcome = row["outcome"].as_str().unwrap_or_default();
        assert!(
            ["lost", "upstream_cut", "upstream_error", "timeout", "ok"].contains(&outcome),
            "{answer:?}: {row}"
        );
        if outcome == "lost" {
            assert_eq!(row["cost_nano_usd"], 0, "{row}");
        }
    }
}

/// Every call was answered, and what is not whole is so by its upstream's fault, which its row tells.
async fn assert_only_upstreams_failed(scene: &Scene, outcome: &Outcome) {
    assert_eq!(outcome.unanswered, 0, "{outcome:?}");
    assert!(outcome.whole >= 50, "{outcome:?}");
    for answer in &outcome.failed {
        let row = scene.row(&answer.request_id).await;
        let told = row["outcome"].as_str().unwrap_or_default();
        assert!(
            ["upstream_cut", "upstream_error"].contains(&told),
            "{answer:?}: {row}"
        );
    }
}

#[tokio::test]
async fn killed_gateways_lose_no_answer() {
    let mut scene = scene(Plan::default()).await;
    faulty_upstreams(&scene);
    let load = load(&scene);

    for number in 0..kills() {
        sleep(LIFE).await;
        if number % 2 == 0 {
            scene.node.kill().await;
            sleep(DEATH).await;
            scene.node.restart().await;
        } else {
            let node = scene.cluster().node("b");
            node.kill().await;
            sleep(DEATH).await;
            node.restart().await;
        }
        scene.turn_client();
    }
    sleep(LIFE).await;

    let outcome = load.end().await;
    assert!(outcome.whole > 100, "{outcome:?}");
    assert_explained(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn killed_routers_lose_no_answer() {
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    let mut scene = scene(plan).await;
    faulty_upstreams(&scene);
    let load = load(&scene);

    for number in 0..kills() {
        sleep(LIFE).await;
        let node = scene
            .cluster()
            .node(["router-1", "router-2"][usize::from(number % 2 == 1)]);
        node.kill().await;
        sleep(DEATH).await;
        node.restart().await;
    }
    sleep(LIFE).await;

    let outcome = load.end().await;
    assert!(outcome.whole > 100, "{outcome:?}");
    assert_eq!(outcome.unanswered, 0, "{outcome:?}");
    assert_explained(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn killed_ledgers_cost_no_call_and_no_row() {
    let mut scene = scene(Plan::default()).await;
    faulty_upstreams(&scene);
    let load = load(&scene);

    for number in 0..kills() {
        sleep(LIFE).await;
        let node = scene
            .cluster()
            .node(["ledger-1", "ledger-2"][usize::from(number % 2 == 1)]);
        node.kill().await;
        sleep(DEATH).await;
        node.restart().await;
    }
    sleep(LIFE).await;

    assert_only_upstreams_failed(&scene, &load.end().await).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_killed_bus_costs_no_call_and_no_row() {
    let mut scene = scene(Plan::default()).await;
    faulty_upstreams(&scene);
    let load = load(&scene);

    for _ in 0..kills() {
        sleep(LIFE).await;
        let server = &mut scene.cluster().services.nats.servers[0];
        server.kill().await;
        sleep(DEATH).await;
        server.restart().await;
    }
    sleep(LIFE).await;

    assert_only_upstreams_failed(&scene, &load.end().await).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_killed_database_costs_no_call_and_no_row() {
    let mut scene = scene(Plan::default()).await;
    faulty_upstreams(&scene);
    let load = load(&scene);

    for _ in 0..kills() {
        sleep(LIFE).await;
        let server = &mut scene.cluster().services.postgres;
        server.kill().await;
        sleep(DEATH).await;
        server.restart().await;
    }
    sleep(LIFE).await;

    assert_only_upstreams_failed(&scene, &load.end().await).await;
    scene.finish().await;
}

#[tokio::test]
async fn every_part_killed_at_once_comes_back_with_all_rows() {
    let mut scene = scene(Plan::default()).await;
    faulty_upstreams(&scene);
    let load = load(&scene);
    sleep(LIFE).await;

    let parts = scene.cluster();
    parts.services.nats.servers[0].kill().await;
    parts.services.postgres.kill().await;
    for node in &mut parts.nodes {
        node.kill().await;
    }
    scene.node.kill().await;
    let parts = scene.cluster();
    parts.services.nats.servers[0].restart().await;
    parts.services.postgres.restart().await;
    for node in &mut parts.nodes {
        node.restart().await;
    }
    scene.node.restart().await;
    scene.turn_client();
    sleep(LIFE).await;

    let outcome = load.end().await;
    assert!(outcome.whole > 50, "{outcome:?}");
    assert_explained(&scene).await;
    let lost: Vec<Value> = scene.node.wait_rows("outcome=lost", 0).await;
    assert!(
        lost.iter().all(|row| row["error_code"] == json!("node_lost")),
        "{lost:?}"
    );
    scene.finish().await;
}
