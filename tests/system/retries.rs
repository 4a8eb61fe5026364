//! How often an upstream is asked again: with the next key of its pool, within the attempts of one request,
//! and within the budget of the node.

use std::collections::BTreeMap;

use harness::{Behaviour, Call, Model, NodeBuilder, Scene, Upstream, chat};
use serde_json::{Value, json};

use crate::rows::{endpoint, tried, tried_endpoints};

/// Failures in a row that open no circuit in a test.
const NEVER: &str = "1000000";

/// A node whose circuits never open.
pub(crate) fn tireless(node: NodeBuilder) -> NodeBuilder {
    node.env("CIRCUIT_FAILURE_THRESHOLD", NEVER)
        .env("CIRCUIT_MIN_AVAILABILITY", "0")
}

#[tokio::test]
async fn the_next_key_of_an_endpoint_is_used_when_one_is_refused() {
    let mut scene = two_keys_scene().await;
    scene.pin();
    for status in [401, 402, 403, 429] {
        let before = scene.o1.calls();
        scene.o1.script([Behaviour::error(status, "not with this key")]);

        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!(answer.status, 200, "{status}: {}", answer.text());
        let used = keys_since(&scene, before);
        assert_eq!(used, ["first-of-two", "second-of-two"], "{status}");
        let row = scene.row(answer.request_id()).await;
        let at = endpoint("m", &scene.o1);
        let code = if status == 429 {
            "upstream_rate_limited"
        } else {
            "upstream_rejected_credential"
        };
        assert_eq!(
            tried(&row),
            json!([[at, status, "upstream_error", code], [at, 200, "ok", null]])
        );
        // The first key serves again: one refusal is none too many.
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
        assert_eq!(keys_since(&scene, before + 2), ["first-of-two"], "{status}");
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_key_that_is_refused_again_and_again_costs_no_attempt_of_every_call() {
    let mut scene = two_keys_scene().await;
    scene.pin();
    scene.o1.on(
        |request| match request.header("authorization").unwrap_or_default() {
            "Bearer first-of-two" => Behaviour::error(401, "not this key"),
            _ => Behaviour::chat("ok"),
        },
    );

    for _ in 0..5 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }

    let (dead, alive) = ("first-of-two", "second-of-two");
    assert_eq!(
        keys_since(&scene, 0),
        [dead, alive, dead, alive, alive, alive, alive]
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_refused_request_is_not_tried_with_another_key() {
    let scene = two_keys_scene().await;
    for status in [400, 422] {
        let before = scene.o1.calls();
        scene
            .o1
            .script([Behaviour::error(status, "temperature is out of range")]);

        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!(answer.status, status);
        assert_eq!(scene.o1.calls() - before, 1);
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn with_every_key_refused_the_next_endpoint_serves() {
    let scene = two_keys_scene().await;
    scene.o1.default(Behaviour::error(403, "no"));

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let (first, second) = (endpoint("m", &scene.o1), endpoint("m", &scene.o2));
    let row = scene.row(answer.request_id()).await;
    assert_eq!(tried_endpoints(&row), [first.clone(), first, second]);
    scene.finish().await;
}

#[tokio::test]
async fn no_request_has_more_attempts_than_are_allowed() {
    let uppers: Vec<Upstream> = (0..4).map(|_| Upstream::start()).collect();
    let mut model = Model::new("m");
    for (upstream, priority) in uppers.iter().zip(0..) {
        upstream.default(Behaviour::error(500, "boom"));
        model = model.leg(upstream, priority);
    }
    let scene = Scene::start_with(|node| node.models(&[model]).setting("attempts_max", 3)).await;

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(answer.status, 502);
    let calls: Vec<usize> = uppers.iter().map(Upstream::calls).collect();
    assert_eq!(calls, [1, 1, 1, 0]);
    assert_eq!(tried_endpoints(&scene.row(answer.request_id()).await).len(), 3);
    scene.finish().await;
}

#[tokio::test]
async fn retries_are_bounded_by_a_budget_when_an_upstream_is_down() {
    let mut scene = Scene::start_with(tireless).await;
    scene.pin();
    scene.o1.default(Behaviour::error(500, "boom"));
    let started = tokio::time::Instant::now();

    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for _ in 0..15 {
        let bodies = [(); 20].map(|()| chat("m"));
        let batch = bodies.iter().map(|body| scene.client.post_chat(body));
        for answer in futures_util::future::join_all(batch).await {
            *statuses.entry(answer.status).or_default() += 1;
        }
    }

    // A fifth of the calls, but at least ten a second, over ten seconds.
    assert!(
        started.elapsed().as_secs() < 9,
        "too slow a machine for this test"
    );
    assert_eq!(statuses, BTreeMap::from([(200, 100), (502, 200)]));
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (300, 100));
    scene.finish().await;
}

/// The keys that the first leg was called with, from the call of this number on.
fn keys_since(scene: &Scene, from: usize) -> Vec<String> {
    let key = |call: &Call| {
        let header = call.request.header("authorization")?;
        header.strip_prefix("Bearer ").map(str::to_owned)
    };
    scene.o1.recorded().iter().skip(from).filter_map(key).collect()
}

/// A scene whose first leg has two keys.
async fn two_keys_scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let keys = json!(["first-of-two", "second-of-two"]);
    let model = Model::new("m")
        .leg(&o1, 0)
        .set_leg("api_key", Value::Null)
        .set_leg("api_keys", keys);
    let model = model.leg(&o2, 1);
    Scene::start_on(o1, o2, |node| tireless(node).models(&[model])).await
}
