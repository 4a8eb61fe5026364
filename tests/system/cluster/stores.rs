//! Stores that forget: a database from an older backup, a stream whose disk was rolled back, a spool that is gone, tables
//! that change under running calls. What was answered is in the books all the same, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, Client, OPERATOR_KEY, Plan, Scene, chat};
use tokio::time::sleep;

use super::{good_upstreams, load};

async fn scene() -> Scene {
    let scene = Scene::start_cluster(Plan::default(), |node| node).await;
    scene.o1.default(Behaviour::chat("hello").usage(9, 20));
    scene
}

/// So many calls, all of them good; gives the request ids.
async fn calls(scene: &Scene, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        ids.push(answer.request_id().to_owned());
    }
    ids
}

#[tokio::test]
async fn a_database_from_an_older_backup_is_filled_again_from_the_log() {
    let mut scene = scene().await;
    for id in calls(&scene, 10).await {
        scene.row(&id).await;
    }
    let database = &mut scene.cluster().services.postgres;
    database.stop().await;
    database.back_up().await;
    database.restart().await;
    for id in calls(&scene, 10).await {
        scene.row(&id).await;
    }

    let database = &mut scene.cluster().services.postgres;
    database.stop().await;
    database.restore().await;
    database.restart().await;

    calls(&scene, 4).await;
    assert_eq!(scene.node.wait_rows("outcome=ok", 24).await.len(), 24);
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_rolled_back_behind_what_it_had_taken_gets_it_again() {
    let mut scene = scene().await;
    for id in calls(&scene, 5).await {
        scene.row(&id).await;
    }
    let services = &mut scene.cluster().services;
    services.nats.servers[0].stop().await;
    services.nats.servers[0].back_up().await;
    services.nats.servers[0].restart().await;
    // With nobody to apply them the next events are in the stream and in the spools alone.
    for ledger in ["ledger-1", "ledger-2"] {
        scene.cluster().node(ledger).kill().await;
    }
    calls(&scene, 10).await;
    sleep(Duration::from_secs(2)).await;

    let server = &mut scene.cluster().services.nats.servers[0];
    server.kill().await;
    server.restore().await;
    server.restart().await;
    for ledger in ["ledger-1", "ledger-2"] {
        scene.cluster().node(ledger).restart().await;
    }

    calls(&scene, 3).await;
    assert_eq!(scene.node.wait_rows("outcome=ok", 18).await.len(), 18);
    scene.finish().await;
}

#[tokio::test]
async fn a_node_whose_spool_is_gone_goes_on_under_a_new_source() {
    let mut scene = scene().await;
    scene.pin();
    let first = calls(&scene, 3).await;
    for id in &first {
        scene.row(id).await;
    }
    let before = scene.row(&first[0]).await;
    assert_eq!(scene.node.stop().await, Some(0));
    std::fs::remove_dir_all(scene.node.data_dir().join("spool")).expect("the spool");

    scene.restart().await;

    let second = calls(&scene, 3).await;
    let after = scene.row(&second[2]).await;
    assert_ne!(before["source"], after["source"]);
    scene.finish().await;
}

/// Changes of tables that a ledger and those who ask it may meet: columns that come and go, and ones whose type is another.
const CHANGES: [&str; 6] = [
    "ALTER TABLE usage_rollup ADD COLUMN one TEXT",
    "ALTER TABLE api_logs ADD COLUMN one TEXT",
    "ALTER TABLE api_logs ALTER COLUMN end_user TYPE VARCHAR(200) COLLATE \"C\"",
    "ALTER TABLE api_logs ALTER COLUMN tenant TYPE VARCHAR(200) COLLATE \"C\"",
    "ALTER TABLE api_logs DROP COLUMN one",
    "ALTER TABLE event_log ALTER COLUMN event_id TYPE VARCHAR(200) COLLATE \"C\"",
];

/// Reads rows and one of them by its id, again and again; gives how often.
async fn read(operator: &Client, id: &str, is_over: &AtomicBool) -> usize {
    let mut reads = 0;
    while !is_over.load(Ordering::Relaxed) {
        for path in [
            "/api/v1/logs?limit=5",
            &*format!("/api/v1/logs/{id}"),
            "/api/v1/usage?group_by=tenant",
        ] {
            let answer = operator.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            reads += 1;
        }
    }
    reads
}

#[tokio::test]
async fn bug_case_16_6_tables_that_change_while_calls_run_cost_no_call_no_row_and_no_read() {
    let scene = scene().await;
    good_upstreams(&scene);
    let known = calls(&scene, 2).await;
    for id in &known {
        scene.row(id).await;
    }
    let operator = scene.client.with_key(OPERATOR_KEY);
    let load = load(&scene);
    let is_over = AtomicBool::new(false);

    let change = async {
        sleep(Duration::from_millis(500)).await;
        for statement in CHANGES {
            scene.node.books().define(statement).await;
            sleep(Duration::from_millis(400)).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    // More readers than a ledger has connections.
    let readers = (0..8).map(|_| read(&operator, &known[0], &is_over));
    let (reads, ()) = tokio::join!(join_all(readers), change);

    assert!(reads.iter().all(|reads| *reads > 6), "{reads:?}");
    load.end().await.assert_whole(30);
    // A ledger says so once when its database fails it, and once when it is well again.
    let complaints = scene.logs().matches("database does not do its work").count();
    assert!(
        complaints <= CHANGES.len(),
        "{complaints} complaints\n{}",
        scene.logs()
    );
    scene.finish().await;
}
