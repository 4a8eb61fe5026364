//! Two real engines behind one model: their figures are shown, and steer calls.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Client, Model, Node, OPERATOR_KEY, PROVIDER_KEY, refusing_addr};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::body;
use super::server::{Engine, MODEL, PATIENCE};

/// Calls at once.
const AT_ONCE: usize = 12;
/// How long figures may take to be read and shown.
const SHOWN_MAX: Duration = Duration::from_secs(30);
/// Callers who keep an engine busy that works on two calls at once.
const BUSY: usize = 5;

/// The model `own`, on both engines.
fn model(engines: [SocketAddr; 2]) -> Model {
    let urls = engines.map(|addr| format!("http://{addr}/v1"));
    Model::new("own")
        .leg_at("", 0)
        .set_leg("base_url", Value::Null)
        .set_leg("backends", urls.to_vec())
        .set_leg("algorithm", "engine_aware")
        .set_leg("provider_model_id", MODEL)
}

/// What the engines say of themselves, as `/health/deep` shows it; by the names of backends.
async fn shown(operator: &Client) -> Vec<(String, Value)> {
    let deep = operator.get("/health/deep").await.json();
    let endpoints = deep["endpoints"].as_object().cloned().unwrap_or_default();
    let backends = endpoints
        .values()
        .filter_map(|one| one["backends"].as_object().cloned());
    let all = backends.flatten();
    all.map(|(backend, health)| (backend, health["engine"].clone()))
        .collect()
}

/// Waits until what is shown is as it should be.
async fn until(
    operator: &Client,
    what: &str,
    is: impl Fn(&[(String, Value)]) -> bool,
) -> Vec<(String, Value)> {
    let began = Instant::now();
    loop {
        let all = shown(operator).await;
        if is(&all) {
            return all;
        }
        assert!(began.elapsed() < SHOWN_MAX, "not {what}: {all:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn is_idle(engine: &Value) -> bool {
    engine["kind"] == "llama_cpp" && engine["waiting"] == 0 && engine["running"] == 0
}

/// The backends that served so many calls at once.
async fn served(node: &Node, client: &Client, calls: usize) -> Vec<String> {
    let mut body = body(&json!({"max_tokens": 16}));
    body["model"] = json!("own");
    let answers = join_all((0..calls).map(|_| client.post_chat(&body))).await;
    let mut served = Vec::new();
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let row = node.wait_row(answer.request_id()).await;
        served.push(row["backend"].as_str().expect("a backend").to_owned());
    }
    served
}

/// Keeps an engine so busy that calls wait in its queue.
fn occupy(engine: &Engine) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..BUSY {
        let client = engine.client().with_key(PROVIDER_KEY);
        callers.spawn(async move {
            let body = body(&json!({"max_tokens": 96, "ignore_eos": true}));
            loop {
                assert_eq!(client.post_chat(&body).await.status, 200);
            }
        });
    }
    callers
}

/// Two engines, with more arguments.
async fn engines_steer(more: &[&str]) {
    let (one, two) = (refusing_addr(), refusing_addr());
    let (busy, other) = (Engine::start(one, more).await, Engine::start(two, more).await);
    let node = Node::builder().models(&[model([one, two])]);
    let mut node = node.setting("health", json!({"engines": true})).start().await;
    let (operator, caller) = (
        node.client(OPERATOR_KEY),
        node.client(harness::CALLER_KEY).patience(PATIENCE),
    );

    let idle = |all: &[(String, Value)]| all.len() == 2 && all.iter().all(|(_, engine)| is_idle(engine));
    until(&operator, "idle", idle).await;
    let spread = served(&node, &caller, AT_ONCE).await;
    let on_first = spread.iter().filter(|backend| **backend == spread[0]).count();
    assert!((5..=7).contains(&on_first), "{spread:?}");

    let callers = occupy(&busy);
    let waits = |engine: &Value| engine["waiting"].as_u64() > Some(0);
    let all = until(&operator, "busy", |all| {
        all.iter().filter(|(_, engine)| waits(engine)).count() == 1
            && all.iter().filter(|(_, engine)| is_idle(engine)).count() == 1
    })
    .await;
    let calm = all
        .iter()
        .find(|(_, engine)| is_idle(engine))
        .map(|(backend, _)| backend);
    let went = served(&node, &caller, 3).await;
    assert!(
        went.iter().all(|backend| Some(backend) == calm),
        "{went:?}, not {calm:?}"
    );
    drop(callers);

    node.foreign_calls();
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
    busy.stop().await;
    other.stop().await;
}

#[tokio::test]
#[ignore = "needs llama-server: make test-engines"]
async fn two_engines_tell_their_figures_and_calls_go_where_least_waits() {
    engines_steer(&[]).await;
}

#[tokio::test]
#[ignore = "needs llama-server: make test-engines"]
async fn engines_that_want_a_key_tell_their_figures_to_a_router_and_steer_calls_as_well() {
    engines_steer(&["--api-key", PROVIDER_KEY]).await;
}
