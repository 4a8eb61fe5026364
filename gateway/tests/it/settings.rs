//! What operators set at run time: settings, providers that are off, and policies, each with its history.

use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, OPERATOR, Scene, request};

async fn call(scene: &Scene, line: &str, key: &str, body: Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    scene.call(line, key, &body).await
}

async fn done(scene: &Scene, line: &str, body: Value) -> Value {
    let answer = call(scene, line, OPERATOR, body).await;
    assert!(answer.status < 300, "{line}: {answer:?}");
    answer.json()
}

#[tokio::test]
async fn a_setting_counts_at_once_and_goes_again() {
    let scene = Scene::new().await;
    let line = "/admin/settings/public_routing";
    assert_eq!(call(&scene, "GET /routing", "", Value::Null).await.status, 401);

    let set = done(&scene, &format!("PUT {line}"), json!({"value": true})).await;
    assert_eq!((&set["value"], &set["origin"]), (&json!(true), &json!("runtime")));
    assert_eq!(call(&scene, "GET /routing", "", Value::Null).await.status, 200);
    let dropped = done(&scene, &format!("DELETE {line}"), Value::Null).await;
    assert_eq!(
        (&dropped["value"], &dropped["origin"]),
        (&json!(false), &json!("file"))
    );
    assert_eq!(call(&scene, "GET /routing", "", Value::Null).await.status, 401);
    let history = done(&scene, &format!("GET {line}/history"), Value::Null).await;
    assert_eq!(history["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn settings_are_a_closed_list_and_take_values_of_their_type() {
    let scene = Scene::new().await;

    let listed = done(&scene, "GET /admin/settings", Value::Null).await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(12));
    let wrong = call(
        &scene,
        "PUT /admin/settings/signup_enabled",
        OPERATOR,
        json!({"value": "yes"}),
    )
    .await;
    assert_eq!(
        (wrong.status, &wrong.json()["error"]["param"]),
        (400, &json!("value"))
    );
    let unknown = call(
        &scene,
        "PUT /admin/settings/jwt_secret_key",
        OPERATOR,
        json!({"value": 1}),
    )
    .await;
    assert_eq!(unknown.status, 404);
    let set = done(
        &scene,
        "PUT /admin/settings/user_daily_quota_free",
        json!({"value": "2.5"}),
    )
    .await;
    assert_eq!(set["value"], json!("2.500000000"));
    let revision = set["revision"].as_u64().expect("a revision");
    let stale = format!("if-match: \"{}\"\r\nconnection: close\r\n", revision + 1_000);
    let raced = request(
        "PUT /admin/settings/user_daily_quota_free",
        OPERATOR,
        &stale,
        r#"{"value":"1"}"#,
    );
    assert_eq!(scene.raw(&raced).await.status, 409);
}

#[tokio::test]
async fn policies_are_read_back_as_they_were_set() {
    let scene = Scene::new().await;
    let config = "/api/v1/system/inference-config";
    let fresh = done(&scene, &format!("GET {config}"), Value::Null).await;
    assert_eq!(fresh["auto_routing_enabled"], json!(false));
    let wanted = json!({"auto_routing_enabled": true, "auto_routing_strategy": "cost", "gpu_temperature_threshold": 85});
    done(&scene, &format!("PUT {config}"), wanted.clone()).await;
    assert_eq!(done(&scene, &format!("GET {config}"), Value::Null).await, wanted);

    let policy = "/api/v1/models/routing-policies";
    let body = json!({"quality_weight": 0.25, "purpose": "chat", "routing_enabled": false});
    let set = done(&scene, &format!("PUT {policy}?name=org/staff"), body).await;
    assert_eq!(
        (
            &set["name"],
            &set["quality_weight"],
            &set["cost_weight"],
            &set["purpose"]
        ),
        (&json!("org/staff"), &json!(0.25), &json!(1.0), &json!("chat"))
    );
    let listed = done(&scene, &format!("GET {policy}"), Value::Null).await;
    assert_eq!(listed["data"], json!([set]));
    let heavy = call(
        &scene,
        &format!("PUT {policy}?name=m"),
        OPERATOR,
        json!({"cost_weight": 1.5}),
    )
    .await;
    assert_eq!(
        (heavy.status, &heavy.json()["error"]["param"]),
        (400, &json!("cost_weight"))
    );
    assert_eq!(
        call(&scene, &format!("PUT {policy}?name=none"), OPERATOR, json!({}))
            .await
            .status,
        404
    );

    let minted = call(
        &scene,
        "POST /api/v1/tenant/api-keys",
        ADMIN,
        json!({"name": "k"}),
    )
    .await
    .json();
    let of_key = format!(
        "/api/v1/tenant/api-keys/{}/routing-policy",
        minted["id"].as_str().expect("an id")
    );
    let said = json!({"auto_routing_enabled": true, "strategy": "latency"});
    let put = call(&scene, &format!("PUT {of_key}"), ADMIN, said.clone()).await;
    assert_eq!((put.status, put.json()), (200, said.clone()));
    assert_eq!(
        call(&scene, &format!("GET {of_key}"), ADMIN, Value::Null)
            .await
            .json(),
        said
    );
}

#[tokio::test]
async fn what_is_not_said_of_the_inference_stays_and_null_is_as_where_nothing_is_said() {
    let scene = Scene::new().await;
    let config = "/api/v1/system/inference-config";
    let whole = json!({"auto_routing_enabled": true, "auto_routing_strategy": "cost", "gpu_temperature_threshold": 85});
    let put = format!("PUT {config}");
    done(&scene, &put, whole.clone()).await;
    for (change, field, after) in [
        (json!({}), "auto_routing_enabled", json!(true)),
        (
            json!({"auto_routing_enabled": false}),
            "auto_routing_enabled",
            json!(false),
        ),
        (
            json!({"auto_routing_strategy": "quality"}),
            "auto_routing_strategy",
            json!("quality"),
        ),
        (
            json!({"gpu_temperature_threshold": 70}),
            "gpu_temperature_threshold",
            json!(70),
        ),
        (
            json!({"gpu_temperature_threshold": null}),
            "gpu_temperature_threshold",
            Value::Null,
        ),
    ] {
        let mut expected = done(&scene, &format!("GET {config}"), Value::Null).await;
        expected[field] = after;
        assert_eq!(done(&scene, &put, change.clone()).await, expected, "{change}");
        assert_eq!(
            done(&scene, &format!("GET {config}"), Value::Null).await,
            expected
        );
    }
    for field in ["auto_routing_enabled", "auto_routing_strategy"] {
        let refused = call(&scene, &put, OPERATOR, json!({field: null})).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!(field))
        );
    }
}

