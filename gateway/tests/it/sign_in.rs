//! Signing in, over the whole gateway: what is answered to whom, which cookies count from where, and what becomes of
//! tokens. What two nodes make of it is among the system tests.

use bus::mint::Mint;
use gateway::Config;
use schemas::account::attempts::Allowance;
use schemas::secret::Secret;
use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, PLAIN, Scene};
use crate::script::whole;

const PASSWORD: &str = "correct horse battery 1";
const JWT_SECRET: &[u8] = b"a secret of thirty-two bytes and more";
const API_SECRET: &[u8] = b"a secret of the deployment";

pub(crate) fn settings(config: &mut Config) {
    config.sign_in.secret = Some(Secret::new(JWT_SECRET.to_vec()));
    // Whoever is not asked about limits is not bounded by them.
    for allowance in [
        &mut config.sign_in.logins_of_address,
        &mut config.sign_in.logins_of_email,
        &mut config.sign_in.sign_up.of_address,
    ] {
        allowance.attempts_max = 0;
    }
    config.cors_origins = vec!["https://console.example.com".to_owned()];
}

async fn scene() -> Scene {
    Scene::with(settings).await
}

/// A call with these headers and a body, without a key.
async fn call(scene: &Scene, line: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: localhost:3333\r\ncontent-length: {length}\r\nconnection: close\r\n{lines}\r\n{body}"
    );
    scene.raw(request.as_bytes()).await
}

async fn login(scene: &Scene, email: &str, password: &str) -> Answer {
    let body = json!({"email": email, "password": password});
    call(scene, "POST /auth/login", &[], &body).await
}

/// A member with a password, made as operators make them: gives his access token and his cookie.
pub(crate) async fn signed_in(scene: &Scene, id: &str, role: &str) -> (String, String) {
    let email = format!("{id}@example.com");
    let user = json!({"tenant": "acme", "id": id, "email": email, "role": role});
    let made = scene
        .call("POST /api/v1/users", OPERATOR, &user.to_string())
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    choose(scene, id, PASSWORD).await;
    tokens(&login(scene, &email, PASSWORD).await)
}

/// The access token of a session that is over.
pub(crate) async fn signed_out(scene: &Scene, id: &str) -> String {
    let (token, _) = signed_in(scene, id, "operator").await;
    assert_eq!(scene.call("POST /auth/logout", &token, "").await.status, 200);
    token
}

/// Has a password chosen with a token of the operator's.
async fn choose(scene: &Scene, id: &str, password: &str) {
    let line = format!("POST /api/v1/users/{id}/password-reset?tenant=acme");
    let reset = scene.call(&line, OPERATOR, "").await;
    assert_eq!(reset.status, 201, "{reset:?}");
    let body = json!({"token": reset.json()["token"], "new_password": password});
    let chosen = call(scene, "POST /auth/reset-password", &[], &body).await;
    assert_eq!(chosen.status, 200, "{chosen:?}");
}

/// The access token of an answer, and its cookie as it is sent back.
fn tokens(answer: &Answer) -> (String, String) {
    assert!(answer.status < 300, "{answer:?}");
    let token = answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    (token, cookie(answer))
}

/// The cookie of an answer, as it is sent back.
fn cookie(answer: &Answer) -> String {
    let line = answer.raw_header("set-cookie").expect("a cookie");
    line.split(';').next().expect("a pair").to_owned()
}

async fn refresh(scene: &Scene, cookie: &str, headers: &[(&str, &str)]) -> Answer {
    let mut all = vec![("cookie", cookie)];
    all.extend(headers);
    call(scene, "POST /auth/refresh", &all, &Value::Null).await
}

const OURS: (&str, &str) = ("origin", "http://localhost:3333");

