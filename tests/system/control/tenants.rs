//! Tenants on one node: made, listed, bounded, disabled; what is wrong with a call is named.

use harness::{ADMIN_KEY, Behaviour, CALLER_KEY, OPERATOR_KEY, Scene, chat};
use serde_json::{Value, json};

use super::{call, done, minted, one_node, operator, refused, tenant, until};

const PATH: &str = "/api/v1/tenants";

#[tokio::test]
async fn a_tenant_is_made_shown_and_changed_field_by_field() {
    let scene = one_node().await;
    let operator = operator(&scene);

    let body = json!({"id": "nova", "name": "Nova Ltd", "limits": {"rpm": 60, "monthly_usd": "500"}});
    let made = call(&operator, "POST", PATH, body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let tag = made.header("etag").to_owned();
    let made = made.json();
    assert_eq!(tag, format!("\"{}\"", made["revision"]));
    assert_eq!(
        (&made["id"], &made["name"], &made["disabled"], &made["origin"]),
        (
            &json!("nova"),
            &json!("Nova Ltd"),
            &json!(false),
            &json!("runtime")
        )
    );
    assert_eq!(made["limits"], json!({"rpm": 60, "monthly_usd": "500.000000000"}));
    assert!(made["created_at"].is_string(), "{made}");
    let shown = operator.get("/api/v1/tenants/nova").await;
    assert_eq!((shown.header("etag"), shown.json()), (&*tag, made.clone()));

    let renamed = done(
        &operator,
        "PATCH",
        "/api/v1/tenants/nova",
        json!({"name": "Nova"}),
    )
    .await;
    assert_eq!(
        (&renamed["name"], &renamed["limits"]),
        (&json!("Nova"), &made["limits"])
    );
    let bounded = json!({"limits": {"concurrency": 2}, "name": null});
    let bounded = done(&operator, "PATCH", "/api/v1/tenants/nova", bounded).await;
    assert_eq!(
        (&bounded["name"], &bounded["limits"]),
        (&Value::Null, &json!({"concurrency": 2}))
    );
    assert_eq!(bounded["created_at"], made["created_at"]);
    scene.finish().await;
}

#[tokio::test]
async fn tenants_are_listed_page_by_page_and_none_is_left_out_or_told_twice() {
    let scene = one_node().await;
    let operator = operator(&scene);
    for n in 0..7 {
        tenant(&scene, &format!("page-{n}")).await;
    }

    let mut told = Vec::new();
    let mut path = format!("{PATH}?limit=3");
    loop {
        let page = done(&operator, "GET", &path, Value::Null).await;
        let data = page["data"].as_array().expect("a list").clone();
        assert!(!data.is_empty() && data.len() <= 3, "{page}");
        told.extend(
            data.iter()
                .map(|tenant| tenant["id"].as_str().expect("an id").to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("{PATH}?limit=3&after={next}");
    }

    let pages = (0..7).map(|n| format!("page-{n}"));
    let mut all: Vec<String> = ["acme", "default", "zenith"]
        .map(str::to_owned)
        .into_iter()
        .chain(pages)
        .collect();
    all.sort();
    assert_eq!(told, all);
    let of_file = &done(&operator, "GET", PATH, Value::Null).await["data"][0];
    assert_eq!(
        (&of_file["id"], &of_file["origin"], &of_file["created_at"]),
        (&json!("acme"), &json!("file"), &Value::Null)
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_named_and_changes_nothing() {
    let scene = one_node().await;
    let operator = operator(&scene);
    let before = done(&operator, "GET", PATH, Value::Null).await;

    let invalid = |param| (400, "invalid_request", param);
    for (body, told) in [
        (json!({}), invalid("id")),
        (json!({"id": "Nova"}), invalid("id")),
        (json!({"id": "a.b"}), invalid("id")),
        (json!({"id": "x".repeat(64)}), invalid("id")),
        (json!({"id": 5}), invalid("id")),
        (json!({"id": "nova", "owner": "x"}), invalid("owner")),
        (json!({"id": "nova", "name": ""}), invalid("name")),
        (json!({"id": "nova", "name": "a\nb"}), invalid("name")),
        (json!({"id": "nova", "limits": {"qqs": 1}}), invalid("limits.qqs")),
        (
            json!({"id": "nova", "limits": {"daily_usd": 0.5}}),
            invalid("limits.daily_usd"),
        ),
        (json!({"id": "nova", "disabled": true}), invalid("disabled")),
        (json!({"id": "acme"}), (409, "already_exists", "id")),
    ] {
        refused(&operator, ("POST", PATH), body, told).await;
    }
    for (body, told) in [
        (json!({"id": "other"}), invalid("id")),
        (json!({"limits": null}), invalid("limits")),
        (json!({"disabled": null}), invalid("disabled")),
        (json!({"disabled": "yes"}), invalid("disabled")),
    ] {
        refused(&operator, ("PATCH", "/api/v1/tenants/acme"), body, told).await;
    }
    let missing = (404, "not_found", "");
    refused(&operator, ("PATCH", "/api/v1/tenants/nobody"), json!({}), missing).await;
    refused(&operator, ("GET", "/api/v1/tenants/nobody"), Value::Null, missing).await;
    refused(
        &operator,
        ("GET", "/api/v1/tenants?color=red"),
        Value::Null,
        invalid("color"),
    )
    .await;
    refused(
        &operator,
        ("GET", "/api/v1/tenants?limit=0"),
        Value::Null,
        invalid("limit"),
    )
    .await;
    for key in [ADMIN_KEY, CALLER_KEY] {
        let other = scene.client.with_key(key);
        let scope = (403, "insufficient_scope", "");
        refused(&other, ("POST", PATH), json!({"id": "nova"}), scope).await;
        refused(
            &other,
            ("PATCH", "/api/v1/tenants/default"),
            json!({"limits": {}}),
            scope,
        )
        .await;
        refused(&other, ("GET", PATH), Value::Null, scope).await;
    }

    assert_eq!(done(&operator, "GET", PATH, Value::Null).await, before);
    scene.finish().await;
}

#[tokio::test]
async fn nobody_shuts_himself_out() {
    let scene = one_node().await;
    let operator = operator(&scene);
    let body = json!({"name": "ops", "tenant": "acme", "role": "operator"});
    let of_acme = scene.client.with_key(&minted(&operator, body).await);
    let disable = json!({"disabled": true});
    let invalid = (400, "invalid_request", "disabled");

    refused(
        &of_acme,
        ("PATCH", "/api/v1/tenants/default"),
        disable.clone(),
        invalid,
    )
    .await;
    refused(
        &of_acme,
        ("PATCH", "/api/v1/tenants/acme"),
        disable.clone(),
        invalid,
    )
    .await;
    done(&operator, "PATCH", "/api/v1/tenants/acme", disable).await;

    assert_eq!(of_acme.get(PATH).await.status, 401);
    scene.finish().await;
}

#[tokio::test]
async fn limits_of_a_tenant_hold_from_their_change_on_and_a_disabled_one_is_refused_like_a_false_key() {
    let scene = one_node().await;
    scene.o1.default(Behaviour::chat("hi"));
    let operator = operator(&scene);
    tenant(&scene, "nova").await;
    let key = minted(&operator, json!({"name": "k", "tenant": "nova"})).await;
    let nova = scene.client.with_key(&key);
    assert_eq!(nova.post_chat(&chat("m")).await.status, 200);

    let change = json!({"limits": {"per_model": {"m": {"daily_calls": 1}}}});
    done(&operator, "PATCH", "/api/v1/tenants/nova", change).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(nova.post_chat(&chat("m")).await.status);
    }
    // What was called before the limit was there may or may not count in its day.
    assert_eq!(statuses[1..], [429, 429], "{statuses:?}");
    done(&operator, "PATCH", "/api/v1/tenants/nova", json!({"limits": {}})).await;
    until(&nova, 200).await;

    done(
        &operator,
        "PATCH",
        "/api/v1/tenants/nova",
        json!({"disabled": true}),
    )
    .await;
    let disabled = nova.post_chat(&chat("m")).await;
    let unknown = scene
        .client
        .with_key("sk-harness-canary-false-000000")
        .post_chat(&chat("m"))
        .await;
    let told = |answer: &harness::Answer| {
        let mut body = answer.json();
        body["error"]["request_id"] = Value::Null;
        (answer.status, body)
    };
    assert_eq!(told(&disabled), told(&unknown));
    assert_eq!(disabled.status, 401);
    let new = json!({"name": "another", "tenant": "nova"});
    let closed = (400, "invalid_request", "tenant");
    refused(&operator, ("POST", "/api/v1/tenant/api-keys"), new, closed).await;
    done(
        &operator,
        "PATCH",
        "/api/v1/tenants/nova",
        json!({"disabled": false}),
    )
    .await;
    assert_eq!(nova.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn what_was_changed_of_a_tenant_of_a_file_outlives_a_restart_and_the_file() {
    let limits = json!([{"id": "acme", "limits": {"rpm": 7}}, {"id": "zenith", "limits": {"rpm": 8}}]);
    let mut scene = Scene::start_with(|node| node.setting("tenants", limits)).await;
    scene.pin();
    let operator = operator(&scene);
    let change = json!({"limits": {"rpm": 9}, "disabled": true});
    let changed = done(&operator, "PATCH", "/api/v1/tenants/acme", change).await;
    assert_eq!(changed["origin"], "runtime");

    scene.kill_and_restart().await;

    let operator = scene.client.with_key(OPERATOR_KEY);
    assert_eq!(
        done(&operator, "GET", "/api/v1/tenants/acme", Value::Null).await,
        changed
    );
    let zenith = done(&operator, "GET", "/api/v1/tenants/zenith", Value::Null).await;
    assert_eq!(
        (&zenith["limits"], &zenith["origin"]),
        (&json!({"rpm": 8}), &json!("file"))
    );
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 401);
    scene.node.wait_log("stays as it was changed").await;
    scene.finish().await;
}