#[tokio::test]
async fn what_a_models_policy_does_not_name_it_keeps() {
    let scene = Scene::new().await;
    let policy = "PUT /api/v1/models/routing-policies?name=m";
    let said =
        json!({"quality_weight": 0.25, "cost_weight": 0.5, "purpose": "chat", "routing_enabled": false});
    done(&scene, policy, said).await;
    let mut expected = done(&scene, policy, json!({"latency_weight": 0.75})).await;
    let told = |field: &str| expected[field].clone();
    assert_eq!(
        [
            "quality_weight",
            "latency_weight",
            "cost_weight",
            "routing_enabled",
            "purpose"
        ]
        .map(told),
        [json!(0.25), json!(0.75), json!(0.5), json!(false), json!("chat")]
    );
    for (field, fresh) in [
        ("quality_weight", json!(1.0)),
        ("latency_weight", json!(1.0)),
        ("cost_weight", json!(1.0)),
        ("routing_enabled", json!(true)),
        ("purpose", Value::Null),
    ] {
        let mut after = done(&scene, policy, json!({field: null})).await;
        expected[field] = fresh;
        after["revision"] = expected["revision"].clone();
        assert_eq!(after, expected, "{field}");
    }
}

#[tokio::test]
async fn what_a_keys_policy_does_not_name_it_keeps() {
    let scene = Scene::new().await;
    let minted = call(
        &scene,
        "POST /api/v1/tenant/api-keys",
        ADMIN,
        json!({"name": "k"}),
    )
    .await;
    let id = minted.json()["id"].as_str().expect("an id").to_owned();
    let of_key = format!("PUT /api/v1/tenant/api-keys/{id}/routing-policy");
    for (change, after) in [
        (
            json!({"auto_routing_enabled": true, "strategy": "latency"}),
            json!({"auto_routing_enabled": true, "strategy": "latency"}),
        ),
        (
            json!({"auto_routing_enabled": false}),
            json!({"auto_routing_enabled": false, "strategy": "latency"}),
        ),
        (
            json!({"strategy": null}),
            json!({"auto_routing_enabled": false, "strategy": null}),
        ),
        (
            json!({"strategy": "cost", "auto_routing_enabled": null}),
            json!({"auto_routing_enabled": null, "strategy": "cost"}),
        ),
    ] {
        let put = call(&scene, &of_key, ADMIN, change.clone()).await;
        assert_eq!((put.status, put.json()), (200, after), "{change}");
    }
}

#[tokio::test]
async fn a_provider_is_switched_off_and_on_by_operators() {
    let scene = Scene::new().await;
    let endpoint =
        json!({"name": "e", "kind": "openai_compat", "backends": [{"url": "https://upstream.example"}]});
    let made = done(&scene, "POST /api/v1/endpoints", endpoint).await;
    let listed = done(&scene, "GET /admin/providers", Value::Null).await;
    let label = listed["data"][0]["provider"]
        .as_str()
        .expect("a label")
        .to_owned();
    assert_eq!(listed["data"][0]["endpoints"], json!([made["id"]]));

    let off = done(
        &scene,
        &format!("PATCH /admin/providers/{label}/disabled"),
        json!({"disabled": true}),
    )
    .await;
    assert_eq!(off["disabled"], json!(true));
    let routing = done(&scene, "GET /admin/routing", Value::Null).await;
    assert_eq!(
        routing["routes"]["e"][0]["exclusion_reasons"],
        json!(["provider_disabled"])
    );
    done(
        &scene,
        &format!("PATCH /admin/providers/{label}"),
        json!({"disabled": false}),
    )
    .await;
    let routing = done(&scene, "GET /admin/routing", Value::Null).await;
    assert_eq!(routing["routes"]["e"][0]["exclusion_reasons"], json!([]));
    let none = call(
        &scene,
        "PATCH /admin/providers/nobody",
        OPERATOR,
        json!({"disabled": true}),
    )
    .await;
    assert_eq!(none.status, 404);
}
