//! Accounts follow their members whichever way those are changed: by an import, by a rollback, by dropping what was made of
//! a member at run time. And an address of mail is one member's, whether or not he has an account.

use std::time::Duration;

use bus::{Expected, Kv as _};
use schemas::catalog::user::{User, user_key};
use schemas::catalog::{Origin, Role};
use schemas::id::{TenantId, UserId};
use schemas::subject::CATALOG_BUCKET;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{OURS, PASSWORD, call, choose, login, refresh, scene, settings, signed_in, tokens};
use crate::minting::{revised, say};
use crate::scene::{ADMIN, Answer, OPERATOR, Scene};

async fn done(scene: &Scene, line: &str, body: &Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = scene.call(line, OPERATOR, &body).await;
    assert!(answer.status < 300, "{line} {body}: {answer:?}");
    answer.json()
}

/// The status of signing in.
async fn enters(scene: &Scene, email: &str) -> u16 {
    login(scene, email, PASSWORD).await.status
}

/// Imports members as they are with something else in each of them.
async fn imported(scene: &Scene, changes: &[(&str, Value)]) -> Answer {
    let exported = done(scene, "GET /admin/config/export", &Value::Null).await;
    let mut records = Vec::new();
    for (id, change) in changes {
        let place = user_key(&TenantId::from("acme"), &UserId::from(*id));
        let mut all = exported["records"].as_array().expect("records").iter();
        let found = all.find(|one| one["key"] == *place).expect("a member");
        let mut record = found["record"].as_object().cloned().expect("an object");
        for (name, value) in change.as_object().expect("an object") {
            if value.is_null() {
                record.remove(name);
            } else {
                record.insert(name.clone(), value.clone());
            }
        }
        records.push(json!({"key": place, "record": record}));
    }
    let document = json!({"records": records}).to_string();
    scene.call("POST /admin/config/import", OPERATOR, &document).await
}

/// The members of a tenant with their addresses of mail.
async fn members(scene: &Scene) -> Vec<(String, String)> {
    let listed = done(scene, "GET /api/v1/users?tenant=acme", &Value::Null).await;
    let all = listed["data"].as_array().expect("members").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|one| (text(&one["id"]), text(&one["email"]))).collect()
}

#[tokio::test]
async fn an_account_follows_its_member_when_he_is_imported() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;
    signed_in(&scene, "bob", "pro").await;

    // Nobody gets an address that is somebody's, and nothing of the import is made.
    let renamed = ("ann", json!({"name": "Ann Lee"}));
    let refused = imported(&scene, &[renamed, ("bob", json!({"email": "Ann@example.com"}))]).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("email: "), "{refused:?}");
    let both = [
        ("ann", json!({"email": "one@example.com"})),
        ("bob", json!({"email": "one@example.com"})),
    ];
    assert_eq!(imported(&scene, &both).await.status, 400);
    let without = imported(&scene, &[("ann", json!({"email": null}))]).await;
    assert_eq!(without.status, 400, "{without:?}");
    for email in ["ann@example.com", "bob@example.com"] {
        assert_eq!(enters(&scene, email).await, 200, "{email}");
    }
    let shown = done(&scene, "GET /api/v1/users/ann?tenant=acme", &Value::Null).await;
    assert_eq!(shown["name"], Value::Null);

    // Another address is what he signs in by from then on, and what was refused is free.
    assert_eq!(imported(&scene, &both[..1]).await.status, 200);
    assert_eq!(enters(&scene, "one@example.com").await, 200);
    assert_eq!(enters(&scene, "ann@example.com").await, 401);
    let freed = imported(&scene, &[("bob", json!({"email": "ann@example.com"}))]).await;
    assert_eq!(freed.status, 200, "{freed:?}");
    assert_eq!(enters(&scene, "ann@example.com").await, 200);

    // Whoever is disabled is signed out, and not in again when he is enabled.
    let (token, cookie) = tokens(&login(&scene, "one@example.com", PASSWORD).await);
    for disabled in [true, false] {
        let changed = imported(&scene, &[("ann", json!({"disabled": disabled}))]).await;
        assert_eq!(changed.status, 200, "{changed:?}");
    }
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
    assert_eq!(refresh(&scene, &cookie, &[OURS]).await.status, 401);
    assert_eq!(enters(&scene, "one@example.com").await, 200);
}

/// A member as a file has him.
fn filed(id: &str, change: impl FnOnce(&mut User)) -> (String, Value) {
    let mut user = User::new(TenantId::from("acme"), UserId::from(id), Origin::File);
    change(&mut user);
    let key = user_key(&user.tenant, &user.id);
    (key, serde_json::to_value(user).expect("JSON"))
}

