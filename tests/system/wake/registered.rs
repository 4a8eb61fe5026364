//! Waking what was registered at run time: within what the node's configuration lets it reach, without a command, and
//! without a secret that everybody sees.

use std::time::Duration;

use harness::{Answer, Client, NodeBuilder, OPERATOR_KEY, PROVIDER_KEY, Scene, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::PATIENCE;
use super::engine::{Boss, closed_addr};
use crate::control::call;

/// The master key of these tests.
const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";

async fn scene(allow: Value) -> (Scene, Client) {
    let bend = |node: NodeBuilder| {
        let node = node.setting("egress", json!({"allow": allow}));
        node.env("WAYBILL_MASTER_KEY", MASTER)
    };
    let mut scene = Scene::start_on(Upstream::start(), Upstream::start(), bend).await;
    scene.foreign_calls();
    scene.pin();
    let operator = scene.client.with_key(OPERATOR_KEY);
    (scene, operator)
}

/// An endpoint of `acme` whose model is `z`.
fn described(addr: std::net::SocketAddr, wake: &Value) -> Value {
    json!({
        "name": "z", "tenant": "acme", "backends": [{"url": format!("http://{addr}/v1")}], "wake": wake,
        "credential": {"value": PROVIDER_KEY},
        "health_check": {"path": "/health", "start_period_seconds": 1},
    })
}

/// Registers one where nobody listens.
async fn register(operator: &Client, wake: &Value) -> Answer {
    call(
        operator,
        "POST",
        "/api/v1/endpoints",
        described(closed_addr(), wake),
    )
    .await
}

/// The answer to a call of `z`, once the node knows it.
async fn asked(scene: &Scene) -> Answer {
    let start = Instant::now();
    loop {
        let answer = scene.client.post_chat(&chat("z")).await;
        if answer.status != 404 {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{}", answer.text());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_service_that_is_not_up_in_time_is_told_to_be_waking_and_its_own_hosts_alone_get_the_credential() {
    let (mut scene, operator) = scene(json!(["127.0.0.0/8"])).await;
    scene.price("z", None);
    // It answers, and nothing comes of it.
    let boss = Boss::answering(200, "{}");
    let wake = json!({"kind": "http", "url": boss.url("/wake")});
    let made = register(&operator, &wake).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(made["wake"]["url"], wake["url"]);

    let start = Instant::now();
    let answer = asked(&scene).await;

    assert_eq!(
        (
            answer.status,
            answer.error_code().as_str(),
            answer.header("retry-after")
        ),
        (503, "service_waking", "30"),
        "{}",
        answer.text()
    );
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "{:?}",
        start.elapsed()
    );
    let seen = boss.asked();
    assert_eq!((seen.len(), seen[0].header("authorization")), (1, ""));

    // On a host of its backends whoever wakes it may be told who asks.
    let path = format!("/api/v1/endpoints/{}", made["id"].as_str().expect("an id"));
    let elsewhere = json!({"wake": {"kind": "http", "url": boss.url("/wake"), "credential": true}});
    let refused = call(&operator, "PATCH", &path, elsewhere).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["param"]),
        (400, &json!("wake.credential")),
        "{}",
        refused.text()
    );
    scene.finish().await;
}

#[tokio::test]
async fn neither_commands_nor_secrets_nor_closed_addresses_are_for_those_who_register_endpoints() {
    let (mut scene, operator) = scene(json!(["127.0.0.1/32"])).await;
    scene.price("z", None);
    for (wake, param) in [
        (json!({"kind": "exec", "command": ["/bin/true"]}), "wake.kind"),
        (json!({"kind": "exec"}), "wake.kind"),
        (json!({"kind": "knock"}), "wake"),
        (json!({"kind": "vllm_sleep", "level": 1}), "wake"),
        (
            json!({"kind": "http", "url": "http://h/wake", "headers": {"authorization": "Bearer x"}}),
            "wake.headers.authorization",
        ),
        (json!({"kind": "http", "url": "http://u:p@h/wake"}), "wake.url"),
    ] {
        let told = register(&operator, &wake).await;
        assert_eq!(
            (told.status, &told.json()["error"]["param"]),
            (400, &json!(param)),
            "{wake}: {}",
            told.text()
        );
    }
    let boss = Boss::apart();
    let wake = json!({"kind": "http", "url": boss.url("/wake")});
    let made = register(&operator, &wake).await;
    assert_eq!(made.status, 201, "{}", made.text());

    let answer = asked(&scene).await;

    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (503, "wake_failed_node_offline"),
        "{}",
        answer.text()
    );
    assert_eq!(boss.asked().len(), 0);
    scene.finish().await;
}
