//! Limits and keys: what runs nothing takes nothing, and what limits refuse frees its key.

use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, OTHER_KEY, Scene, chat, settings};
use serde_json::json;

use super::{MISMATCH, after_progress, is_replay, keyed};

async fn scene(limits: serde_json::Value) -> Scene {
    let mut keys = settings()["keys"].clone();
    for key in keys.as_array_mut().expect("a list") {
        if key["key"] == CALLER_KEY {
            key["limits"] = limits.clone();
        }
    }
    Scene::start_with(|node| node.setting("keys", keys)).await
}

#[tokio::test]
async fn replays_and_refusals_of_keys_take_nothing_of_any_limit() {
    let scene = scene(json!({"daily_calls": 2, "daily_usd": "5"})).await;
    scene.o1.default(Behaviour::chat("once").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    let first = client.post_chat(&chat("m")).await;
    assert_eq!(first.status, 200, "{}", first.text());

    let mut other = chat("m");
    other["temperature"] = json!(0.1);
    for _ in 0..5 {
        let replay = client.post_chat(&chat("m")).await;
        assert!(is_replay(&replay), "{}", replay.text());
        let told = |name: &str| replay.headers.keys().any(|key| key.as_str().starts_with(name));
        assert!(!told("x-ratelimit") && !told("x-quota"), "{:?}", replay.headers);
        let mismatch = client.post_chat(&other).await;
        assert_eq!(mismatch.error_code(), MISMATCH);
    }
    let second = keyed(&scene.client, "k-2").post_chat(&chat("m")).await;
    assert_eq!(second.status, 200, "one of two is left: {}", second.text());
    let third = keyed(&scene.client, "k-3").post_chat(&chat("m")).await;
    assert_eq!(
        (third.status, third.error_code().as_str()),
        (429, "DAILY_LIMIT_EXCEEDED"),
        "{}",
        third.text()
    );
    let replay = keyed(&scene.client, "k-2").post_chat(&chat("m")).await;
    assert!(
        is_replay(&replay) && replay.body == second.body,
        "{}",
        replay.text()
    );
    assert_eq!(scene.o1.calls(), 2);
    let others = keyed(&scene.client, "k-3")
        .with_key(OTHER_KEY)
        .post_chat(&chat("m"))
        .await;
    assert_eq!(others.status, 200, "{}", others.text());
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_limits_refuse_frees_its_key() {
    let scene = scene(json!({"concurrency": 1})).await;
    scene.o1.script([Behaviour::chat("slow")
        .usage(9, 1)
        .first_byte_delay(Duration::from_secs(2))]);
    scene.o1.default(Behaviour::chat("once").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    let body = chat("m");
    let again = async {
        scene.o1.wait_calls(1).await;
        client.post_chat(&body).await
    };

    let (slow, refused) = tokio::join!(scene.client.post_chat(&body), again);

    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (429, "CONCURRENCY_EXCEEDED"),
        "{}",
        refused.text()
    );
    assert_eq!(slow.status, 200, "{}", slow.text());
    let first = loop {
        let answer = after_progress(&client, &chat("m")).await;
        if answer.status != 429 {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };

    assert_eq!(
        (first.status, is_replay(&first)),
        (200, false),
        "{}",
        first.text()
    );
    assert!(is_replay(&client.post_chat(&chat("m")).await));
    assert_eq!(scene.o1.calls(), 2);
    scene.finish().await;
}
