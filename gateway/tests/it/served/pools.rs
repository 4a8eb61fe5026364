//! Endpoints behind pools: their routes, and for whom their credentials are sealed.

use schemas::id::PoolName;
use schemas::seal::PrivateKey;
use schemas::secret::Secret;
use serde_json::{Value, json};

use super::{done, text, upstream};
use crate::scene::{OPERATOR, Scene};

#[tokio::test]
async fn an_endpoint_behind_a_pool_has_its_route_there_and_its_credential_for_that_pool_alone() {
    let scene = Scene::with(|config| {
        let held = PrivateKey::of_master(&Secret::new([8; 32]));
        config
            .pool_keys
            .insert(PoolName::from("gpu"), held.public().clone());
    })
    .await;
    let line = "POST /api/v1/endpoints";
    let described = |name: &str, pool: Value| {
        let mut body = upstream(name);
        (body["pool"], body["credential"]) = (pool, json!({"value": "sk-upstream-1"}));
        body
    };

    for (pool, named) in [
        (Value::Null, "WAYBILL_PUBLIC_KEY"),
        (json!("default"), "WAYBILL_PUBLIC_KEY"),
        (json!("other"), "pools.other.public_key"),
    ] {
        let answer = scene
            .call(line, OPERATOR, &described("own", pool).to_string())
            .await;
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!("credential.value"))
        );
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains(named)),
            "{error}"
        );
    }
    let made = done(&scene, line, OPERATOR, described("own", json!("gpu"))).await;

    assert_eq!(made["credential"], json!({"kind": "value", "set": true}));
    let listed = done(&scene, "GET /api/v1/model-routes", OPERATOR, Value::Null).await;
    let pools = listed["data"].as_array().into_iter().flatten();
    let of_own = pools.filter(|route| route["endpoint"] == made["id"]);
    assert_eq!(
        of_own.map(|route| &route["pool"]).collect::<Vec<_>>(),
        [&json!("gpu")]
    );
    let patch = format!("PATCH /api/v1/endpoints/{}", text(&made, "id"));
    let given = done(
        &scene,
        &patch,
        OPERATOR,
        json!({"credential": {"value": "sk-upstream-2"}}),
    )
    .await;
    assert_eq!(given["credential"]["set"], true);
}
