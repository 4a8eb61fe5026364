//! Who is there and ready when it is his turn: services that sleep come last, files that change count, and what nobody
//! could take is told as the call's own fault.

use std::time::Duration;

use harness::{Behaviour, Model, Surface, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{choice_of, each, operator, routed, scene, scene_with, set};
use crate::rows::assert_row;
use crate::wake::Engine;

/// Within this a call was answered that waited for nobody: a tenth of what it would wait for a service.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A model `id` that is cheaper than the others, whose engine sleeps.
fn sleeper(id: &str, engine: &Engine) -> Model {
    Model::new(id)
        .set("pricing", json!({"prompt": "0.1", "completion": "0.2"}))
        .leg_at(&format!("http://{}/v1", engine.addr()), 0)
        .set_leg("wake", json!({"kind": "vllm_sleep"}))
}

#[tokio::test]
async fn a_model_that_is_ready_goes_before_one_that_sleeps_which_is_woken_for_those_who_come_later() {
    let engine = Engine::asleep(Duration::from_millis(4_500));
    let scene = scene_with(|_, _| vec![sleeper("z", &engine)], |node| node).await;
    scene.o1.default(Behaviour::chat("from the cheap one"));
    set(&scene, true, "cost").await;

    let began = Instant::now();
    let answer = scene.client.post_chat(&chat("auto")).await;

    let took = began.elapsed();
    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "cheap"),
        "{}",
        answer.text()
    );
    assert!(took < AT_ONCE, "{took:?}");
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        each(&choice["candidates"], "failed"),
        [json!("service_waking"), Value::Null, Value::Null]
    );
    while routed(&scene.client.post_chat(&chat("auto")).await) != "z" {
        assert!(began.elapsed() < super::PATIENCE, "the sleeper does not come");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(engine.wakes(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn where_all_others_fail_the_sleeper_is_waited_for_and_serves_the_same_call() {
    let engine = Engine::asleep(Duration::from_millis(500));
    let scene = scene_with(|_, _| vec![sleeper("z", &engine)], |node| node).await;
    scene.o1.default(Behaviour::error(500, "boom"));
    scene.o2.default(Behaviour::error(500, "boom"));
    set(&scene, true, "cost").await;

    let answer = scene.client.post_chat(&chat("auto")).await;

    assert_eq!(
        (answer.status, routed(&answer), answer.content().as_str()),
        (200, "z", "awake"),
        "{}",
        answer.text()
    );
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(choice["model"], "z");
    assert_eq!(
        each(&choice["candidates"], "failed"),
        [Value::Null, json!("upstream_error"), json!("upstream_error")]
    );
    scene.finish().await;
}

#[tokio::test]
async fn after_a_reload_the_call_goes_on_to_what_is_served_now() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    // Longer than what was in force before stays at hand.
    let late = Behaviour::error(500, "boom").first_byte_delay(Duration::from_millis(3_500));
    scene.o1.script([late.clone(), late.clone(), late]);
    scene
        .o2
        .default(Behaviour::chat("from a new one").usage(1_000, 100));
    let body = chat("auto");
    let reloaded = async {
        scene.o1.wait_calls(1).await;
        let priced = json!({"prompt": "3", "completion": "3"});
        let models = [
            Model::new("cheap")
                .set("pricing", json!({"prompt": "1", "completion": "2"}))
                .leg(&scene.o1, 0),
            Model::new("new").set("pricing", priced).leg(&scene.o2, 0),
        ];
        scene.node.write_models(&models);
        let (code, output) = scene.node.command(&["reload"]).await;
        assert_eq!(code, Some(0), "{output}");
    };

    let (answer, ()) = tokio::join!(scene.client.post_chat(&body), reloaded);

    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "new"),
        "{}",
        answer.text()
    );
    let row = scene.row(answer.request_id()).await;
    // 1,100 tokens at three dollars a million.
    assert_row(
        &row,
        &json!({"model": "auto", "served_model": "new", "cost_nano_usd": 3_300_000}),
    );
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        each(&choice["candidates"], "model"),
        [json!("cheap"), json!("dear"), json!("new")]
    );
    assert_eq!(
        each(&choice["candidates"], "failed"),
        [json!("upstream_error"), json!("model_not_found"), Value::Null]
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_is_too_long_for_every_model_is_refused_as_such_in_the_callers_dialect() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    let long = "word ".repeat(120_000);
    for surface in [Surface::Chat, Surface::Messages, Surface::Responses] {
        let mut body = surface.ask("auto");
        match surface {
            Surface::Responses => body["input"] = json!(long),
            _ => body["messages"][0]["content"] = json!(long),
        }

        let answer = scene.client.post(surface, &body).await;

        assert_eq!(answer.status, 400, "{surface:?}: {}", answer.text());
        let told = answer.json();
        match surface {
            Surface::Messages => {
                assert_eq!(told["error"]["type"], "invalid_request_error", "{told}");
                let message = told["error"]["message"].as_str().expect("a text");
                assert!(message.starts_with("prompt is too long"), "{message}");
            }
            _ => assert_eq!(told["error"]["code"], "context_length_exceeded", "{told}"),
        }
        let row = scene.row(answer.request_id()).await;
        assert_row(
            &row,
            &json!({"outcome": "rejected", "status": 400, "error_code": "context_length_exceeded"}),
        );
        let excluded = choice_of(&scene, &answer).await["excluded"].clone();
        assert_eq!(
            each(&excluded, "reason"),
            [json!("context_length"), json!("context_length")]
        );
    }
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_is_shown_the_choice_without_what_others_do_at_the_models() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("hi"));
    set(&scene, true, "latency").await;
    let streamed = scene
        .client
        .stream_chat(&harness::chat_streamed("auto"))
        .await
        .collect()
        .await;
    assert_eq!(streamed.whole(), "hi");
    let answer = scene.client.post_chat(&chat("auto")).await;
    let whole = choice_of(&scene, &answer).await;
    assert!(whole["candidates"][0]["scores"]["ttft_ms"].is_u64(), "{whole}");

    let path = format!("/api/v1/logs/{}", answer.request_id());
    for key in [harness::CALLER_KEY, harness::ADMIN_KEY] {
        let client = scene.client.with_key(key);
        let shown = client.get(&path).await;
        if shown.status == 404 {
            continue;
        }
        let is_operators = shown.json()["event"]["data"]["auto"]["candidates"][0]["scores"].is_object();
        let choice = shown.json()["event"]["data"]["auto"].clone();
        assert_eq!(is_operators, key == harness::ADMIN_KEY, "{choice}");
        assert_eq!(
            each(&choice["candidates"], "model"),
            each(&whole["candidates"], "model")
        );
        assert_eq!(choice["model"], whole["model"]);
    }
    assert_eq!(operator(&scene).get(&path).await.status, 200);
    scene.finish().await;
}
