//! Chat as callers know it: what passes through, what is refused, and that a model somebody may not see
//! looks exactly like one that does not exist.

use harness::{
    ADMIN_KEY, Answer, Behaviour, CALLER_KEY, Model, NARROW_KEY, OTHER_KEY, Scene, Upstream, chat,
    chat_streamed, settings,
};
use serde_json::{Value, json};

use crate::rows::{assert_billed, assert_free, assert_row, endpoint, tried};

#[tokio::test]
async fn a_whole_answer_is_the_upstreams_own_under_the_public_model_name() {
    let scene = renamed_scene().await;
    scene
        .o1
        .default(Behaviour::chat("contract-ok {call}").usage(3, 2));

    let answer = scene.client.post_chat(&chat("m")).await;

    let call = scene.o1.call(0);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(
        answer.json(),
        json!({
            "id": format!("chatcmpl-{}", call.word), "object": "chat.completion", "created": 1_700_000_000,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": format!("contract-ok {}", call.word)}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        })
    );
    assert_eq!(call.request.model(), "vendor/m-2026");
    let row = scene.row(answer.request_id()).await;
    assert_billed(&row, 3, 2, 22_000);
    let at = endpoint("m", &scene.o1);
    assert_row(
        &row,
        &json!({
            "tenant": "acme", "user": "alice", "key_name": "caller", "surface": "chat", "stream": false,
            "model": "m", "served_model": "vendor/m-2026", "provider": "openai_compat",
            "endpoint_id": at, "backend": at, "cost_usd": "0.000022000", "usage_flags": [],
        }),
    );
    assert_eq!(tried(&row), json!([[at, 200, "ok", null]]));
    scene.finish().await;
}

#[tokio::test]
async fn a_streamed_answer_has_the_upstreams_chunks_under_the_public_model_name_and_one_end_mark() {
    let scene = renamed_scene().await;
    scene.o1.default(Behaviour::chat("one two three").usage(3, 2));

    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(streamed.whole(), "one two three");
    let content_type = streamed.headers["content-type"].to_str().expect("text");
    assert!(content_type.starts_with("text/event-stream"), "{content_type}");
    let id = format!("chatcmpl-{}", scene.o1.call(0).word);
    for chunk in streamed.chunks() {
        assert_eq!(
            (&chunk["model"], &chunk["id"]),
            (&json!("m"), &json!(id)),
            "{chunk}"
        );
    }
    let first = &streamed.chunks()[0]["choices"][0]["delta"];
    assert_eq!(*first, json!({"role": "assistant", "content": ""}));
    assert_eq!(streamed.finish_reason().as_deref(), Some("stop"));
    assert_eq!(streamed.usage(), None, "nobody asked for it");
    let row = scene.row(streamed.request_id()).await;
    assert_billed(&row, 3, 2, 22_000);
    assert_row(&row, &json!({"stream": true, "served_model": "vendor/m-2026"}));
    scene.finish().await;
}

#[tokio::test]
async fn what_the_gateway_does_not_know_passes_byte_for_byte_and_max_tokens_is_not_clamped() {
    let scene = Scene::start().await;
    let mut body = chat("m");
    body["max_tokens"] = json!(999_999);
    body["logprobs"] = json!(true);
    body["vendor_extension"] = json!({"深": ["\u{1f642}", 1.5e300, -0.0], "empty": {}});
    body["seed"] = json!(18_446_744_073_709_551_615_u64);

    let plain = scene.client.post_chat(&body).await;
    body["stream"] = json!(true);
    let streamed = scene.client.stream_chat(&body).await.collect().await;

    assert_eq!(plain.status, 200, "{}", plain.text());
    streamed.whole();
    body.as_object_mut().expect("an object").remove("stream");
    assert_eq!(scene.o1.call(0).request.body, body.to_string());
    let mut sent = scene.o1.call(1).request.json();
    assert_eq!(sent["stream_options"], json!({"include_usage": true}));
    let members = sent.as_object_mut().expect("an object");
    members.remove("stream_options");
    members.remove("stream");
    assert_eq!(sent, body, "nothing else was touched");
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_hears_its_own_credential_and_nothing_of_the_callers_headers() {
    let scene = Scene::start().await;
    let client = scene
        .client
        .with_header("x-session-id", "s-1")
        .with_header("cookie", "a=b")
        .with_header("x-forwarded-for", "10.1.2.3");

    assert_eq!(client.post_chat(&chat("m")).await.status, 200);

    let request = scene.o1.call(0).request;
    assert_eq!(
        request.header("authorization"),
        Some(format!("Bearer {}", harness::PROVIDER_KEY).as_str())
    );
    for name in ["cookie", "x-session-id", "x-forwarded-for", "x-request-id"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    let head = String::from_utf8_lossy(&request.head).into_owned();
    assert!(!head.contains(CALLER_KEY), "{head}");
    scene.finish().await;
}

#[tokio::test]
async fn five_reasons_for_a_missing_model_are_one_answer() {
    let scene = guarded_scene().await;
    let narrow = scene.client.with_key(NARROW_KEY);
    let cases = [
        ("unknown", scene.client.post_chat(&chat("nowhere")).await),
        ("hidden by role", scene.client.post_chat(&chat("staff")).await),
        ("of another tenant", scene.client.post_chat(&chat("theirs")).await),
        ("not of the key", narrow.post_chat(&chat("other")).await),
        (
            "without a leg of any weight",
            scene.client.post_chat(&chat("off")).await,
        ),
    ];

    let bare: Vec<(String, Vec<(String, String)>)> =
        cases.iter().map(|(_, answer)| faceless(answer)).collect();
    for ((reason, answer), faceless) in cases.iter().zip(&bare) {
        assert_eq!(answer.status, 404, "{reason}");
        assert_eq!(*faceless, bare[0], "{reason}");
        assert_eq!(answer.error_code(), "model_not_found");
        let body = answer.json();
        assert_eq!(
            body.as_object().expect("an object").keys().collect::<Vec<_>>(),
            ["error"]
        );
        assert_ne!(body["error"]["message"], json!(""));
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "rejected", 404, "model_not_found");
        assert_eq!(row["attempts"], json!([]), "{reason}");
    }
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_5_a_guarded_model_serves_those_it_is_for() {
    let scene = guarded_scene().await;
    let admin = scene.client.with_key(ADMIN_KEY);
    let other = scene.client.with_key(OTHER_KEY);
    let narrow = scene.client.with_key(NARROW_KEY);

    for (answer, tenant) in [
        (admin.post_chat(&chat("staff")).await, "default"),
        (other.post_chat(&chat("theirs")).await, "zenith"),
        (narrow.post_chat(&chat("m")).await, "acme"),
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let row = scene.row(answer.request_id()).await;
        assert_row(&row, &json!({"tenant": tenant, "outcome": "ok"}));
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_without_an_echo_or_a_call() {
    let scene = Scene::start().await;
    let messages = r#""messages":[{"role":"user","content":"zebra-echo"}]"#;
    let cases = [
        ("{zebra-echo".to_owned(), "invalid_json"),
        (r#""zebra-echo""#.to_owned(), "invalid_request"),
        (format!("{{{messages}}}"), "invalid_request"),
        (
            r#"{"model":"m","user":"zebra-echo"}"#.to_owned(),
            "invalid_request",
        ),
        (
            r#"{"model":"m","user":"zebra-echo","messages":[]}"#.to_owned(),
            "invalid_request",
        ),
        (
            format!(r#"{{"model":"m","temperature":2.5,{messages}}}"#),
            "invalid_request",
        ),
        (
            format!(r#"{{"model":"m","top_p":-0.1,{messages}}}"#),
            "invalid_request",
        ),
        (
            format!(r#"{{"model":"m","max_tokens":0,{messages}}}"#),
            "invalid_request",
        ),
        (
            format!(r#"{{"model":"m","stream":"yes",{messages}}}"#),
            "invalid_request",
        ),
        (
            format!(r#"{{"model":"m","model":"m",{messages}}}"#),
            "invalid_request",
        ),
    ];
    for (body, code) in cases {
        let answer = scene
            .client
            .post_inference("/v1/chat/completions", body.clone())
            .await
            .expect("an answer");

        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (400, code),
            "{body}"
        );
        assert!(!answer.text().contains("zebra"), "{}", answer.text());
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "rejected", 400, code);
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn tools_and_response_formats_are_refused_where_the_model_does_not_take_them() {
    let plain_model = |o1: &Upstream| {
        Model::new("plain")
            .leg(o1, 0)
            .set("supports_tools", Value::Null)
            .set("supports_structured_output", false)
    };
    let scene = with_models(|o1, _| vec![Model::new("m").leg(o1, 0), plain_model(o1)]).await;
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": {}}});

    for (param, value) in [("tools", tools), ("response_format", format)] {
        let mut body = chat("plain");
        body[param] = value.clone();
        let refused = scene.client.post_chat(&body).await;
        body["model"] = json!("m");
        let served = scene.client.post_chat(&body).await;

        assert_eq!(refused.status, 400);
        assert_eq!(refused.json()["error"]["code"], "unsupported_parameter");
        assert_eq!(refused.json()["error"]["param"], param);
        let row = scene.row(refused.request_id()).await;
        assert_free(&row, "rejected", 400, "unsupported_parameter");
        assert_eq!(served.status, 200, "{}", served.text());
    }
    assert_eq!(scene.o1.calls(), 2);
    assert_eq!(
        scene.o1.call(1).request.json()["response_format"]["type"],
        "json_schema"
    );
    scene.finish().await;
}

#[tokio::test]
async fn an_image_for_a_model_of_text_is_refused_before_any_call() {
    let scene = Scene::start().await;
    let mut body = chat("m");
    body["messages"][0]["content"] =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});

    let answer = scene.client.post_chat(&body).await;

    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (400, "unsupported_modality")
    );
    let message = answer.json()["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(message.contains("does not support image input"), "{message}");
    let row = scene.row(answer.request_id()).await;
    assert_free(&row, "rejected", 400, "unsupported_modality");
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

/// A scene whose model has another name upstream.
async fn renamed_scene() -> Scene {
    with_models(|o1, _| {
        let model = Model::new("m").leg(o1, 0);
        vec![model.set_leg("provider_model_id", "vendor/m-2026")]
    })
    .await
}

/// A scene of models for some, and of a key for one model.
async fn guarded_scene() -> Scene {
    let mut keys = settings()["keys"].clone();
    keys.as_array_mut().expect("a list").push(
        json!({"name": "narrow", "tenant": "acme", "key": NARROW_KEY, "role": "free", "models": ["m"]}),
    );
    let models = |o1: &Upstream| {
        vec![
            Model::new("m").leg(o1, 0),
            Model::new("other").leg(o1, 0),
            Model::new("staff").leg(o1, 0).set("admin_only", true),
            Model::new("theirs").leg(o1, 0).set("tenants", json!(["zenith"])),
            Model::new("off").leg(o1, 0).set_leg("weight", 0),
        ]
    };
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = models(&o1);
    Scene::start_on(o1, o2, |node| node.models(&models).setting("keys", keys)).await
}

/// A scene with these models instead of its own.
async fn with_models(models: impl FnOnce(&Upstream, &Upstream) -> Vec<Model>) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = models(&o1, &o2);
    Scene::start_on(o1, o2, |node| node.models(&models)).await
}

/// Body and headers of an answer without what differs in any two answers: the request id and the date.
fn faceless(answer: &Answer) -> (String, Vec<(String, String)>) {
    let id = answer.request_id();
    let headers = answer.headers.iter().filter(|(name, _)| *name != "date");
    let plain = |text: &str| text.replace(id, "ID");
    let headers = headers.map(|(name, value)| {
        let value = plain(&String::from_utf8_lossy(value.as_bytes()));
        (name.to_string(), value)
    });
    (plain(&answer.text()), headers.collect())
}
