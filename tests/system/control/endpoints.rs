//! From nothing to a call by the management API alone, over two nodes: tenant, member, key with limits, endpoint with a
//! credential, route, and a price; and back. These tests are clusters wherever they run.

use std::time::Duration;

use harness::{Client, NodeBuilder, OPERATOR_KEY, PROVIDER_KEY, Plan, Scene, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, SPREAD_MAX, done, minted, until_shown};

/// The master key of these tests.
const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";
/// How long what is made on one node may take to serve on the other.
const SERVED_MAX: Duration = Duration::from_secs(1);

/// Nodes whose endpoints of run time may lie on this machine, with a key that opens their credentials.
fn prepared(node: NodeBuilder) -> NodeBuilder {
    let node = node.setting("egress", json!({"allow": ["127.0.0.0/8"]}));
    node.env("WAYBILL_MASTER_KEY", MASTER)
}

/// A cluster, and the operator at each of its gateways.
async fn two_nodes() -> (Scene, Client, Client) {
    let mut scene = Scene::start_cluster(Plan::default(), prepared).await;
    scene.foreign_calls();
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.with_key(OPERATOR_KEY);
    (scene, operator.at(a), operator.at(b))
}

fn id(made: &Value) -> String {
    made["id"].as_str().expect("an id").to_owned()
}

/// Calls a model until the status is this one; gives how long that took.
async fn until(client: &Client, model: &str, status: u16) -> Duration {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(&chat(model)).await;
        if answer.status == status {
            return start.elapsed();
        }
        let text = answer.text();
        assert!(start.elapsed() < PATIENCE, "still {}: {text}", answer.status);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Makes the first account with the code that one of the nodes shows; gives its token.
async fn set_up(scene: &mut Scene, at: &Client) -> String {
    let mut lines = scene.node.logs();
    lines.extend(scene.cluster().node("b").logs());
    let shown = lines
        .iter()
        .position(|line| line.contains("is made with this code"));
    let code = lines[shown.expect("a code is shown") + 1..]
        .iter()
        .map(|line| line.trim())
        .find(|line| line.len() == 24 && !line.contains(' '));
    let account = json!({
        "code": code.expect("the code"), "email": "root@example.com", "password": "correct horse battery staple",
    });
    let made = done(at, "POST", "/auth/setup", account).await;
    made["access_token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn a_tenant_is_served_by_the_api_alone_on_the_other_node_within_a_second_and_not_after_its_key_is_revoked()
 {
    let (mut scene, a, b) = two_nodes().await;
    scene.price("nova-model", None);
    let own = Upstream::start();
    let token = set_up(&mut scene, &a).await;
    let a = a.with_key(&token);
    // Nothing of this needs the books.
    scene.cluster().services.postgres.stop().await;

    done(
        &a,
        "POST",
        "/api/v1/tenants",
        json!({"id": "nova", "limits": {"monthly_usd": "5"}}),
    )
    .await;
    done(
        &a,
        "POST",
        "/api/v1/users",
        json!({"tenant": "nova", "id": "ann"}),
    )
    .await;
    let key =
        json!({"name": "k", "tenant": "nova", "user": "ann", "limits": {"rpm": 1000, "daily_usd": "1"}});
    let key = minted(&a, key).await;
    let endpoint = json!({
        "name": "box", "tenant": "nova", "backends": [{"url": own.url(), "node": "gpu-1"}],
        "credential": {"value": PROVIDER_KEY}, "model": "nova-box",
    });
    let endpoint = done(&a, "POST", "/api/v1/endpoints", endpoint).await;
    assert_eq!(endpoint["credential"], json!({"kind": "value", "set": true}));
    let price =
        json!({"tenant": "nova", "model": "nova-model", "pricing": {"prompt": "2", "completion": "8"}});
    done(&a, "POST", "/api/v1/prices", price).await;
    let route = json!({"model": "nova-model", "endpoint": id(&endpoint), "upstream_model": "up"});
    done(&a, "POST", "/api/v1/model-routes", route).await;

    let (of_a, of_b) = (a.with_key(&key), b.with_key(&key));
    assert!(until(&of_b, "nova-model", 200).await < SERVED_MAX);
    assert!(until(&of_a, "nova-model", 200).await < SERVED_MAX);
    let seen = own.recorded();
    let first = &seen.first().expect("a call").request;
    assert_eq!(
        (first.model().as_str(), first.header("authorization")),
        ("up", Some(&*format!("Bearer {PROVIDER_KEY}")))
    );
    // Other tenants know nothing of it.
    assert_eq!(
        scene
            .client
            .at(scene.node.addr())
            .post_chat(&chat("nova-model"))
            .await
            .status,
        404
    );

    let keys = until_shown(&a, "/api/v1/tenant/api-keys?tenant=nova", |keys| {
        keys["data"].as_array().is_some_and(|keys| !keys.is_empty())
    });
    let keys = keys.await;
    let path = format!("/api/v1/tenant/api-keys/{}", id(&keys["data"][0]));
    done(&a, "DELETE", &path, Value::Null).await;
    assert!(until(&of_b, "nova-model", 401).await < SPREAD_MAX);
    assert!(until(&of_a, "nova-model", 401).await < SPREAD_MAX);
    scene.cluster().services.postgres.restart().await;
    scene.finish().await;
}

#[tokio::test]
async fn what_is_removed_or_switched_off_on_one_node_serves_nobody_on_the_other() {
    let (mut scene, a, b) = two_nodes().await;
    scene.price("own", None);
    let own = Upstream::start();
    let key = minted(&a, json!({"name": "k", "tenant": "acme"})).await;
    let body = json!({
        "name": "own", "tenant": "acme", "backends": [{"url": own.url()}], "credential": {"value": PROVIDER_KEY},
    });
    let endpoint = id(&done(&a, "POST", "/api/v1/endpoints", body).await);
    let of_b = b.with_key(&key);
    until(&of_b, "own", 200).await;

    let path = format!("/api/v1/endpoints/{endpoint}");
    done(&a, "PATCH", &path, json!({"disabled": true})).await;
    assert!(until(&of_b, "own", 503).await < SPREAD_MAX);
    done(&b, "PATCH", &path, json!({"disabled": false})).await;
    assert!(until(&a.with_key(&key), "own", 200).await < SPREAD_MAX);
    done(&a, "DELETE", &path, Value::Null).await;
    assert!(until(&of_b, "own", 404).await < SPREAD_MAX);
    scene.finish().await;
}
