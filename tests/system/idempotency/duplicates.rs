//! The same call many times at once.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, Scene, Surface, chat};
use serde_json::json;

use super::{IN_PROGRESS, billed, is_replay, keyed};

/// Calls at once.
const CALLS: usize = 50;

#[tokio::test]
async fn fifty_duplicates_at_once_are_one_upstream_call_and_one_bill() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("once")
            .usage(60, 40)
            .first_byte_delay(Duration::from_millis(400)),
    );
    let client = keyed(&scene.client, "order-1");
    let body = chat("m");

    let answers = join_all((0..CALLS).map(|_| client.post_chat(&body))).await;

    let (whole, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    let first: Vec<_> = whole.iter().filter(|answer| !is_replay(answer)).collect();
    assert_eq!(first.len(), 1, "one call runs");
    for answer in &refused {
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (409, IN_PROGRESS),
            "{}",
            answer.text()
        );
        assert!(!answer.header("retry-after").is_empty());
        assert_eq!(answer.header("x-idempotent-replay"), "");
    }
    for answer in &whole {
        assert_eq!(answer.body, first[0].body);
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 0));

    let later = join_all((0..10).map(|_| client.post_chat(&body))).await;
    for answer in &later {
        assert!(answer.status == 200 && is_replay(answer), "{}", answer.text());
        assert_eq!(answer.body, first[0].body);
    }
    assert_eq!(scene.o1.calls(), 1);
    for answer in [*first[0]].into_iter().chain(&later) {
        scene.row(answer.request_id()).await;
    }
    // 60 tokens at 2 dollars a million and 40 at 8.
    let (cost, rows) = billed(&scene, 11).await;
    assert_eq!((cost, rows.len()), (440_000, 1), "{rows:?}");
    assert_eq!(rows[0]["request_id"], first[0].request_id());
    assert_eq!(rows[0]["idempotency"], "first");
    scene.finish().await;
}

#[tokio::test]
async fn many_keys_many_times_are_one_call_each() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("once")
            .usage(10, 10)
            .first_byte_delay(Duration::from_millis(20)),
    );
    let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let calls = (0..5).flat_map(|_| &keys).map(|key| {
        let client = keyed(&scene.client, key);
        async move { client.post_chat(&chat("m")).await }
    });

    let answers = join_all(calls).await;

    let ran: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 200 && !is_replay(answer))
        .collect();
    assert_eq!((ran.len(), scene.o1.calls()), (20, 20));
    for first in ran {
        scene.row(first.request_id()).await;
    }
    let (cost, rows) = billed(&scene, 20).await;
    assert_eq!((cost, rows.len()), (20 * 100_000, 20));
    scene.finish().await;
}

#[tokio::test]
async fn that_a_call_runs_and_that_its_body_is_another_is_told_in_each_dialect() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("slow")
            .usage(9, 1)
            .first_byte_delay(Duration::from_millis(1_500)),
    );
    for surface in Surface::ALL {
        let client = keyed(&scene.client, &format!("running-{surface:?}"));
        let body = surface.ask("m");
        let mut other = body.clone();
        other["temperature"] = json!(0.5);
        let calls = scene.o1.calls();
        let ask = client.post(surface, &body);
        let again = async {
            scene.o1.wait_calls(calls + 1).await;
            (
                client.post(surface, &body).await,
                client.post(surface, &other).await,
            )
        };

        let (first, (running, mismatch)) = tokio::join!(ask, again);

        assert_eq!(first.status, 200, "{}", first.text());
        for (answer, status) in [(&running, 409), (&mismatch, 422)] {
            let told = answer.json();
            assert_eq!(answer.status, status, "{told}");
            if surface == Surface::Messages {
                assert_eq!(told["type"], "error", "{told}");
                assert!(told["error"]["message"].is_string(), "{told}");
                assert_eq!(told["request_id"], answer.request_id());
            } else {
                let code = [IN_PROGRESS, super::MISMATCH][usize::from(status == 422)];
                assert_eq!(told["error"]["code"], code);
                assert_eq!(told["error"]["request_id"], answer.request_id());
            }
            let row = scene.row(answer.request_id()).await;
            assert_eq!(
                (&row["outcome"], &row["cost_nano_usd"], &row["status"]),
                (&json!("rejected"), &json!(0), &json!(status)),
                "{row}"
            );
        }
        assert_eq!(scene.o1.calls(), calls + 1);
    }
    scene.finish().await;
}