#[tokio::test]
async fn the_first_account_is_made_with_the_code_that_a_node_prints_once() {
    let scene = scene().await;
    let mint = Mint::new().expect("randomness");
    let offer = || gateway::sign_in::setup::offer(&*scene.bus, API_SECRET, &mint);
    let code = offer().await.expect("the bus").expect("a code");
    assert_eq!(offer().await.expect("the bus"), None, "there is one already");
    let body = |code: &str| json!({"code": code, "email": "Root@Example.com", "password": PASSWORD});

    let wrong = call(&scene, "POST /auth/setup", &[], &body("AAAAAAAAAAAAAAAAAAAAAAAA")).await;
    assert_eq!((wrong.status, &*wrong.code()), (401, "wrong_password"));
    let weak = json!({"code": code, "email": "root@example.com", "password": "short"});
    assert_eq!(
        call(&scene, "POST /auth/setup", &[], &weak).await.status,
        400,
        "the code is kept"
    );
    let made = call(&scene, "POST /auth/setup", &[], &body(&code)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let again = call(&scene, "POST /auth/setup", &[], &body(&code)).await;
    assert_eq!(again.status, 401, "it is good once");

    let (token, _) = tokens(&made);
    let me = scene.call("GET /user/me", &token, "").await.json();
    assert_eq!(
        (&me["email"], &me["role"], &me["tenant"], &me["is_admin"]),
        (
            &json!("root@example.com"),
            &json!("operator"),
            &json!("default"),
            &json!(true)
        )
    );
    assert_eq!(scene.call("GET /api/v1/tenants", &token, "").await.status, 200);
    assert_eq!(login(&scene, " ROOT@example.com", PASSWORD).await.status, 200);
    assert_eq!(offer().await.expect("the bus"), None, "there is an account");
}

#[tokio::test]
async fn of_many_who_have_the_code_one_makes_the_first_account() {
    let scene = scene().await;
    let mint = Mint::new().expect("randomness");
    let code = gateway::sign_in::setup::offer(&*scene.bus, API_SECRET, &mint).await;
    let code = code.expect("the bus").expect("a code");

    let all = (0..6).map(|number| {
        let body = json!({"code": code, "email": format!("a{number}@example.com"), "password": PASSWORD});
        let scene = &scene;
        async move { call(scene, "POST /auth/setup", &[], &body).await.status }
    });
    let mut statuses = futures_util::future::join_all(all).await;
    statuses.sort_unstable();

    assert_eq!(statuses, [201, 401, 401, 401, 401, 401]);
}

#[tokio::test]
async fn a_wrong_password_and_nobody_get_the_same_answer() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;

    let wrong = login(&scene, "ann@example.com", "another password").await;
    let nobody = login(&scene, "bob@example.com", PASSWORD).await;
    let no_address = login(&scene, "bob", PASSWORD).await;

    let shown = |answer: &Answer| {
        let mut error = answer.json()["error"].clone();
        error["request_id"] = Value::Null;
        (answer.status, error)
    };
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.code(), "wrong_password");
    assert_eq!(shown(&wrong), shown(&nobody));
    assert_eq!(shown(&wrong), shown(&no_address));
    let odd = call(
        &scene,
        "POST /auth/login",
        &[],
        &json!({"email": "a@b", "password": "x", "otp": 1}),
    )
    .await;
    assert_eq!(
        (odd.status, odd.json()["error"]["param"].as_str()),
        (400, Some("otp"))
    );
}

#[tokio::test]
async fn a_session_is_a_caller_that_may_do_what_its_member_may_at_that_moment() {
    let scene = scene().await;
    let (token, _) = signed_in(&scene, "ann", "admin").await;
    scene.script.push(whole("{}"));

    assert_eq!(
        scene
            .call("POST /v1/chat/completions", &token, PLAIN)
            .await
            .status,
        200
    );
    let row = &scene.rows(1).await[0];
    assert_eq!(
        (
            row.payer.tenant.as_str(),
            row.payer.user.as_ref().map(|user| user.as_str())
        ),
        ("acme", Some("ann"))
    );
    let key = json!({"name": "mine", "role": "admin", "user": "ann"});
    let minted = scene
        .call("POST /api/v1/tenant/api-keys", &token, &key.to_string())
        .await;
    assert_eq!((minted.status, &minted.json()["expires_at"]), (201, &Value::Null));
    let beyond = json!({"name": "more", "role": "operator"});
    let refused = scene
        .call("POST /api/v1/tenant/api-keys", &token, &beyond.to_string())
        .await;
    assert_eq!(refused.status, 403);
    assert_eq!(scene.call("GET /api/v1/tenants", &token, "").await.status, 403);

    let lower = json!({"role": "free"}).to_string();
    let line = "PATCH /api/v1/users/ann?tenant=acme";
    assert_eq!(scene.call(line, OPERATOR, &lower).await.status, 200);
    assert_eq!(scene.call("GET /api/v1/users", &token, "").await.status, 403);
    let disable = json!({"disabled": true}).to_string();
    assert_eq!(scene.call(line, OPERATOR, &disable).await.status, 200);
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
    let told = login(&scene, "ann@example.com", PASSWORD).await;
    assert_eq!(told.status, 403, "{told:?}");
}

