//! Three servers of the bus, one of which dies: the one that leads what calls need of it.

use std::time::Duration;

use harness::{Answer, CALLER_KEY, Client, Plan, Scene, chat, settings};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{good_upstreams, load, told};

/// Longer than a new leader takes to be found where nothing is in the way: calls go on at least so long without.
const FAILOVER: Duration = Duration::from_secs(8);
/// The stream of events.
const STREAM: &str = "WAYBILL_EVENTS";
/// What limited and keyed calls need of the bus, in the order in which its leaders die.
const NEEDED: [&str; 4] = ["KV_wb_idem", "KV_wb_quota", "KV_wb_slots", "WAYBILL_RATE_MINUTE"];
/// Time between two calls with a key.
const KEYED_EVERY: Duration = Duration::from_millis(100);
/// How long what cannot be decided waits for a leader. A follower gives one up after four to nine seconds; this is more
/// than the default of twelve because the servers may have to share a slow machine.
const ADMIT_WAIT_SECONDS: u64 = 25;
/// How long an answer may take while there is no leader.
const SLOWEST_MAX: Duration = Duration::from_secs(ADMIT_WAIT_SECONDS + 2);
/// How soon the answer to a key is kept.
const KEPT_MAX: Duration = Duration::from_secs(20);

/// How long calls are made before anything dies.
const WARM_UP: Duration = Duration::from_secs(10);

const THREE: Plan = Plan {
    routers_apart: false,
    guarded: false,
    proxied: false,
    three_servers: true,
    more_gateways: 0,
    health_workers: 0,
    linked: false,
};

#[tokio::test]
async fn a_bus_of_three_that_loses_its_leader_costs_no_call_and_no_row() {
    let mut scene = Scene::start_cluster(THREE, |node| node).await;
    good_upstreams(&scene);
    let load = load(&scene);
    sleep(Duration::from_secs(1)).await;

    lose_leader(&mut scene, STREAM).await;

    load.end().await.assert_whole(50);
    scene.finish().await;
}

/// Kills the server that leads a stream, and starts it again when another one does.
async fn lose_leader(scene: &mut Scene, stream: &str) {
    let nats = &mut scene.cluster().services.nats;
    let leader = nats.leader_of(stream).await;
    nats.servers[leader].kill().await;
    sleep(FAILOVER).await;
    assert_ne!(nats.leader_of(stream).await, leader, "{stream}");
    nats.servers[leader].restart().await;
    sleep(Duration::from_secs(1)).await;
}

/// Calls with one idempotency key after the other until `end`; gives the keys and their answers.
async fn keyed_calls(client: Client, end: CancellationToken) -> Vec<(String, Answer)> {
    let mut calls = JoinSet::new();
    while !end.is_cancelled() {
        let key = format!("k-{}", calls.len());
        let client = client.with_header("idempotency-key", &key);
        calls.spawn(async move { (key, client.post_chat(&chat("m")).await) });
        sleep(KEYED_EVERY).await;
    }
    calls.join_all().await
}

/// The answer that is kept for a key.
async fn replayed(client: &Client, key: &str) -> Answer {
    let client = client.with_header("idempotency-key", key);
    let begun = Instant::now();
    loop {
        let answer = client.post_chat(&chat("m")).await;
        if answer.status == 200 {
            return answer;
        }
        assert_eq!(answer.status, 409, "{key}: {}", answer.text());
        assert!(begun.elapsed() < KEPT_MAX, "{key}: {}", answer.text());
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_bus_of_three_that_loses_its_leaders_costs_no_limited_and_no_keyed_call_and_each_is_billed_once() {
    let limits = json!({"daily_usd": "100", "daily_calls": 1_000_000, "rpm": 100_000, "concurrency": 500});
    let mut keys = settings()["keys"].clone();
    let caller = keys.as_array_mut().into_iter().flatten();
    for key in caller.filter(|key| key["key"] == CALLER_KEY) {
        key["limits"] = limits.clone();
    }
    let mut scene = Scene::start_cluster(THREE, |node| {
        node.setting("keys", keys)
            .setting("admit_wait_seconds", ADMIT_WAIT_SECONDS)
    })
    .await;
    good_upstreams(&scene);
    scene.wait_ready().await;
    let load = load(&scene);
    let end = CancellationToken::new();
    let mut keyed = JoinSet::new();
    keyed.spawn(keyed_calls(scene.client.clone(), end.clone()));
    // They hold what they use of late.
    sleep(WARM_UP).await;

    for (_, stream) in (0..told("WAYBILL_TEST_KILLS", 2)).zip(NEEDED.iter().cycle()) {
        lose_leader(&mut scene, stream).await;
    }

    end.cancel();
    let keyed = keyed.join_all().await.remove(0);
    let outcome = load.end().await;
    assert_eq!((outcome.failed.as_slice(), outcome.unanswered), (&[][..], 0));
    assert!(outcome.slowest < SLOWEST_MAX, "{:?}", outcome.slowest);
    let calls = scene.o1.calls() + scene.o2.calls();
    assert_eq!(outcome.whole, calls, "each was sent once");
    for (key, answer) in &keyed {
        assert!(answer.took < SLOWEST_MAX, "{key}: {:?}", answer.took);
        let again = replayed(&scene.client, key).await;
        assert_eq!(again.header("x-idempotent-replay"), "true", "{key}");
        assert_eq!(again.body, answer.body, "{key}");
    }
    assert!(keyed.len() > 50, "{}", keyed.len());
    assert_eq!(scene.o1.calls() + scene.o2.calls(), calls);
    scene.node.wait_rows("outcome=ok", calls).await;
    let rows = scene.node.logs_api("outcome=ok").await;
    let billed = rows.iter().filter(|row| row["cost_nano_usd"] != 0);
    assert_eq!(billed.count(), calls);
    eprintln!(
        "{} calls, {} of them with a key; the slowest of the others took {:?}",
        calls,
        keyed.len(),
        outcome.slowest
    );
    scene.finish().await;
}
