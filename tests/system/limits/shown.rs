//! Limits of keys that are minted at run time, and how they stand: in the list of keys and from the command line.

use harness::{Behaviour, OPERATOR_KEY, Scene};
use serde_json::{Value, json};

use super::under::{ANSWER_NANO_USD, ANSWER_TOKENS, ask, mint, refused, usd};

async fn listed(scene: &Scene, id: &Value) -> Value {
    let client = scene.client.with_key(OPERATOR_KEY);
    let list = client.get("/api/v1/tenant/api-keys").await.json();
    let mut keys = list["data"].as_array().expect("a list").iter();
    keys.find(|key| key["id"] == *id).expect("the key").clone()
}

#[tokio::test]
async fn a_key_is_minted_with_limits_and_its_list_says_what_is_used() {
    let mut scene = Scene::start().await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello there"));
    let limits = json!({
        "daily_calls": 5, "monthly_tokens": 100_000, "total_usd": "2.50",
        "per_model": {"m": {"daily_calls": 3}},
    });
    let made = mint(
        &scene,
        json!({"name": "ci", "tenant": "acme", "limits": limits, "output_default_max": 99}),
    )
    .await;
    assert_eq!(made["limits"]["total_usd"], "2.500000000");
    assert_eq!(made["output_default_max"], 99);
    let client = scene.client.with_key(made["key"].as_str().expect("a key"));

    for _ in 0..2 {
        assert_eq!(client.post_chat(&ask()).await.status, 200);
    }
    let key = listed(&scene, &made["id"]).await;

    let mut quotas = key["quotas"].as_array().expect("a list").clone();
    for quota in &mut quotas {
        let resets = quota.as_object_mut().expect("an object").remove("reset_at");
        assert_eq!(resets == Some(Value::Null), quota["quota"] == "total_usd");
    }
    let standing = |quota: &str, model: Value, amounts: [Value; 3]| {
        let [limit, used, remaining] = amounts;
        json!({
            "quota": quota, "model": model, "limit": limit, "used": used, "remaining": remaining, "is_current": true,
        })
    };
    let (tokens, cost) = (2 * ANSWER_TOKENS, 2 * ANSWER_NANO_USD);
    let left = 2_500_000_000 - cost;
    for expected in [
        standing("daily_calls", Value::Null, [5.into(), 2.into(), 3.into()]),
        standing("daily_calls", "m".into(), [3.into(), 2.into(), 1.into()]),
        standing(
            "monthly_tokens",
            Value::Null,
            [100_000.into(), tokens.into(), (100_000 - tokens).into()],
        ),
        standing(
            "total_usd",
            Value::Null,
            ["2.500000000".into(), usd(cost).into(), usd(left).into()],
        ),
    ] {
        assert!(quotas.contains(&expected), "{expected} in {quotas:?}");
    }
    assert_eq!(quotas.len(), 4);
    assert_eq!(client.post_chat(&ask()).await.status, 200);
    refused(&client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    scene.finish().await;
}

#[tokio::test]
async fn the_command_line_mints_keys_with_limits() {
    let mut scene = Scene::start().await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello there"));
    let mint = async |more: &[&str]| {
        let mut arguments = vec!["keys", "create", "--name", "ci", "--tenant", "acme"];
        arguments.extend_from_slice(more);
        arguments.extend_from_slice(&["--key", OPERATOR_KEY]);
        scene.node.command(&arguments).await
    };

    let (code, told) = mint(&["--limit", "daily_calls=1", "--limit", "daily_usd=1.00"]).await;
    let (wrong, problem) = mint(&["--limit", "dayly_calls=1"]).await;

    assert_eq!(code, Some(0), "{told}");
    let key = told.lines().find_map(|line| line.strip_prefix("key "));
    let client = scene.client.with_key(key.expect("a key").trim());
    assert_eq!(client.post_chat(&ask()).await.status, 200);
    refused(&client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    assert_eq!(wrong, Some(64), "{problem}");
    assert!(
        problem.contains("dayly_calls: there is no such limit"),
        "{problem}"
    );
    scene.finish().await;
}
