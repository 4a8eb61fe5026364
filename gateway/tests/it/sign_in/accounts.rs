//! Accounts: how often one may try, passwords and tokens for them, accounts of one's own, and what is told of all that.

use std::time::Duration;

use schemas::account::attempts::Allowance;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{OURS, PASSWORD, call, choose, login, refresh, scene, settings, signed_in, tokens};
use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, PLAIN, Scene};
use crate::script::whole;

#[tokio::test]
async fn attempts_are_counted_before_the_password_is_looked_at() {
    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.logins_of_email = Allowance {
            attempts_max: 3,
            seconds: 900,
        };
    })
    .await;
    signed_in(&scene, "ann", "pro").await;

    for _ in 0..2 {
        assert_eq!(
            login(&scene, "ann@example.com", "wrong password").await.status,
            401
        );
    }
    let right = login(&scene, "Ann@example.com", PASSWORD).await;
    assert_eq!((right.status, &*right.code()), (429, "too_many_attempts"));
    let seconds: u64 = right
        .header("retry-after")
        .expect("when")
        .parse()
        .expect("seconds");
    assert!((1..=900).contains(&seconds), "{seconds}");
    assert_eq!(
        login(&scene, "bob@example.com", PASSWORD).await.status,
        401,
        "others are not bounded by it"
    );

    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.logins_of_address.attempts_max = 4;
    })
    .await;
    let all = (0..9).map(|number| {
        let scene = &scene;
        async move {
            login(scene, &format!("a{number}@example.com"), PASSWORD)
                .await
                .status
        }
    });
    let statuses = futures_util::future::join_all(all).await;
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!(looked_at, 4, "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [401, 429].contains(status)),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn a_changed_password_ends_every_other_session_and_the_old_one_opens_nothing() {
    let scene = scene().await;
    let (mine, my_cookie) = signed_in(&scene, "ann", "pro").await;
    let (other, other_cookie) = tokens(&login(&scene, "ann@example.com", PASSWORD).await);
    let change =
        |current: &str, new: &str| json!({"current_password": current, "new_password": new}).to_string();
    let line = "POST /user/change-password";

    let wrong = scene
        .call(line, &mine, &change("no idea at all", "a new password 1"))
        .await;
    assert_eq!((wrong.status, &*wrong.code()), (400, "wrong_password"));
    let weak = scene.call(line, &mine, &change(PASSWORD, "short")).await;
    assert_eq!(
        (weak.status, weak.json()["error"]["param"].as_str()),
        (400, Some("new_password"))
    );
    assert_eq!(
        scene
            .call(line, CALLER, &change(PASSWORD, "a new password 1"))
            .await
            .status,
        404
    );
    let done = scene
        .call(line, &mine, &change(PASSWORD, "a new password 1"))
        .await;
    assert_eq!(done.status, 200, "{done:?}");

    assert_eq!(scene.call("GET /user/me", &mine, "").await.status, 200);
    assert_eq!(refresh(&scene, &my_cookie, &[OURS]).await.status, 200);
    assert_eq!(scene.call("GET /user/me", &other, "").await.status, 401);
    assert_eq!(refresh(&scene, &other_cookie, &[OURS]).await.status, 401);
    assert_eq!(login(&scene, "ann@example.com", PASSWORD).await.status, 401);
    let (again, _) = tokens(&login(&scene, "ann@example.com", "a new password 1").await);

    choose(&scene, "ann", "a third password").await;
    for token in [&mine, &again] {
        assert_eq!(scene.call("GET /user/me", token, "").await.status, 401);
    }
    assert_eq!(
        login(&scene, "ann@example.com", "a third password").await.status,
        200
    );
    let told: Vec<Value> = scene.events(schemas::subject::AUDIT);
    let accounts = told.iter().filter(|event| event["kind"] == "account");
    let fields: Vec<String> = accounts
        .map(|event| event["change"]["fields"].to_string())
        .collect();
    assert_eq!(
        fields.len(),
        5,
        "two tokens, two choices and a change: {fields:?}"
    );
    assert!(
        fields.iter().all(|fields| fields.contains("\"***\"")),
        "{fields:?}"
    );
}