#[tokio::test]
async fn a_session_with_another_credential_beside_it_is_nobody() {
    let scene = scene().await;
    let (token, _) = signed_in(&scene, "ann", "admin").await;
    let bearer = format!("Bearer {token}");

    for (headers, status) in [
        (vec![("authorization", &*bearer)], 200),
        (vec![("x-api-key", &*token)], 200),
        (vec![("authorization", &bearer), ("x-api-key", &*token)], 200),
        (vec![("authorization", &bearer), ("x-api-key", CALLER)], 401),
        (
            vec![
                ("authorization", &bearer),
                ("authorization", &format!("Bearer {ADMIN}")),
            ],
            401,
        ),
        (vec![("cookie", &format!("refresh_token={token}"))], 401),
        (vec![("cookie", &format!("access_token={token}"))], 401),
        (vec![("authorization", &format!("Basic {token}"))], 401),
    ] {
        let answer = call(&scene, "GET /user/me", &headers, &Value::Null).await;
        assert_eq!(answer.status, status, "{headers:?}");
    }
    let query = format!("GET /user/me?access_token={token}");
    assert_eq!(call(&scene, &query, &[], &Value::Null).await.status, 401);
}

#[tokio::test]
async fn each_refresh_token_is_good_once_and_the_second_time_ends_the_session() {
    let scene = scene().await;
    let (first, cookie_1) = signed_in(&scene, "ann", "pro").await;
    let (other, _) = tokens(&login(&scene, "ann@example.com", PASSWORD).await);

    let (second, cookie_2) = tokens(&refresh(&scene, &cookie_1, &[OURS]).await);
    assert_ne!(cookie_1, cookie_2);
    for token in [&first, &second] {
        assert_eq!(scene.call("GET /user/me", token, "").await.status, 200);
    }
    let stolen = refresh(&scene, &cookie_1, &[OURS]).await;
    assert_eq!(stolen.status, 401);
    assert!(
        stolen
            .header("set-cookie")
            .expect("a cookie")
            .contains("max-age=0")
    );

    assert_eq!(
        refresh(&scene, &cookie_2, &[OURS]).await.status,
        401,
        "the session is over"
    );
    for token in [&first, &second] {
        assert_eq!(scene.call("GET /user/me", token, "").await.status, 401);
    }
    assert_eq!(
        scene.call("GET /user/me", &other, "").await.status,
        200,
        "the other one goes on"
    );
}

#[tokio::test]
async fn of_many_who_present_one_refresh_token_at_once_one_gets_the_next_and_the_session_ends() {
    let scene = scene().await;
    let (token, cookie) = signed_in(&scene, "ann", "pro").await;

    let all = (0..4).map(|_| refresh(&scene, &cookie, &[OURS]));
    let mut statuses: Vec<u16> = futures_util::future::join_all(all)
        .await
        .iter()
        .map(|answer| answer.status)
        .collect();
    statuses.sort_unstable();

    assert_eq!(statuses, [200, 401, 401, 401]);
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
}

