//! Members of tenants on one node: what they may do at most, what they may use, and when they are out.

use harness::{ADMIN_KEY, Behaviour, CALLER_KEY, chat};
use serde_json::{Value, json};

use super::{audited, call, done, minted, one_node, operator, refused, until, until_shown};

const PATH: &str = "/api/v1/users";
const KEYS: &str = "/api/v1/tenant/api-keys";

#[tokio::test]
async fn a_member_is_made_shown_listed_and_changed_by_his_administrator() {
    let scene = one_node().await;
    let admin = scene.client.with_key(ADMIN_KEY);

    let body = json!({"email": "ann@example.com", "name": "Ann", "role": "pro", "limits": {"rpm": 5}});
    let made = call(&admin, "POST", PATH, body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let tag = made.header("etag").to_owned();
    let made = made.json();
    let id = made["id"].as_str().expect("an id");
    assert!(id.starts_with("user-"), "{made}");
    assert_eq!(
        (&made["tenant"], &made["email"], &made["role"], &made["limits"]),
        (
            &json!("default"),
            &json!("ann@example.com"),
            &json!("pro"),
            &json!({"rpm": 5})
        )
    );
    let path = format!("{PATH}/{id}");
    let shown = admin.get(&path).await;
    assert_eq!((shown.header("etag"), shown.json()), (&*tag, made.clone()));

    let named = json!({"id": "o'neil, \u{d6}rn/1", "email": null, "name": null});
    done(&admin, "POST", PATH, named).await;
    let change = json!({"email": null, "role": "internal", "limits": {"concurrency": 1}});
    let escaped = format!("{PATH}/o%27neil%2C%20%C3%96rn%2F1");
    let changed = done(&admin, "PATCH", &escaped, change).await;
    assert_eq!(
        (&changed["email"], &changed["role"], &changed["limits"]),
        (&Value::Null, &json!("internal"), &json!({"concurrency": 1}))
    );

    let first = done(&admin, "GET", &format!("{PATH}?limit=1"), Value::Null).await;
    let next = first["next"].as_str().expect("another page");
    let second = done(
        &admin,
        "GET",
        &format!("{PATH}?limit=1&after={next}"),
        Value::Null,
    )
    .await;
    let ids = [&first, &second].map(|page| page["data"][0]["id"].clone());
    assert_eq!(ids, [changed["id"].clone(), made["id"].clone()]);
    assert_eq!(second["next"], Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_told_again_and_leaves_no_hole_in_the_books() {
    let scene = one_node().await;
    let admin = scene.client.with_key(ADMIN_KEY);
    done(&admin, "POST", PATH, json!({"id": "ann", "name": "Ann"})).await;

    for _ in 0..10 {
        done(&admin, "PATCH", &format!("{PATH}/ann"), json!({"name": "Ann"})).await;
    }

    // Every one of them is in the log, under the id of the first.
    let told = audited(&scene, 11).await;
    assert!(
        told.iter()
            .all(|event| event["change"]["id"] == told[0]["change"]["id"]),
        "{told:?}"
    );
    let sums = until_shown(&operator(&scene), "/api/v1/usage", |sums| {
        sums["is_current"] == true
    })
    .await;
    assert_eq!(sums["is_current"], true);
    let logs = scene.node.logs();
    assert!(
        !logs.iter().any(|line| line.contains("a shorter one")),
        "{logs:?}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_member_is_named() {
    let scene = one_node().await;
    let admin = scene.client.with_key(ADMIN_KEY);
    done(&admin, "POST", PATH, json!({"id": "ann"})).await;

    let invalid = |param| (400, "invalid_request", param);
    for (body, told) in [
        (json!({"id": ""}), invalid("id")),
        (json!({"email": "ann"}), invalid("email")),
        (json!({"email": "a b@c"}), invalid("email")),
        (
            json!({"email": format!("{}@c", "x".repeat(254))}),
            invalid("email"),
        ),
        (json!({"role": "wizard"}), invalid("role")),
        (json!({"name": " "}), invalid("name")),
        (json!({"password": "hunter22"}), invalid("email")),
        (
            json!({"email": "a@example.com", "password": "short"}),
            invalid("password"),
        ),
        (json!({"limits": {"rpm": -1}}), invalid("limits.rpm")),
        (json!({"id": "ann"}), (409, "already_exists", "id")),
    ] {
        refused(&admin, ("POST", PATH), body, told).await;
    }
    let ann = "/api/v1/users/ann";
    refused(&admin, ("PATCH", ann), json!({"role": null}), invalid("role")).await;
    refused(
        &admin,
        ("PATCH", ann),
        json!({"tenant": "acme"}),
        invalid("tenant"),
    )
    .await;
    refused(
        &admin,
        ("PATCH", "/api/v1/users/ann?color=red"),
        json!({}),
        invalid("color"),
    )
    .await;
    refused(
        &admin,
        ("GET", "/api/v1/users/bob"),
        Value::Null,
        (404, "not_found", ""),
    )
    .await;
    refused(
        &admin,
        ("GET", "/api/v1/users?after=x"),
        Value::Null,
        invalid("after"),
    )
    .await;
    let unknown = json!({"tenant": "nobody", "id": "x"});
    refused(&operator(&scene), ("POST", PATH), unknown, invalid("tenant")).await;
    scene.finish().await;
}

#[tokio::test]
async fn an_administrator_has_members_of_his_own_tenant_and_below_himself_alone() {
    let scene = one_node().await;
    let (operator, admin) = (operator(&scene), scene.client.with_key(ADMIN_KEY));
    done(&operator, "POST", PATH, json!({"tenant": "acme", "id": "bea"})).await;
    done(
        &operator,
        "POST",
        PATH,
        json!({"id": "chief", "role": "operator"}),
    )
    .await;
    minted(
        &operator,
        json!({"name": "k", "user": "unlisted", "role": "operator"}),
    )
    .await;

    let scope = |param| (403, "insufficient_scope", param);
    for (method, path, body, told) in [
        (
            "POST",
            PATH,
            json!({"tenant": "acme", "id": "x"}),
            scope("tenant"),
        ),
        (
            "GET",
            "/api/v1/users/bea?tenant=acme",
            Value::Null,
            scope("tenant"),
        ),
        ("GET", "/api/v1/users?tenant=acme", Value::Null, scope("tenant")),
        ("GET", "/api/v1/users/bea", Value::Null, (404, "not_found", "")),
        (
            "POST",
            PATH,
            json!({"id": "x", "role": "operator"}),
            scope("role"),
        ),
        (
            "PATCH",
            "/api/v1/users/chief",
            json!({"disabled": true}),
            scope("id"),
        ),
        // His keys say that he is above, though nobody has made a record of him.
        ("POST", PATH, json!({"id": "unlisted"}), scope("id")),
    ] {
        refused(&admin, (method, path), body, told).await;
    }
    refused(&scene.client, ("GET", PATH), Value::Null, scope("")).await;

    let of = |page: Value| -> Vec<Value> {
        page["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|user| user["id"].clone())
            .collect()
    };
    assert_eq!(of(done(&admin, "GET", PATH, Value::Null).await), ["chief"]);
    assert_eq!(
        of(done(&operator, "GET", PATH, Value::Null).await),
        ["bea", "chief"]
    );
    let only = done(&operator, "GET", "/api/v1/users?tenant=acme", Value::Null).await;
    assert_eq!(of(only), ["bea"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_member_bounds_what_his_keys_may_do_and_use_and_takes_them_out_with_him() {
    let scene = one_node().await;
    scene.o1.default(Behaviour::chat("hi"));
    let operator = operator(&scene);
    let member = json!({"tenant": "acme", "id": "bea", "role": "admin"});
    done(&operator, "POST", PATH, member).await;
    let bea = "/api/v1/users/bea?tenant=acme";
    let of_bea = |role| json!({"name": role, "tenant": "acme", "user": "bea", "role": role});
    let below = (400, "invalid_request", "role");
    refused(&operator, ("POST", KEYS), of_bea("operator"), below).await;
    let key = scene.client.with_key(&minted(&operator, of_bea("admin")).await);
    assert_eq!(key.get(KEYS).await.status, 200);

    done(&operator, "PATCH", bea, json!({"role": "free"})).await;
    assert_eq!(key.get(KEYS).await.status, 403);
    assert_eq!(key.post_chat(&chat("m")).await.status, 200);
    done(&operator, "PATCH", bea, json!({"role": "admin"})).await;
    assert_eq!(key.get(KEYS).await.status, 200);
    refused(
        &key,
        ("PATCH", "/api/v1/users/bea"),
        json!({"disabled": true}),
        (400, "invalid_request", "disabled"),
    )
    .await;

    done(&operator, "PATCH", bea, json!({"limits": {"daily_calls": 1}})).await;
    let statuses = [
        key.post_chat(&chat("m")).await.status,
        key.post_chat(&chat("m")).await.status,
    ];
    assert_eq!(statuses[1], 429, "{statuses:?}");
    done(&operator, "PATCH", bea, json!({"limits": {}})).await;
    until(&key, 200).await;

    done(&operator, "PATCH", bea, json!({"disabled": true})).await;
    assert_eq!(key.post_chat(&chat("m")).await.status, 401);
    refused(
        &operator,
        ("POST", KEYS),
        of_bea("free"),
        (400, "invalid_request", "user"),
    )
    .await;
    let other = scene.client.with_key(CALLER_KEY).post_chat(&chat("m")).await;
    assert_eq!(other.status, 200, "another member of the tenant goes on");
    scene.finish().await;
}

#[tokio::test]
async fn a_key_lasts_no_longer_than_the_one_it_was_made_with() {
    let scene = one_node().await;
    let until = "2100-01-01T00:00:00.000000Z";
    let body = json!({"name": "for a time", "role": "admin", "expires_at": until});
    let for_a_time = scene.client.with_key(&minted(&operator(&scene), body).await);

    let beyond = json!({"name": "x", "expires_at": "2100-01-01T00:00:01Z"});
    refused(
        &for_a_time,
        ("POST", KEYS),
        beyond,
        (403, "insufficient_scope", "expires_at"),
    )
    .await;
    let made = done(&for_a_time, "POST", KEYS, json!({"name": "x"})).await;

    assert_eq!(made["expires_at"], until);
    scene.finish().await;
}
