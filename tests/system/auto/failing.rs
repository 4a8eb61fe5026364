//! What follows when a model fails.

use std::time::Duration;

use harness::{Behaviour, Then, chat, chat_streamed};
use serde_json::json;

use super::{choice_of, each, routed, scene, scene_with, set, until};
use crate::rows::{assert_row, endpoint, tried_endpoints};

#[tokio::test]
async fn a_model_that_fails_before_anything_left_is_followed_by_the_next_and_billed_is_who_serves() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    let failures = [
        Behaviour::error(500, "boom"),
        Behaviour::error(401, "bad key"),
        Behaviour::error(408, "too slow"),
        Behaviour::closed(),
        Behaviour::status(200, "<html></html>"),
    ];
    for (case, failure) in failures.into_iter().enumerate() {
        scene.o1.default(failure);
        scene
            .o2
            .default(Behaviour::chat("from the dear one").usage(1_000, 100));

        let answer = scene.client.post_chat(&chat("auto")).await;
        let streamed = scene.client.stream_chat(&chat_streamed("auto")).await;

        assert_eq!(
            (answer.status, routed(&answer)),
            (200, "dear"),
            "{case}: {}",
            answer.text()
        );
        assert_eq!(
            (answer.content().as_str(), &answer.json()["model"]),
            ("from the dear one", &json!("dear"))
        );
        assert_eq!(streamed.header("x-routed-model"), "dear", "{case}");
        let streamed = streamed.collect().await;
        assert_eq!(streamed.whole(), "from the dear one");
        for request in [answer.request_id(), streamed.request_id()] {
            let row = scene.row(request).await;
            let expected = json!({
                "model": "auto", "served_model": "dear", "outcome": "ok", "cost_nano_usd": 12_000_000,
                "endpoint_id": endpoint("dear", &scene.o2),
            });
            assert_row(&row, &expected);
            let attempts = tried_endpoints(&row);
            assert_eq!(attempts.first(), Some(&endpoint("cheap", &scene.o1)), "{case}");
            assert_eq!(attempts.last(), Some(&endpoint("dear", &scene.o2)), "{case}");
        }
        let choice = choice_of(&scene, &answer).await;
        assert_eq!(choice["model"], "dear");
        assert_ne!(choice["candidates"][0]["failed"], json!(null), "{choice}");
        assert_eq!(choice["candidates"][1]["failed"], json!(null), "{choice}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_a_backend_says_of_the_call_is_told_and_nobody_else_is_asked() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    scene.o2.default(Behaviour::chat("from the dear one"));
    // What says more about the backend than a caller may hear is told as for a model that is named.
    for (status, told) in [(400, 400), (404, 502), (409, 502), (422, 422), (429, 429)] {
        scene.o1.default(Behaviour::error(status, "no"));

        let answer = scene.client.post_chat(&chat("auto")).await;

        assert_eq!(
            (answer.status, routed(&answer)),
            (told, "cheap"),
            "{}",
            answer.text()
        );
        let row = scene.row(answer.request_id()).await;
        assert_row(
            &row,
            &json!({"model": "auto", "cost_nano_usd": 0, "status": told}),
        );
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn nobody_is_asked_after_the_first_byte() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    scene
        .o1
        .default(Behaviour::chat("one two three").stop_after(1, Then::Cut));
    scene.o2.default(Behaviour::chat("from the dear one"));

    let streamed = scene.client.stream_chat(&chat_streamed("auto")).await;
    assert_eq!(streamed.header("x-routed-model"), "cheap");
    let transcript = streamed.collect().await;

    assert_eq!(transcript.error()["code"], "stream_interrupted");
    assert_eq!(scene.o2.calls(), 0);
    let row = scene.row(transcript.request_id()).await;
    assert_row(
        &row,
        &json!({"model": "auto", "outcome": "upstream_cut", "cost_nano_usd": 0}),
    );
    scene.finish().await;
}

#[tokio::test]
async fn three_models_are_asked_at_most_and_when_all_fail_that_is_said() {
    let more = |name: &str, input: &str| {
        harness::Model::new(name).set("pricing", json!({"prompt": input, "completion": input}))
    };
    let scene = scene_with(
        |o1, _| vec![more("third", "100").leg(o1, 0), more("fourth", "1000").leg(o1, 0)],
        |node| node,
    )
    .await;
    set(&scene, true, "cost").await;
    scene.o1.default(Behaviour::error(500, "boom"));
    scene.o2.default(Behaviour::error(503, "down"));

    let answer = scene.client.post_chat(&chat("auto")).await;

    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (502, "auto_routing_all_failed"),
        "{}",
        answer.text()
    );
    assert_eq!(routed(&answer), "");
    let row = scene.row(answer.request_id()).await;
    let expected = json!({
        "model": "auto", "outcome": "upstream_error", "error_code": "auto_routing_all_failed", "cost_nano_usd": 0,
    });
    assert_row(&row, &expected);
    let mut models: Vec<String> = tried_endpoints(&row)
        .iter()
        .map(|endpoint| endpoint.split(':').next().unwrap_or_default().to_owned())
        .collect();
    models.dedup();
    assert_eq!(models, ["cheap", "dear", "third"]);
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        each(&choice["candidates"], "model"),
        [json!("cheap"), json!("dear"), json!("third"), json!("fourth")]
    );
    assert_eq!(choice["candidates"][3]["failed"], json!(null));
    assert_eq!(choice["model"], json!(null));
    assert!(
        scene
            .metric("waybill_auto_routing_total{outcome=\"all_failed\",strategy=\"cost\"}")
            .await
            >= 1.0
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_leaves_while_a_model_is_asked_ends_the_call_and_the_next_is_not() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    until(&scene.client, |answer| answer.status != 404).await;
    let before = scene.o2.calls();
    scene
        .o1
        .default(Behaviour::chat("late").first_byte_delay(Duration::from_secs(5)));
    let called = scene.o1.calls();

    scene
        .client
        .leave_chat_after(&chat("auto"), Duration::from_millis(300))
        .await;
    scene.o1.wait_left(called).await;

    let rows = scene.node.wait_rows("outcome=client_gone", 1).await;
    assert_row(&rows[0], &json!({"model": "auto", "cost_nano_usd": 0}));
    assert_eq!(scene.o2.calls(), before);
    scene.finish().await;
}

#[tokio::test]
async fn a_replay_tells_the_model_of_the_first_answer() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    scene.o1.default(Behaviour::error(500, "boom"));
    scene.o2.default(Behaviour::chat("from the dear one"));
    let keyed = scene.client.with_header("idempotency-key", "k-auto");
    let first = keyed.post_chat(&chat("auto")).await;
    assert_eq!((first.status, routed(&first)), (200, "dear"), "{}", first.text());
    scene.o1.default(Behaviour::chat("from the cheap one"));

    let replay = keyed.post_chat(&chat("auto")).await;

    assert_eq!(replay.header("x-idempotent-replay"), "true");
    assert_eq!(
        (
            routed(&replay),
            replay.header("x-routing-purpose-fallback"),
            &replay.body
        ),
        ("dear", "unlabeled", &first.body)
    );
    assert_row(
        &scene.row(replay.request_id()).await,
        &json!({"model": "auto", "cost_nano_usd": 0, "idempotency": "replay"}),
    );
    scene.finish().await;
}
