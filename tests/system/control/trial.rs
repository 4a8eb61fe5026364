//! `POST /api/v1/endpoints/{id}/test`: one real call, billed to nobody, told in our own words; for who may see the
//! endpoint.

use harness::{Behaviour, OTHER_KEY, Upstream, refusing_addr};
use serde_json::{Value, json};

use super::secrets::{registered, scene, until_served};
use super::{call, done, minted, operator, refused, until_shown};

#[tokio::test]
async fn a_test_calls_the_endpoint_once_and_leaves_no_row() {
    let scene = scene().await;
    let operator = operator(&scene);
    let own = Upstream::start();
    let path = registered(&operator, &own.url()).await;

    let tested = done(&operator, "POST", &format!("{path}/test"), Value::Null).await;

    assert_eq!(
        (&tested["ok"], &tested["status"]),
        (&json!(true), &json!(200)),
        "{tested}"
    );
    assert!(
        tested["latency_ms"].is_u64() && tested.get("error").is_none(),
        "{tested}"
    );
    let sent = own.call(0).request.json();
    assert_eq!((own.calls(), &sent["max_tokens"]), (1, &json!(1)));
    // Of two calls one was somebody's: once its row is there, one of the test would be.
    until_served(&scene.client).await;
    assert_eq!(own.calls(), 2);
    let path = "/api/v1/logs?outcome=ok&limit=100";
    let some = |logs: &Value| logs["data"].as_array().is_some_and(|rows| !rows.is_empty());
    let logs = until_shown(&operator, path, some).await;
    let rows = logs["data"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["model"]), (1, &json!("own")), "{logs}");
    scene.finish().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_with_a_200_and_moves_no_circuit() {
    let scene = scene().await;
    let operator = operator(&scene);
    let own = Upstream::start();
    let path = format!("{}/test", registered(&operator, &own.url()).await);
    let said = "wrong key sk-other at http://upstream.internal";
    own.script([
        Behaviour::error(401, said),
        Behaviour::error(500, said),
        Behaviour::error(500, said),
        Behaviour::error(500, said),
        Behaviour::error(500, said),
        Behaviour::error(500, said),
        Behaviour::error(500, said),
    ]);

    for status in [401, 500, 500, 500, 500, 500, 500] {
        let tested = done(&operator, "POST", &path, Value::Null).await;
        assert_eq!(
            (&tested["ok"], &tested["status"]),
            (&json!(false), &json!(status)),
            "{tested}"
        );
        let error = tested["error"].as_str().expect("an error");
        assert!(
            !error.is_empty() && !error.contains("internal") && !error.contains("sk-"),
            "{error}"
        );
    }
    // Had they counted, the circuit would be open.
    until_served(&scene.client).await;
    assert_eq!(own.calls(), 8);

    let nobody = format!("http://{}", refusing_addr());
    let away = format!("{}/test", registered_as(&operator, &nobody).await);
    let tested = done(&operator, "POST", &away, Value::Null).await;
    assert_eq!(
        (&tested["ok"], &tested["status"]),
        (&json!(false), &Value::Null),
        "{tested}"
    );
    scene.finish().await;
}

/// Another endpoint, without a credential.
async fn registered_as(client: &harness::Client, url: &str) -> String {
    let described = json!({"name": "away", "backends": [{"url": url}]});
    let made = done(client, "POST", "/api/v1/endpoints", described).await;
    format!("/api/v1/endpoints/{}", made["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn only_who_sees_an_endpoint_tests_it() {
    let scene = scene().await;
    let operator = operator(&scene);
    let own = Upstream::start();
    let admin = json!({"name": "admin of acme", "tenant": "acme", "role": "admin"});
    let admin = scene.client.with_key(&minted(&operator, admin).await);
    let described = json!({"name": "theirs", "tenant": "zenith", "backends": [{"url": own.url()}]});
    let theirs = done(&operator, "POST", "/api/v1/endpoints", described).await;
    let theirs = format!("/api/v1/endpoints/{}/test", theirs["id"].as_str().expect("an id"));
    let ours = format!("{}/test", registered_as(&admin, &own.url()).await);

    let told = (404, "not_found", "");
    refused(&admin, ("POST", &theirs), Value::Null, told).await;
    refused(
        &admin,
        ("POST", "/api/v1/endpoints/nothing/test"),
        Value::Null,
        told,
    )
    .await;
    let stranger = call(&scene.client.with_key(OTHER_KEY), "POST", &ours, Value::Null).await;
    assert_eq!(stranger.status, 403, "{}", stranger.text());
    assert_eq!(own.calls(), 0);
    assert_eq!(done(&admin, "POST", &ours, Value::Null).await["ok"], true);
    assert_eq!(done(&operator, "POST", &theirs, Value::Null).await["ok"], true);
    scene.finish().await;
}
