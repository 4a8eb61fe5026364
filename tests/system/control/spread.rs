//! Two nodes: what is changed on one counts on the other, of two changes at once one wins, and a call that is sent again
//! to the other makes nothing twice. These tests are clusters wherever they run.

use harness::{Client, OPERATOR_KEY, Plan, Scene};
use serde_json::{Value, json};

use super::{SPREAD_MAX, call, done, minted, refused, until, until_shown};

/// A cluster, and the operator at each of its gateways.
async fn two_nodes() -> (Scene, Client, Client) {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let operator = scene.client.with_key(OPERATOR_KEY);
    (scene, operator.at(a), operator.at(b))
}

#[tokio::test]
async fn tenants_and_members_are_made_bounded_and_disabled_on_both_nodes_within_two_seconds() {
    let (scene, a, b) = two_nodes().await;
    let made = done(
        &a,
        "POST",
        "/api/v1/tenants",
        json!({"id": "nova", "limits": {"rpm": 1000}}),
    )
    .await;
    assert_eq!(until_shown(&b, "/api/v1/tenants/nova", |_| true).await, made);
    let member = json!({"tenant": "nova", "id": "ann"});
    let member = done(&b, "POST", "/api/v1/users", member).await;
    let ann = "/api/v1/users/ann?tenant=nova";
    assert_eq!(until_shown(&a, ann, |_| true).await, member);
    let of_ann = minted(&a, json!({"name": "ann", "tenant": "nova", "user": "ann"})).await;
    let of_nobody = minted(&b, json!({"name": "nobody", "tenant": "nova"})).await;
    let at = |client: &Client, key: &str| client.with_key(key);
    for client in [&a, &b] {
        until(&at(client, &of_ann), 200).await;
        until(&at(client, &of_nobody), 200).await;
    }

    done(&a, "PATCH", ann, json!({"disabled": true})).await;
    assert!(until(&at(&b, &of_ann), 401).await < SPREAD_MAX);
    assert!(until(&at(&a, &of_ann), 401).await < SPREAD_MAX);
    assert!(
        until(&at(&b, &of_nobody), 200).await < SPREAD_MAX,
        "he alone is out"
    );
    done(&b, "PATCH", ann, json!({"disabled": false})).await;
    assert!(until(&at(&a, &of_ann), 200).await < SPREAD_MAX);

    done(&b, "PATCH", "/api/v1/tenants/nova", json!({"disabled": true})).await;
    for key in [&of_ann, &of_nobody] {
        assert!(until(&at(&a, key), 401).await < SPREAD_MAX);
        assert!(until(&at(&b, key), 401).await < SPREAD_MAX);
    }
    done(
        &a,
        "PATCH",
        "/api/v1/tenants/nova",
        json!({"disabled": false, "limits": {"rpm": 1}}),
    )
    .await;
    until(&at(&b, &of_ann), 429).await;
    scene.finish().await;
}