#[tokio::test]
async fn an_account_ends_with_the_address_that_run_time_gave_its_member() {
    let scene = scene().await;
    let (key, record) = filed("fay", |_| {});
    say(&scene, &key, &record).await;
    let overlaid = json!({"email": "fay@example.com", "role": "admin"});
    let fay = "/api/v1/users/fay";
    done(&scene, &format!("PATCH {fay}?tenant=acme"), &overlaid).await;
    choose(&scene, "fay", PASSWORD).await;
    let (token, cookie) = tokens(&login(&scene, "fay@example.com", PASSWORD).await);

    done(&scene, &format!("DELETE {fay}/overlay?tenant=acme"), &Value::Null).await;

    assert_eq!(enters(&scene, "fay@example.com").await, 401);
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
    assert_eq!(refresh(&scene, &cookie, &[OURS]).await.status, 401);
    let reset = format!("POST {fay}/password-reset?tenant=acme");
    assert_eq!(scene.call(&reset, OPERATOR, "").await.status, 400, "no address");
    // The address is free, and nothing of her account is the next one's.
    let next =
        json!({"tenant": "acme", "id": "new", "email": "fay@example.com", "password": "another password 2"});
    done(&scene, "POST /api/v1/users", &next).await;
    assert_eq!(enters(&scene, "fay@example.com").await, 401);
    let entered = login(&scene, "fay@example.com", "another password 2").await;
    assert_eq!(entered.json()["user"]["id"], "new", "{entered:?}");
}

#[tokio::test]
async fn whoever_comes_to_the_id_of_somebody_who_is_gone_has_nothing_of_his_account() {
    let scene = scene().await;
    let (key, record) = filed("fay", |user| user.email = Some("fay@example.com".into()));
    say(&scene, &key, &record).await;
    choose(&scene, "fay", PASSWORD).await;
    assert_eq!(enters(&scene, "fay@example.com").await, 200);
    let gone = scene.bus.delete(CATALOG_BUCKET, &key, Expected::Any).await;
    gone.expect("a file without her");
    let line = "GET /api/v1/users/fay?tenant=acme";
    while scene.call(line, OPERATOR, "").await.status == 200 {
        sleep(Duration::from_millis(5)).await;
    }

    let next =
        json!({"tenant": "acme", "id": "fay", "email": "next@example.com", "password": "another password 2"});
    done(&scene, "POST /api/v1/users", &next).await;

    for email in ["fay@example.com", "next@example.com"] {
        assert_eq!(enters(&scene, email).await, 401, "{email}");
    }
    let entered = login(&scene, "next@example.com", "another password 2").await;
    assert_eq!(entered.status, 200, "{entered:?}");
}

#[tokio::test]
async fn an_account_follows_its_member_when_files_are_rolled_back() {
    let scene = scene().await;
    let as_filed = |disabled: bool| {
        filed("fay", |user| {
            user.email = Some("fay@example.com".into());
            (user.role, user.granted, user.disabled) = (Some(Role::Pro), Some(Role::Pro), disabled);
        })
    };
    let ((key, out), (_, back)) = (as_filed(true), as_filed(false));
    revised(&scene, (&key, &out, &back)).await;
    say(&scene, &key, &back).await;
    choose(&scene, "fay", PASSWORD).await;
    let (_, cookie) = tokens(&login(&scene, "fay@example.com", PASSWORD).await);

    let rolled = done(&scene, "POST /admin/config/rollback", &json!({"to": 1})).await;

    assert_eq!(rolled["changed"], 1, "{rolled}");
    let enabled = json!({"disabled": false});
    done(&scene, "PATCH /api/v1/users/fay?tenant=acme", &enabled).await;
    assert_eq!(
        refresh(&scene, &cookie, &[OURS]).await.status,
        401,
        "she was signed out"
    );
    assert_eq!(enters(&scene, "fay@example.com").await, 200);
}

