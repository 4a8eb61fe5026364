//! Models, health, metrics and the management API.

use crate::scene::{ADMIN, CALLER, OPERATOR, PLAIN, Scene};
use crate::script::whole;

#[tokio::test]
async fn callers_list_what_they_may_see_and_nothing_of_where_it_is_served() {
    let scene = Scene::new().await;

    let listed = |answer: &crate::scene::Answer| -> Vec<String> {
        let list = answer.json();
        let items = list["data"].as_array().expect("a list");
        items
            .iter()
            .map(|item| item["id"].as_str().expect("an id").to_owned())
            .collect()
    };
    let free = scene.call("GET /v1/models", CALLER, "").await;
    let anonymous = scene.call("GET /v1/models", "sk-nobody-at-all-0001", "").await;
    let staff = scene.call("GET /v1/models", ADMIN, "").await;

    assert_eq!(listed(&free), ["m", "vectors"]);
    assert_eq!(listed(&anonymous), ["m", "vectors"]);
    assert_eq!(listed(&staff), ["m", "org/staff", "vectors"]);
    let item = &free.json()["data"][0];
    assert_eq!(
        (item["object"].as_str(), item["owned_by"].as_str()),
        (Some("model"), Some("waybill"))
    );
    assert_eq!(item["pricing"]["prompt"], "2");
    assert!(!free.body.contains("o1"));
}

#[tokio::test]
async fn a_model_is_shown_by_a_name_with_slashes_plain_or_escaped() {
    let scene = Scene::new().await;

    for path in ["/v1/models/org/staff", "/v1/models/org%2Fstaff"] {
        assert_eq!(
            scene.call(&format!("GET {path}"), ADMIN, "").await.json()["id"],
            "org/staff"
        );
        assert_eq!(scene.call(&format!("GET {path}"), CALLER, "").await.status, 404);
    }
}

#[tokio::test]
async fn the_root_answers_probes() {
    let scene = Scene::new().await;

    assert_eq!(scene.call("HEAD /", CALLER, "").await.status, 200);
    assert!(scene.call("GET /", CALLER, "").await.json()["version"].is_string());
    assert_eq!(
        scene.call("GET /health", CALLER, "").await.json()["routes_configured"],
        3
    );
    assert_eq!(scene.call("GET /health/ready", CALLER, "").await.status, 200);
    assert_eq!(
        scene.call("GET /health/ready?strict=1", CALLER, "").await.status,
        503
    );
}

#[tokio::test]
async fn metrics_count_what_happened_and_are_for_this_machine_only() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    scene.chat(PLAIN).await;
    scene.rows(1).await;

    let metrics = scene.call("GET /metrics", CALLER, "").await;
    let sent = crate::scene::request(
        "GET /metrics",
        CALLER,
        "x-forwarded-for: 1.2.3.4\r\nconnection: close\r\n",
        "",
    );
    let forwarded = scene.raw(&sent).await;

    assert!(
        metrics
            .body
            .contains("waybill_requests_total{surface=\"chat\",model=\"m\",outcome=\"ok\"} 1")
    );
    assert!(metrics.body.contains("waybill_tokens_total{class=\"output\"} 20"));
    assert!(metrics.body.contains("waybill_reservations_open 0"));
    assert_eq!(forwarded.status, 404);
}

#[tokio::test]
async fn routing_and_deep_health_are_for_those_who_run_the_platform() {
    let scene = Scene::new().await;

    for path in ["GET /routing", "GET /health/deep"] {
        assert_eq!(
            scene.call(path, "sk-nobody-at-all-0001", "").await.status,
            401,
            "{path}"
        );
        assert_eq!(scene.call(path, ADMIN, "").await.status, 403, "{path}");
        assert_eq!(scene.call(path, OPERATOR, "").await.status, 200, "{path}");
    }
    let routing = scene.call("GET /routing", OPERATOR, "").await;
    assert_eq!(routing.json()["routes"]["m"][0]["weight"], "100%");
}

#[tokio::test]
async fn a_minted_key_works_at_once_and_is_refused_once_revoked() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));

    let made = scene
        .call(
            "POST /api/v1/tenant/api-keys",
            ADMIN,
            r#"{"name":"ci","user":"alice"}"#,
        )
        .await;
    let made_json = made.json();
    let key = made_json["key"].as_str().expect("a key");
    let id = made_json["id"].as_str().expect("an id");
    let worked = scene.call("POST /v1/chat/completions", key, PLAIN).await;
    let listed = scene.call("GET /api/v1/tenant/api-keys", ADMIN, "").await;
    let revoked = scene
        .call(&format!("DELETE /api/v1/tenant/api-keys/{id}"), ADMIN, "")
        .await;
    let refused = scene.call("POST /v1/chat/completions", key, PLAIN).await;

    assert_eq!((made.status, made_json["tenant"].as_str()), (201, Some("acme")));
    assert!(key.starts_with("sk-tenant-"));
    assert_eq!(worked.status, 200);
    assert_eq!(
        scene.rows(1).await[0]
            .user
            .as_ref()
            .map(|user| user.as_str().to_owned()),
        Some("alice".to_owned())
    );
    assert!(listed.body.contains(id) && !listed.body.contains(key));
    assert_eq!(
        (revoked.status, revoked.json()["revoked"].as_bool()),
        (200, Some(true))
    );
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn members_manage_no_keys_and_the_books_are_away_without_a_ledger() {
    let scene = Scene::new().await;

    assert_eq!(
        scene.call("GET /api/v1/tenant/api-keys", CALLER, "").await.status,
        403
    );
    assert_eq!(
        scene.call("POST /api/v1/system/rebuild", ADMIN, "").await.status,
        403
    );
    assert_eq!(
        scene.call("GET /api/v1/logs?color=red", CALLER, "").await.status,
        400
    );
    let away = scene.call("GET /api/v1/logs", CALLER, "").await;
    assert_eq!((away.status, &*away.code()), (503, "store_unavailable"));
    assert!(away.header("retry-after").is_some());
}
