//! The catalogue changed through the management API: who may change what, what becomes of it on every node, and what is
//! kept of who did it.

use std::time::Duration;

use bytes::Bytes;
use harness::{Answer, Client, OPERATOR_KEY, Scene, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

mod audit;
mod command;
mod config;
mod cut;
mod egress;
mod endpoints;
mod history;
mod nowhere;
mod prices;
mod schemathesis;
pub(crate) mod secrets;
mod sign_in;
mod spread;
mod tenants;
mod trial;
mod two_nodes;
mod users;

/// How long a change of the catalogue may take to count on every node.
const SPREAD_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long is waited for what takes as long as it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A scene whose calls go to one node, which knows at once what it has changed itself.
async fn one_node() -> Scene {
    let mut scene = Scene::start().await;
    scene.pin();
    scene
}

/// A management call with a body.
pub(crate) async fn call(client: &Client, method: &str, path: &str, body: Value) -> Answer {
    let bytes = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    client.call(method, path, bytes).await.expect("an answer")
}

/// The same, which is to succeed; its JSON.
pub(crate) async fn done(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let answer = call(client, method, path, body).await;
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    answer.json()
}

/// A client with the operator's key.
fn operator(scene: &Scene) -> Client {
    scene.client.with_key(OPERATOR_KEY)
}

/// Mints a key as the operator and gives it.
async fn minted(client: &Client, body: Value) -> String {
    let made = done(client, "POST", "/api/v1/tenant/api-keys", body).await;
    made["key"].as_str().expect("a key").to_owned()
}

/// Asserts that a call is refused with this status, and names this parameter.
async fn refused(client: &Client, (method, path): (&str, &str), body: Value, told: (u16, &str, &str)) {
    let answer = call(client, method, path, body.clone()).await;
    let error = answer.json()["error"].clone();
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (answer.status, &*text("code"), &*text("param")),
        told,
        "{method} {path} {body}: {}",
        answer.text()
    );
}

/// Calls a model until the status is this one; gives how long that took.
async fn until(client: &Client, status: u16) -> Duration {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(&chat("m")).await;
        if answer.status == status {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < PATIENCE,
            "still {}: {}",
            answer.status,
            answer.text()
        );
        sleep(LOOK_EVERY).await;
    }
}

/// Reads a path until its JSON is as wanted; gives it.
async fn until_shown(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let answer = client.get(path).await;
        if answer.status == 200 && wanted(&answer.json()) {
            return answer.json();
        }
        assert!(start.elapsed() < PATIENCE, "{path}: {}", answer.text());
        sleep(LOOK_EVERY).await;
    }
}

/// The changes that the books tell of, once there are so many.
async fn audited(scene: &Scene, count: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let log = scene.node.books().table("event_log").await;
        let of_kind = log
            .iter()
            .filter(|row| row["type"].as_deref() == Some("waybill.audit.v1"));
        let mut events: Vec<Value> = of_kind
            .map(|row| {
                let envelope = row["envelope"].as_deref().expect("an envelope");
                let envelope: Value = serde_json::from_str(envelope).expect("JSON");
                assert_eq!(envelope["subject"], envelope["data"]["tenant"]);
                envelope["data"].clone()
            })
            .collect();
        if events.len() >= count {
            events.sort_by_key(|event| event["change"]["at"].as_str().map(str::to_owned));
            return events;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {count} changes are told of",
            events.len()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// A tenant with nothing said of it, made by the operator.
async fn tenant(scene: &Scene, id: &str) -> Value {
    done(&operator(scene), "POST", "/api/v1/tenants", json!({"id": id})).await
}
