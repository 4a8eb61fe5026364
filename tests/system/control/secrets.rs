//! Credentials of endpoints that people hand in: they reach the upstream that they are meant for, and stand in nothing
//! that anybody reads. The checker looks for them in logs, events, tables, buckets and files at the end of each test.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use harness::{Client, Node, NodeBuilder, OPERATOR_KEY, PROVIDER_KEY, Plan, Scene, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, call, done, operator, refused};

/// The master key of clusters.
const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";

/// A node whose endpoints of run time may lie on this machine.
pub(crate) fn on_loopback(node: NodeBuilder) -> NodeBuilder {
    let node = node.setting("egress", json!({"allow": ["127.0.0.0/8"]}));
    if harness::in_cluster() {
        node.env("WAYBILL_MASTER_KEY", MASTER)
    } else {
        node
    }
}

/// A scene of such nodes, whose calls go to one of them.
pub(super) async fn scene() -> Scene {
    let mut scene = Scene::start_with(on_loopback).await;
    scene.pin();
    scene.price("own", None);
    scene
}

/// An endpoint of the operators at an address, with the credential that upstreams of the harness want, serving model
/// `own`; its path.
pub(super) async fn registered(client: &Client, url: &str) -> String {
    let described = json!({
        "name": "own", "model": "own", "backends": [{"url": url}], "credential": {"value": PROVIDER_KEY},
    });
    let made = done(client, "POST", "/api/v1/endpoints", described).await;
    // What operators add is theirs alone until they share it.
    done(client, "PATCH", "/api/v1/models/own", json!({"tenants": null})).await;
    format!("/api/v1/endpoints/{}", made["id"].as_str().expect("an id"))
}

