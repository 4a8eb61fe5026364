//! Calls that fail: the key is free where no upstream took the work; what broke off later is told again as it was.

use std::time::Duration;

use harness::{Behaviour, End, Scene, chat, chat_streamed};
use serde_json::json;

use super::{billed, is_replay, keyed};

async fn scene() -> Scene {
    Scene::start_with(|node| {
        node.env("CIRCUIT_FAILURE_THRESHOLD", "1000")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await
}

#[tokio::test]
async fn a_failure_before_an_upstream_took_the_work_frees_the_key() {
    let scene = scene().await;
    let failures = [
        ("an error", Behaviour::error(500, "boom")),
        ("no room", Behaviour::error(429, "slow down")),
        ("a refusal", Behaviour::error(400, "no")),
    ];
    for (case, behaviour) in failures {
        for streamed in [false, true] {
            let client = keyed(&scene.client, &format!("{case} {streamed}"));
            let body = if streamed { chat_streamed("m") } else { chat("m") };
            scene.o1.script([behaviour.clone()]);
            scene.o2.script([behaviour.clone()]);
            let calls = scene.o1.calls();

            let failed = client.post_chat(&body).await;
            assert!(failed.status >= 400, "{case}: {}", failed.text());
            let again = client
                .post_inference("/v1/chat/completions", body.to_string())
                .await
                .expect("an answer");

            assert_eq!(again.status, 200, "{case}: {}", again.text());
            assert!(!is_replay(&again), "{case}");
            assert!(scene.o1.calls() >= calls + 2, "{case}");
            let row = scene.row(failed.request_id()).await;
            assert_eq!(
                (&row["idempotency"], &row["cost_nano_usd"]),
                (&json!("first"), &json!(0)),
                "{row}"
            );
            let replay = client
                .post_inference("/v1/chat/completions", body.to_string())
                .await
                .expect("an answer");
            assert!(is_replay(&replay) && replay.body == again.body, "{case}");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_refused_call_does_not_burn_the_key() {
    let scene = scene().await;
    let client = keyed(&scene.client, "k-1");
    for body in [
        "{".to_owned(),
        json!({"model": "m"}).to_string(),
        json!({"model": "nobody-has-this", "messages": [{"role": "user", "content": "hi"}]}).to_string(),
    ] {
        let refused = client
            .post_inference("/v1/chat/completions", body)
            .await
            .expect("an answer");
        assert!([400, 404].contains(&refused.status), "{}", refused.text());
    }

    let first = client.post_chat(&chat("m")).await;

    assert_eq!(first.status, 200, "{}", first.text());
    assert!(!is_replay(&first));
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_that_broke_is_told_again_as_it_broke_and_calls_nobody() {
    let scene = scene().await;
    scene
        .o1
        .script([Behaviour::chat("a b c d e f").usage(60, 6).cut_after_chunks(3)]);
    let client = keyed(&scene.client, "k-1");

    let first = client.stream_chat(&chat_streamed("m")).await.collect().await;
    let replay = client.stream_chat(&chat_streamed("m")).await.collect().await;

    assert!(matches!(first.end, End::ErrorEvent(_)), "{:?}", first.end);
    assert_eq!(first.raw, replay.raw);
    assert_eq!(first.end, replay.end);
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 0));
    for (answer, said) in [(&first, "first"), (&replay, "replay")] {
        let row = scene.row(answer.request_id()).await;
        let told = (&row["outcome"], &row["idempotency"], &row["cost_nano_usd"]);
        assert_eq!(told, (&json!("upstream_cut"), &json!(said), &json!(0)), "{row}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_ran_out_of_time_is_told_again_and_not_sent_again() {
    let scene = Scene::start_with(|node| {
        node.env("REQUEST_TIMEOUT_SECONDS", "1")
            .env("UPSTREAM_COMPLETION_TIMEOUT_S", "1")
    })
    .await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("late").first_byte_delay(Duration::from_secs(20)));
    }
    let client = keyed(&scene.client, "k-1");

    let first = client.post_chat(&chat("m")).await;
    let calls = scene.o1.calls() + scene.o2.calls();
    let replay = client.post_chat(&chat("m")).await;

    assert_eq!(first.status, 504, "{}", first.text());
    assert_eq!((replay.status, &replay.body), (504, &first.body));
    assert!(is_replay(&replay));
    assert_eq!(replay.header("x-should-retry"), "false");
    assert_eq!(scene.o1.calls() + scene.o2.calls(), calls);
    let row = scene.row(replay.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["idempotency"]),
        (&json!("timeout"), &json!("replay")),
        "{row}"
    );
    let (cost, _) = billed(&scene, 0).await;
    assert_eq!(cost, 0);
    scene.finish().await;
}
