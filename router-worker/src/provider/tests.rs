//! Bodies and targets, and the demo provider.

use schemas::outcome::Outcome;

use crate::testing::{MODEL, PLAIN, STREAM, Scene, config, endpoint, model, route};

use super::*;

const CHAT: Purpose = Purpose {
    dialect: Dialect::Chat,
    stream: false,
};

fn echo() -> Endpoint {
    Endpoint {
        kind: ProviderKind::Echo,
        backends: Vec::new(),
        ..endpoint("echo", &[])
    }
}

async fn scene() -> Scene {
    Scene::new(config(), &[echo()], &model(vec![route("echo", 0)])).await
}

#[tokio::test]
async fn the_demo_provider_answers_with_the_last_user_message() {
    let scene = scene().await;

    let played = scene.call(PLAIN).await;

    let body: serde_json::Value = serde_json::from_str(&played.text()).expect("JSON");
    assert_eq!(body["model"], MODEL);
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"]["content"], "hello there");
    let report = &played.end().report;
    assert_eq!(report.outcome, Outcome::Ok);
    assert_eq!(report.usage.map(|usage| usage.output_tokens), Some(4));
    assert_eq!(report.attempts[0].backend.as_str(), "echo");
}

#[tokio::test]
async fn the_demo_provider_streams_word_by_word() {
    let scene = scene().await;
    let asking = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"first"},{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"text","text":"öne \"two\" "},{"type":"image_url","image_url":{"url":"data:"}},{"type":"text","text":"three"}]}]}"#;

    let played = scene.call(asking).await;

    let text = played.text();
    let mut words = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if let Ok(event) = serde_json::from_str::<serde_json::Value>(line)
            && let Some(word) = event["choices"][0]["delta"]["content"].as_str()
        {
            words.push(word.to_owned());
        }
    }
    assert_eq!(words, ["öne ", "\"two\" ", "three"]);
    assert!(text.ends_with("data: [DONE]\n\n"));
    assert!(!text.contains("prompt_tokens"), "nobody asked for usage");
    assert!(played.end().report.usage.is_some());
}

#[tokio::test]
async fn the_demo_provider_survives_messages_without_text() {
    let scene = scene().await;
    for body in [PLAIN, STREAM] {
        let empty = body.replace("\"hello there\"", "null");

        assert_eq!(scene.call(&empty).await.end().report.outcome, Outcome::Ok);
    }
}

#[test]
fn an_endpoint_that_cannot_be_called_is_an_error_and_no_panic() {
    let candidate = |endpoint: Endpoint| Candidate {
        backend: (!endpoint.backends.is_empty()).then_some(0),
        endpoint: Arc::new(endpoint),
        upstream_model: "x".into(),
        context_length: 1,
        takes: Arc::default(),
        bypass: false,
    };
    let targets = Targets::default();
    let secret = Secret::new("line\nbreak".to_owned());

    let no_url = targets.target(&candidate(endpoint("a", &["http://a b"])), CHAT, None);
    let no_backend = targets.target(&candidate(endpoint("b", &[])), CHAT, None);
    let no_header = targets.target(&candidate(endpoint("c", &["http://c"])), CHAT, Some(&secret));

    assert!(matches!(no_url, Err(Error::Url(_))));
    assert!(matches!(no_backend, Err(Error::NoBackend)));
    assert!(matches!(no_header, Err(Error::HeaderValue(_))));
}

#[test]
fn a_changed_endpoint_is_called_at_its_new_address() {
    let candidate = |url: &str| Candidate {
        backend: Some(0),
        endpoint: Arc::new(endpoint("a", &[url])),
        upstream_model: "x".into(),
        context_length: 1,
        takes: Arc::default(),
        bypass: false,
    };
    let targets = Targets::default();

    targets
        .target(&candidate("http://old/"), CHAT, None)
        .expect("a target");
    let target = targets
        .target(&candidate("http://new"), CHAT, None)
        .expect("a target");

    assert_eq!(target.route.uri.to_string(), "http://new/v1/chat/completions");
}

#[test]
fn what_frames_a_message_is_never_taken_from_configuration() {
    let mut configured = endpoint("a", &["http://a"]);
    configured.extra_headers = [
        ("content-length", "3"),
        ("transfer-encoding", "chunked"),
        ("x-own", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let candidate = Candidate {
        backend: Some(0),
        endpoint: Arc::new(configured),
        upstream_model: "x".into(),
        context_length: 1,
        takes: Arc::default(),
        bypass: false,
    };

    let target = Targets::default()
        .target(&candidate, CHAT, None)
        .expect("a target");

    let headers = &target.route.headers;
    assert_eq!(headers.get("x-own").map(HeaderValue::as_bytes), Some(&b"1"[..]));
    assert!(!headers.contains_key("content-length") && !headers.contains_key("transfer-encoding"));
}