#[tokio::test]
async fn an_address_is_one_members_whether_or_not_he_has_an_account() {
    let scene = scene().await;
    let body = |id: &str, email: &str| json!({"tenant": "acme", "id": id, "email": email});
    let create = |body: Value| {
        let (scene, body) = (&scene, body.to_string());
        async move { scene.call("POST /api/v1/users", OPERATOR, &body).await }
    };
    let all = (0..4).map(|number| create(body(&format!("m{number}"), "One@example.com")));
    let answers = futures_util::future::join_all(all).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409]);
    for refused in answers.iter().filter(|answer| answer.status == 409) {
        assert_eq!(refused.json()["error"]["param"], "email", "{refused:?}");
    }
    // Nor in another tenant, with a password, or by a change.
    let elsewhere = json!({"tenant": "default", "id": "x", "email": "one@example.com", "password": PASSWORD});
    assert_eq!(create(elsewhere).await.status, 409);
    assert_eq!(create(body("other", "two@example.com")).await.status, 201);
    let change = |id: String, email: Value| {
        let scene = &scene;
        async move {
            let line = format!("PATCH /api/v1/users/{id}?tenant=acme");
            scene
                .call(&line, OPERATOR, &json!({"email": email}).to_string())
                .await
                .status
        }
    };
    assert_eq!(change("other".to_owned(), json!("one@example.com")).await, 409);
    // What somebody gives up is free at once, and what he has he may say again.
    assert_eq!(change("other".to_owned(), json!("Two@example.com")).await, 200);
    let first = members(&scene)
        .await
        .into_iter()
        .find(|(id, _)| id != "other")
        .expect("one");
    assert_eq!(change(first.0, Value::Null).await, 200);
    assert_eq!(change("other".to_owned(), json!("one@example.com")).await, 200);
    assert_eq!(create(body("third", "two@example.com")).await.status, 201);
}

#[tokio::test]
async fn whoever_was_made_by_an_administrator_does_not_come_in_anew_by_signing_up() {
    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.sign_up.enabled = true;
        config.sign_in.sign_up.approval = false;
        config.sign_in.sign_up.tenant = "acme".into();
    })
    .await;
    let ann = json!({"tenant": "acme", "id": "ann", "email": "Ann@example.com"});
    done(&scene, "POST /api/v1/users", &ann).await;
    let disabled = json!({"disabled": true});
    done(&scene, "PATCH /api/v1/users/ann?tenant=acme", &disabled).await;

    let sign_up = json!({"email": "ann@example.com", "password": PASSWORD});
    let answer = call(&scene, "POST /auth/signup", &[], &sign_up).await;

    assert_eq!(answer.status, 201, "as for any other: {answer:?}");
    assert_eq!(
        members(&scene).await,
        [("ann".to_owned(), "Ann@example.com".to_owned())]
    );
    assert_eq!(enters(&scene, "ann@example.com").await, 401);
}

#[tokio::test]
async fn the_code_for_the_first_account_is_kept_where_the_address_is_a_members() {
    let scene = scene().await;
    let ann = json!({"tenant": "acme", "id": "ann", "email": "ann@example.com"});
    done(&scene, "POST /api/v1/users", &ann).await;
    let mint = bus::mint::Mint::new().expect("randomness");
    let code = gateway::sign_in::setup::offer(&*scene.bus, super::API_SECRET, &mint).await;
    let code = code.expect("the bus").expect("a code");
    let first = |email: &str| {
        let (scene, body) = (
            &scene,
            json!({"code": code, "email": email, "password": PASSWORD}),
        );
        async move { call(scene, "POST /auth/setup", &[], &body).await.status }
    };

    assert_eq!(first("ann@example.com").await, 409);
    assert_eq!(first("root@example.com").await, 201);
}

#[tokio::test]
async fn an_address_lets_in_whom_only_those_gave_it_to_who_may_do_as_much() {
    let scene = scene().await;
    let narrow = json!({"name": "narrow", "tenant": "acme", "role": "admin", "models": ["m"]});
    let narrow = done(&scene, "POST /api/v1/tenant/api-keys", &narrow).await;
    let narrow = narrow["key"].as_str().expect("a key").to_owned();
    let eve = |more: Value| {
        let mut body = json!({"id": "eve", "role": "admin"});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        body.to_string()
    };

    let refused = scene
        .call(
            "POST /api/v1/users",
            &narrow,
            &eve(json!({"email": "eve@example.com"})),
        )
        .await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["param"]),
        (403, &json!("email"))
    );
    let bare = scene.call("POST /api/v1/users", &narrow, &eve(json!({}))).await;
    assert_eq!(bare.status, 201, "who has no address comes in by none: {bare:?}");
    let whole = scene
        .call(
            "PATCH /api/v1/users/eve",
            ADMIN,
            r#"{"email":"eve@example.com","role":"free"}"#,
        )
        .await;
    assert_eq!(whole.status, 200, "{whole:?}");
    let raised = scene
        .call("PATCH /api/v1/users/eve", &narrow, r#"{"role":"admin"}"#)
        .await;
    assert_eq!(
        (raised.status, &raised.json()["error"]["param"]),
        (403, &json!("role"))
    );
}
