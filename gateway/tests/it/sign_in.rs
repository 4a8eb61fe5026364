//! Signing in, over the whole gateway: what is answered to whom, which cookies count from where, and what becomes of
//! tokens. What two nodes make of it is among the system tests.

use bus::mint::Mint;
use gateway::Config;
use schemas::id::UserId;
use schemas::secret::Secret;
use serde_json::{Value, json};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, PLAIN, Scene};
use crate::script::whole;

mod accounts;
mod cookie;
mod corpus;
mod following;
mod stalled;

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
    let mut lines = String::new();
    for (name, value) in headers {
        lines.extend([name, ": ", value, "\r\n"]);
    }
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
        (row.tenant.as_str(), row.user.as_ref().map(UserId::as_str)),
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
