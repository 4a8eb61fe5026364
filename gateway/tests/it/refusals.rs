//! Requests that are refused: the shape of the answer, the row, and what happens to the connection.

use schemas::failure::FailureCode;
use schemas::outcome::Outcome;

use crate::scene::{ADMIN, Answer, CALLER, PLAIN, Scene, request};
use crate::script::{Step, whole};

/// The answer without its ids.
fn anonymous(answer: &Answer) -> String {
    let id = answer.header("x-request-id").expect("an id");
    let lines = answer.head.lines().filter(|line| !line.starts_with("date:"));
    let head: Vec<_> = lines.collect();
    format!("{}\n{}", head.join("\n"), answer.body).replace(id, "ID")
}

#[tokio::test]
async fn missing_false_and_doubled_credentials_get_the_same_bytes() {
    let scene = Scene::new().await;
    let without = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\ncontent-length: {}\r\n\r\n{PLAIN}",
        PLAIN.len()
    );

    let missing = scene.raw(without.as_bytes()).await;
    let wrong = scene
        .call("POST /v1/chat/completions", "sk-nobody-at-all-0001", PLAIN)
        .await;
    let headers = format!("x-api-key: {ADMIN}\r\n");
    let doubled = scene
        .raw(&request("POST /v1/chat/completions", CALLER, &headers, PLAIN))
        .await;

    assert_eq!((missing.status, &*missing.code()), (401, "invalid_api_key"));
    assert_eq!(anonymous(&missing), anonymous(&wrong));
    assert_eq!(anonymous(&missing), anonymous(&doubled));
    assert_eq!(scene.spool.appended(), 0);
}

#[tokio::test]
async fn unknown_and_hidden_models_get_the_same_bytes_and_a_row_each() {
    let scene = Scene::new().await;

    let unknown = scene.chat(&PLAIN.replace("\"m\"", "\"nothing\"")).await;
    let hidden = scene.chat(&PLAIN.replace("\"m\"", "\"org/staff\"")).await;

    assert_eq!((unknown.status, &*unknown.code()), (404, "model_not_found"));
    assert_eq!(anonymous(&unknown), anonymous(&hidden));
    assert!(!unknown.body.contains("nothing"));
    let rows = scene.rows(2).await;
    assert!(
        rows.iter()
            .all(|row| row.outcome == Outcome::Rejected && row.status == 404)
    );
    assert_eq!(rows[0].model.as_str(), "nothing");
    assert_eq!(rows[0].error_code, Some(FailureCode::ModelNotFound));
    assert_eq!(scene.spool.gauges().reservations_open, 0);
}

#[tokio::test]
async fn ten_refusals_are_rows_and_the_rest_is_counted() {
    let scene = Scene::new().await;

    for _ in 0..13 {
        scene.chat("{").await;
    }

    assert_eq!(scene.rows(10).await.len(), 10);
}

