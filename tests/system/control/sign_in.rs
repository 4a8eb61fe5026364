//! Signing in on two nodes: what one knows the other does, each token is good once over both, and limits are not
//! multiplied by nodes. These tests are clusters wherever they run.

use std::time::Duration;

use harness::{Answer, Client, OPERATOR_KEY, Plan, Scene};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, SPREAD_MAX, call, done};

pub(super) mod mail;
mod oidc;

pub(super) const PASSWORD: &str = "correct horse battery 1";

/// A cluster, and nobody at each of its gateways.
async fn two_nodes(limits: &[(&str, &str)]) -> (Scene, Client, Client) {
    let mut scene = Scene::start_cluster(Plan::default(), |node| {
        limits
            .iter()
            .fold(node, |node, (name, value)| node.env(name, value))
    })
    .await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let nobody = scene.client.with_key("");
    (scene, nobody.at(a), nobody.at(b))
}

const NO_LIMITS: [(&str, &str); 2] = [
    ("LOGIN_RATE_LIMIT_PER_15MIN", "0"),
    ("LOGIN_RATE_LIMIT_PER_HOUR_PER_IP", "0"),
];

/// Makes a member who signs in with [`PASSWORD`].
pub(super) async fn member(operator: &Client, id: &str, role: &str) {
    let user = json!({"tenant": "acme", "id": id, "email": format!("{id}@example.com"), "role": role,
        "password": PASSWORD});
    done(operator, "POST", "/api/v1/users", user).await;
}

pub(super) async fn login(client: &Client, id: &str, password: &str) -> Answer {
    let body = json!({"email": format!("{id}@example.com"), "password": password});
    call(client, "POST", "/auth/login", body).await
}

/// The access token and the cookie of an answer.
pub(super) fn tokens(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let token = answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let cookie = answer
        .header("set-cookie")
        .split(';')
        .next()
        .expect("a pair")
        .to_owned();
    (token, cookie)
}

pub(super) async fn refresh(client: &Client, cookie: &str) -> Answer {
    let client = client
        .with_header("cookie", cookie)
        .with_header("x-requested-with", "test");
    call(&client, "POST", "/auth/refresh", Value::Null).await
}

