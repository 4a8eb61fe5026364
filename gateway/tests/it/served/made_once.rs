//! Records that are made by calls with an idempotency key: once, and not again after they were taken away.

use serde_json::{Value, json};

use super::{done, text, upstream};
use crate::scene::{ADMIN, OPERATOR, Scene};

#[tokio::test]
async fn what_is_sent_again_is_made_once_and_of_two_changes_one_wins() {
    let scene = Scene::new().await;
    let body = upstream("own").to_string();
    let headers = "connection: close\r\nidempotency-key: once\r\n";
    let request = crate::scene::request("POST /api/v1/endpoints", ADMIN, headers, &body);
    let (first, second) = (scene.raw(&request).await, scene.raw(&request).await);
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(second.header("x-idempotent-replay"), Some("true"));
    assert_eq!(first.json()["id"], second.json()["id"]);
    for base in ["endpoints", "model-routes"] {
        let listed = done(&scene, &format!("GET /api/v1/{base}"), ADMIN, Value::Null).await;
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{base}");
    }

    let tag = first.raw_header("etag").expect("a tag").to_owned();
    let line = format!("PATCH /api/v1/endpoints/{}", text(&first.json(), "id"));
    let patch = |disabled: bool| {
        let headers = format!("connection: close\r\nif-match: {tag}\r\n");
        crate::scene::request(&line, ADMIN, &headers, &json!({"disabled": disabled}).to_string())
    };
    assert_eq!(scene.raw(&patch(true)).await.status, 200);
    assert_eq!(scene.raw(&patch(false)).await.status, 409);
}

#[tokio::test]
async fn what_was_made_and_taken_away_is_not_made_again_by_the_call_that_made_it() {
    let scene = Scene::new().await;
    let price = json!({"model": "m", "pricing": {"prompt": "1", "completion": "2"}});
    let own = done(&scene, "POST /api/v1/endpoints", ADMIN, upstream("first")).await;
    let route = json!({"model": "second", "endpoint": own["id"], "upstream_model": "x"});
    for (base, key, body) in [
        ("prices", OPERATOR, price),
        ("endpoints", ADMIN, upstream("own")),
        ("model-routes", ADMIN, route),
    ] {
        let make = |name: &str| {
            let headers = format!("connection: close\r\nidempotency-key: {name}\r\n");
            crate::scene::request(&format!("POST /api/v1/{base}"), key, &headers, &body.to_string())
        };
        let first = scene.raw(&make(&format!("once for {base}"))).await;
        assert_eq!(first.status, 201, "{base}: {}", first.json());
        let id = text(&first.json(), "id");
        done(&scene, &format!("DELETE /api/v1/{base}/{id}"), key, Value::Null).await;

        let again = scene.raw(&make(&format!("once for {base}"))).await;

        assert_eq!(
            (again.status, again.header("x-idempotent-replay")),
            (201, Some("true")),
            "{base}"
        );
        assert_eq!(again.json(), first.json(), "{base}");
        let there = scene.call(&format!("GET /api/v1/{base}/{id}"), key, "").await;
        assert_eq!(there.status, 404, "{base} is there again");
        let anew = scene.raw(&make(&format!("another for {base}"))).await;
        assert_eq!(
            (anew.status, anew.header("x-idempotent-replay")),
            (201, None),
            "{base}"
        );
        assert_ne!(anew.json()["id"], first.json()["id"], "{base}");
    }
}
