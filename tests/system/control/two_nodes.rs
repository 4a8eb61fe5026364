//! Everything that is set at run time, on one node and then on the other, while the database is away: it counts on both
//! within two seconds. One cluster for all of it, wherever these tests run.

use harness::{CALLER_KEY, Client, OPERATOR_KEY, Plan, Scene, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{LOOK_EVERY, PATIENCE, SPREAD_MAX, call, done, minted, until, until_shown};

/// The credential of whoever hands out grants.
const DISPATCH: &str = "harness-canary-dispatch-7f0c2e";
const GRANTS: &str = "/internal/agent-grants";
const ANN: &str = "/api/v1/users/ann?tenant=acme";
const M: &str = "/api/v1/models/m";

/// The operator at each of two gateways.
struct World {
    a: Client,
    b: Client,
    /// The key of a member.
    ann: String,
}

impl World {
    fn both(&self) -> [&Client; 2] {
        [&self.a, &self.b]
    }

    /// Whoever has a key is answered so on both nodes, soon enough.
    async fn count(&self, key: &str, status: u16, what: &str) {
        for node in self.both() {
            let took = until(&node.with_key(key), status).await;
            assert!(took < SPREAD_MAX, "{what}: {status} after {took:?}");
        }
    }

    /// A path shows this on both nodes, soon enough.
    async fn show(&self, path: &str, wanted: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        for node in self.both() {
            until_shown(node, path, &wanted).await;
        }
        assert!(start.elapsed() < SPREAD_MAX, "{path}: {:?}", start.elapsed());
    }
}

async fn grants(world: &World) {
    let (a, b) = (world.a.with_key(DISPATCH), world.b.with_key(DISPATCH));
    let job = json!({"user": "ann", "tenant": "acme", "external_job_id": "job-7", "minutes": 10});
    let made = done(&a, "POST", GRANTS, job).await;
    let token = made["token"].as_str().expect("a token");
    world.count(token, 200, "a grant").await;

    let path = format!("{GRANTS}/{}", made["id"].as_str().expect("an id"));
    done(&b, "DELETE", &path, Value::Null).await;
    world.count(token, 401, "a revoked grant").await;
}

/// What becomes of a key that both nodes know, whichever of them it is done on.
async fn keys(world: &World) {
    let path = |key: &Value| {
        let id = key["id"].as_str().expect("an id");
        format!("/api/v1/tenant/api-keys/{id}")
    };
    let body = json!({"name": "k", "tenant": "acme"});
    let made = done(&world.a, "POST", "/api/v1/tenant/api-keys", body).await;
    let (first, path) = (made["key"].as_str().expect("a key"), path(&made));
    world.count(first, 200, "a key").await;
    done(&world.a, "PATCH", &path, json!({"models": []})).await;
    world.count(first, 404, "a key without its model").await;
    done(&world.b, "PATCH", &path, json!({"models": ["m"]})).await;
    world.count(first, 200, "a key with its model").await;

    let rotated = done(&world.b, "POST", &format!("{path}/rotate"), Value::Null).await;
    let second = rotated["key"].as_str().expect("another secret");
    world.count(first, 401, "a secret that was replaced").await;
    world.count(second, 200, "the secret in its place").await;
    done(&world.a, "DELETE", &path, Value::Null).await;
    world.count(second, 401, "a revoked key").await;
    let history = done(&world.b, "GET", &format!("{path}/history"), Value::Null).await;
    assert_eq!(history["data"][0]["actor"]["key_name"], "operator");
    assert_eq!(history["data"][0]["fields"]["revoked"]["to"], true);
}

async fn settings(world: &World) {
    let open = |node: &Client| {
        let node = node.with_key(CALLER_KEY);
        async move { node.get("/routing").await.status }
    };
    assert_ne!(open(&world.a).await, 200);
    done(
        &world.a,
        "PUT",
        "/admin/settings/public_routing",
        json!({"value": true}),
    )
    .await;
    let start = Instant::now();
    for node in world.both() {
        while open(node).await != 200 {
            assert!(start.elapsed() < PATIENCE);
            sleep(LOOK_EVERY).await;
        }
    }
    assert!(start.elapsed() < SPREAD_MAX, "a setting: {:?}", start.elapsed());

    let listed = done(&world.a, "GET", "/admin/providers", Value::Null).await;
    let label = listed["data"][0]["provider"].as_str().expect("a provider");
    let provider = format!("/admin/providers/{label}");
    done(&world.a, "PATCH", &provider, json!({"disabled": true})).await;
    world.count(CALLER_KEY, 503, "a provider that is off").await;
    done(&world.b, "PATCH", &provider, json!({"disabled": false})).await;
    world.count(CALLER_KEY, 200, "a provider that is on").await;
}

async fn visibility(world: &World) {
    for (change, what) in [
        (json!({"tenants": ["zenith"]}), "a model of others"),
        (json!({"enabled": false}), "a model that is off"),
        (json!({"required_role": "admin"}), "a model for administrators"),
    ] {
        done(&world.a, "PATCH", M, change).await;
        world.count(CALLER_KEY, 404, what).await;
        done(&world.b, "DELETE", &format!("{M}/overlay"), Value::Null).await;
        world.count(CALLER_KEY, 200, "what the file says").await;
    }
    done(&world.b, "PATCH", ANN, json!({"disabled_models": ["m"]})).await;
    world
        .count(&world.ann, 404, "a model that is off for a member")
        .await;
    done(&world.a, "PATCH", ANN, json!({"disabled_models": []})).await;
    world.count(&world.ann, 200, "a model that is on again").await;
}

async fn policies(world: &World) {
    let path = "/api/v1/system/inference-config";
    done(
        &world.a,
        "PUT",
        path,
        json!({"auto_routing_enabled": true, "gpu_temperature_threshold": 70}),
    )
    .await;
    world
        .show(path, |shown| {
            shown["auto_routing_enabled"] == true && shown["gpu_temperature_threshold"] == 70
        })
        .await;
    let path = "/api/v1/models/routing-policies?name=m";
    let policy = json!({"quality_weight": 0.5, "routing_enabled": true});
    done(&world.b, "PUT", path, policy).await;
    world
        .show("/api/v1/models/routing-policies", |shown| {
            shown.to_string().contains("\"m\"")
        })
        .await;
}

/// A price of one node is what a call of the other costs; gives that call's id.
async fn prices(world: &World) -> String {
    let price = json!({"model": "m", "pricing": {"prompt": "1", "completion": "3"}});
    let made = done(&world.a, "POST", "/api/v1/prices", price).await;
    world
        .show("/api/v1/prices", |shown| {
            shown.to_string().contains(made["id"].as_str().expect("an id"))
        })
        .await;
    let answer = world.b.with_key(&world.ann).post_chat(&chat("m")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.request_id().to_owned()
}

async fn members_and_tenants(world: &World) {
    done(&world.b, "PATCH", M, json!({"required_role": "pro"})).await;
    world.count(CALLER_KEY, 404, "a model above a caller").await;
    world.count(&world.ann, 200, "a model for a member").await;
    done(&world.a, "PATCH", ANN, json!({"role": "free"})).await;
    world.count(&world.ann, 404, "a member who was lowered").await;
    done(&world.b, "PATCH", ANN, json!({"role": "pro"})).await;
    world.count(&world.ann, 200, "a member who was raised").await;

    done(&world.b, "PATCH", ANN, json!({"disabled": true})).await;
    world.count(&world.ann, 401, "a member who is out").await;
    done(&world.a, "PATCH", ANN, json!({"disabled": false})).await;
    world.count(&world.ann, 200, "a member who is in again").await;
    done(
        &world.a,
        "PATCH",
        "/api/v1/tenants/acme",
        json!({"disabled": true}),
    )
    .await;
    world
        .count(&world.ann, 401, "a member of a tenant that is out")
        .await;
    done(
        &world.b,
        "PATCH",
        "/api/v1/tenants/acme",
        json!({"disabled": false}),
    )
    .await;
    world
        .count(&world.ann, 200, "a member of a tenant that is in again")
        .await;
}

#[tokio::test]
async fn whatever_is_set_on_one_node_counts_on_the_other_within_two_seconds_without_a_database() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let grants_are_handed_out =
        |node: harness::NodeBuilder| node.env("GATEWAY_GRANT_DISPATCH_TOKEN", DISPATCH);
    let mut scene = Scene::start_cluster(plan, grants_are_handed_out).await;
    scene.price("m", None);
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.with_key(OPERATOR_KEY);
    let mut world = World {
        a: operator.at(a),
        b: operator.at(b),
        ann: String::new(),
    };
    scene.cluster().services.postgres_proxy.cut();
    let member = json!({"tenant": "acme", "id": "ann", "role": "pro"});
    done(&world.a, "POST", "/api/v1/users", member).await;
    let key = json!({"name": "ann", "tenant": "acme", "user": "ann", "role": "pro"});
    world.ann = minted(&world.a, key).await;
    world.count(&world.ann, 200, "a key").await;

    grants(&world).await;
    keys(&world).await;
    settings(&world).await;
    visibility(&world).await;
    policies(&world).await;
    members_and_tenants(&world).await;
    let priced = prices(&world).await;
    let refused = call(&world.b, "GET", "/api/v1/logs", Value::Null).await;
    assert_eq!(refused.status, 503, "the database was away: {}", refused.text());

    scene.cluster().services.postgres_proxy.heal();
    let row = scene.row(&priced).await;
    let number = |name: &str| row[name].as_i64().expect("a number");
    let cost = number("input_tokens") * 1_000 + number("output_tokens") * 3_000;
    assert_eq!(number("cost_nano_usd"), cost, "{row}");
    scene.finish().await;
}
