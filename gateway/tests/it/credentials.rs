//! Keys one by one, keys of endpoints and grants: what they reach, what changes of them, and what they leave in rows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemas::id::UserId;
use schemas::secret::Secret;
use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, PLAIN, Scene, request};
use crate::script::whole;

const DISPATCH: &str = "the token of whoever hands out grants";
const GRANTS: &str = "/internal/agent-grants";
const KEYS: &str = "/api/v1/tenant/api-keys";
const CHAT: &str = "POST /v1/chat/completions";

async fn scene() -> Scene {
    Scene::with(|config| config.grant_dispatch_token = Some(Secret::new(DISPATCH.to_owned()))).await
}

async fn call(scene: &Scene, line: &str, key: &str, body: Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    scene.call(line, key, &body).await
}

async fn done(scene: &Scene, line: &str, key: &str, body: Value) -> Value {
    let answer = call(scene, line, key, body).await;
    assert!(answer.status < 300, "{line}: {answer:?}");
    answer.json()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The status of a chat with a key.
async fn chat(scene: &Scene, key: &str) -> u16 {
    scene.script.clear();
    scene.script.push(whole(r#"{"id":"x"}"#));
    scene.call(CHAT, key, PLAIN).await.status
}

/// A grant for `ann` of `acme`: its id and its token.
async fn granted(scene: &Scene, more: Value) -> (String, String) {
    let mut body = json!({"tenant": "acme", "user": "ann", "external_job_id": "job-7", "minutes": 5});
    for (name, value) in more.as_object().expect("members") {
        body[name] = value.clone();
    }
    let made = done(scene, &format!("POST {GRANTS}"), DISPATCH, body).await;
    (text(&made["id"]), text(&made["token"]))
}

async fn ann(scene: &Scene) {
    let body = json!({"tenant": "acme", "id": "ann", "role": "admin"});
    done(scene, "POST /api/v1/users", OPERATOR, body).await;
}

#[tokio::test]
async fn hybrid_case_50_a_grant_calls_models_for_its_owner_on_listed_paths_and_nothing_else() {
    let scene = scene().await;
    ann(&scene).await;
    let (id, token) = granted(&scene, json!({})).await;
    assert_eq!((&token[..4], token.len()), ("agr-", 47));

    assert_eq!(chat(&scene, &token).await, 200);
    let row = scene.rows(1).await.remove(0);
    assert_eq!((row.tenant.as_str(), row.key_id.as_str()), ("acme", &*id));
    assert_eq!(
        (row.user.as_ref().map(UserId::as_str), row.job_id.as_deref()),
        (Some("ann"), Some("job-7"))
    );
    for line in [
        "POST /v1/embeddings",
        "GET /v1/models",
        "GET /v1/models/m",
        "GET /v1/responses/resp_1",
        "DELETE /v1/responses/resp_1",
        "GET /v1/responses/resp_1/input_items",
        "GET /anthropic/user/balance",
        "GET /api/v1/logs",
        "GET /api/v1/users",
        "POST /api/v1/tenant/api-keys",
        "GET /internal/agent-grants",
        "GET /routing",
    ] {
        let answer = call(&scene, line, &token, json!({})).await;
        assert_eq!(answer.status, 403, "{line}: {answer:?}");
        // Callers of Messages are told no code.
        let code = &answer.json()["error"]["code"];
        assert!(code.is_null() || code == "insufficient_scope", "{line}: {code}");
    }
    // Its owner administers; it does not.
    assert_eq!(chat(&scene, &token).await, 200);
}

#[tokio::test]
async fn a_grant_is_nothing_once_it_or_its_owner_is() {
    let scene = scene().await;
    ann(&scene).await;
    let (id, token) = granted(&scene, json!({})).await;
    let unknown = call(
        &scene,
        CHAT,
        "agr-nobody-knows-this-one-at-all-0000000000000",
        json!({}),
    )
    .await;
    let told = |answer: &Answer| {
        let mut body = answer.json();
        body["error"]["request_id"] = Value::Null;
        (answer.status, body)
    };
    let member = "PATCH /api/v1/users/ann?tenant=acme";

    done(&scene, member, OPERATOR, json!({"disabled": true})).await;
    let disabled = call(&scene, CHAT, &token, json!({})).await;
    done(&scene, member, OPERATOR, json!({"disabled": false})).await;
    assert_eq!(chat(&scene, &token).await, 200);
    done(&scene, &format!("DELETE {GRANTS}/{id}"), DISPATCH, Value::Null).await;
    let revoked = call(&scene, CHAT, &token, json!({})).await;

    assert_eq!(unknown.status, 401);
    assert_eq!(told(&disabled), told(&unknown));
    assert_eq!(told(&revoked), told(&unknown));
}

#[tokio::test]
async fn a_grant_uses_no_model_that_is_not_its_own_or_not_its_owners() {
    let scene = scene().await;
    ann(&scene).await;
    let (_, narrow) = granted(&scene, json!({"allowed_models": ["org/staff"]})).await;
    let (_, wide) = granted(&scene, json!({})).await;

    assert_eq!(chat(&scene, &narrow).await, 404);
    assert_eq!(chat(&scene, &wide).await, 200);
    let disable = json!({"disabled_models": ["m"]});
    done(&scene, "PATCH /api/v1/users/ann?tenant=acme", OPERATOR, disable).await;
    assert_eq!(chat(&scene, &wide).await, 404);
    let unknown = json!({"tenant": "acme", "user": "ann", "external_job_id": "j", "minutes": 5, "allowed_models": ["m"]});
    let refused = call(&scene, &format!("POST {GRANTS}"), DISPATCH, unknown).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].clone()),
        (400, json!("allowed_models"))
    );
}

