//! Engines and backends that are asked how they are, beside the calls they serve: what they say steers calls, who does not
//! live is left out on every node, and who lives again is asked again.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    ADMIN_KEY, Behaviour, CALLER_KEY, Client, Model, Node, NodeBuilder, OPERATOR_KEY, Plan, Scene, Upstream,
    chat, embedded_only,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::control::{call, done};

/// How long is waited for what takes as long as it takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the other process may take to take over, and to read an engine.
const TAKEN_OVER_MAX: Duration = Duration::from_secs(5);
/// How long a backend may take to be asked again after its health answers.
const BACK_MAX: Duration = Duration::from_secs(2);
/// One interval of the probes of these tests.
const INTERVAL: Duration = Duration::from_secs(1);

/// What an engine says with so many requests in its queue.
fn figures(waiting: u64) -> String {
    format!(
        "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_running{{engine=\"0\"}} 1\n\
         vllm:num_requests_waiting{{engine=\"0\"}} {waiting}\nvllm:kv_cache_usage_perc{{engine=\"0\"}} 0.25\n"
    )
}

fn open_to_loopback(node: NodeBuilder) -> NodeBuilder {
    node.setting("health", json!({"engines": true}))
        .setting("egress", json!({"allow": ["127.0.0.0/8"]}))
}

/// A node whose model `own` is an endpoint of these upstreams; and its operator.
async fn one_node(upstreams: &[&Upstream], said: Value) -> (Node, Client) {
    let node = open_to_loopback(Node::builder()).start().await;
    let operator = node.client(OPERATOR_KEY);
    register(&operator, upstreams, said).await;
    (node, operator)
}

/// Registers the model `own`.
async fn register(operator: &Client, upstreams: &[&Upstream], said: Value) {
    let backends: Vec<Value> = upstreams
        .iter()
        .map(|upstream| json!({"url": upstream.root_url()}))
        .collect();
    let mut body = json!({"name": "own", "kind": "vllm", "backends": backends});
    for (key, value) in said.as_object().expect("an object") {
        body[key] = value.clone();
    }
    done(operator, "POST", "/api/v1/endpoints", body).await;
}

/// What `/health/deep` says of the backends of the only endpoint that was registered, in the order of their addresses.
async fn backends(operator: &Client) -> Vec<Value> {
    let deep = operator.get("/health/deep").await.json();
    let endpoints = deep["endpoints"].as_object().cloned().unwrap_or_default();
    let Some((id, own)) = endpoints.iter().find(|(id, _)| id.starts_with("ep-")) else {
        return Vec::new();
    };
    let listed = operator.get("/api/v1/endpoints").await.json();
    let listed = listed["data"].as_array().cloned().unwrap_or_default();
    let listed = listed.into_iter().find(|endpoint| endpoint["id"] == **id);
    let urls = listed.and_then(|endpoint| endpoint["backends"].as_array().cloned());
    let urls = urls.unwrap_or_default();
    let named = urls.iter().map(|backend| match urls.len() {
        1 => own["backends"][id.as_str()].clone(),
        _ => own["backends"][replica(id, backend["url"].as_str().expect("a URL"))].clone(),
    });
    named.filter(|backend| !backend.is_null()).collect()
}

/// What one of several backends of an endpoint is called.
fn replica(endpoint: &str, url: &str) -> String {
    let digest = Sha256::digest(url.as_bytes());
    let digits: Vec<String> = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{endpoint}#{}", digits.concat())
}

