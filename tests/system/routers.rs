//! Routers of models: legs by what they cost and how soon they answer, a leg for calls that wait too long, pools.

use futures_util::future::join_all;
use harness::{Answer, Behaviour, Model, OPERATOR_KEY, Scene, Upstream, chat, chat_streamed};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::rows::{endpoint, tried_endpoints};

/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a call costs at the cheaper leg and at the dearer one, in nano-dollars: 9 tokens and 20, as upstreams tell.
const COSTS: [i64; 2] = [9 * 2_000 + 20 * 8_000, 4 * (9 * 2_000 + 20 * 8_000)];

/// A streamed call that was answered, by its request id.
async fn call(scene: &Scene, model: &str) -> String {
    let stream = scene.client.stream_chat(&chat_streamed(model)).await;
    let answer = stream.collect().await;
    assert!(!answer.text().is_empty());
    answer.request_id().to_owned()
}

/// The request as an operator sees it in the log.
async fn shown(scene: &Scene, request_id: &str) -> Value {
    scene.row(request_id).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    operator.get(&format!("/api/v1/logs/{request_id}")).await.json()
}

/// The reasons for which others were left out.
fn reasons(shown: &Value) -> Vec<&str> {
    let excluded = shown["explain"]["excluded"].as_array();
    let reasons = excluded.into_iter().flatten();
    reasons.filter_map(|one| one["reason"].as_str()).collect()
}

/// Calls until enough is known of both legs.
async fn learn(scene: &Scene) {
    let began = Instant::now();
    loop {
        let ids = join_all((0..8).map(|_| call(scene, "wise"))).await;
        let told = shown(scene, &ids[7]).await;
        let candidates = told["explain"]["candidates"].as_array().expect("two legs");
        let is_known = |leg: &Value| {
            let measured = leg["measured"].as_str().expect("operators see it");
            !measured.contains("calls known")
        };
        if candidates.iter().all(is_known) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{told:#}");
    }
}

#[tokio::test]
async fn routewise_learns_how_soon_legs_answer_and_spends_its_budget_on_the_quicker_one() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    o1.default(
        Behaviour::chat("slow")
            .usage(9, 20)
            .first_byte_delay(Duration::from_millis(300)),
    );
    o2.default(Behaviour::chat("quick").usage(9, 20));
    let model = Model::new("wise")
        .set("router", "routewise")
        .set("router_params", json!({"latency_min_samples": 2}))
        .leg(&o1, 0)
        .leg(&o2, 0)
        .set_leg("pricing", json!({"prompt": "8", "completion": "32"}));
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.pin();
    learn(&scene).await;

    let mut spent = Vec::new();
    for _ in 0..8 {
        let told = shown(&scene, &call(&scene, "wise").await).await;
        let why = told["explain"]["chosen"].as_str().expect("it is told");
        assert!(why.starts_with("RouteWise chose its leg"), "{why}");
        assert_eq!(told["explain"]["order"].as_array().map(Vec::len), Some(2));
        spent.push(told["cost_nano_usd"].as_i64().expect("a cost"));
    }

    // A quarter of the calls at the cheaper leg pays for the others at the dearer one.
    let dear = spent.iter().filter(|cost| **cost == COSTS[1]).count();
    let cheap = spent.iter().filter(|cost| **cost == COSTS[0]).count();
    assert!((5..=7).contains(&dear) && dear + cheap == 8, "{spent:?}");
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_that_gets_no_token_goes_to_the_leg_that_is_kept_for_that_once() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let late = || Behaviour::chat("late").first_event_delay(Duration::from_millis(900));
    o1.default(late());
    o2.default(Behaviour::chat("kept"));
    let [slow, kept] = [&o1, &o2].map(|upstream| endpoint("m", upstream));
    let offload = json!({"offload": {"route_id": kept, "wait_seconds": 0.2}});
    let model = Model::new("m")
        .set("router_params", offload)
        .leg(&o1, 0)
        .leg(&o2, 0);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.pin();
    scene.upstream_faults_allowed();

    // What is not streamed may take its time.
    let whole = scene.client.post_chat(&chat("m")).await;
    assert_eq!(whole.status, 200, "{}", whole.text());
    let told = shown(&scene, whole.request_id()).await;
    assert_eq!(tried_endpoints(&told), std::slice::from_ref(&slow));
    assert_eq!(reasons(&told), ["kept_for_waiting"]);

    let told = shown(&scene, &call(&scene, "m").await).await;
    assert_eq!(tried_endpoints(&told), [slow.clone(), kept.clone()]);
    assert_eq!(told["attempts"][0]["outcome"], "timeout");
    assert_eq!(reasons(&told), ["kept_for_waiting", "engine_wait"]);

    // When that fails, the one that was left is asked again, for as long as it takes.
    scene.o2.script([Behaviour::error(500, "boom")]);
    let told = shown(&scene, &call(&scene, "m").await).await;
    assert_eq!(tried_endpoints(&told), [slow.clone(), kept, slow]);
    assert_eq!(told["outcome"], "ok");
    scene.finish().await;
}

#[tokio::test]
async fn a_model_whose_calls_stay_in_their_pool_serves_by_what_is_left_of_it() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m")
        .set("router", "fixed")
        .set("router_params", json!({"hybrid_composition": true}))
        .leg(&o1, 0)
        .leg(&o2, 0)
        .leg_at("https://far.invalid/v1", 0)
        .set_leg("weight", 0.000_001);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.pin();
    scene.upstream_faults_allowed();
    scene.o1.default(Behaviour::error(503, "no"));

    for _ in 0..2 {
        let answer: Answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = shown(&scene, answer.request_id()).await;
        let order = told["explain"]["order"].as_array().expect("three").clone();
        assert_eq!(order.len(), 3);
        assert_eq!(order[2], "m:far-api", "the other pool comes last");
    }
    scene.finish().await;
}