#[tokio::test]
async fn malformed_bodies_are_refused_in_the_dialects_shape() {
    let scene = Scene::new().await;
    let deep = format!(
        r#"{{"model":"m","messages":{}1{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );

    for (body, code) in [
        ("{\"model\":", "invalid_json"),
        ("[]", "invalid_request"),
        (r#"{"model":"m"}"#, "invalid_request"),
        (&*deep, "invalid_request"),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}"#,
            "unsupported_parameter",
        ),
    ] {
        let answer = scene.chat(body).await;
        assert_eq!((answer.status, &*answer.code()), (400, code));
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let scene = Scene::with(|config| config.body_bytes_max = 1_000).await;
    // The body never comes: only its length is known.
    let declared = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {CALLER}\r\ncontent-length: 1001\r\n\r\n{{"
    );
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {CALLER}\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{}\r\n",
        "x".repeat(1_001)
    );

    for sent in [declared, chunked] {
        let answer = scene.raw(sent.as_bytes()).await;

        assert_eq!((answer.status, &*answer.code()), (413, "body_too_large"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(answer.header("x-request-id").is_some());
    }
    assert_eq!(scene.spool.appended(), 0);
}

#[tokio::test]
async fn a_caller_who_still_sends_a_refused_body_sees_the_refusal_and_no_reset() {
    let scene = Scene::with(|config| config.body_bytes_max = 1_000).await;
    let body = "x".repeat(3 * 1024 * 1024);

    let answer = scene.chat(&body).await;

    assert_eq!((answer.status, &*answer.code()), (413, "body_too_large"));
}

#[tokio::test]
async fn bodies_that_do_not_fit_into_memory_together_are_refused_until_there_is_room() {
    let scene = Scene::with(|config| config.bodies_bytes_max = 100).await;
    scene.script.push(whole("{}"));

    let large = format!("{PLAIN}{}", " ".repeat(100));
    let refused = scene.chat(&large).await;

    assert_eq!((refused.status, &*refused.code()), (503, "overloaded"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(scene.chat(PLAIN).await.status, 200);
}

#[tokio::test]
async fn headers_beyond_our_bound_are_refused_in_shape_and_far_beyond_bare() {
    let scene = Scene::new().await;
    let get = |headers: &str| {
        format!("GET / HTTP/1.1\r\nhost: w\r\n{headers}connection: close\r\n\r\n").into_bytes()
    };
    let large = format!("x-large: {}\r\n", "x".repeat(70 * 1024));
    let many: String = (0..150)
        .flat_map(|n| ["x-".to_owned(), n.to_string(), ": 1\r\n".to_owned()])
        .collect();
    let huge = format!("x-huge: {}\r\n", "x".repeat(1024 * 1024));

    for headers in [&large, &many] {
        let answer = scene.raw(&get(headers)).await;
        assert_eq!((answer.status, &*answer.code()), (431, "headers_too_large"));
    }
    let bare = scene.raw(&get(&huge)).await;
    assert_eq!((bare.status, &*bare.body), (431, ""));
}

#[tokio::test]
async fn unknown_codings_and_keys_that_are_none_are_refused_by_name() {
    let scene = Scene::new().await;

    for (headers, status, param) in [
        ("content-encoding: br\r\n", 415, "content-encoding"),
        ("content-encoding: gzip\r\n", 400, "content-encoding"),
        ("idempotency-key: \r\n", 400, "idempotency-key"),
    ] {
        let sent = request("POST /v1/chat/completions", CALLER, headers, PLAIN);
        let answer = scene.raw(&sent).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn both_lengths_at_once_are_read_as_chunks_and_the_connection_closes() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    let sent = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {CALLER}\r\nCONTENT-LENGTH: 5\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{PLAIN}\r\n0\r\n\r\n",
        PLAIN.len()
    );

    let answer = scene.raw(sent.as_bytes()).await;

    assert!(answer.status == 200 || answer.status == 400, "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_dialects_shape() {
    let scene = Scene::new().await;

    for (line, status, code) in [
        ("GET /v2/nothing", 404, "not_found"),
        ("POST /v1/chat/completions/nothing", 404, "not_found"),
        ("POST /V1/chat/completions", 404, "not_found"),
        ("GET //v1/chat/completions/", 405, "method_not_allowed"),
        ("GET /v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE /v1/models", 405, "method_not_allowed"),
    ] {
        let answer = scene.call(line, CALLER, "").await;
        assert_eq!((answer.status, &*answer.code()), (status, code), "{line}");
    }
}

#[tokio::test]
async fn a_full_gateway_refuses_and_recovers() {
    let scene = Scene::with(|config| config.requests_max = 1).await;
    scene.script.push(vec![Step::Hang]);
    let mut first = scene.connect().await;
    {
        use tokio::io::AsyncWriteExt as _;
        first
            .write_all(&request("POST /v1/chat/completions", CALLER, "", PLAIN))
            .await
            .expect("write");
    }
    while scene.script.told().dispatched.is_empty() {
        tokio::task::yield_now().await;
    }

    let refused = scene.chat(PLAIN).await;
    drop(first);
    let rows = scene.rows(2).await;
    scene.script.push(whole("{}"));

    assert_eq!((refused.status, &*refused.code()), (503, "overloaded"));
    assert!(rows.iter().any(|row| row.outcome == Outcome::ClientGone));
    assert_eq!(scene.chat(PLAIN).await.status, 200);
}

#[tokio::test]
async fn pages_of_allowed_origins_may_call_and_others_may_not() {
    let scene = Scene::with(|config| config.cors_origins = vec!["https://app.example".to_owned()]).await;
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: w\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\nconnection: close\r\n\r\n"
        )
        .into_bytes()
    };

    let allowed = scene.raw(&preflight("https://app.example")).await;
    let other = scene.raw(&preflight("https://evil.example")).await;

    assert_eq!(allowed.status, 204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .is_some_and(|list| list.contains("authorization"))
    );
    assert_eq!(other.header("access-control-allow-origin"), None);

    let of_a_library = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: w\r\norigin: https://app.example\r\n\
         access-control-request-method: POST\r\nconnection: close\r\n\
         access-control-request-headers: authorization,x-stainless-os\r\n\r\n";
    let granted = scene.raw(of_a_library.as_bytes()).await;
    assert_eq!(
        granted.header("access-control-allow-headers"),
        Some("authorization,x-stainless-os")
    );
}

#[tokio::test]
async fn a_full_spool_refuses_calls_and_tells_balancers() {
    let scene = Scene::new().await;
    let held: Vec<_> = std::iter::from_fn(|| scene.spool.reserve().ok()).collect();

    let refused = scene.chat(PLAIN).await;
    let ready = scene.call("GET /health/ready", CALLER, "").await;
    let health = scene.call("GET /health", CALLER, "").await;

    assert_eq!((refused.status, &*refused.code()), (503, "spool_full"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(
        (ready.status, ready.json()["status"].as_str()),
        (503, Some("full"))
    );
    assert_eq!(
        (health.status, health.json()["status"].as_str()),
        (503, Some("unhealthy"))
    );
    for reservation in held {
        scene.spool.give_back(reservation);
    }
    assert_eq!(scene.call("GET /health/ready", CALLER, "").await.status, 200);
}
