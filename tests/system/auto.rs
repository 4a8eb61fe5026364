//! `model: auto`: who may leave the choice, who is chosen, what follows when a model fails, and what the books say.

use std::time::Duration;

use harness::{Answer, Client, Model, NodeBuilder, OPERATOR_KEY, Scene, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::control::{call, done};
use crate::retries::tireless;

mod choice;
mod failing;
mod limits;
mod ready;
mod sessions;
mod spread;

/// How long is waited for a change to count.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two models: `cheap` on the first upstream at 1 and 2 dollars a million tokens, `dear` on the second at 10 and 20.
fn models(o1: &Upstream, o2: &Upstream) -> [Model; 2] {
    let priced = |name: &str, input: &str, output: &str| {
        Model::new(name).set("pricing", json!({"prompt": input, "completion": output}))
    };
    [
        priced("dear", "10", "20").leg(o2, 0),
        priced("cheap", "1", "2").leg(o1, 0),
    ]
}

/// The scene of both models, with more of them and something different about the node. No circuit opens in it.
async fn scene_with(
    more: impl FnOnce(&Upstream, &Upstream) -> Vec<Model>,
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let mut all = models(&o1, &o2).to_vec();
    all.extend(more(&o1, &o2));
    let mut scene = Scene::start_on(o1, o2, |node| change(tireless(node).models(&all))).await;
    scene.pin();
    scene
}

async fn scene() -> Scene {
    scene_with(|_, _| Vec::new(), |node| node).await
}

/// A client with the operator's key.
fn operator(scene: &Scene) -> Client {
    scene.client.with_key(OPERATOR_KEY)
}

/// Says what holds for all, and waits until it does: `client` is asked for a list that has the entry or has it not.
async fn set(scene: &Scene, enabled: bool, strategy: &str) {
    let body = json!({"auto_routing_enabled": enabled, "auto_routing_strategy": strategy});
    done(&operator(scene), "PUT", "/api/v1/system/inference-config", body).await;
}

/// Says how a model is to be chosen.
async fn say(scene: &Scene, model: &str, policy: Value) {
    let path = format!("/api/v1/models/routing-policies?name={model}");
    done(&operator(scene), "PUT", &path, policy).await;
}

/// A key of its own for tenant `acme`; its id and itself.
async fn minted(scene: &Scene, more: Value) -> (String, Client) {
    let mut body = json!({"name": "auto", "tenant": "acme"});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let made = done(&operator(scene), "POST", "/api/v1/tenant/api-keys", body).await;
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    (text("id"), scene.client.with_key(&text("key")))
}

/// Calls `auto` until the answer is as wanted.
async fn until(client: &Client, wanted: impl Fn(&Answer) -> bool) -> (Answer, Duration) {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(&chat("auto")).await;
        if wanted(&answer) {
            return (answer, start.elapsed());
        }
        assert!(
            start.elapsed() < PATIENCE,
            "still {}: {}",
            answer.status,
            answer.text()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

/// The model that an answer says it is from.
fn routed(answer: &Answer) -> &str {
    answer.header("x-routed-model")
}

/// How the model of a request was chosen, as its event tells.
async fn choice_of(scene: &Scene, answer: &Answer) -> Value {
    scene.row(answer.request_id()).await;
    let path = format!("/api/v1/logs/{}", answer.request_id());
    let detail = call(&operator(scene), "GET", &path, Value::Null).await;
    detail.json()["event"]["data"]["auto"].clone()
}

/// A member of each object of a list.
fn each(list: &Value, field: &str) -> Vec<Value> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|entry| entry[field].clone()).collect()
}
