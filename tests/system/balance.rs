//! Whom a call goes to where several could serve it, and that the log tells why: the algorithms of endpoints, backends
//! that cannot be connected to, and a reason for everybody who was left out.

use futures_util::future::join_all;
use harness::{
    Answer, Behaviour, CALLER_KEY, Client, Model, OPERATOR_KEY, PRICE, Scene, Upstream, chat, chat_streamed,
    refusing_addr,
};
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::control::{call, done};
use crate::rows::{endpoint, tried_endpoints};

/// Calls that are made at once.
const AT_ONCE: usize = 12;

/// Model `id` with one leg over some upstreams.
fn group(id: &str, algorithm: &str, upstreams: &[&Upstream]) -> Model {
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url()).collect();
    Model::new(id)
        .leg_at("", 0)
        .set_leg("base_url", Value::Null)
        .set_leg("backends", urls)
        .set_leg("algorithm", algorithm)
}

/// How many calls each upstream got since `before`.
fn since(upstreams: &[&Upstream], before: &[usize]) -> Vec<usize> {
    let calls = upstreams.iter().zip(before);
    calls
        .map(|(upstream, before)| upstream.calls() - before)
        .collect()
}

fn calls(upstreams: &[&Upstream]) -> Vec<usize> {
    upstreams.iter().map(|upstream| upstream.calls()).collect()
}

/// The request as an operator sees it in the log.
async fn shown(scene: &Scene, answer: &Answer) -> Value {
    scene.row(answer.request_id()).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let shown = operator
        .get(&format!("/api/v1/logs/{}", answer.request_id()))
        .await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    shown.json()
}

/// Why each that is named was left out.
fn reasons(shown: &Value) -> Vec<(String, String)> {
    let excluded = shown["explain"]["excluded"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let excluded = excluded.into_iter().flatten();
    excluded
        .map(|one| {
            assert!(one["why"].as_str().is_some_and(|why| !why.is_empty()), "{one}");
            (text(&one["endpoint"]), text(&one["reason"]))
        })
        .collect()
}

#[tokio::test]
async fn backends_are_chosen_by_the_algorithm_of_their_endpoint() {
    let (o1, o2, o3) = (Upstream::start(), Upstream::start(), Upstream::start());
    let models = [
        group("turns", "round_robin", &[&o1, &o2, &o3]),
        group("least", "least_connections", &[&o1, &o2]),
        group("engine", "engine_aware", &[&o1, &o2]),
        group("quick", "power_of_two", &[&o1, &o2]),
        group("prefix", "prefix_aware", &[&o1, &o2, &o3]),
    ];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.pin();
    for model in ["turns", "least", "engine", "quick", "prefix"] {
        scene.price(model, Some(PRICE));
    }
    let upstreams = [&scene.o1, &scene.o2, &o3];

    let before = calls(&upstreams);
    for _ in 0..9 {
        assert_eq!(scene.client.post_chat(&chat("turns")).await.status, 200);
    }
    assert_eq!(since(&upstreams, &before), [3, 3, 3]);

    // Engines that say nothing are told apart by their calls.
    for upstream in upstreams {
        upstream.default(Behaviour::chat("slow").first_byte_delay(Duration::from_secs(1)));
    }
    for model in ["least", "engine"] {
        let before = calls(&upstreams);
        let body = chat(model);
        let answers = join_all((0..AT_ONCE).map(|_| scene.client.post_chat(&body))).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{model}");
        let shares = since(&upstreams, &before);
        assert!(
            (5..=7).contains(&shares[0]) && shares[0] + shares[1] == AT_ONCE,
            "{model}: {shares:?}"
        );
    }
    for upstream in upstreams {
        upstream.default(Behaviour::chat("quick"));
    }
    scene
        .o1
        .default(Behaviour::chat("late").first_byte_delay(Duration::from_millis(400)));
    let before = calls(&upstreams);
    for _ in 0..8 {
        let answer = scene
            .client
            .stream_chat(&chat_streamed("quick"))
            .await
            .collect()
            .await;
        assert!(!answer.text().is_empty());
    }
    let shares = since(&upstreams, &before);
    assert!(shares[0] <= 2 && shares[0] + shares[1] == 8, "{shares:?}");
    prompts_that_begin_alike_go_to_one_backend(&scene, &upstreams).await;
    scene.finish().await;
}

async fn prompts_that_begin_alike_go_to_one_backend(scene: &Scene, upstreams: &[&Upstream]) {
    scene.o1.default(Behaviour::chat("quick"));
    let mut homes = Vec::new();
    for instructions in 0..8 {
        let before = calls(upstreams);
        for question in 0..3 {
            let mut body = chat("prefix");
            body["messages"] = json!([
                {"role": "system", "content": format!("You are expert number {instructions}.")},
                {"role": "user", "content": format!("Question {question}")},
            ]);
            assert_eq!(scene.client.post_chat(&body).await.status, 200);
        }
        let shares = since(upstreams, &before);
        let home = shares.iter().position(|calls| *calls == 3);
        homes.push(home.unwrap_or_else(|| panic!("one has all three: {shares:?}")));
    }
    homes.sort_unstable();
    homes.dedup();
    assert!(homes.len() > 1, "not all prompts belong to one: {homes:?}");
}

/// The endpoint of an upstream that is not there, in model `m`.
fn nowhere(addr: std::net::SocketAddr) -> String {
    format!("m:local-{}", addr.port())
}

#[tokio::test]
async fn whoever_cannot_be_connected_to_is_asked_last_and_the_log_says_so() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let away = refusing_addr();
    let model = Model::new("m")
        .leg_at(&format!("http://{away}/v1"), 0)
        .leg(&o2, 1);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.pin();
    scene.upstream_faults_allowed();
    let (away, well) = (nowhere(away), endpoint("m", &scene.o2));

    let first = scene.client.post_chat(&chat("m")).await;
    let second = scene.client.post_chat(&chat("m")).await;
    scene.o2.script([Behaviour::error(500, "boom")]);
    let third = scene.client.post_chat(&chat("m")).await;

    assert_eq!(
        tried_endpoints(&scene.row(first.request_id()).await),
        [away.clone(), well.clone()]
    );
    let told = shown(&scene, &second).await;
    assert_eq!(tried_endpoints(&told), std::slice::from_ref(&well), "{told:#}");
    assert_eq!(reasons(&told), [(away.clone(), "soft_ban".to_owned())]);
    assert_eq!(told["explain"]["order"], json!([well, away]));
    assert_eq!(third.status, 502, "{}", third.text());
    assert_eq!(
        tried_endpoints(&scene.row(third.request_id()).await),
        [well, away]
    );
    scene.finish().await;
}

