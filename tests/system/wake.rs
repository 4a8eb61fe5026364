//! Services that sleep: found so by a call, woken once by one node of the fleet, waited for within a bound, and whoever
//! waits in vain is told why.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, Model, NodeBuilder, PRICE, Plan, Scene, Surface, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

mod commands;
mod engine;
mod registered;

use engine::{Boss, closed_addr};

pub(crate) use engine::Engine;

/// How long is waited for what takes as long as it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A model `z` at the harness's prices whose one leg is at `addr` and woken so.
fn sleeper(addr: SocketAddr, wake: Value) -> Model {
    Model::new("z")
        .leg_at(&format!("http://{addr}/v1"), 0)
        .set_leg("wake", wake)
}

/// A scene with `z` beside its own models.
async fn scene(models: Vec<Model>) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let with = |node: NodeBuilder| node.models(&models);
    let mut scene = Scene::start_on(o1, o2, with).await;
    scene.price("z", Some(PRICE));
    scene
}

/// What the log says of wakings, once it says so much.
async fn wakings(scene: &Scene, count: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let rows = scene.node.books().table("event_log").await;
        let envelopes = rows.iter().filter_map(|row| row.get("envelope")?.as_deref());
        let parsed = envelopes.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let found: Vec<Value> = parsed
            .filter(|envelope| envelope["type"] == "waybill.health.wake.v1")
            .map(|envelope| envelope["data"].clone())
            .collect();
        if found.len() >= count {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn fifty_calls_at_once_on_two_nodes_wake_an_engine_once_and_are_all_served() {
    let engine = Engine::asleep(Duration::from_secs(1));
    let models = [sleeper(engine.addr(), json!({"kind": "vllm_sleep"}))];
    let mut scene = Scene::start_cluster(Plan::default(), |node| node.models(&models)).await;
    scene.price("z", Some(PRICE));

    // The client's calls go to both nodes in turn.
    let body = chat("z");
    let answers = join_all((0..50).map(|_| scene.client.post_chat(&body))).await;

    let texts: Vec<String> = answers.iter().map(harness::Answer::content).collect();
    assert!(texts.iter().all(|text| text == "awake"), "{texts:?}");
    assert_eq!((engine.wakes(), engine.calls()), (1, 50));
    let told = wakings(&scene, 1).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["kind"], &told[0]["outcome"]),
        (&json!("vllm_sleep"), &json!("awake"))
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_service_that_takes_no_connections_is_started_by_whoever_its_leg_names_and_serves_the_same_call() {
    let addr = closed_addr();
    let boss = Boss::starting(addr, Duration::from_millis(300));
    let wake = json!({"kind": "http", "url": boss.url("/wake?gpu=1"), "headers": {"x-run": "7"}, "body": "{\"go\":1}"});
    let scene = scene(vec![sleeper(addr, wake)]).await;

    let answer = scene.client.post_chat(&chat("z")).await;

    assert_eq!(
        (answer.status, answer.content()),
        (200, "awake".to_owned()),
        "{}",
        answer.text()
    );
    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["outcome"], "ok");
    let outcomes: Vec<&Value> = row["attempts"]
        .as_array()
        .expect("attempts")
        .iter()
        .map(|attempt| &attempt["outcome"])
        .collect();
    assert_eq!(outcomes, ["upstream_error", "ok"]);
    let asked = boss.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].target, "POST /wake?gpu=1");
    assert_eq!(
        (asked[0].header("x-run"), asked[0].header("authorization")),
        ("7", "")
    );
    assert_eq!(asked[0].body, "{\"go\":1}");
    scene.finish().await;
}

