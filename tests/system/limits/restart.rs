//! Limits of a node that is killed and comes back: nothing that was spent is forgotten, nothing that was held stays.

use chrono::Timelike as _;
use futures_util::future::join_all;
use harness::{Behaviour, NodeBuilder, OPERATOR_KEY, Scene, embedded_only};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::under::{
    ANSWER_NANO_USD, PROXIED, ask, balance, books_cost, early_scene, limited, now, refused, scene, usd,
};

const HOUR: Duration = Duration::from_hours(1);
/// How soon nodes that came back say what was used before.
const SAID_MAX: Duration = Duration::from_secs(30);
/// The balance once the node has told its records of what it spent.
async fn spent(scene: &Scene, nano_usd: i64) {
    let begun = Instant::now();
    loop {
        let told = balance(scene).await;
        let expected: f64 = usd(nano_usd).parse().expect("a number");
        let spent = told["spent_today_usd"].as_f64().unwrap_or(-1.0);
        if (spent - expected).abs() < 1e-12 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{told}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_killed_node_forgets_nothing_of_a_quota() {
    let mut scene = scene(json!({"daily_usd": "1", "daily_calls": 5})).await;
    for _ in 0..3 {
        assert_eq!(scene.client.post_chat(&ask()).await.status, 200);
    }
    scene.kill_and_restart().await;
    spent(&scene, 3 * ANSWER_NANO_USD).await;

    for _ in 0..2 {
        let answer = scene.client.post_chat(&ask()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    refused(&scene.client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    scene.restart().await;
    refused(&scene.client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    spent(&scene, 5 * ANSWER_NANO_USD).await;
    assert!(scene.metric("waybill_counter_ledger_difference").await.abs() < 0.5);
    scene.finish().await;
}

#[tokio::test]
async fn a_killed_node_forgets_no_rate_and_is_not_held_up_by_its_own_slots() {
    if embedded_only("the slots of a node that died are held for a lease") {
        return;
    }
    let mut scene = early_scene(json!({"rpm": 4, "concurrency": 1})).await;
    scene
        .o1
        .script([Behaviour::chat("").chunks(600, Duration::from_millis(100))]);
    let mut body = ask();
    body["stream"] = true.into();
    let mut stream = scene.client.stream_chat(&body).await;
    stream.read_content(1).await;

    scene.kill_and_restart().await;

    for _ in 0..3 {
        let answer = scene.client.post_chat(&ask()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    refused(&scene.client.post_chat(&ask()).await, "RPM_EXCEEDED");
    drop(stream);
    scene.finish().await;
}

/// A time zone of billing in which it is about this hour of the day now.
fn zone_where_it_is(hour: u32) -> String {
    let east = (hour + 36 - now().hour()) % 24;
    // These names count to the west.
    match i64::from(east) - 12 {
        0 => "Etc/UTC".to_owned(),
        east @ 1.. => format!("Etc/GMT-{east}"),
        west => format!("Etc/GMT+{}", -west),
    }
}

/// Waits until every gateway says that the caller's key used so much money on this day and in all.
async fn used(scene: &Scene, day_nano_usd: i64, total_nano_usd: i64) {
    let begun = Instant::now();
    let expected = [json!(usd(day_nano_usd)), json!(usd(total_nano_usd))];
    for addr in scene.addrs() {
        let client = scene.client.with_key(OPERATOR_KEY).at(addr);
        loop {
            let list = client.get("/api/v1/tenant/api-keys?tenant=acme").await;
            let used = if list.status == 200 {
                ["daily_usd", "total_usd"].map(|quota| used_of(&list.json(), quota))
            } else {
                [Value::Null, Value::Null]
            };
            if used == expected {
                break;
            }
            assert!(begun.elapsed() < SAID_MAX, "{addr}: {used:?}, not {expected:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What a list of keys says that the caller's used of a quota.
fn used_of(list: &Value, quota: &str) -> Value {
    let mut keys = list["data"].as_array().into_iter().flatten();
    let key = keys.find(|key| key["name"] == "caller");
    let mut quotas = key.and_then(|key| key["quotas"].as_array()).into_iter().flatten();
    let found = quotas.find(|found| found["quota"] == quota);
    found.map_or(Value::Null, |found| found["used"].clone())
}

/// Has so many calls answered at once; gives what they cost.
async fn answered(scene: &Scene, calls: i64) -> i64 {
    let body = ask();
    for answer in join_all((0..calls).map(|_| scene.client.post_chat(&body))).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    calls * ANSWER_NANO_USD
}

/// Nodes are killed with settlements that the bus was not told of, and come back hours later; where that is another
/// day, also once more on the day before, whose records nobody can see otherwise.
async fn comes_back(mut scene: Scene, later: Duration, is_another_day: bool) {
    scene.o1.default(Behaviour::chat("hello there"));
    let mut before = 0;
    for _ in 0..4 {
        before += answered(&scene, 10).await;
    }
    used(&scene, before, before).await;
    if scene.is_cluster() {
        scene.cluster().services.nats_proxy.cut();
    }
    for _ in 0..3 {
        before += answered(&scene, 7).await;
    }

    scene.kill_every_node().await;
    if scene.is_cluster() {
        scene.cluster().services.nats_proxy.heal();
    }
    scene.restart_every_node_ahead(later).await;

    let day = if is_another_day { 0 } else { before };
    used(&scene, day, before).await;
    let after = answered(&scene, 5).await;
    used(&scene, day + after, before + after).await;
    if is_another_day {
        scene.kill_every_node().await;
        scene.restart_every_node_ahead(Duration::ZERO).await;
        used(&scene, before, before + after).await;
    }
    assert!(scene.metric("waybill_counter_ledger_difference").await.abs() < 0.5);
    books_cost(&scene, before + after).await;
    scene.finish().await;
}

/// What [`comes_back`] needs of a node.
fn settings(node: NodeBuilder, hour: u32) -> NodeBuilder {
    let limits = json!({"daily_usd": "1.00", "total_usd": "2.00"});
    limited(node, &limits).setting("billing_tz", zone_where_it_is(hour))
}

#[tokio::test]
async fn a_killed_node_that_comes_back_an_hour_later_charges_what_it_answered() {
    let scene = Scene::start_with(|node| settings(node, 10)).await;
    comes_back(scene, HOUR, false).await;
}

#[tokio::test]
async fn a_killed_node_that_comes_back_on_the_next_day_charges_the_day_of_its_answers() {
    let scene = Scene::start_with(|node| settings(node, 22)).await;
    comes_back(scene, 2 * HOUR, true).await;
}

#[tokio::test]
async fn a_killed_cluster_that_comes_back_an_hour_later_charges_what_it_told_nobody() {
    let scene = Scene::start_cluster(PROXIED, |node| settings(node, 10)).await;
    comes_back(scene, HOUR, false).await;
}

#[tokio::test]
async fn a_killed_cluster_that_comes_back_on_the_next_day_charges_the_day_of_its_answers() {
    let scene = Scene::start_cluster(PROXIED, |node| settings(node, 22)).await;
    comes_back(scene, 2 * HOUR, true).await;
}