/// Models of which each has a first leg that is left out for one reason, and a second one that serves.
fn lacking(o1: &Upstream, o2: &Upstream, o3: &Upstream) -> [Model; 6] {
    let two = |id: &str| Model::new(id).leg(o1, 0).leg(o2, 1);
    [
        two("m"),
        two("zero").set_leg_of(0, "weight", 0.0),
        two("blind")
            .set("input_modalities", json!(["text", "image"]))
            .set_leg_of(0, "input_modalities", json!(["text"])),
        two("off").set_leg_of(0, "provider", "main-site"),
        two("mute").set_leg_of(0, "kind", "anthropic"),
        Model::new("long")
            .leg(o1, 0)
            .set_leg("context_length", 8_192)
            .leg(o3, 1)
            .set_leg("context_length", 8_192)
            .leg(o2, 2),
    ]
}

/// The body of a call that a model's first leg cannot take.
fn wanting(model: &str) -> Value {
    let mut body = chat(model);
    match model {
        "blind" => {
            body["messages"][0]["content"] = json!([
                {"type": "text", "text": "what is this"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]);
        }
        "mute" => body["seed"] = json!(7),
        _ => {}
    }
    body
}

#[tokio::test]
async fn hybrid_case_36_everybody_who_was_left_out_is_named_with_the_reason() {
    let (o1, o2, o3) = (Upstream::start(), Upstream::start(), Upstream::start());
    let models = lacking(&o1, &o2, &o3);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.pin();
    scene.upstream_faults_allowed();
    let operator = scene.client.with_key(OPERATOR_KEY);
    done(
        &operator,
        "PATCH",
        "/admin/providers/main-site",
        json!({"disabled": true}),
    )
    .await;
    for (model, reason) in [
        ("zero", "configured_zero"),
        ("blind", "modality"),
        ("off", "provider_disabled"),
        ("mute", "untranslatable"),
    ] {
        scene.price(model, Some(PRICE));
        let answer = scene.client.post_chat(&wanting(model)).await;

        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let told = shown(&scene, &answer).await;
        assert_eq!(tried_endpoints(&told), [endpoint(model, &scene.o2)], "{model}");
        let left_out = endpoint(model, &scene.o1);
        let expected = [(left_out, reason.to_owned())];
        assert_eq!(reasons(&told), expected, "{model}: {told:#}");
    }
    assert_eq!(scene.o1.calls(), 0);
    done(
        &operator,
        "PATCH",
        "/admin/providers/main-site",
        json!({"disabled": false}),
    )
    .await;
    let back = shown(&scene, &scene.client.post_chat(&chat("off")).await).await;
    assert_eq!(
        (tried_endpoints(&back), reasons(&back)),
        (vec![endpoint("off", &scene.o1)], Vec::new())
    );
    prompts_that_are_too_long_are_told(&scene, &o3).await;
    pins_and_circuits_are_told(&scene).await;
    the_api_takes_every_algorithm_and_refuses_others_with_the_list(&operator).await;
    scene.finish().await;
}

async fn the_api_takes_every_algorithm_and_refuses_others_with_the_list(operator: &Client) {
    let words = [
        "weighted",
        "round_robin",
        "least_connections",
        "engine_aware",
        "power_of_two",
        "prefix_aware",
    ];
    let wanted = |name: &str, algorithm: &str| {
        let backends = json!([{"url": "https://engine.example/v1"}]);
        json!({"name": name, "backends": backends, "algorithm": algorithm})
    };
    let refused = call(operator, "POST", "/api/v1/endpoints", wanted("box", "fastest")).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["param"]),
        (400, &json!("algorithm"))
    );
    assert!(
        words.iter().all(|word| refused.text().contains(word)),
        "{}",
        refused.text()
    );

    let made = done(
        operator,
        "POST",
        "/api/v1/endpoints",
        wanted("box", "prefix_aware"),
    )
    .await;
    let path = format!("/api/v1/endpoints/{}", made["id"].as_str().expect("an id"));
    for word in words {
        let changed = done(operator, "PATCH", &path, json!({"algorithm": word})).await;
        assert_eq!(changed["algorithm"], word);
    }
}

