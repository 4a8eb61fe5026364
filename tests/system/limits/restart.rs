//! Limits of a node that is killed and comes back: nothing that was spent is forgotten, nothing that was held stays.

use harness::{Behaviour, Scene, embedded_only};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use super::under::{ANSWER_NANO_USD, ask, balance, early_in_the_minute, refused, scene, usd};

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
    let mut scene = scene(json!({"rpm": 4, "concurrency": 1})).await;
    early_in_the_minute(20).await;
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