/// Waits until the backends are as they should be; gives how long that took.
async fn until(operator: &Client, what: &str, is: impl Fn(&[Value]) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let backends = backends(operator).await;
        if is(&backends) {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "not {what}: {backends:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn waiting(backend: &Value) -> Option<u64> {
    backend["engine"]["waiting"].as_u64()
}

fn spared(backend: &Value) -> &Value {
    &backend["exclusion_reasons"]
}

#[tokio::test]
async fn what_engines_say_is_shown_and_steers_calls() {
    if embedded_only("one node tells it all") {
        return;
    }
    let (busy, idle) = (Upstream::start(), Upstream::start());
    for (engine, waits) in [(&busy, 7), (&idle, 0)] {
        engine.page("/metrics", 200, &figures(waits));
    }
    let (mut node, operator) = one_node(&[&busy, &idle], json!({"algorithm": "engine_aware"})).await;
    let caller = node.client(ADMIN_KEY);

    until(&operator, "told", |all| {
        all.len() == 2 && waiting(&all[0]) == Some(7) && waiting(&all[1]) == Some(0)
    })
    .await;
    let shown = backends(&operator).await.remove(0);
    let engine = &shown["engine"];
    assert_eq!(
        (&engine["kind"], &engine["running"], &engine["kv_cache_percent"]),
        (&json!("vllm"), &json!(1), &json!(25.0)),
        "{shown}"
    );
    for _ in 0..4 {
        assert_eq!(caller.post_chat(&chat("own")).await.status, 200);
    }
    assert_eq!((busy.calls(), idle.calls()), (0, 4));

    // Both say the same: what was sent since they said so decides.
    busy.page("/metrics", 200, &figures(0));
    until(&operator, "idle", |all| waiting(&all[0]) == Some(0)).await;
    for engine in [&busy, &idle] {
        engine.default(Behaviour::chat("slowly").first_byte_delay(Duration::from_millis(700)));
    }
    let before = (busy.calls(), idle.calls());
    let body = chat("own");
    let answers = join_all((0..12).map(|_| caller.post_chat(&body))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let spread = busy.calls() - before.0;
    assert!((5..=7).contains(&spread), "{spread} of 12");
    assert_eq!(busy.calls() + idle.calls() - before.0 - before.1, 12);
    let heads = busy.reads();
    assert!(
        heads.iter().all(|read| read.header("authorization").is_none()),
        "no credential goes there"
    );
    node.check_books().await;
}

#[tokio::test]
async fn a_backend_that_dies_idle_is_left_out_within_two_intervals_and_back_when_its_health_answers() {
    if embedded_only("a test of its own has a cluster") {
        return;
    }
    let (mut dying, living) = (Upstream::start(), Upstream::start());
    let check = json!({"path": "/up", "interval_seconds": INTERVAL.as_secs(), "threshold": 3});
    let (mut node, operator) = one_node(&[&dying, &living], json!({"health_check": check})).await;
    let caller = node.client(ADMIN_KEY);
    while dying.reads().iter().all(|read| read.target != "/up") {
        sleep(Duration::from_millis(10)).await;
    }
    let addr = dying.addr();

    dying.stop().await;
    let died = Instant::now();
    until(&operator, "left out", |all| {
        *spared(&all[0]) == json!(["unhealthy"])
    })
    .await;
    let took = died.elapsed();

    // A second more than was promised, for a machine that does other things.
    assert!(took < 2 * INTERVAL + Duration::from_secs(1), "{took:?}");
    for _ in 0..6 {
        assert_eq!(caller.post_chat(&chat("own")).await.status, 200);
    }
    assert_eq!(living.calls(), 6, "nobody had to find out");
    let deep = operator.get("/health/deep").await.json();
    assert_eq!(deep["status"], "degraded", "{deep}");

    let again = Upstream::start_at(addr);
    let back = until(&operator, "back", |all| *spared(&all[0]) == json!([])).await;
    assert!(back < BACK_MAX + Duration::from_secs(1), "{back:?}");
    for _ in 0..4 {
        assert_eq!(caller.post_chat(&chat("own")).await.status, 200);
    }
    assert_eq!(again.calls(), 2, "they take turns");
    node.check_books().await;
}

#[tokio::test]
async fn a_host_that_is_too_hot_is_spared_for_a_minute_at_most() {
    if embedded_only("one node tells it all") {
        return;
    }
    let (hot, cool) = (Upstream::start(), Upstream::start());
    let mut node = open_to_loopback(Node::builder()).start().await;
    let operator = node.client(OPERATOR_KEY);
    let placed = json!({"backends": [
        {"url": hot.root_url(), "node": "gpu-1"}, {"url": cool.root_url(), "node": "gpu-2"},
    ]});
    register(&operator, &[], placed).await;
    let set = json!({"auto_routing_enabled": false, "gpu_temperature_threshold": 85});
    done(&operator, "PUT", "/api/v1/system/inference-config", set).await;
    let report = |temperature: f64| {
        json!({"gpus": [
            {"index": 0, "temperature_c": 40.0}, {"index": 1, "temperature_c": temperature, "utilization": 99.5},
        ]})
    };

    for key in [CALLER_KEY, "sk-nobody-knows-this-one"] {
        let told = call(&node.client(key), "POST", "/api/v1/nodes/gpu-1/gpu", report(90.0)).await;
        assert!(matches!(told.status, 401 | 403), "{}", told.text());
    }
    let told = done(
        &node.client(ADMIN_KEY),
        "POST",
        "/api/v1/nodes/gpu-1/gpu",
        report(90.0),
    )
    .await;
    assert_eq!(
        (&told["node"], &told["counts_seconds"]),
        (&json!("gpu-1"), &json!(60))
    );
    until(&operator, "spared", |all| *spared(&all[0]) == json!(["hot_gpu"])).await;
    let caller = node.client(ADMIN_KEY);
    for _ in 0..4 {
        assert_eq!(caller.post_chat(&chat("own")).await.status, 200);
    }
    assert_eq!((hot.calls(), cool.calls()), (0, 4));

    // With nobody else left, a hot one is not asked all the same.
    done(&operator, "POST", "/api/v1/nodes/gpu-2/gpu", report(85.0)).await;
    until(&operator, "all spared", |all| {
        all.iter().all(|one| *spared(one) == json!(["hot_gpu"]))
    })
    .await;
    let refused = caller.post_chat(&chat("own")).await;
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (503, "no_backends_available")
    );

    done(&operator, "POST", "/api/v1/nodes/gpu-1/gpu", report(84.0)).await;
    until(&operator, "cool", |all| *spared(&all[0]) == json!([])).await;
    assert_eq!(caller.post_chat(&chat("own")).await.status, 200);
    assert_eq!(hot.calls(), 1);
    let wrong = json!({"gpus": [{"index": 0, "temperature_c": 90, "fan": 1}]});
    let refused = call(&operator, "POST", "/api/v1/nodes/gpu-1/gpu", wrong).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["param"]),
        (400, &json!("fan"))
    );
    node.check_books().await;
}

