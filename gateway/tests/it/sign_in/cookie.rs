//! Refresh tokens and their cookie: each good once, and only for pages that are ours.

use serde_json::{Value, json};

use super::{OURS, PASSWORD, call, login, refresh, scene, settings, signed_in, tokens};
use crate::scene::Scene;

#[tokio::test]
async fn each_refresh_token_is_good_once_and_an_older_one_than_the_last_ends_the_session() {
    let scene = scene().await;
    let (first, cookie_1) = signed_in(&scene, "ann", "pro").await;
    let (other, _) = tokens(&login(&scene, "ann@example.com", PASSWORD).await);

    let (second, cookie_2) = tokens(&refresh(&scene, &cookie_1, &[OURS]).await);
    let (third, cookie_3) = tokens(&refresh(&scene, &cookie_2, &[OURS]).await);
    assert_ne!(cookie_1, cookie_2);
    assert_ne!(cookie_2, cookie_3);
    for token in [&first, &second, &third] {
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

    for cookie in [&cookie_2, &cookie_3] {
        let ended = refresh(&scene, cookie, &[OURS]).await;
        assert_eq!(ended.status, 401, "the session is over");
    }
    for token in [&first, &second, &third] {
        assert_eq!(scene.call("GET /user/me", token, "").await.status, 401);
    }
    assert_eq!(
        scene.call("GET /user/me", &other, "").await.status,
        200,
        "the other one goes on"
    );
}

#[tokio::test]
async fn pages_that_present_one_refresh_token_at_once_are_given_the_same_next_one() {
    let scene = scene().await;
    let (token, cookie_1) = signed_in(&scene, "ann", "pro").await;

    let all = (0..4).map(|_| refresh(&scene, &cookie_1, &[OURS]));
    let answers = futures_util::future::join_all(all).await;
    let cookies: Vec<String> = answers.iter().map(|answer| tokens(answer).1).collect();
    assert!(cookies.iter().all(|cookie| *cookie == cookies[0]), "{cookies:?}");
    assert_ne!(cookies[0], cookie_1);

    let (_, cookie_2) = tokens(&refresh(&scene, &cookie_1, &[OURS]).await);
    assert_eq!(cookie_2, cookies[0], "a moment later it is the same");
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 200);
    let (_, cookie_3) = tokens(&refresh(&scene, &cookie_2, &[OURS]).await);
    assert_eq!(
        refresh(&scene, &cookie_1, &[OURS]).await.status,
        401,
        "now it is too old"
    );
    assert_eq!(refresh(&scene, &cookie_3, &[OURS]).await.status, 401);
    assert_eq!(scene.call("GET /user/me", &token, "").await.status, 401);
}

#[tokio::test]
async fn another_page_that_signs_its_visitor_in_leaves_no_cookie_with_him() {
    let scene = scene().await;
    signed_in(&scene, "eve", "pro").await;
    let body = json!({"email": "eve@example.com", "password": PASSWORD});
    let form = ("content-type", "text/plain");

    for origin in ["https://evil.org", "null", "https://console.example.com.evil.org"] {
        let answer = call(&scene, "POST /auth/login", &[("origin", origin), form], &body).await;
        assert_eq!(
            (answer.status, answer.header("set-cookie")),
            (200, None),
            "{origin}"
        );
    }
    for origin in ["https://console.example.com", "http://localhost:3333"] {
        let answer = call(&scene, "POST /auth/login", &[("origin", origin)], &body).await;
        assert!(answer.header("set-cookie").is_some(), "{origin}");
    }
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