#[tokio::test]
async fn a_token_for_a_password_is_made_by_those_who_administer_the_member_and_good_once() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;
    signed_in(&scene, "boss", "operator").await;

    for (line, key, status) in [
        ("POST /api/v1/users/ann/password-reset", CALLER, 403),
        ("POST /api/v1/users/ann/password-reset?tenant=default", ADMIN, 403),
        ("POST /api/v1/users/nobody/password-reset", ADMIN, 404),
        ("POST /api/v1/users/boss/password-reset", ADMIN, 403),
        ("POST /api/v1/users/ann/password-reset", ADMIN, 201),
    ] {
        assert_eq!(scene.call(line, key, "").await.status, status, "{line}");
    }
    let reset = scene
        .call("POST /api/v1/users/ann/password-reset", ADMIN, "")
        .await
        .json();
    let token = reset["token"].as_str().expect("a token").to_owned();
    let choose = |token: &str, password: &str| {
        let (scene, body) = (&scene, json!({"token": token, "new_password": password}));
        async move { call(scene, "POST /auth/reset-password", &[], &body).await.status }
    };

    assert_eq!(choose(&token, "short").await, 400, "it stays good");
    let mut other = token.clone();
    other.replace_range(token.len() - 1.., if token.ends_with('A') { "B" } else { "A" });
    for wrong in [&*other, "acme.YW5u.AAAA", "acme.YW5u", "", "x"] {
        assert_eq!(choose(wrong, "a new password 1").await, 400, "{wrong}");
    }
    assert_eq!(choose(&token, "a new password 1").await, 200);
    assert_eq!(choose(&token, "a new password 2").await, 400);
    assert_eq!(
        login(&scene, "ann@example.com", "a new password 1").await.status,
        200
    );
}

#[tokio::test]
async fn an_address_of_mail_is_of_one_account_in_the_whole_deployment() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;
    let other = json!({"tenant": "default", "id": "imp", "email": "Ann@Example.com"});
    let made = scene
        .call("POST /api/v1/users", OPERATOR, &other.to_string())
        .await;
    assert_eq!((made.status, &*made.code()), (409, "already_exists"));
    assert_eq!(login(&scene, "ann@example.com", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn people_sign_up_where_that_is_allowed_and_wait_for_approval_unless_their_domain_is_listed() {
    let body =
        |email: &str| json!({"email": email, "password": PASSWORD, "user_name": "New", "accepted_tos": true});
    let off = scene().await;
    let refused = call(&off, "POST /auth/signup", &[], &body("a@example.com")).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        call(&off, "GET /site-config", &[], &Value::Null).await.json()["signup_enabled"],
        false
    );

    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.sign_up.enabled = true;
        config.sign_in.sign_up.domains = vec!["*.edu".to_owned()];
        config.sign_in.sign_up.tenant = "acme".into();
    })
    .await;
    let listed = call(&scene, "POST /auth/signup", &[], &body("ann@mit.edu")).await;
    assert_eq!(
        (listed.status, &listed.json()["requires_approval"]),
        (201, &json!(false))
    );
    let (token, _) = tokens(&login(&scene, "ann@mit.edu", PASSWORD).await);
    let me = scene.call("GET /user/me", &token, "").await.json();
    assert_eq!((&me["role"], &me["tenant"]), (&json!("free"), &json!("acme")));

    let waits = call(&scene, "POST /auth/signup", &[], &body("bob@example.com")).await;
    assert_eq!(
        (waits.status, &waits.json()["requires_approval"]),
        (201, &json!(true))
    );
    let told = login(&scene, "bob@example.com", PASSWORD).await;
    assert_eq!((told.status, &*told.code()), (401, "wrong_password"));
    assert!(told.body.contains("approval"), "{told:?}");
    let id = until_member(&scene, "bob@example.com").await;
    let enable = json!({"disabled": false}).to_string();
    let enabled = scene
        .call(&format!("PATCH /api/v1/users/{id}"), ADMIN, &enable)
        .await;
    assert_eq!(enabled.status, 200, "{enabled:?}");
    assert_eq!(login(&scene, "bob@example.com", PASSWORD).await.status, 200);

    for (field, value) in [
        ("email", json!("nobody")),
        ("password", json!("short")),
        ("accepted_tos", json!(false)),
        ("role", json!("admin")),
        ("tenant", json!("default")),
    ] {
        let mut odd = body("eve@mit.edu");
        odd[field] = value;
        let answer = call(&scene, "POST /auth/signup", &[], &odd).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["param"].as_str()),
            (400, Some(field))
        );
    }
}