#[tokio::test]
async fn callers_are_told_why_a_service_does_not_wake_and_nobody_is_asked_again_at_once() {
    let queued = Boss::answering(409, "busy");
    let offline = Boss::answering(200, "{\"state\":\"powered off\"}");
    let gone = closed_addr();
    let leg = |name: &str, wake: Value| {
        Model::new(name)
            .leg_at(&format!("http://{}/v1", closed_addr()), 0)
            .set_leg("wake", wake)
    };
    let models = vec![
        leg(
            "queued",
            json!({"kind": "http", "url": queued.url("/wake"), "queued_when": {"statuses": [409]}}),
        ),
        leg(
            "offline",
            json!({"kind": "http", "url": offline.url("/wake"), "offline_when": {"contains": "powered off"}}),
        ),
        leg(
            "gone",
            json!({"kind": "http", "url": format!("http://{gone}/wake")}),
        ),
    ];
    let mut scene = scene(models).await;
    scene.pin();

    for (model, code) in [
        ("queued", "wake_queued_gpu_borrowed"),
        ("offline", "wake_failed_node_offline"),
        ("gone", "wake_failed_node_offline"),
        ("queued", "wake_queued_gpu_borrowed"),
    ] {
        let answer = scene.client.post_chat(&chat(model)).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (503, code),
            "{}",
            answer.text()
        );
        assert_eq!(answer.header("retry-after"), "60");
        let row = scene.row(answer.request_id()).await;
        assert_eq!(
            (&row["error_code"], &row["cost_nano_usd"]),
            (&json!(code), &json!(0))
        );
    }
    let body = json!({"model": "queued", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let answer = scene.client.post(Surface::Messages, &body).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["type"]), (503, &json!("error")), "{told}");
    assert_eq!((queued.asked().len(), offline.asked().len()), (1, 1));
    scene.finish().await;
}

#[tokio::test]
async fn another_leg_serves_at_once_while_the_first_is_woken_beside() {
    let engine = Engine::asleep(Duration::from_millis(500));
    let o1 = Upstream::start();
    o1.default(Behaviour::chat("other"));
    let model = sleeper(engine.addr(), json!({"kind": "vllm_sleep"})).leg(&o1, 1);
    let mut scene = Scene::start_on(o1, Upstream::start(), |node| node.models(&[model])).await;
    scene.price("z", Some(PRICE));
    scene.pin();

    assert_eq!(scene.client.post_chat(&chat("z")).await.content(), "other");

    let start = Instant::now();
    while scene.client.post_chat(&chat("z")).await.content() != "awake" {
        assert!(start.elapsed() < PATIENCE, "the first leg does not come");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(engine.wakes(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn one_that_goes_to_sleep_again_at_once_is_woken_again_and_is_sent_nothing_while_it_sleeps() {
    let engine = Engine::asleep(Duration::from_millis(200));
    let scene = scene(vec![sleeper(engine.addr(), json!({"kind": "vllm_sleep"}))]).await;

    for times in 1..=3 {
        let answer = scene.client.post_chat(&chat("z")).await;

        assert_eq!(answer.content(), "awake", "{times}: {}", answer.text());
        assert_eq!((engine.wakes(), engine.calls()), (times, times));
        let row = scene.row(answer.request_id()).await;
        assert_eq!(row["attempts"].as_array().map(Vec::len), Some(1), "{row}");
        engine.doze();
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_leaves_ends_his_wait_and_pays_nothing() {
    let engine = Engine::asleep(Duration::from_mins(1));
    let scene = scene(vec![sleeper(engine.addr(), json!({"kind": "vllm_sleep"}))]).await;

    scene
        .client
        .leave_chat_after(&chat("z"), Duration::from_millis(500))
        .await;

    let rows = scene.node.wait_rows("model=z", 1).await;
    assert_eq!(
        (&rows[0]["outcome"], &rows[0]["cost_nano_usd"]),
        (&json!("client_gone"), &json!(0)),
        "{}",
        rows[0]
    );
    assert_eq!((engine.wakes(), engine.calls()), (1, 0));
    scene.finish().await;
}

#[tokio::test]
async fn the_next_leg_is_woken_where_the_first_cannot_be() {
    let engine = Engine::asleep(Duration::from_millis(300));
    let offline = Boss::answering(500, "no");
    let model = sleeper(
        closed_addr(),
        json!({"kind": "http", "url": offline.url("/wake")}),
    )
    .leg_at(&format!("http://{}/v1", engine.addr()), 1)
    .set_leg("wake", json!({"kind": "vllm_sleep"}));
    let scene = scene(vec![model]).await;

    let answer = scene.client.post_chat(&chat("z")).await;

    assert_eq!(answer.content(), "awake", "{}", answer.text());
    assert_eq!((offline.asked().len(), engine.wakes()), (1, 1));
    scene.finish().await;
}
