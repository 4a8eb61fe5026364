//! What is answered without any upstream: listings in both shapes, counts of tokens, balances.

use crate::scene::{ADMIN, CALLER, OPERATOR, Scene, request};

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#;
const VERSION: &str = "anthropic-version: 2023-06-01\r\nconnection: close\r\n";

#[tokio::test]
async fn every_listing_names_what_the_caller_may_see() {
    let scene = Scene::new().await;

    for path in [
        "/v1/models",
        "/models",
        "/openrouter/models",
        "/anthropic/v1/models",
    ] {
        let answer = scene.call(&format!("GET {path}"), CALLER, "").await;
        let listed = answer.json();
        let ids: Vec<_> = listed["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|model| model["id"].as_str().expect("an id").to_owned())
            .collect();
        assert_eq!(ids, ["m", "vectors"], "{path}");
    }
}

#[tokio::test]
async fn clients_of_anthropic_get_the_listing_in_their_shape_and_in_pages() {
    let scene = Scene::new().await;

    let shared = scene
        .raw(&request("GET /v1/models?limit=2", OPERATOR, VERSION, ""))
        .await;
    let next = scene
        .call(
            "GET /anthropic/v1/models?limit=2&after_id=org%2Fstaff",
            OPERATOR,
            "",
        )
        .await;
    let plain = scene.call("GET /v1/models", OPERATOR, "").await;

    let page = shared.json();
    assert_eq!(page["data"][0]["type"], "model");
    assert_eq!(page["data"][0]["display_name"], "m");
    assert!(
        page["data"][0]["created_at"]
            .as_str()
            .is_some_and(|at| at.ends_with('Z'))
    );
    assert_eq!(
        (&page["first_id"], &page["last_id"]),
        (&"m".into(), &"org/staff".into())
    );
    assert_eq!(page["has_more"], true);
    assert_eq!(next.json()["data"][0]["id"], "vectors");
    assert_eq!(next.json()["has_more"], false);
    assert_eq!(plain.json()["object"], "list");
}

#[tokio::test]
async fn one_model_is_shown_in_the_shape_of_its_client_and_so_is_none() {
    let scene = Scene::new().await;
    let get = async |line: &str, headers: &str| scene.raw(&request(line, CALLER, headers, "")).await;

    let anthropic = get("GET /v1/models/m", VERSION).await;
    let openai = get("GET /v1/models/m", "connection: close\r\n").await;
    let hidden = get("GET /v1/models/org/staff", VERSION).await;

    assert_eq!(anthropic.json()["type"], "model");
    assert_eq!(openai.json()["object"], "model");
    assert_eq!(hidden.status, 404);
    assert_eq!(hidden.json()["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn tokens_are_counted_without_any_provider_and_leave_no_row() {
    let scene = Scene::new().await;

    for path in [
        "/v1/messages/count_tokens?beta=true",
        "/anthropic/v1/messages/count_tokens",
    ] {
        let answer = scene.call(&format!("POST {path}"), CALLER, ASK).await;

        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("x-waybill-estimate"), Some("true"));
        assert!(
            answer.json()["input_tokens"]
                .as_u64()
                .is_some_and(|tokens| tokens > 4)
        );
    }
    assert_eq!(scene.spool.appended(), 0);
}

#[tokio::test]
async fn tokens_of_a_model_that_is_not_there_for_the_caller_are_not_counted() {
    let scene = Scene::new().await;
    let count = async |key: &str, body: &str| {
        let answer = scene.call("POST /v1/messages/count_tokens", key, body).await;
        let kind = answer.json()["error"]["type"].as_str().map(str::to_owned);
        (answer.status, kind)
    };
    let error = |status: u16, kind: &str| (status, Some(kind.to_owned()));

    let hidden = ASK.replace("\"m\"", "\"org/staff\"");
    assert_eq!(count(CALLER, &hidden).await, error(404, "not_found_error"));
    assert_eq!(count(OPERATOR, &hidden).await, (200, None));
    assert_eq!(count("sk-nobody", ASK).await, error(401, "authentication_error"));
    let missing = count(CALLER, r#"{"model":"m"}"#).await;
    assert_eq!(missing, error(400, "invalid_request_error"));
}

#[tokio::test]
async fn a_balance_has_its_shape_before_there_are_limits() {
    let scene = Scene::new().await;

    let balance = scene.call("GET /anthropic/user/balance", ADMIN, "").await.json();
    let nobody = scene.call("GET /anthropic/user/balance", "sk-nobody", "").await;

    assert_eq!(balance["is_available"], true);
    assert_eq!(balance["currency"], "USD");
    for field in ["balance_usd", "daily_limit_usd", "spent_today_usd", "reset_at"] {
        assert!(
            balance.get(field).is_some_and(serde_json::Value::is_null),
            "{field}"
        );
    }
    assert_eq!(nobody.status, 401);
}