#[tokio::test]
async fn the_cookie_counts_for_our_own_pages_alone_and_nothing_else_counts_by_it() {
    let scene = scene().await;
    let (token, cookie) = signed_in(&scene, "ann", "pro").await;
    let form = ("content-type", "application/x-www-form-urlencoded");

    for headers in [
        &[("origin", "https://evil.org")][..],
        &[("origin", "null")],
        &[("origin", "https://localhost:3333.evil.org")],
        &[("origin", "http://localhost")],
        &[("origin", "https://console.example.com.evil.org")],
        &[("origin", "http://console.example.com")],
        &[form],
        &[("content-type", "text/plain")],
        &[],
        &[("referer", "http://localhost:3333/")],
    ] {
        for line in ["POST /auth/refresh", "POST /auth/logout"] {
            let mut all = vec![("cookie", &*cookie)];
            all.extend(headers);
            let answer = call(&scene, line, &all, &Value::Null).await;
            assert_eq!(
                (answer.status, &*answer.code()),
                (403, "insufficient_scope"),
                "{line} {headers:?}"
            );
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
    }
    assert_eq!(
        scene.call("GET /user/me", &token, "").await.status,
        200,
        "nothing was ended"
    );
    let get = call(
        &scene,
        "GET /auth/refresh",
        &[("cookie", &*cookie), OURS],
        &Value::Null,
    )
    .await;
    assert_eq!(get.status, 405);
    for line in ["GET /user/me", "GET /api/v1/users", "POST /user/change-password"] {
        let answer = call(&scene, line, &[("cookie", &*cookie), OURS], &Value::Null).await;
        assert_eq!(answer.status, 401, "{line}");
    }

    let (_, cookie) = tokens(&refresh(&scene, &cookie, &[("origin", "https://console.example.com")]).await);
    let (_, cookie) = tokens(&refresh(&scene, &cookie, &[("content-type", "application/json")]).await);
    let out = call(
        &scene,
        "POST /auth/logout",
        &[("cookie", &*cookie), OURS],
        &Value::Null,
    )
    .await;
    assert_eq!(out.status, 200);
    assert_eq!(refresh(&scene, &cookie, &[OURS]).await.status, 401);
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
}

#[tokio::test]
async fn named_origins_may_send_the_cookie_on_the_paths_of_signing_in_and_nowhere_else() {
    let scene = scene().await;
    let ask = |path: &'static str, origin: &'static str| {
        let scene = &scene;
        async move {
            let headers = [
                ("origin", origin),
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "content-type"),
            ];
            let answer = call(scene, &format!("OPTIONS {path}"), &headers, &Value::Null).await;
            let header = |name: &str| answer.header(name).map(str::to_owned);
            (
                header("access-control-allow-origin"),
                header("access-control-allow-credentials"),
            )
        }
    };
    let named = Some("https://console.example.com".to_owned());

    assert_eq!(
        ask("/auth/refresh", "https://console.example.com").await,
        (named.clone(), Some("true".to_owned()))
    );
    assert_eq!(
        ask("/user/me", "https://console.example.com").await,
        (named, None)
    );
    for origin in ["https://evil.org", "null", "https://console.example.com.evil.org"] {
        assert_eq!(ask("/auth/refresh", origin).await, (None, None), "{origin}");
    }
    let open = Scene::with(|config| {
        settings(config);
        config.cors_origins = vec!["*".to_owned()];
    })
    .await;
    let (_, cookie) = signed_in(&open, "ann", "pro").await;
    let answer = refresh(&open, &cookie, &[("origin", "https://evil.org")]).await;
    assert_eq!(answer.status, 403, "every page may call, none with the cookie");
    assert_eq!(answer.header("access-control-allow-credentials"), None);
}

#[tokio::test]
async fn the_cookie_is_for_tls_unless_the_node_is_reached_on_its_own_machine() {
    let scene = scene().await;
    signed_in(&scene, "ann", "pro").await;
    let body = json!({"email": "ann@example.com", "password": PASSWORD}).to_string();
    let set = |host: &'static str| {
        let (scene, body) = (&scene, &body);
        async move {
            let length = body.len();
            let request = format!(
                "POST /auth/login HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let answer = scene.raw(request.as_bytes()).await;
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            answer.header("set-cookie").expect("a cookie").to_owned()
        }
    };

    for (host, secure) in [
        ("gw.example.com", true),
        ("localhost.evil.org", true),
        ("localhost:3333", false),
        ("127.0.0.1", false),
        ("[::1]:3333", false),
    ] {
        let cookie = set(host).await;
        assert!(cookie.contains("; httponly; samesite=lax"), "{cookie}");
        assert!(cookie.contains("; path=/auth;"), "{cookie}");
        assert_eq!(cookie.contains("; secure"), secure, "{host}: {cookie}");
    }
}

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
    assert_eq!(
        scene
            .call("POST /api/v1/users", OPERATOR, &other.to_string())
            .await
            .status,
        201
    );

    let reset = scene
        .call("POST /api/v1/users/imp/password-reset", OPERATOR, "")
        .await;
    assert_eq!((reset.status, &*reset.code()), (409, "already_exists"));
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
    assert_eq!(told.status, 403);
    assert!(told.body.contains("approval"), "{told:?}");
    let wrong = login(&scene, "bob@example.com", "another password").await;
    assert_eq!(wrong.status, 401, "only he is told");
    let id = waits.json()["user_id"].as_str().expect("an id").to_owned();
    let enable = json!({"disabled": false}).to_string();
    let enabled = scene
        .call(&format!("PATCH /api/v1/users/{id}"), ADMIN, &enable)
        .await;
    assert_eq!(enabled.status, 200, "{enabled:?}");
    assert_eq!(login(&scene, "bob@example.com", PASSWORD).await.status, 200);

    let twice = call(&scene, "POST /auth/signup", &[], &body("Ann@MIT.edu")).await;
    assert_eq!(twice.status, 409);
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
