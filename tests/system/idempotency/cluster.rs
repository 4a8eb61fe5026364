//! Keys on two nodes whose bus or whose neighbour goes away. These tests are clusters wherever they run.

use std::time::Duration;

use harness::{Behaviour, Plan, Scene, chat};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{IN_PROGRESS, after_progress, billed, is_replay, keyed};

async fn scene(plan: Plan) -> Scene {
    let mut scene = Scene::start_cluster(plan, |node| {
        node.setting("idempotency", json!({"lease_seconds": 3}))
            .setting("admit_wait_seconds", 2)
    })
    .await;
    // A node whose bus goes away in its first moments does not start.
    scene.wait_ready().await;
    sleep(Duration::from_secs(1)).await;
    scene
}

#[tokio::test]
async fn the_other_node_replays_what_a_node_answered_that_is_gone() {
    let mut scene = scene(Plan::default()).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("kept").usage(60, 40));
    let first = keyed(&scene.client, "k-1").post_chat(&chat("m")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    scene.node.kill().await;

    let b = scene.cluster().node("b").addr();
    let replay = keyed(&scene.client, "k-1").at(b).post_chat(&chat("m")).await;

    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.body, first.body);
    assert_eq!(scene.o1.calls(), 1);
    scene.restart().await;
    let (cost, _) = billed(&scene, 2).await;
    assert_eq!(cost, 440_000);
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_is_killed_amid_a_call_is_waited_for_until_it_is_declared_gone() {
    let mut scene = scene(Plan::default()).await;
    scene.pin();
    scene.o1.script([Behaviour::chat("late")
        .usage(60, 40)
        .first_byte_delay(Duration::from_mins(2))]);
    scene.o1.default(Behaviour::chat("again").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    let b = scene.cluster().node("b").addr();
    // Long enough for the log to be told of it.
    client
        .leave_chat_after(&chat("m"), Duration::from_millis(2_500))
        .await;
    scene.node.kill().await;

    // The lease is over after three seconds; that its node is silent does not tell how its call ended.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        let running = client.at(b).post_chat(&chat("m")).await;
        assert_eq!(
            (running.status, running.error_code().as_str()),
            (409, IN_PROGRESS),
            "{}",
            running.text()
        );
        sleep(Duration::from_millis(700)).await;
    }
    let spool = std::fs::read_to_string(scene.node.data_dir().join("spool/spool.id")).expect("an id");
    let (code, told) = scene
        .cluster()
        .node("b")
        .command(&["node", "forget", spool.trim()])
        .await;
    assert_eq!(code, Some(0), "{told}");
    let again = after_progress(&client.at(b), &chat("m")).await;

    assert_eq!(again.status, 200, "{}", again.text());
    assert!(!is_replay(&again));
    assert_eq!(again.content(), "again");
    let replay = client.at(b).post_chat(&chat("m")).await;
    assert!(is_replay(&replay) && replay.body == again.body);
    assert_eq!(scene.o1.calls(), 2);
    scene.restart().await;
    let lost = scene.node.wait_rows("outcome=lost", 1).await;
    assert_eq!(lost[0]["cost_nano_usd"], 0, "{lost:?}");
    let (cost, rows) = billed(&scene, 2).await;
    assert_eq!((cost, rows.len()), (440_000, 1), "{rows:?}");
    scene.finish().await;
}

#[tokio::test]
async fn while_the_bus_is_away_no_call_with_a_key_is_sent_and_those_without_are() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = scene(plan).await;
    scene.o1.default(Behaviour::chat("hello").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    for silent in [false, true] {
        let proxy = &scene.cluster().services.nats_proxy;
        if silent {
            proxy.stall(harness::Way::Up);
            proxy.stall(harness::Way::Down);
        } else {
            proxy.cut();
        }
        sleep(Duration::from_millis(200)).await;

        let calls = scene.o1.calls();
        let refused = client.post_chat(&chat("m")).await;
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (503, "store_unavailable"),
            "{}",
            refused.text()
        );
        assert!(!refused.header("retry-after").is_empty());
        assert!(refused.took < Duration::from_secs(5), "{:?}", refused.took);
        assert_eq!(scene.o1.calls(), calls);
        let unkeyed = scene.client.post_chat(&chat("m")).await;
        assert_eq!(unkeyed.status, 200, "{}", unkeyed.text());

        scene.cluster().services.nats_proxy.heal();
        sleep(Duration::from_secs(2)).await;
    }

    let first = after_progress(&client, &chat("m")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let replay = client.post_chat(&chat("m")).await;
    assert!(is_replay(&replay) && replay.body == first.body);
    assert_eq!(scene.o1.calls(), 3, "two without a key, one with it");
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_goes_away_amid_a_call_costs_no_answer_and_has_it_later() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = scene(plan).await;
    scene.o1.default(
        Behaviour::chat("kept")
            .usage(60, 40)
            .first_byte_delay(Duration::from_secs(2)),
    );
    let client = keyed(&scene.client, "k-1");
    let body = chat("m");
    let cutting = async {
        scene.o1.wait_calls(1).await;
        scene.cluster().services.nats_proxy.cut();
    };

    let (first, ()) = tokio::join!(client.post_chat(&body), cutting);

    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.took < Duration::from_secs(5), "{:?}", first.took);
    // Longer than the lease.
    sleep(Duration::from_secs(4)).await;
    scene.cluster().services.nats_proxy.heal();

    let start = Instant::now();
    let replay = loop {
        let again = client.post_chat(&chat("m")).await;
        if again.status == 200 {
            break again;
        }
        assert!([409, 503].contains(&again.status), "{}", again.text());
        assert!(start.elapsed() < Duration::from_secs(15), "{}", again.text());
        sleep(Duration::from_millis(200)).await;
    };
    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.body, first.body);
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}