/// Calls model `own` until it is served.
pub(super) async fn until_served(client: &Client) -> Value {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(&chat("own")).await;
        if answer.status == 200 {
            return answer.json();
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

/// What an upstream was sent as a credential, call by call.
fn credentials(upstream: &Upstream) -> Vec<Option<String>> {
    let calls = upstream.recorded().into_iter();
    calls
        .map(|call| call.request.header("authorization").map(str::to_owned))
        .collect()
}

fn bearer() -> String {
    format!("Bearer {PROVIDER_KEY}")
}

#[tokio::test]
async fn a_credential_that_was_handed_in_is_sent_to_its_endpoint_and_shown_to_nobody() {
    let mut scene = scene().await;
    let operator = operator(&scene);
    let own = Upstream::start();

    let path = registered(&operator, &own.url()).await;
    until_served(&scene.client).await;

    assert_eq!(credentials(&own), [Some(bearer())]);
    for read in [
        path.clone(),
        format!("{path}/history"),
        "/api/v1/endpoints".to_owned(),
    ] {
        let shown = operator.get(&read).await;
        assert_eq!(shown.status, 200, "{}", shown.text());
        assert!(!shown.text().contains(PROVIDER_KEY), "{read}");
    }
    if !scene.is_cluster() {
        let key = scene.node.data_dir().join("secrets/master_key");
        let mode = std::fs::metadata(key).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // It opens after a restart as well.
    scene.restart().await;
    until_served(&scene.client).await;
    assert_eq!(credentials(&own), [Some(bearer()), Some(bearer())]);
    scene.finish().await;
}

#[tokio::test]
async fn a_credential_does_not_follow_its_endpoint_to_another_address() {
    let scene = scene().await;
    let operator = operator(&scene);
    let (meant, elsewhere) = (Upstream::start(), Upstream::start());
    let path = registered(&operator, &meant.url()).await;
    until_served(&scene.client).await;

    let moved = json!({"backends": [{"url": elsewhere.url()}]});
    done(&operator, "PATCH", &path, moved).await;
    let start = Instant::now();
    while elsewhere.calls() == 0 {
        assert!(start.elapsed() < PATIENCE);
        scene.client.post_chat(&chat("own")).await;
    }

    assert_eq!(credentials(&elsewhere), [None]);
    let given = json!({"credential": {"value": PROVIDER_KEY}});
    done(&operator, "PATCH", &path, given).await;
    while credentials(&elsewhere).last() != Some(&Some(bearer())) {
        assert!(start.elapsed() < PATIENCE * 2);
        scene.client.post_chat(&chat("own")).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_can_be_no_credential_is_refused_and_not_quoted() {
    let scene = scene().await;
    let operator = operator(&scene);

    for value in ["", " ", "two\nlines", &"x".repeat(40_000)] {
        let described = json!({
            "name": "own", "backends": [{"url": "https://api.example.com"}], "credential": {"value": value},
        });
        let told = (400, "invalid_request", "credential.value");
        refused(&operator, ("POST", "/api/v1/endpoints"), described, told).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_router_elsewhere_opens_what_a_gateway_that_cannot_has_sealed() {
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    let public = public_key().await;
    let with_keys = |node: NodeBuilder| {
        let node = node.setting("egress", json!({"allow": ["127.0.0.0/8"]}));
        let node = node.env_of(("router", true), "WAYBILL_MASTER_KEY", MASTER);
        node.env_of(("router", false), "WAYBILL_PUBLIC_KEY", &public)
    };
    let mut scene = Scene::start_cluster(plan, with_keys).await;
    scene.price("own", None);
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.with_key(OPERATOR_KEY);
    let own = Upstream::start();

    let path = registered(&operator.at(a), &own.url()).await;
    until_served(&scene.client.at(b)).await;
    let tested = call(&operator.at(a), "POST", &format!("{path}/test"), Value::Null).await;

    assert_eq!(tested.json()["ok"], true, "{}", tested.text());
    assert_eq!(credentials(&own), [Some(bearer()), Some(bearer())]);
    for node in ["b", "router-1"] {
        let variables = format!("/proc/{}/environ", scene.cluster().node(node).pid());
        let variables = std::fs::read(variables).expect("what it was started with");
        let opens = String::from_utf8_lossy(&variables).contains(MASTER);
        assert_eq!(opens, node == "router-1", "{node}");
    }
    scene.finish().await;
}

/// What gateways are given that cannot open what they seal, as a command tells it.
async fn public_key() -> String {
    let builder = Node::builder().env("WAYBILL_MASTER_KEY", MASTER);
    let (code, output) = builder.run(&["keys", "public"]).await;
    assert_eq!(code, Some(0), "{output}");
    output.trim().to_owned()
}

#[tokio::test]
async fn a_cluster_without_a_key_takes_no_credential_in() {
    let without = |node: NodeBuilder| node.setting("egress", json!({"allow": ["127.0.0.0/8"]}));
    let mut scene = Scene::start_cluster(Plan::default(), without).await;
    scene.pin();
    let operator = operator(&scene);
    let described = json!({
        "name": "own", "backends": [{"url": scene.o1.url()}], "credential": {"value": PROVIDER_KEY},
    });

    let answer = call(&operator, "POST", "/api/v1/endpoints", described).await;

    let error = &answer.json()["error"];
    assert_eq!(
        (answer.status, &error["param"]),
        (400, &json!("credential.value"))
    );
    assert!(answer.text().contains("WAYBILL_PUBLIC_KEY"), "{}", answer.text());
    assert!(!answer.text().contains(PROVIDER_KEY));
    let listed = done(&operator, "GET", "/api/v1/endpoints", Value::Null).await;
    let made = listed["data"].as_array().into_iter().flatten();
    assert_eq!(made.filter(|one| one["name"] == "own").count(), 0, "{listed}");
    scene.finish().await;
}

#[tokio::test]
async fn a_crash_leaves_no_picture_of_a_nodes_memory() {
    let scene = scene().await;

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", scene.node.pid())).expect("limits");

    let line = limits.lines().find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = line.expect("a limit").split_whitespace().collect();
    assert_eq!(&words[4..6], ["0", "0"]);
    scene.finish().await;
}
