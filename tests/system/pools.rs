//! Routes that name a pool: run by its routers alone, which stand in a network of their own, know nothing of the
//! catalogue and hold their own secrets.

mod namespace;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use harness::{
    Answer, Behaviour, Client, End, Model, Node, NodeBuilder, OPERATOR_KEY, PROVIDER_KEY, Plan, Scene,
    Upstream, chat, chat_streamed,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use namespace::Namespace;

/// How long a worker may take to be there for its first call.
const THERE_MAX: Duration = Duration::from_secs(20);
/// How long a large body may take.
const LARGE_MAX: Duration = Duration::from_mins(3);
/// The pool.
const POOL: &str = "private";
/// The master key of the pool, and that of everybody else.
const POOL_MASTER: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";

/// Model `m`: the engine behind the pool first, another upstream after it.
fn model(engine: &Upstream, other: &Upstream) -> Model {
    let model = Model::new("m").leg(engine, 0).set_leg("pool", POOL);
    model.leg(other, 1)
}

/// A cluster on a guarded bus, with an engine at `engine`.
async fn scene(engine: SocketAddr, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Scene {
    let plan = Plan {
        guarded: true,
        ..Plan::default()
    };
    let (engine, other) = (Upstream::start_at(engine), Upstream::start());
    engine.default(Behaviour::chat("from the pool").usage(9, 20));
    other.default(Behaviour::chat("from elsewhere").usage(9, 20));
    let models = [model(&engine, &other)];
    Scene::start_cluster_on(plan, (engine, other), |node| change(node.models(&models))).await
}

/// A worker of the pool, with the narrow user's connection and nothing else.
fn worker(scene: &mut Scene, host: std::net::IpAddr) -> NodeBuilder {
    let models = [model(&scene.o1, &scene.o2)];
    let services = &scene.cluster().services;
    let url = services.nats.servers[0].url_of("router_private", host);
    let builder = Node::builder().models(&models).setting("keys", json!([]));
    let builder = services
        .node(&builder, "worker", "router")
        .arg("--pool")
        .arg(POOL);
    builder
        .nats(&url)
        .env("WAYBILL_MASTER_KEY", POOL_MASTER)
        .env("API_KEY_SECRET", "")
        .env("JWT_SECRET_KEY", "")
}

async fn start(scene: &mut Scene, worker: NodeBuilder) {
    let worker = worker.start().await;
    scene.cluster().nodes.push(worker);
    let began = Instant::now();
    while scene.client.post_chat(&chat("m")).await.content() != "from the pool" {
        assert!(began.elapsed() < THERE_MAX, "no worker takes calls");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_worker_in_a_network_of_its_own_serves_streams_and_large_bodies_and_may_die() {
    let Some(network) = Namespace::make() else {
        return;
    };
    let mut scene = scene((network.host, 0).into(), |node| node).await;
    // Nobody is in the pool: the next route serves, and the row says why.
    let passed = scene.client.post_chat(&chat("m")).await;
    assert_eq!(
        (passed.status, passed.content().as_str()),
        (200, "from elsewhere")
    );
    assert_eq!(reasons(&scene, passed.request_id()).await, ["pool_away"]);
    assert!(!network.routes().contains("default"), "{}", network.routes());

    let inside = worker(&mut scene, network.host.into()).within(&network.within());
    start(&mut scene, inside).await;
    let listed = scene.client.with_key(OPERATOR_KEY).get("/api/v1/nodes").await;
    assert!(listed.text().contains(POOL), "{}", listed.text());

    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;
    assert_eq!(streamed.whole(), "from the pool");
    let row = scene.row(streamed.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("ok"), &json!(178_000)),
        "{row}"
    );

    let mut body = chat("m");
    body["messages"][0]["content"] = Value::from("x".repeat((32 << 20) - 4096));
    let before = scene.o1.calls();
    // Thirty-two mebibytes are read several times on a machine that may be busy.
    let large = scene.client.patience(LARGE_MAX).post_chat(&body).await;
    assert_eq!(
        (large.status, large.content().as_str()),
        (200, "from the pool"),
        "{}",
        large.text()
    );
    let sent = scene.o1.call(before).request.json();
    assert!(
        sent["messages"] == body["messages"],
        "the body arrives as it was sent"
    );

    dies_before_the_first_content(&mut scene).await;
    scene.cluster().node("worker").restart().await;
    dies_amid_an_answer(&mut scene).await;
    scene.finish().await;
}

/// Why somebody was left out of a call, as an operator is told.
async fn reasons(scene: &Scene, id: &str) -> Vec<String> {
    scene.row(id).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let shown = operator.get(&format!("/api/v1/logs/{id}")).await.json();
    let excluded = shown["explain"]["excluded"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let reasons = excluded
        .iter()
        .map(|one| one["reason"].as_str().unwrap_or_default());
    reasons.map(str::to_owned).collect()
}

async fn dies_before_the_first_content(scene: &mut Scene) {
    let calls = scene.o1.calls();
    scene.o1.script([Behaviour::hang()]);
    let client = scene.client.clone();
    let mut call = JoinSet::new();
    call.spawn(async move { client.stream_chat(&chat_streamed("m")).await.collect().await });
    scene.o1.wait_calls(calls + 1).await;

    scene.cluster().node("worker").kill().await;

    let transcript = call.join_all().await.remove(0);
    assert_eq!(transcript.whole(), "from elsewhere");
    let row = scene.row(transcript.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("ok"), &json!(178_000)),
        "{row}"
    );
}

async fn dies_amid_an_answer(scene: &mut Scene) {
    scene
        .o1
        .default(Behaviour::chat("").chunks(1_000, Duration::from_millis(20)));
    let began = Instant::now();
    let mut stream = loop {
        let calls = scene.o1.calls();
        let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
        stream.read_content(1).await;
        if scene.o1.calls() > calls {
            break stream;
        }
        drop(stream.collect().await);
        assert!(began.elapsed() < THERE_MAX, "the worker does not come back");
    };
    stream.read_content(3).await;

    scene.cluster().node("worker").kill().await;

    let transcript = stream.collect().await;
    assert!(
        matches!(transcript.end, End::ErrorEvent(_) | End::Broken(_)),
        "{:?}",
        transcript.end
    );
    assert!(!String::from_utf8_lossy(&transcript.raw).contains("[DONE]"));
    let row = scene.row(transcript.request_id()).await;
    assert_eq!(row["outcome"], "upstream_cut", "{row}");
}

/// What gateways seal to for whoever has this master key, as a command tells it.
async fn public_key(master: &str) -> String {
    let builder = Node::builder().env("WAYBILL_MASTER_KEY", master);
    let (code, output) = builder.run(&["keys", "public"]).await;
    assert_eq!(code, Some(0), "{output}");
    output.trim().to_owned()
}

async fn call(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = client.call(method, path, body.into()).await.expect("an answer");
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// Calls model `own` until it is answered with `status`.
async fn until(scene: &Scene, status: u16) -> Answer {
    let began = Instant::now();
    loop {
        let answer = scene.client.with_key(OPERATOR_KEY).post_chat(&chat("own")).await;
        if answer.status == status {
            return answer;
        }
        assert!(began.elapsed() < THERE_MAX, "{}", answer.text());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_credential_for_a_pool_is_opened_by_its_routers_and_by_no_other() {
    let (public, allowed) = (public_key(POOL_MASTER).await, json!({"allow": ["127.0.0.0/8"]}));
    let mut pools = json!({});
    pools[POOL] = json!({"public_key": public});
    let change = |node: NodeBuilder| {
        let node = node.setting("egress", allowed.clone()).setting("pools", pools);
        node.env_of(("router", true), "WAYBILL_MASTER_KEY", MASTER)
    };
    let mut scene = scene(([127, 0, 0, 1], 0).into(), change).await;
    scene.price("own", None);
    let inside = worker(&mut scene, Ipv4Addr::LOCALHOST.into()).setting("egress", allowed);
    start(&mut scene, inside).await;
    let (operator, own) = (scene.client.with_key(OPERATOR_KEY), Upstream::start());
    let described = json!({
        "name": "own", "backends": [{"url": own.url()}], "pool": POOL, "credential": {"value": PROVIDER_KEY},
    });

    let made = call(&operator, "POST", "/api/v1/endpoints", described).await;
    until(&scene, 200).await;
    let id = made["id"].as_str().expect("an id").to_owned();
    let tested = call(
        &operator,
        "POST",
        &format!("/api/v1/endpoints/{id}/test"),
        Value::Null,
    )
    .await;

    assert_eq!(tested["ok"], true, "{tested}");
    for seen in own.recorded() {
        assert_eq!(
            seen.request.header("authorization"),
            Some(format!("Bearer {PROVIDER_KEY}").as_str())
        );
    }
    let calls = own.calls();

    // Led past the pool it is another pool's, whose routers cannot open it.
    let route = format!("/api/v1/model-routes/{}", id.replacen("ep-", "rt-", 1));
    call(&operator, "PATCH", &route, json!({"pool": "default"})).await;
    let refused = until(&scene, 502).await;

    assert_eq!(refused.error_code(), "upstream_rejected_credential");
    assert_eq!(own.calls(), calls, "nothing is sent");
    scene.finish().await;
}
