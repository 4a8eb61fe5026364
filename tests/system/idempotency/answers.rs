//! What a replay is: the first answer's status and bytes, a request and a row of its own.

use harness::{Behaviour, CALLER_KEY, Model, OTHER_KEY, Scene, Surface, chat};
use http::HeaderMap;
use serde_json::{Value, json};

use super::{MISMATCH, UNAVAILABLE, after_progress, billed, is_replay, keyed};

/// The headers that a replay of a plain answer has.
const OWN: [&str; 7] = [
    "content-type",
    "content-length",
    "date",
    "request-id",
    "x-request-id",
    "x-idempotent-replay",
    "x-waybill-config",
];

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(http::HeaderName::as_str).collect()
}

#[tokio::test]
async fn a_replay_has_the_first_answers_bytes_and_an_id_and_a_row_of_its_own() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("hello")
            .usage(60, 40)
            .header("set-cookie", "session=canary")
            .header("x-ratelimit-remaining-requests", "7")
            .header("x-request-id", "req_upstream"),
    );
    let client = keyed(&scene.client, "k-1").with_header("x-end-user", "eve");

    let first = client.post_chat(&chat("m")).await;
    let replay = client.post_chat(&chat("m")).await;

    assert_eq!((first.status, replay.status), (200, 200), "{}", replay.text());
    assert!(!is_replay(&first) && is_replay(&replay));
    assert_eq!(first.body, replay.body);
    assert_eq!(first.header("content-type"), replay.header("content-type"));
    assert_ne!(first.request_id(), replay.request_id());
    assert_eq!(replay.header("request-id"), replay.request_id());
    for name in names(&replay.headers) {
        assert!(OWN.contains(&name), "{name}: {:?}", replay.headers);
    }
    assert_eq!(scene.o1.calls(), 1);

    let first = scene.row(first.request_id()).await;
    assert_eq!(
        (&first["idempotency"], &first["cost_nano_usd"]),
        (&json!("first"), &json!(440_000)),
        "{first}"
    );
    let row = scene.row(replay.request_id()).await;
    let expected = json!({
        "idempotency": "replay", "cost_nano_usd": 0, "outcome": "ok", "status": 200,
        "error_code": null, "input_tokens": 0, "output_tokens": 0, "usage_source": "none", "attempts": [],
        "model": "m", "surface": "chat", "end_user": "eve", "tenant": "acme", "user": "alice", "key_name": "caller",
        "endpoint_id": null, "stream": false,
    });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&row[name], value, "{name}: {row}");
    }
    let (cost, _) = billed(&scene, 2).await;
    assert_eq!(cost, 440_000);
    scene.finish().await;
}

#[tokio::test]
async fn a_call_without_a_key_is_its_own_every_time_and_its_row_says_nothing_of_keys() {
    let scene = Scene::start().await;

    let one = scene.client.post_chat(&chat("m")).await;
    let two = scene.client.post_chat(&chat("m")).await;

    assert_eq!(scene.o1.calls(), 2);
    for answer in [one, two] {
        assert_eq!(answer.header("x-idempotent-replay"), "");
        assert_eq!(scene.row(answer.request_id()).await["idempotency"], Value::Null);
    }
    scene.finish().await;
}

#[tokio::test]
async fn another_body_or_another_path_under_the_key_is_refused_and_runs_nothing() {
    let scene = Scene::start().await;
    let client = keyed(&scene.client, "k-1");
    let body = chat("m").to_string();
    let first = client.post_inference("/v1/chat/completions", body.clone()).await;
    assert_eq!(first.expect("an answer").status, 200);

    // One byte more, which means the same.
    let spaced = format!(" {body}");
    for (path, body) in [
        ("/v1/chat/completions", spaced),
        ("/v1/completions", Surface::Completions.ask("m").to_string()),
        ("/completion", body.clone()),
    ] {
        let refused = client.post_inference(path, body).await.expect("an answer");
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (422, MISMATCH),
            "{path}: {}",
            refused.text()
        );
    }
    let replay = client
        .post_inference("/v1/chat/completions?beta=true", body)
        .await
        .expect("an answer");
    assert!(
        is_replay(&replay),
        "the query is no part of it: {}",
        replay.text()
    );
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