/// The id of the member of `acme` who has an address.
pub(super) async fn member_of(scene: &Scene, email: &str) -> Option<String> {
    let listed = scene.call("GET /api/v1/users", ADMIN, "").await.json();
    let mut members = listed["data"].as_array().expect("members").iter();
    let found = members.find(|member| member["email"] == email)?;
    Some(found["id"].as_str().expect("an id").to_owned())
}

/// The same of somebody who is made behind an answer.
pub(super) async fn until_member(scene: &Scene, email: &str) -> String {
    for _ in 0..2_000 {
        if let Some(id) = member_of(scene, email).await {
            return id;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{email} is no member");
}

#[tokio::test]
async fn nobody_learns_by_signing_up_whether_an_address_has_an_account() {
    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.sign_up.enabled = true;
        config.sign_in.sign_up.tenant = "acme".into();
    })
    .await;
    signed_in(&scene, "ann", "pro").await;
    let sign_up = |email: &'static str| {
        let scene = &scene;
        let body = json!({"email": email, "password": "another password 1"});
        async move { call(scene, "POST /auth/signup", &[], &body).await }
    };
    let shown = |answer: &Answer, email: &str| (answer.status, answer.body.replace(email, "EMAIL"));

    let known = sign_up("ann@example.com").await;
    let new = sign_up("bob@example.com").await;
    let again = sign_up("bob@example.com").await;
    assert_eq!(known.status, 201);
    assert_eq!(shown(&known, "ann@example.com"), shown(&new, "bob@example.com"));
    assert_eq!(shown(&new, "bob@example.com"), shown(&again, "bob@example.com"));
    until_member(&scene, "bob@example.com").await;
    // Nor by what the account lets in afterwards.
    let failure = |answer: &Answer| {
        let mut error = answer.json()["error"].clone();
        error["request_id"] = Value::Null;
        (answer.status, error)
    };
    let into_known = login(&scene, "ann@example.com", "another password 1").await;
    let into_new = login(&scene, "bob@example.com", "another password 1").await;
    let into_none = login(&scene, "eve@example.com", "another password 1").await;
    assert_eq!(failure(&into_known), failure(&into_new));
    assert_eq!(failure(&into_none), failure(&into_new));
    assert_eq!(
        login(&scene, "ann@example.com", PASSWORD).await.status,
        200,
        "nothing of hers is changed"
    );
    let listed = scene.call("GET /api/v1/users", ADMIN, "").await.json();
    let count = listed["data"].as_array().expect("members").len();
    assert_eq!(count, 2, "{listed}");
}

#[tokio::test]
async fn of_members_who_are_to_have_one_address_at_once_one_is_made_and_the_others_are_not() {
    let scene = scene().await;
    let create = |id: String, email: &'static str| {
        let scene = &scene;
        let body = json!({"tenant": "acme", "id": id, "email": email, "password": PASSWORD});
        async move {
            scene
                .call("POST /api/v1/users", OPERATOR, &body.to_string())
                .await
        }
    };
    let all = (0..6).map(|number| create(format!("m{number}"), "one@example.com"));
    let answers = futures_util::future::join_all(all).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
    for refused in answers.iter().filter(|answer| answer.status == 409) {
        assert_eq!(refused.json()["error"]["param"], "email", "{refused:?}");
    }
    let listed = scene.call("GET /api/v1/users", ADMIN, "").await.json();
    assert_eq!(listed["data"].as_array().expect("members").len(), 1, "{listed}");
    assert_eq!(login(&scene, "one@example.com", PASSWORD).await.status, 200);

    // An address that was held for a member who was not made is free at once.
    let winner = listed["data"][0]["id"].as_str().expect("an id").to_owned();
    let taken_id = create(winner.clone(), "two@example.com").await;
    assert_eq!(
        (taken_id.status, &taken_id.json()["error"]["param"]),
        (409, &json!("id"))
    );
    let free = create("other".to_owned(), "two@example.com").await;
    assert_eq!(free.status, 201, "{free:?}");

    // Nor does a change take another's address, or leave half of itself.
    let change = |id: String, email: &'static str| {
        let scene = &scene;
        async move {
            let line = format!("PATCH /api/v1/users/{id}?tenant=acme");
            let body = json!({"email": email}).to_string();
            scene.call(&line, OPERATOR, &body).await
        }
    };
    assert_eq!(change("other".to_owned(), "one@example.com").await.status, 409);
    let both = futures_util::future::join_all([
        change(winner, "three@example.com"),
        change("other".to_owned(), "three@example.com"),
    ])
    .await;
    let mut statuses = [both[0].status, both[1].status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{both:?}");
    assert_eq!(login(&scene, "three@example.com", PASSWORD).await.status, 200);
    let kept = if both[0].status == 200 {
        "two@example.com"
    } else {
        "one@example.com"
    };
    assert_eq!(
        login(&scene, kept, PASSWORD).await.status,
        200,
        "the loser has what he had"
    );
    let listed = scene.call("GET /api/v1/users", ADMIN, "").await.json();
    let mut emails: Vec<&str> = listed["data"]
        .as_array()
        .expect("members")
        .iter()
        .map(|member| member["email"].as_str().expect("an address"))
        .collect();
    emails.sort_unstable();
    let mut expected = ["three@example.com", kept];
    expected.sort_unstable();
    assert_eq!(emails, expected);
}