#[tokio::test]
async fn without_a_token_for_it_nobody_hands_out_grants() {
    let scene = Scene::new().await;
    for key in ["", OPERATOR, DISPATCH] {
        let answer = call(&scene, &format!("POST {GRANTS}"), key, json!({})).await;
        assert_eq!(answer.status, 404, "{key}");
    }
    let scene = self::scene().await;
    for (key, status) in [("", 401), (OPERATOR, 403), (CALLER, 403)] {
        let answer = call(&scene, &format!("POST {GRANTS}"), key, json!({})).await;
        assert_eq!(answer.status, status, "{key}");
    }
    // It is good for nothing else.
    assert_eq!(
        call(&scene, "GET /api/v1/tenants", DISPATCH, Value::Null)
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn a_key_is_changed_and_given_another_secret_under_the_same_id() {
    let scene = scene().await;
    let made = done(&scene, &format!("POST {KEYS}"), ADMIN, json!({"name": "ci"})).await;
    let (id, old) = (text(&made["id"]), text(&made["key"]));
    let of = format!("{KEYS}/{id}");

    let changed = done(
        &scene,
        &format!("PATCH {of}"),
        ADMIN,
        json!({"name": "nightly", "limits": {"rpm": 5}, "output_default_max": 9}),
    )
    .await;
    assert_eq!(
        (
            &changed["name"],
            &changed["limits"]["rpm"],
            &changed["output_default_max"]
        ),
        (&json!("nightly"), &json!(5), &json!(9))
    );
    let rotated = done(&scene, &format!("POST {of}/rotate"), ADMIN, Value::Null).await;
    let new = text(&rotated["key"]);
    assert_eq!(
        (&rotated["id"], &rotated["name"]),
        (&json!(id), &json!("nightly"))
    );
    assert_eq!((chat(&scene, &old).await, chat(&scene, &new).await), (401, 200));
    let listed = done(&scene, &format!("GET {KEYS}?name=nightly"), ADMIN, Value::Null).await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    let history = done(&scene, &format!("GET {of}/history"), ADMIN, Value::Null).await;
    assert!(
        history["data"]
            .as_array()
            .is_some_and(|changes| changes.len() >= 4),
        "{history}"
    );
    assert!(!history.to_string().contains(&new[10..]));
    done(&scene, &format!("DELETE {of}"), ADMIN, Value::Null).await;
    assert_eq!(chat(&scene, &new).await, 401);
    let again = call(&scene, &format!("POST {of}/rotate"), ADMIN, Value::Null).await;
    assert_eq!((again.status, again.code()), (409, "conflict".to_owned()));
}

#[tokio::test]
async fn nobody_changes_or_takes_over_a_key_that_may_do_more_than_his() {
    let scene = scene().await;
    let make = |body: Value| {
        let scene = &scene;
        async move { done(scene, &format!("POST {KEYS}"), OPERATOR, body).await }
    };
    let narrow = make(json!({"name": "narrow", "tenant": "acme", "role": "admin", "models": ["m"]})).await;
    let narrow = text(&narrow["key"]);
    let wide = make(json!({"name": "wide", "tenant": "acme"})).await;
    let above = make(json!({"name": "above", "tenant": "acme", "role": "operator"})).await;
    let foreign = make(json!({"name": "foreign", "tenant": "default"})).await;

    for (key, status) in [(&wide, 403), (&above, 403), (&foreign, 404)] {
        let of = format!("{KEYS}/{}", text(&key["id"]));
        let rotated = call(&scene, &format!("POST {of}/rotate"), &narrow, Value::Null).await;
        let patched = call(&scene, &format!("PATCH {of}"), &narrow, json!({"name": "mine"})).await;
        assert_eq!(
            (rotated.status, patched.status),
            (status, status),
            "{}",
            key["name"]
        );
    }
    let minted = done(&scene, &format!("POST {KEYS}"), &narrow, json!({"name": "n"})).await;
    assert_eq!(minted["models"], json!(["m"]));
}

#[tokio::test]
async fn a_repeated_call_mints_one_key_and_shows_it_once() {
    let scene = scene().await;
    let once = || {
        let line = format!("POST {KEYS}");
        let headers = "connection: close\r\nidempotency-key: once\r\n";
        request(&line, ADMIN, headers, r#"{"name":"ci"}"#)
    };

    let (first, second) = (scene.raw(&once()).await, scene.raw(&once()).await);

    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(second.header("x-idempotent-replay"), Some("true"));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert!(first.json()["key"].is_string() && second.json()["key"].is_null());
}

#[tokio::test]
async fn who_an_operator_disabled_is_not_enabled_by_the_tenants_administrator() {
    let scene = scene().await;
    ann(&scene).await;
    let line = "PATCH /api/v1/users/ann?tenant=acme";
    done(&scene, line, ADMIN, json!({"disabled": true})).await;
    done(&scene, line, ADMIN, json!({"disabled": false})).await;
    done(&scene, line, OPERATOR, json!({"disabled": true})).await;

    let refused = call(&scene, line, ADMIN, json!({"disabled": false})).await;

    assert_eq!(
        (refused.status, refused.json()["error"]["param"].clone()),
        (403, json!("disabled"))
    );
    let enabled = done(&scene, line, OPERATOR, json!({"disabled": false})).await;
    assert_eq!(enabled["disabled"], json!(false));
}

#[tokio::test]
async fn a_key_of_an_endpoint_calls_its_models_and_nothing_else() {
    let scene = scene().await;
    let endpoint =
        json!({"name": "e", "kind": "openai_compat", "backends": [{"url": "https://upstream.example"}]});
    let made = done(&scene, "POST /api/v1/endpoints", OPERATOR, endpoint).await;
    let wanted = json!({"name": "shared", "endpoint": made["id"]});
    let minted = done(&scene, "POST /api/v1/endpoint-keys", OPERATOR, wanted).await;
    let key = text(&minted["key"]);
    assert!(key.starts_with("sk-") && key.len() == 46, "{}", key.len());
    let of = format!("/api/v1/endpoint-keys/{}", text(&minted["id"]));

    assert_eq!(chat(&scene, &key).await, 404, "another endpoint serves m");
    scene.script.clear();
    scene.script.push(whole(r#"{"id":"x"}"#));
    let body = r#"{"model":"e","user":"customer-1","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(scene.call(CHAT, &key, body).await.status, 200);
    let row = scene.rows(2).await.remove(1);
    assert_eq!((row.user, row.end_user.as_deref()), (None, Some("customer-1")));
    for line in [
        "GET /v1/models",
        "GET /v1/responses/resp_1",
        "GET /api/v1/logs",
        "GET /anthropic/user/balance",
    ] {
        assert_eq!(call(&scene, line, &key, json!({})).await.status, 403, "{line}");
    }
    let hidden = json!({"name": "x", "endpoint": made["id"]});
    let refused = call(&scene, "POST /api/v1/endpoint-keys", ADMIN, hidden).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].clone()),
        (400, json!("endpoint"))
    );
    let line = format!("DELETE {of}");
    assert_eq!(call(&scene, &line, ADMIN, Value::Null).await.status, 404);
    done(&scene, &line, OPERATOR, Value::Null).await;
    assert_eq!(scene.call(CHAT, &key, body).await.status, 401);
}

/// A path of management and one of models, each with a body that it takes.
const LINES: [(&str, &str); 2] = [("GET /api/v1/tenants", ""), ("POST /v1/chat/completions", PLAIN)];

/// Headers in which other products take credentials.
fn other_headers() -> Vec<(&'static str, String)> {
    let basic = format!("Basic {}", STANDARD.encode(format!(":{OPERATOR}")));
    let mut headers = vec![("authorization", basic), ("authorization", OPERATOR.to_owned())];
    for scheme in ["Token", "Digest"] {
        headers.push(("authorization", format!("{scheme} {OPERATOR}")));
    }
    for name in [
        "proxy-authorization",
        "x-authorization",
        "x-forwarded-authorization",
    ] {
        headers.push((name, format!("Bearer {OPERATOR}")));
    }
    for name in [
        "api-key",
        "x-goog-api-key",
        "x-api-token",
        "x-auth-token",
        "x-access-token",
        "ocp-apim-subscription-key",
        "sec-websocket-protocol",
    ] {
        headers.push((name, OPERATOR.to_owned()));
    }
    for name in ["refresh_token", "access_token", "session", "api_key"] {
        headers.push(("cookie", format!("{name}={OPERATOR}")));
    }
    headers
}

#[tokio::test]
async fn a_credential_counts_in_its_two_places_and_in_no_other() {
    let scene = scene().await;
    let bearer = format!("Bearer {OPERATOR}");
    let lines = LINES;
    for (line, body) in lines {
        for header in [("authorization", &*bearer), ("x-api-key", OPERATOR)] {
            if !body.is_empty() {
                scene.script.push(whole("{}"));
            }
            let answer = scene.within(line, &[header], body).await;
            assert!(answer.status < 300, "{line} {header:?}: {answer:?}");
        }
    }
    let none = |answer: &Answer| {
        answer
            .body
            .replace(answer.header("x-request-id").expect("an id"), "ID")
    };

    for (line, body) in lines {
        let anonymous = none(&scene.within(line, &[], body).await);
        for (name, value) in other_headers() {
            let place = (name, &*value);
            let answer = scene.within(line, &[place], body).await;
            assert_eq!(
                (answer.status, none(&answer)),
                (401, anonymous.clone()),
                "{line} {place:?}"
            );
        }
        for name in [
            "api_key",
            "api-key",
            "apikey",
            "key",
            "token",
            "access_token",
            "authorization",
            "x-api-key",
        ] {
            let asked = format!("{line}?{name}={OPERATOR}");
            let answer = scene.within(&asked, &[], body).await;
            assert_eq!(
                (answer.status, none(&answer)),
                (401, anonymous.clone()),
                "{asked}"
            );
        }
    }
    for name in ["api_key", "authorization", "key", "access_token"] {
        let mut body: Value = serde_json::from_str(PLAIN).expect("JSON");
        body[name] = json!(OPERATOR);
        let answer = scene
            .within("POST /v1/chat/completions", &[], &body.to_string())
            .await;
        assert_eq!(
            (answer.status, &*answer.code()),
            (401, "invalid_api_key"),
            "{name}"
        );
    }
}