/// Model `long`: its first leg refuses a prompt as too long, and its second takes none that is longer.
async fn prompts_that_are_too_long_are_told(scene: &Scene, narrow: &Upstream) {
    scene.o1.script([Behaviour::error(
        400,
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
    )]);

    let answer = scene.client.post_chat(&chat("long")).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = shown(scene, &answer).await;
    let tried = [endpoint("long", &scene.o1), endpoint("long", &scene.o2)];
    assert_eq!(tried_endpoints(&told), tried);
    let expected = [(endpoint("long", narrow), "context_length".to_owned())];
    assert_eq!(reasons(&told), expected, "{told:#}");
    assert_eq!(narrow.calls(), 0);
}

/// Model `m`: a call for one leg alone, and one whose first leg has failed too often.
async fn pins_and_circuits_are_told(scene: &Scene) {
    let (first, second) = (endpoint("m", &scene.o1), endpoint("m", &scene.o2));
    let operator = scene.client.with_key(OPERATOR_KEY);
    let pinned = operator
        .with_header("x-route-pin", &second)
        .post_chat(&chat("m"))
        .await;
    let told = shown(scene, &pinned).await;
    assert_eq!(reasons(&told), [(first.clone(), "not_pinned".to_owned())]);

    scene.o1.default(Behaviour::error(500, "boom"));
    for _ in 0..3 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }
    let answer = scene.client.post_chat(&chat("m")).await;
    let told = shown(scene, &answer).await;
    assert_eq!(reasons(&told), [(first.clone(), "circuit_open".to_owned())]);
    assert_eq!(told["explain"]["order"], json!([second]));
    let event = &told["event"]["data"]["decision"];
    assert_eq!(event["excluded"][0]["backend"], json!(first));
    assert!(
        event["excluded"][0]["retry_in_ms"]
            .as_u64()
            .is_some_and(|ms| ms <= 30_000)
    );

    // His own caller sees the same without what others do.
    let path = format!("/api/v1/logs/{}", answer.request_id());
    let own = scene.client.with_key(CALLER_KEY).get(&path).await.json();
    assert_eq!(reasons(&own), [(first, "circuit_open".to_owned())]);
}