#[tokio::test]
async fn what_a_file_says_of_health_and_hosts_counts_as_what_the_api_is_told() {
    if embedded_only("one node tells it all") {
        return;
    }
    let (mut dying, living) = (Upstream::start(), Upstream::start());
    let backends = json!([{"url": dying.url(), "node": "gpu-1"}, {"url": living.url(), "node": "gpu-2"}]);
    let model = Model::new("own")
        .leg_at("", 0)
        .set_leg("base_url", Value::Null)
        .set_leg("backends", backends)
        .set_leg("algorithm", "round_robin")
        .set_leg(
            "health_check",
            json!({"path": "/up", "interval_seconds": 1, "threshold": 2}),
        );
    let node = Node::builder().models(&[model]);
    let mut node = node.setting("gpu_temperature_threshold", 85).start().await;
    let operator = node.client(OPERATOR_KEY);
    let reasons = async || {
        let deep = operator.get("/health/deep").await.json();
        let endpoints = deep["endpoints"].as_object().cloned().unwrap_or_default();
        let backends = endpoints
            .values()
            .filter_map(|one| one["backends"].as_object().cloned());
        let all = backends.flatten().map(|(_, backend)| spared(&backend).clone());
        let mut all: Vec<Value> = all.filter(|reasons| *reasons != json!([])).collect();
        all.sort_by_key(Value::to_string);
        all
    };
    let until = async |wanted: Vec<Value>| {
        let began = Instant::now();
        while reasons().await != wanted {
            assert!(
                began.elapsed() < PATIENCE,
                "not {wanted:?}: {:?}",
                reasons().await
            );
            sleep(Duration::from_millis(20)).await;
        }
    };
    let listed = operator.get("/api/v1/endpoints").await.json();
    assert_eq!(
        (
            &listed["data"][0]["health_check"]["path"],
            &listed["data"][0]["backends"][1]["node"]
        ),
        (&json!("/up"), &json!("gpu-2")),
        "{listed}"
    );
    while dying.reads().iter().all(|read| read.target != "/up") {
        sleep(Duration::from_millis(10)).await;
    }

    dying.stop().await;
    until(vec![json!(["unhealthy"])]).await;
    for _ in 0..4 {
        assert_eq!(node.client(ADMIN_KEY).post_chat(&chat("own")).await.status, 200);
    }
    assert_eq!(living.calls(), 4, "nobody had to find out");

    let hot = json!({"gpus": [{"index": 0, "temperature_c": 90.0}]});
    done(&operator, "POST", "/api/v1/nodes/gpu-2/gpu", hot).await;
    until(vec![json!(["hot_gpu"]), json!(["unhealthy"])]).await;
    let refused = node.client(ADMIN_KEY).post_chat(&chat("own")).await;
    assert_eq!(
        refused.error_code(),
        "no_backends_available",
        "{}",
        refused.text()
    );
    node.check_books().await;
}