#[tokio::test]
async fn without_a_server_of_mail_nobody_is_written_to_and_says_so() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;
    for email in ["ann@example.com", "bob@example.com"] {
        let answer = call(
            &scene,
            "POST /auth/forgot-password",
            &[],
            &json!({"email": email}),
        )
        .await;
        assert_eq!((answer.status, &*answer.code()), (404, "not_found"));
    }
    let line = "POST /api/v1/users/ann/password-reset?tenant=acme&mail=maybe";
    let odd = scene.call(line, OPERATOR, "").await;
    assert_eq!((odd.status, &odd.json()["error"]["param"]), (400, &json!("mail")));
    for line in ["GET /auth/oidc/login", "GET /auth/oidc/callback?code=a&state=b"] {
        assert_eq!(call(&scene, line, &[], &Value::Null).await.status, 404, "{line}");
    }
}

#[tokio::test]
async fn whoever_comes_is_an_administrator_of_a_node_that_asks_nobody_but_no_page_of_another_site() {
    let scene = Scene::with(|config| {
        settings(config);
        config.sign_in.required = false;
    })
    .await;
    let me = |headers: Vec<(&'static str, &'static str)>| {
        let scene = &scene;
        async move { call(scene, "GET /user/me", &headers, &Value::Null).await }
    };

    let nobody = me(vec![]).await;
    assert_eq!((nobody.status, &nobody.json()["role"]), (200, &json!("admin")));
    assert_eq!(
        me(vec![("authorization", "Bearer sk-anything-at-all-01")])
            .await
            .status,
        200
    );
    assert_eq!(me(vec![OURS]).await.status, 200);
    assert_eq!(me(vec![("origin", "https://evil.org")]).await.status, 401);
    let operator = scene.call("GET /user/me", OPERATOR, "").await;
    assert_eq!(operator.json()["role"], "operator", "who says who he is, is that");
    // The name under which another site had a browser come here.
    let rebound = scene
        .raw(b"GET /user/me HTTP/1.1\r\nhost: rebound.evil.org\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(rebound.status, 401);
}

#[tokio::test]
async fn nothing_that_is_told_of_holds_a_password_or_a_token() {
    let scene = scene().await;
    let (token, cookie) = signed_in(&scene, "ann", "admin").await;
    let refreshed = refresh(&scene, &cookie, &[OURS]).await;
    let (_, next) = tokens(&refreshed);
    scene.script.push(whole("{}"));
    scene.call("POST /v1/chat/completions", &token, PLAIN).await;
    scene.rows(1).await;
    let secrets: Vec<String> = [&cookie, &next]
        .iter()
        .map(|cookie| cookie.split_once('=').expect("a pair").1.to_owned())
        .chain([PASSWORD.to_owned(), token.clone()])
        .collect();

    let mut told = vec![scene.call("GET /metrics", OPERATOR, "").await.body];
    let messages = scene.spool.read(1, 512).expect("read");
    told.extend(
        messages
            .iter()
            .map(|(_, message)| String::from_utf8_lossy(&message.payload).into_owned()),
    );
    for line in [
        "GET /api/v1/users?tenant=acme",
        "GET /api/v1/users/ann/history?tenant=acme",
        "GET /api/v1/tenant/api-keys",
    ] {
        told.push(scene.call(line, OPERATOR, "").await.body);
    }
    told.push(login(&scene, "ann@example.com", "a wrong password 77").await.body);
    for text in &told {
        for secret in secrets
            .iter()
            .map(String::as_str)
            .chain(["argon2", "a wrong password 77"])
        {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
