//! What does not pass: for whom an endpoint is not there, models that are not there, crooked paths, and whoever is past
//! his limits.

use super::*;

/// An answer without what is another's in each: the id of the request.
fn bare(answer: &Answer) -> (u16, String) {
    let text = answer.text().replace(answer.request_id(), "");
    (answer.status, text)
}

#[tokio::test]
async fn another_tenants_endpoint_is_answered_like_one_that_is_not_there() {
    let stage = Stage::start().await;
    let before = stage.service.asked().len();
    let other = stage.scene.client.with_key(OTHER_KEY);

    let theirs = stage.call_as(&other, "POST", "/v1/chat/completions", BODY).await;
    let nothing = other
        .call(
            "POST",
            "/api/v1/proxy/nothing/v1/chat/completions",
            Bytes::from_static(BODY.as_bytes()),
        )
        .await
        .expect("an answer");

    assert_eq!(theirs.status, 404);
    assert_eq!(bare(&theirs), bare(&nothing));
    let names = |answer: &Answer| -> Vec<String> {
        let mut names: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(names(&theirs), names(&nothing));
    // Endpoints of files are the operators': no tenant passes through them.
    let files = other.get("/api/v1/proxy/m%3Ao1/v1/models").await;
    assert_eq!(bare(&files), bare(&nothing));
    let nobody = stage.scene.client.with_key("sk-nobody-knows-this-0000");
    assert_eq!(stage.call_as(&nobody, "GET", "/v1/models", "").await.status, 401);
    assert_eq!(stage.service.asked().len(), before);
    let operator = stage.scene.client.with_key(OPERATOR_KEY);
    assert_eq!(stage.call_as(&operator, "GET", "/own", "").await.status, 201);
    stage.finish().await;
}

#[tokio::test]
async fn an_endpoints_own_key_passes_to_it_alone_and_a_narrow_key_names_its_model() {
    let stage = Stage::start().await;
    let operator = stage.scene.client.with_key(OPERATOR_KEY);
    let key = json!({"name": "own", "tenant": "acme", "endpoint": stage.endpoint});
    let made = done(&operator, "POST", "/api/v1/endpoint-keys", key).await;
    let own = stage.scene.client.with_key(made["key"].as_str().expect("a key"));
    let key = json!({"name": "narrow", "tenant": "acme", "models": ["m"]});
    let made = done(&operator, "POST", "/api/v1/tenant/api-keys", key).await;
    let narrow = stage.scene.client.with_key(made["key"].as_str().expect("a key"));

    assert_eq!(stage.call_as(&own, "GET", "/own", "").await.status, 201);
    let other = own.get("/api/v1/proxy/m%3Ao1/own").await;
    assert_eq!(other.status, 404);

    let refused = stage.call_as(&narrow, "GET", "/own", "").await;
    assert_eq!(
        (refused.status, refused.error_code()),
        (403, "insufficient_scope".to_owned())
    );
    let refused = stage.call_as(&narrow, "POST", "/v1/chat/completions", BODY).await;
    assert_eq!(
        (refused.status, refused.error_code()),
        (404, "model_not_found".to_owned())
    );
    stage.finish().await;
}

#[tokio::test]
async fn on_an_endpoint_that_others_share_only_models_are_called() {
    let mut stage = Stage::start().await;
    stage.scene.price("shared", None);
    let operator = stage.scene.client.with_key(OPERATOR_KEY);
    let described =
        json!({"name": "shared", "backends": [{"url": stage.service.url()}], "upstream_model": "up"});
    let made = done(&operator, "POST", "/api/v1/endpoints", described).await;
    let path = |behind: &str| format!("/api/v1/proxy/{}{behind}", made["id"].as_str().expect("an id"));
    let key = json!({"name": "plain", "tenant": "default", "role": "free"});
    let made = done(&operator, "POST", "/api/v1/tenant/api-keys", key).await;
    let plain = stage.scene.client.with_key(made["key"].as_str().expect("a key"));

    let mut told = Vec::new();
    for (method, behind, body) in [
        ("POST", "/v1/chat/completions", BODY),
        ("GET", "/v1/files", ""),
        ("GET", "/v1/responses/resp_1", ""),
        ("POST", "/own", "{\"model\":\"up\"}"),
        (
            "POST",
            "/v1/responses",
            "{\"model\":\"up\",\"input\":\"x\",\"previous_response_id\":\"resp_1\"}",
        ),
        ("POST", "/v1/chat/completions", "{\"messages\":[]}"),
        (
            "POST",
            "/v1/messages",
            "{\"model\":\"up\",\"container\":\"c_1\",\"messages\":[]}",
        ),
    ] {
        let answer = plain
            .call(method, &path(behind), Bytes::copy_from_slice(body.as_bytes()))
            .await;
        told.push(answer.expect("an answer").status);
    }

    assert_eq!(told, [200, 403, 403, 403, 403, 403, 400]);
    let files = operator.call("GET", &path("/v1/files"), Bytes::new()).await;
    assert_eq!(files.expect("an answer").status, 201);
    stage.finish().await;
}

#[tokio::test]
async fn a_model_that_is_not_there_is_answered_as_everywhere_wherever_it_is_named() {
    let stage = Stage::start().await;
    let before = stage.service.asked().len();
    let elsewhere = stage.scene.client.post_chat(&harness::chat("hidden")).await;

    let body = "{\"model\":\"hidden\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    let chat = stage.call("POST", "/v1/chat/completions", body).await;

    assert_eq!(bare(&chat), bare(&elsewhere));
    for (method, path, body) in [
        ("GET", "/v1/models/hidden", ""),
        ("POST", "/v1beta/models/hidden:generateContent", "{}"),
        ("POST", "/own?model=hidden", "{}"),
        ("POST", "/own", "{\"MODEL\":\"hidden\"}"),
        ("POST", "/own", "{\"mod\\u0065l\":\"hidden\"}"),
        ("POST", "/own", "{\"model\":\"up\",\"models\":[\"hidden\"]}"),
        // It is called by the upstream's name: that is what is sent.
        ("POST", "/v1/chat/completions", "{\"model\":\"box\"}"),
    ] {
        let answer = stage.call(method, path, body).await;
        assert_eq!(bare(&answer), bare(&elsewhere), "{path} {body}");
    }
    for body in [
        "{\"model\":\"up\",\"model\":\"hidden\"}",
        "{\"model\":\"up\"",
        "{\"model\":[\"up\"]}",
    ] {
        let answer = stage.call("POST", "/own", body).await;
        assert_eq!(answer.status, 400, "{body}");
    }
    assert_eq!(stage.service.asked().len(), before);
    stage.finish().await;
}

#[tokio::test]
async fn crooked_paths_upgrades_and_keys_of_idempotency_do_not_pass() {
    let stage = Stage::start().await;
    let before = stage.service.asked().len();

    for path in [
        "/../v1/models",
        "/%2e%2e/v1/models",
        "/v1/%252e%252e/x",
        "//evil.example/x",
        "/v1%2fmodels",
        "/v1/..;/x",
        "/v1/%00",
        "/v1\\x",
        "/v1/%ff",
    ] {
        let told = stage.spoken("GET", path, "\r\n").await;
        assert!(told.starts_with("HTTP/1.1 400"), "{path}: {told}");
    }
    let upgrade = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let told = stage.spoken("GET", "/own", upgrade).await;
    assert!(told.starts_with("HTTP/1.1 501"), "{told}");
    let keyed = stage.scene.client.with_header("idempotency-key", "k-1");
    assert_eq!(stage.call_as(&keyed, "POST", "/own", "{}").await.status, 400);
    assert!(
        stage
            .spoken("TRACE", "/own", "\r\n")
            .await
            .starts_with("HTTP/1.1 405")
    );
    assert_eq!(stage.service.asked().len(), before);
    stage.finish().await;
}

#[tokio::test]
async fn limits_hold_for_what_passes_as_for_everything_else() {
    let stage = Stage::start().await;
    let operator = stage.scene.client.with_key(OPERATOR_KEY);
    let key = json!({"name": "few", "tenant": "acme", "limits": {"daily_calls": 2}});
    let made = done(&operator, "POST", "/api/v1/tenant/api-keys", key).await;
    let few = stage.scene.client.with_key(made["key"].as_str().expect("a key"));
    let key = json!({"name": "poor", "tenant": "acme", "limits": {"daily_usd": "0.000012"}});
    let made = done(&operator, "POST", "/api/v1/tenant/api-keys", key).await;
    let poor = stage.scene.client.with_key(made["key"].as_str().expect("a key"));

    let mut told = Vec::new();
    for path in ["/own", "/v1/models", "/v1/chat/completions"] {
        let body = if path == "/v1/chat/completions" {
            BODY
        } else {
            "{}"
        };
        let answer = stage.call_as(&few, "POST", path, body).await;
        told.push((answer.status, answer.error_code()));
    }
    let exceeded = (429, "DAILY_LIMIT_EXCEEDED".to_owned());
    assert_eq!(told, [(201, String::new()), (201, String::new()), exceeded]);

    // Two calls are paid for; a third is not, and a prompt of any length never was.
    let mut told = Vec::new();
    for path in ["/v1/chat/completions", "/own", "/own", "/own"] {
        let (method, body) = if path == "/own" {
            ("GET", "")
        } else {
            ("POST", BODY)
        };
        told.push(stage.call_as(&poor, method, path, body).await.status);
    }
    assert_eq!(told, [429, 201, 201, 429]);

    // What an answer may tell of usage is held on any path.
    let key = json!({"name": "tiny", "tenant": "acme", "limits": {"daily_tokens": 1}});
    let made = done(&operator, "POST", "/api/v1/tenant/api-keys", key).await;
    let tiny = stage.scene.client.with_key(made["key"].as_str().expect("a key"));
    let words = r#"{"words":"more than one token of them"}"#;
    for path in ["/own", "/v1/engines/up/completions"] {
        let answer = stage.call_as(&tiny, "POST", path, words).await;
        assert_eq!(
            (answer.status, &*answer.error_code()),
            (429, "DAILY_TOKENS_EXCEEDED"),
            "{path}"
        );
    }
    assert_eq!(stage.call_as(&tiny, "GET", "/own", "").await.status, 201);
    stage.finish().await;
}

#[tokio::test]
async fn a_body_passes_up_to_the_largest_that_is_taken() {
    let stage = Stage::start().await;
    let body = format!("{{\"model\":\"up\",\"text\":\"{}\"}}", "x".repeat(8_000_000));

    let fits = stage.call("POST", "/own", &body).await;

    assert_eq!((fits.status, stage.service.last().body.len()), (201, body.len()));
    let declared = format!("content-length: {}\r\n\r\n", 32 * 1024 * 1024 + 1);
    let told = stage.spoken("POST", "/own", &declared).await;
    assert!(
        told.starts_with("HTTP/1.1 413") && told.contains("body_too_large"),
        "{told}"
    );
    stage.finish().await;
}