/// A cluster with two processes that look after health, and the operator at each of its gateways.
async fn fleet(cooldown: &str) -> (Scene, [Client; 2]) {
    let plan = Plan {
        health_workers: 2,
        ..Plan::default()
    };
    let prepared = |node: NodeBuilder| open_to_loopback(node).env("CIRCUIT_COOLDOWN_SECONDS", cooldown);
    let mut scene = Scene::start_cluster(plan, prepared).await;
    scene.foreign_calls();
    scene.price("own", None);
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.with_key(OPERATOR_KEY);
    (scene, [operator.at(a), operator.at(b)])
}

/// The name of the process that leads, of two, neither of which has ended yet.
fn leader(scene: &mut Scene) -> String {
    for name in ["health-1", "health-2"] {
        let logs = scene.cluster().node(name).logs();
        if logs
            .iter()
            .any(|line| line.contains("this node looks after the health"))
        {
            return name.to_owned();
        }
    }
    panic!("nobody looks after health");
}

#[tokio::test]
async fn when_whoever_looks_after_health_is_killed_the_other_reads_engines_within_five_seconds() {
    let (mut scene, [a, b]) = fleet("30").await;
    let engine = Upstream::start();
    engine.page("/metrics", 200, &figures(3));
    register(&a, &[&engine], json!({})).await;
    for operator in [&a, &b] {
        until(operator, "told", |all| {
            all.len() == 1 && waiting(&all[0]) == Some(3)
        })
        .await;
    }

    let leader = leader(&mut scene);
    scene.cluster().node(&leader).kill().await;
    let killed = Instant::now();
    engine.page("/metrics", 200, &figures(9));
    until(&b, "told again", |all| waiting(&all[0]) == Some(9)).await;
    let took = killed.elapsed();

    assert!(took < TAKEN_OVER_MAX + Duration::from_secs(1), "{took:?}");
    scene.finish().await;
}

#[tokio::test]
async fn a_killed_backend_is_out_on_every_node_and_back_on_every_node_when_its_health_answers() {
    let (scene, [a, b]) = fleet("600").await;
    let mut dying = Upstream::start();
    register(&a, &[&dying], json!({"single_backend_rescue": false})).await;
    let addr = dying.addr();
    for operator in [&a, &b] {
        until(operator, "there", |all| all.len() == 1).await;
        assert_eq!(operator.post_chat(&chat("own")).await.status, 200);
    }

    dying.stop().await;
    for _ in 0..3 {
        assert_eq!(a.post_chat(&chat("own")).await.status, 502);
    }
    sleep(Duration::from_millis(250)).await;
    for operator in [&a, &b] {
        let refused = operator.post_chat(&chat("own")).await;
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (503, "all_circuits_open")
        );
    }

    // The circuit would stay open for ten minutes.
    let again = Upstream::start_at(addr);
    let well = Instant::now();
    let open = |backend: &Value| backend["circuit_state"] == "open";
    until(&b, "half-open", |all| !open(&all[0])).await;
    let took = well.elapsed();
    assert!(took < BACK_MAX + Duration::from_secs(1), "{took:?}");
    assert_eq!(b.post_chat(&chat("own")).await.status, 200);
    until(&a, "closed", |all| all[0]["circuit_state"] == "closed").await;
    assert_eq!(a.post_chat(&chat("own")).await.status, 200);
    assert_eq!(again.calls(), 2);
    scene.finish().await;
}