#[tokio::test]
async fn of_two_changes_of_one_revision_one_is_refused_whichever_nodes_they_come_to() {
    let (scene, a, b) = two_nodes().await;
    let path = "/api/v1/tenants/acme";

    for round in 0..8 {
        let tag = call(&a, "GET", path, Value::Null).await.header("etag").to_owned();
        let (a, b) = (a.with_header("if-match", &tag), b.with_header("if-match", &tag));
        let (first, second) = tokio::join!(
            call(&a, "PATCH", path, json!({"name": format!("first {round}")})),
            call(&b, "PATCH", path, json!({"name": format!("second {round}")})),
        );
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{} {}", first.text(), second.text());
        let (won, lost) = if first.status == 200 {
            (first, second)
        } else {
            (second, first)
        };
        assert_eq!(lost.error_code(), "conflict");
        assert_ne!(won.header("etag"), tag);
        let shown = until_shown(&a, path, |tenant| tenant["revision"] == won.json()["revision"]).await;
        assert_eq!(shown, won.json());
    }

    // Without a condition both are made, one after the other, and neither undoes what the other said of another field.
    let (name, limits) = tokio::join!(
        done(&a, "PATCH", path, json!({"name": "both"})),
        done(&b, "PATCH", path, json!({"limits": {"rpm": 5}})),
    );
    let newest = name["revision"].as_u64().max(limits["revision"].as_u64());
    let shown = until_shown(&a, path, |tenant| tenant["revision"].as_u64() == newest).await;
    assert_eq!(
        (&shown["name"], &shown["limits"]),
        (&json!("both"), &json!({"rpm": 5}))
    );
    let tags = a.with_header("if-match", "yesterday");
    refused(
        &tags,
        ("PATCH", path),
        json!({}),
        (400, "invalid_request", "if-match"),
    )
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn a_creation_that_is_sent_again_makes_nothing_twice_and_its_key_is_good_for_nothing_else() {
    let (scene, a, b) = two_nodes().await;
    let keyed = |client: &Client, key: &str| client.with_header("idempotency-key", key);
    let tenant = json!({"id": "nova", "name": "Nova"});
    let user = json!({"tenant": "acme", "email": "ann@example.com"});

    for (path, body, other) in [
        (
            "/api/v1/tenants",
            &tenant,
            json!({"id": "nova-2", "name": "Nova"}),
        ),
        (
            "/api/v1/users",
            &user,
            json!({"tenant": "acme", "email": "bob@example.com"}),
        ),
    ] {
        let key = format!("once for {path}");
        let (at_a, at_b) = (keyed(&a, &key), keyed(&b, &key));
        let (first, second) = tokio::join!(
            call(&at_a, "POST", path, body.clone()),
            call(&at_b, "POST", path, body.clone()),
        );
        assert_eq!(
            (first.status, second.status),
            (201, 201),
            "{} {}",
            first.text(),
            second.text()
        );
        assert_eq!(first.json(), second.json());
        let replays = [&first, &second].map(|answer| answer.header("x-idempotent-replay") == "true");
        assert_eq!(
            replays.iter().filter(|replay| **replay).count(),
            1,
            "one of them was the first"
        );

        let mismatch = (422, "IDEMPOTENCY_KEY_BODY_MISMATCH", "idempotency-key");
        refused(&keyed(&b, &key), ("POST", path), other, mismatch).await;
        let made = first.json();
        let id = made["id"].as_str().expect("an id");
        let shown = format!(
            "{path}/{id}{}",
            if path.ends_with("users") {
                "?tenant=acme"
            } else {
                ""
            }
        );
        done(&a, "PATCH", &shown, json!({"name": "Later"})).await;
        let late = call(&keyed(&b, &key), "POST", path, body.clone()).await;
        assert_eq!((late.status, late.header("x-idempotent-replay")), (201, "true"));
        assert_eq!(late.json()["name"], "Later", "it is shown as it is now");
    }
    let exists = (409, "already_exists", "id");
    refused(&b, ("POST", "/api/v1/tenants"), tenant.clone(), exists).await;
    refused(
        &keyed(&b, "another key"),
        ("POST", "/api/v1/tenants"),
        tenant,
        exists,
    )
    .await;
    let users = done(&a, "GET", "/api/v1/users?tenant=acme", Value::Null).await;
    assert_eq!(users["data"].as_array().map(Vec::len), Some(1), "{users}");
    scene.finish().await;
}

#[tokio::test]
async fn the_catalogue_is_changed_and_read_while_the_database_is_away() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node).await;
    let b = scene.cluster().node("b").addr();
    let operator = scene.client.with_key(OPERATOR_KEY);

    scene.cluster().services.postgres_proxy.cut();
    done(&operator, "POST", "/api/v1/tenants", json!({"id": "nova"})).await;
    let key = minted(&operator, json!({"name": "k", "tenant": "nova"})).await;
    until(&scene.client.at(b).with_key(&key), 200).await;
    done(
        &operator,
        "PATCH",
        "/api/v1/tenants/nova",
        json!({"disabled": true}),
    )
    .await;
    assert!(until(&scene.client.at(b).with_key(&key), 401).await < SPREAD_MAX);

    scene.cluster().services.postgres_proxy.heal();
    scene.finish().await;
}
