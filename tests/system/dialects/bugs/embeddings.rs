//! What embeddings cost, and what of them is free: to the nano-dollar, in every row that a call can leave.

use std::time::Duration;

use harness::{Answer, Behaviour, Model, PRICE, Scene, Upstream};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::retries::tireless;
use crate::rows::{assert_billed, assert_free, assert_row, endpoint, tried_endpoints};

/// How long an upstream may stay busy after its caller left.
const FREED_MAX: Duration = Duration::from_secs(1);

/// A scene whose model `e`, by its alias `e-latest` too, has two legs; `free` has no price.
async fn scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let embedding = |name: &str| Model::new(name).set("model_type", "embedding");
    let models = [
        embedding("e")
            .set("aliases", json!(["e-latest"]))
            .leg(&o1, 0)
            .leg(&o2, 1),
        embedding("free").set("pricing", Value::Null).leg(&o1, 0),
    ];
    let mut scene = Scene::start_on(o1, o2, |node| tireless(node.models(&models))).await;
    // What a node makes of faults one after another is its own: the good calls between them go to the same one.
    scene.pin();
    scene.price("e", Some(PRICE));
    scene.price("e-latest", Some(PRICE));
    scene.price("free", None);
    scene
}

async fn embed(scene: &Scene, model: &str) -> Answer {
    let body = json!({"model": model, "input": ["one", "two"]}).to_string();
    let answer = scene.client.post_inference("/v1/embeddings", body).await;
    answer.expect("a whole answer")
}

#[tokio::test]
async fn embeddings_cost_the_same_by_every_name_and_are_marked_where_they_have_no_price() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("").usage(9, 0));

    for model in ["e", "e-latest"] {
        let answer = embed(&scene, model).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["model"], model);
        let row = scene.row(answer.request_id()).await;
        assert_billed(&row, 9, 0, 18_000);
        assert_row(
            &row,
            &json!({"surface": "embeddings", "usage_flags": [], "endpoint_id": endpoint("e", &scene.o1)}),
        );
    }
    let free = embed(&scene, "free").await;
    assert_eq!(free.status, 200, "{}", free.text());
    assert_row(
        &scene.row(free.request_id()).await,
        &json!({"outcome": "ok", "input_tokens": 9, "output_tokens": 0, "cost_nano_usd": 0,
            "usage_flags": ["unpriced"]}),
    );
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn embeddings_that_failed_at_one_leg_are_billed_once_and_at_all_are_free() {
    let scene = scene().await;
    let retry = |behaviour: Behaviour| behaviour.close_after_response();
    for (case, behaviour, status, code) in [
        ("500", Behaviour::failure(500, "boom"), 502, "upstream_error"),
        (
            "429",
            Behaviour::failure(429, "slow down"),
            429,
            "upstream_rate_limited",
        ),
        ("closed", retry(Behaviour::closed()), 502, "upstream_error"),
        (
            "no vectors",
            Behaviour::status(200, json!({"object": "list", "data": []})),
            502,
            "upstream_error",
        ),
        ("no JSON", Behaviour::status(200, "boom"), 502, "upstream_error"),
    ] {
        // Connections are new each time: a request on one that served before may be sent twice.
        let good = || retry(Behaviour::chat("").usage(1_000, 0));
        scene
            .o1
            .script([behaviour.clone(), good(), behaviour.clone(), good()]);
        scene.o2.script([good(), behaviour]);

        let hidden = embed(&scene, "e").await;
        let next = embed(&scene, "e").await;
        let failed = embed(&scene, "e").await;
        let last = embed(&scene, "e").await;

        assert_eq!(hidden.status, 200, "{case}: {}", hidden.text());
        let row = scene.row(hidden.request_id()).await;
        assert_billed(&row, 1_000, 0, 2_000_000);
        let legs = [&scene.o1, &scene.o2].map(|upstream| endpoint("e", upstream));
        assert_eq!(tried_endpoints(&row), legs, "{case}");
        assert_eq!(
            (failed.status, failed.error_code().as_str()),
            (status, code),
            "{case}"
        );
        let row = scene.row(failed.request_id()).await;
        assert_free(&row, "upstream_error", status, code);
        assert_eq!(tried_endpoints(&row), legs, "{case}");
        for served in [next, last] {
            assert_eq!(served.status, 200, "{case}: {}", served.text());
            assert_billed(&scene.row(served.request_id()).await, 1_000, 0, 2_000_000);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn callers_of_embeddings_who_leave_before_the_answer_pay_nothing_and_free_the_upstream() {
    let scene = scene().await;
    scene.o1.default(Behaviour::hang());
    let body = json!({"model": "e", "input": ["one", "two"]}).to_string();
    let call = scene.client.post_inference("/v1/embeddings", body);
    timeout(Duration::from_millis(200), call)
        .await
        .expect_err("an upstream that hangs");
    scene.client.log().add_unanswered();
    let left = Instant::now();

    scene.o1.wait_quiet().await;

    assert!(left.elapsed() <= FREED_MAX, "{:?}", left.elapsed());
    let rows = scene.node.wait_rows("outcome=client_gone", 1).await;
    assert_eq!(rows.len(), 1);
    assert_row(
        &rows[0],
        &json!({"surface": "embeddings", "status": 499, "input_tokens": 0, "output_tokens": 0, "cost_nano_usd": 0}),
    );
    assert_eq!(
        scene.o2.calls(),
        0,
        "a caller who left is not worth a second attempt"
    );
    scene.finish().await;
}