/// Every call gets a word of its own.
pub(super) fn numbered(scene: &Scene) {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    scene.o1.on(move |_| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Behaviour::chat(&format!("word-{call}")).usage(10, 1)
    });
}

#[tokio::test]
async fn the_same_key_of_another_tenant_or_of_another_virtual_key_is_another_key() {
    const SECOND_KEY: &str = "sk-harness-canary-second-5521";
    let scene = Scene::start_with(|node| {
        let mut keys = harness::node::config::settings()["keys"].clone();
        keys.as_array_mut()
            .expect("a list")
            .push(json!({"name": "second", "tenant": "acme", "key": SECOND_KEY, "role": "free"}));
        node.setting("keys", keys)
    })
    .await;
    numbered(&scene);
    let client = keyed(&scene.client, "k-1");

    let mine = client.post_chat(&chat("m")).await;
    let other = client.with_key(OTHER_KEY).post_chat(&chat("m")).await;
    let second = client.with_key(SECOND_KEY).post_chat(&chat("m")).await;
    let again = client.with_key(CALLER_KEY).post_chat(&chat("m")).await;
    let others = client.with_key(OTHER_KEY).post_chat(&chat("m")).await;

    assert_eq!(mine.content(), "word-0");
    for (answer, word) in [(&other, "word-1"), (&second, "word-2")] {
        assert_eq!(answer.content(), word, "{}", answer.text());
        assert_eq!(answer.header("x-idempotent-replay"), "");
        let row = scene.row(answer.request_id()).await;
        assert_eq!(row["cost_nano_usd"], 28_000, "{row}");
    }
    assert!(is_replay(&again) && again.body == mine.body);
    assert!(is_replay(&others) && others.body == other.body);
    let row = scene.row(others.request_id()).await;
    assert_eq!(
        (&row["tenant"], &row["key_name"]),
        (&json!("zenith"), &json!("other"))
    );
    assert_eq!(scene.o1.calls(), 3);
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_too_large_to_be_kept_is_done_all_the_same() {
    let scene = Scene::start().await;
    let word = "x".repeat(300 * 1024);
    scene.o1.default(Behaviour::chat(&word).usage(10, 1));
    let client = keyed(&scene.client, "k-1");

    let first = client.post_chat(&chat("m")).await;
    let again = after_progress(&client, &chat("m")).await;

    assert_eq!((first.status, first.content().len()), (200, word.len()));
    assert_eq!((again.status, again.error_code().as_str()), (409, UNAVAILABLE));
    assert_eq!(again.header("x-should-retry"), "false");
    assert_eq!(scene.o1.calls(), 1);
    let (cost, _) = billed(&scene, 1).await;
    assert_eq!(cost, 28_000);
    scene.finish().await;
}

#[tokio::test]
async fn embeddings_and_answers_of_responses_that_are_kept_are_replayed() {
    let (o1, o2) = (harness::Upstream::start(), harness::Upstream::start());
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("vectors").leg(&o1, 0).set("model_type", "embedding"),
    ];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.price("vectors", None);
    let cases = [
        ("/v1/embeddings", json!({"model": "vectors", "input": "hello"})),
        (
            "/v1/responses",
            json!({"model": "m", "input": "hello", "store": true}),
        ),
    ];
    for (path, body) in cases {
        let client = keyed(&scene.client, path);
        let calls = scene.o1.calls();

        let first = client
            .post_inference(path, body.to_string())
            .await
            .expect("an answer");
        let replay = client
            .post_inference(path, body.to_string())
            .await
            .expect("an answer");

        assert_eq!(first.status, 200, "{path}: {}", first.text());
        assert!(is_replay(&replay), "{path}: {}", replay.text());
        assert_eq!(first.body, replay.body, "{path}");
        assert_eq!(scene.o1.calls(), calls + 1, "{path}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn answers_outlive_the_nodes_that_gave_them() {
    let mut scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("kept").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    let first = client.post_chat(&chat("m")).await;
    assert_eq!(first.status, 200);

    scene.kill_and_restart().await;
    let replay = keyed(&scene.client, "k-1").post_chat(&chat("m")).await;

    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.body, first.body);
    assert_eq!(scene.o1.calls(), 1);
    let (cost, _) = billed(&scene, 2).await;
    assert_eq!(cost, 440_000);
    scene.finish().await;
}