/// Asks who a token is until the status is this one; gives how long that took.
async fn until(client: &Client, token: &str, status: u16) -> Duration {
    let (client, start) = (client.with_key(token), Instant::now());
    loop {
        let answer = call(&client, "GET", "/user/me", Value::Null).await;
        if answer.status == status {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < PATIENCE,
            "still {}: {}",
            answer.status,
            answer.text()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_session_of_one_node_is_good_on_the_other_at_once_and_ends_on_both() {
    let (scene, a, b) = two_nodes(&NO_LIMITS).await;
    let operator = a.with_key(OPERATOR_KEY);
    member(&operator, "ann", "admin").await;

    let (token, cookie) = tokens(&login(&a, "ann", PASSWORD).await);
    let at_once = call(&b.with_key(&token), "GET", "/api/v1/users", Value::Null).await;
    assert_eq!(at_once.status, 200, "{}", at_once.text());
    let (next, next_cookie) = tokens(&refresh(&b, &cookie).await);
    assert_eq!(
        call(&a.with_key(&next), "GET", "/user/me", Value::Null)
            .await
            .status,
        200
    );

    // Two pages of one browser ask at once: the other node gives what the first gave.
    let (_, again) = tokens(&refresh(&a, &cookie).await);
    assert_eq!(again, next_cookie);
    let (_, _) = tokens(&refresh(&a, &next_cookie).await);
    // Older than the last, and on the other node: somebody else has it.
    assert_eq!(refresh(&b, &cookie).await.status, 401);
    for client in [&a, &b] {
        for token in [&token, &next] {
            assert!(until(client, token, 401).await < SPREAD_MAX);
        }
    }

    let (token, _) = tokens(&login(&b, "ann", PASSWORD).await);
    let out = call(&a.with_key(&token), "POST", "/auth/logout", Value::Null).await;
    assert_eq!(out.status, 200);
    assert!(until(&b, &token, 401).await < SPREAD_MAX);
    scene.finish().await;
}

#[tokio::test]
async fn two_nodes_that_are_shown_one_refresh_token_at_once_give_the_same_next_one() {
    let (scene, a, b) = two_nodes(&NO_LIMITS).await;
    member(&a.with_key(OPERATOR_KEY), "ann", "pro").await;

    for _ in 0..6 {
        let (token, cookie) = tokens(&login(&a, "ann", PASSWORD).await);
        let (first, second) = tokio::join!(refresh(&a, &cookie), refresh(&b, &cookie));
        let ((first, next), (second, same)) = (tokens(&first), tokens(&second));
        assert_eq!(next, same);
        for token in [&token, &first, &second] {
            let answer = call(&b.with_key(token), "GET", "/user/me", Value::Null).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        // Once more by each node in turn, and the first is too old.
        let (_, last) = tokens(&refresh(&b, &next).await);
        assert_eq!(refresh(&a, &cookie).await.status, 401);
        assert_eq!(refresh(&b, &last).await.status, 401);
        for client in [&a, &b] {
            assert!(until(client, &token, 401).await < SPREAD_MAX);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_49_a_member_who_is_lowered_disabled_or_has_another_password_is_so_on_both_nodes_within_two_seconds()
 {
    let (scene, a, b) = two_nodes(&NO_LIMITS).await;
    let operator = a.with_key(OPERATOR_KEY);
    member(&operator, "ann", "admin").await;
    let path = "/api/v1/users/ann?tenant=acme";
    let (token, cookie) = tokens(&login(&b, "ann", PASSWORD).await);

    done(&operator, "PATCH", path, json!({"role": "free"})).await;
    let start = Instant::now();
    while call(&b.with_key(&token), "GET", "/api/v1/users", Value::Null)
        .await
        .status
        != 403
    {
        assert!(start.elapsed() < SPREAD_MAX, "he is an administrator still");
        sleep(Duration::from_millis(20)).await;
    }
    done(&operator, "PATCH", path, json!({"disabled": true})).await;
    assert!(until(&b, &token, 401).await < SPREAD_MAX);
    assert_eq!(refresh(&b, &cookie).await.status, 401);
    done(&operator, "PATCH", path, json!({"disabled": false})).await;
    let (mine, _) = tokens(&login(&a, "ann", PASSWORD).await);
    assert_eq!(refresh(&b, &cookie).await.status, 401, "his sessions ended");
    let (other, _) = tokens(&login(&b, "ann", PASSWORD).await);

    let change = json!({"current_password": PASSWORD, "new_password": "another password 2"});
    done(&a.with_key(&mine), "POST", "/user/change-password", change).await;
    assert!(until(&b, &other, 401).await < SPREAD_MAX);
    let mine_at_b = call(&b.with_key(&mine), "GET", "/user/me", Value::Null).await;
    assert_eq!(mine_at_b.status, 200, "the session that changed it goes on");
    assert_eq!(login(&b, "ann", PASSWORD).await.status, 401);
    let disable = json!({"disabled": true});
    done(&operator, "PATCH", "/api/v1/tenants/acme", disable).await;
    assert!(until(&b, &mine, 401).await < SPREAD_MAX);
    done(
        &operator,
        "PATCH",
        "/api/v1/tenants/acme",
        json!({"disabled": false}),
    )
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn two_nodes_allow_no_more_attempts_than_one() {
    let (scene, a, b) = two_nodes(&[("LOGIN_RATE_LIMIT_PER_HOUR_PER_IP", "12")]).await;
    member(&a.with_key(OPERATOR_KEY), "ann", "pro").await;

    let attempts = (0..10).map(|number| {
        let client = if number % 2 == 0 { &a } else { &b };
        login(client, "ann", "a wrong password")
    });
    let answers = futures_util::future::join_all(attempts).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 401).count(),
        5,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 429).count(),
        5,
        "{statuses:?}"
    );
    let right = login(&b, "ann", PASSWORD).await;
    assert_eq!(
        (right.status, right.error_code()),
        (429, "too_many_attempts".to_owned())
    );

    // Of the twelve that may come from one address in an hour, eleven came.
    let others = [login(&a, "bob", PASSWORD).await, login(&b, "eve", PASSWORD).await];
    assert_eq!(others.map(|answer| answer.status), [401, 429]);
    scene.finish().await;
}

#[tokio::test]
async fn of_two_nodes_one_prints_the_code_for_the_first_account_and_either_takes_it() {
    let (mut scene, a, b) = two_nodes(&[]).await;
    let code = |lines: Vec<String>| {
        let line = lines
            .iter()
            .position(|line| line.contains("made with this code"))?;
        let code = lines[line + 1..]
            .iter()
            .map(|line| line.trim())
            .find(|line| line.len() == 24);
        code.map(str::to_owned)
    };
    let other = code(scene.cluster().node("b").logs());
    let codes = [code(scene.node.logs()), other];
    let [code] = &codes.iter().flatten().collect::<Vec<_>>()[..] else {
        panic!("{codes:?}");
    };

    let body = json!({"code": code, "email": "root@example.com", "password": PASSWORD});
    let (first, second) = tokio::join!(
        call(&a, "POST", "/auth/setup", body.clone()),
        call(&b, "POST", "/auth/setup", body.clone()),
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 401], "{} {}", first.text(), second.text());
    let root = if first.status == 201 { first } else { second };
    assert_eq!(root.json()["user"]["role"], "operator");
    scene.finish().await;
}
