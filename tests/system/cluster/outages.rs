//! The bus or the database is away for a while: nodes with routers of their own answer every call all the same, and
//! the rows are there soon after.

use std::time::Duration;

use harness::{CALLER_KEY, Outcome, Plan, Scene, chat};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{good_upstreams, load, told};

/// After an outage all rows are there within this.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);

/// How long the bus is away; the database stays away twice as long.
fn outage() -> Duration {
    Duration::from_secs(told("WAYBILL_TEST_OUTAGE_SECONDS", 5))
}

async fn scene() -> Scene {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let scene = Scene::start_cluster(plan, |node| node).await;
    good_upstreams(&scene);
    scene
}

/// Waits until every whole answer has its row.
async fn caught_up(scene: &Scene) {
    let start = Instant::now();
    let ids: Vec<String> = scene
        .client
        .log()
        .answered()
        .into_iter()
        .filter(|answer| answer.status == 200)
        .map(|answer| answer.request_id)
        .collect();
    loop {
        let rows = scene.node.try_logs_api("").await.unwrap_or_default();
        let missing = ids
            .iter()
            .filter(|id| !rows.iter().any(|row| row["request_id"] == id.as_str()))
            .count();
        if missing == 0 {
            return;
        }
        assert!(
            start.elapsed() < CATCH_UP_MAX,
            "{missing} of {} rows are missing",
            ids.len()
        );
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_bus_that_is_away_costs_no_call_and_its_rows_follow() {
    let mut scene = scene().await;
    let load = load(&scene);
    sleep(Duration::from_secs(1)).await;

    scene.cluster().services.nats_proxy.cut();
    sleep(outage()).await;
    scene.cluster().services.nats_proxy.heal();
    sleep(Duration::from_secs(1)).await;

    load.end().await.assert_whole(50);
    caught_up(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_is_silent_costs_no_call_and_its_rows_follow() {
    let mut scene = scene().await;
    let load = load(&scene);
    sleep(Duration::from_secs(1)).await;

    let proxy = &scene.cluster().services.nats_proxy;
    proxy.stall(harness::Way::Up);
    proxy.stall(harness::Way::Down);
    sleep(outage()).await;
    proxy.heal();
    sleep(Duration::from_secs(1)).await;

    load.end().await.assert_whole(50);
    caught_up(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_and_a_database_that_are_slow_or_half_gone_cost_no_call_and_the_rows_follow() {
    let mut scene = scene().await;
    let load = load(&scene);
    let (up, down) = (harness::Way::Up, harness::Way::Down);

    for fault in 0..4 {
        sleep(Duration::from_millis(500)).await;
        let services = &scene.cluster().services;
        for proxy in [&services.nats_proxy, &services.postgres_proxy] {
            match fault {
                0 => {
                    proxy.delay(up, Duration::from_millis(300));
                    proxy.delay(down, Duration::from_millis(300));
                }
                1 => {
                    proxy.dribble(up, 64, Duration::from_millis(20));
                    proxy.dribble(down, 64, Duration::from_millis(20));
                }
                2 => proxy.half_close(up),
                _ => proxy.half_close(down),
            }
        }
        sleep(outage() / 2).await;
        services.nats_proxy.heal();
        services.postgres_proxy.heal();
    }

    load.end().await.assert_whole(50);
    caught_up(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_database_that_is_away_costs_no_call_and_its_rows_follow() {
    let mut scene = scene().await;
    let load = load(&scene);
    sleep(Duration::from_secs(1)).await;

    scene.cluster().services.postgres_proxy.cut();
    sleep(2 * outage()).await;
    scene.cluster().services.postgres_proxy.heal();

    load.end().await.assert_whole(50);
    caught_up(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn database_and_bus_away_in_turn_and_together_and_then_a_killed_gateway_lose_no_row() {
    let mut scene = scene().await;
    let load = load(&scene);
    let part = outage() / 2;
    for (bus, database) in [(false, true), (true, false), (true, true)] {
        sleep(Duration::from_millis(500)).await;
        let services = &scene.cluster().services;
        if bus {
            services.nats_proxy.cut();
        }
        if database {
            services.postgres_proxy.cut();
        }
        sleep(part).await;
        services.nats_proxy.heal();
        services.postgres_proxy.heal();
    }
    load.end().await.assert_whole(50);
    caught_up(&scene).await;

    let last = scene.client.at(scene.node.addr()).post_chat(&chat("m")).await;
    scene.node.kill().await;
    scene.restart().await;

    let row = scene.row(last.request_id()).await;
    assert_eq!(row["outcome"], "ok", "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_16_a_database_that_is_down_is_no_wrong_key_and_nodes_recover_by_themselves() {
    let mut scene = scene().await;
    let used = scene.client.post_chat(&chat("m")).await;
    assert_eq!(used.status, 200, "{}", used.text());
    scene.cluster().services.postgres.stop().await;

    let b = scene.cluster().node("b");
    b.kill().await;
    b.restart().await;
    scene.turn_client();

    for _ in 0..4 {
        let known = scene.client.post_chat(&chat("m")).await;
        assert_eq!(known.status, 200, "{}", known.text());
        let unseen = scene
            .client
            .with_key(harness::OTHER_KEY)
            .post_chat(&chat("m"))
            .await;
        assert_eq!(unseen.status, 200, "{}", unseen.text());
        let wrong = scene
            .client
            .with_key("sk-nobody-has-this-key")
            .post_chat(&chat("m"))
            .await;
        assert_eq!(wrong.status, 401, "{}", wrong.text());
        assert_eq!(scene.client.get("/health").await.status, 200);
    }
    both_say(&scene, "degraded", Duration::from_secs(15)).await;
    let rows = scene.client.with_key(CALLER_KEY).get("/api/v1/logs").await;
    assert_eq!(rows.status, 503, "{}", rows.text());
    assert!(!rows.header("retry-after").is_empty());

    scene.cluster().services.postgres.restart().await;
    both_say(&scene, "ready", Duration::from_secs(30)).await;
    caught_up(&scene).await;
    let failed = Outcome::of(scene.client.log()).failed;
    assert!(failed.iter().all(|answer| answer.status == 401), "{failed:?}");
    scene.finish().await;
}

/// Waits until both gateways say `status` of themselves, for `longest` at most; they can serve all the while.
async fn both_say(scene: &Scene, status: &str, longest: Duration) {
    let start = Instant::now();
    loop {
        let (one, other) = (
            scene.client.get("/health/ready").await,
            scene.client.get("/health/ready").await,
        );
        assert_eq!(
            (one.status, other.status),
            (200, 200),
            "{}{}",
            one.text(),
            other.text()
        );
        if [&one, &other]
            .iter()
            .all(|ready| ready.json()["status"] == json!(status))
        {
            return;
        }
        assert!(start.elapsed() < longest, "{}{}", one.text(), other.text());
        sleep(Duration::from_millis(100)).await;
    }
}
