//! The kinds of models.yaml: where a call goes and what proves who calls, for an answer that comes whole and for a
//! stream; and what is refused with its place.

use harness::{Model, Node, PROVIDER_KEY, Surface, Upstream, chat, chat_streamed};
use serde_json::json;

use super::{header, of_kind, scene, sent};

/// A kind's lines, its addresses for whole answers and streams, and the header with the credential.
struct Line {
    kind: &'static str,
    fields: &'static str,
    whole: &'static str,
    stream: &'static str,
    header: &'static str,
    value: &'static str,
}

const LINES: [Line; 6] = [
    Line {
        kind: "anthropic",
        fields: r#"{"provider_model_id": "claude-x"}"#,
        whole: "/v1/messages",
        stream: "/v1/messages",
        header: "x-api-key",
        value: "",
    },
    Line {
        kind: "gemini",
        fields: r#"{"provider_model_id": "gemini-x"}"#,
        whole: "/v1beta/models/gemini-x:generateContent",
        stream: "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        header: "x-goog-api-key",
        value: "",
    },
    Line {
        kind: "claude",
        fields: r#"{"provider_model_id": "claude-x@2026", "project": "p-1", "location": "eu"}"#,
        whole: "/v1/projects/p-1/locations/eu/publishers/anthropic/models/claude-x@2026:rawPredict",
        stream: "/v1/projects/p-1/locations/eu/publishers/anthropic/models/claude-x@2026:streamRawPredict",
        header: "authorization",
        value: "Bearer ",
    },
    // HybridInference's own way to it: the address names the model.
    Line {
        kind: "claude",
        fields: "{}",
        whole: "/v1:rawPredict",
        stream: "/v1:streamRawPredict",
        header: "api-key",
        value: "",
    },
    Line {
        kind: "groq",
        fields: "{}",
        whole: "/v1/chat/completions",
        stream: "/v1/chat/completions",
        header: "authorization",
        value: "Bearer ",
    },
    Line {
        kind: "openai_compat",
        fields: r#"{"chat_path": "/own/chat/completions", "auth_header_name": "X-Key", "auth_format": "Key {api_key}",
            "extra_query": {"api-version": "1 a&b"}}"#,
        whole: "/own/chat/completions?api-version=1%20a%26b",
        stream: "/own/chat/completions?api-version=1%20a%26b",
        header: "x-key",
        value: "Key ",
    },
];

#[tokio::test]
async fn each_kind_is_called_at_its_own_place_with_its_own_proof() {
    let scene = scene(|o1| {
        let of = |(n, line): (usize, &Line)| {
            let mut model = Model::new(&format!("m{n}")).leg(o1, 0).set_leg("kind", line.kind);
            if !matches!(line.kind, "groq") {
                model = model.set_leg("base_url", o1.root_url());
            }
            let fields: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line.fields).expect("JSON");
            fields
                .into_iter()
                .fold(model, |model, (key, value)| model.set_leg(&key, value))
        };
        LINES.iter().enumerate().map(of).collect()
    })
    .await;
    for (n, line) in LINES.iter().enumerate() {
        let model = format!("m{n}");

        let whole = scene.client.post_chat(&chat(&model)).await;
        let stream = scene
            .client
            .stream_chat(&chat_streamed(&model))
            .await
            .collect()
            .await;

        assert_eq!(whole.status, 200, "{}: {}", line.kind, whole.text());
        assert!(
            stream.whole().starts_with("ok "),
            "{}: {}",
            line.kind,
            stream.whole()
        );
        let (first, second) = (scene.o1.call(2 * n).request, scene.o1.call(2 * n + 1).request);
        assert_eq!(
            (first.target.as_str(), second.target.as_str()),
            (line.whole, line.stream)
        );
        let expected = format!("{}{PROVIDER_KEY}", line.value);
        for call in [2 * n, 2 * n + 1] {
            assert_eq!(
                header(&scene.o1, call, line.header),
                Some(expected.clone()),
                "{}",
                line.kind
            );
            let head = String::from_utf8_lossy(&scene.o1.call(call).request.head).into_owned();
            assert_eq!(head.matches(PROVIDER_KEY).count(), 1, "{head}");
            assert!(!scene.o1.call(call).request.target.contains(PROVIDER_KEY));
        }
        for request_id in [whole.request_id().to_owned(), stream.request_id().to_owned()] {
            scene.row(&request_id).await;
        }
    }
    for request in scene.o1.recorded().iter().map(|call| &call.request) {
        let is_claude_at_google = request.target.contains("awPredict");
        assert_eq!(
            request.json()["anthropic_version"] == "vertex-2023-10-16",
            is_claude_at_google,
            "{}",
            request.target
        );
    }
    scene.finish().await;
}

/// As much of an RSA key as a service account's file holds.
const KEY: &str = include_str!("../../../../router-worker/src/credential/google/test_key.base64");

#[tokio::test]
async fn a_service_account_buys_one_token_for_many_calls() {
    let tokens = Upstream::start();
    tokens.on(|_| harness::Behaviour::status(200, json!({"access_token": "ya29.x", "expires_in": 3600})));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("account.json");
    let label = "PRIVATE KEY";
    let account = json!({
        "type": "service_account", "client_email": "gateway@p-1.iam.example",
        "private_key": format!("-----BEGIN {label}-----\n{KEY}-----END {label}-----\n"),
        "token_uri": format!("{}/token", tokens.root_url()),
    });
    std::fs::write(&file, account.to_string()).expect("a file");
    let scene = scene(|o1| {
        let model = of_kind(o1, "claude")
            .set_leg("base_url", o1.root_url())
            .set_leg("api_key", serde_json::Value::Null)
            .set_leg("project", "p-1")
            .set_leg("credentials_file", file.display().to_string());
        vec![model]
    })
    .await;

    for _ in 0..3 {
        let answer = scene
            .client
            .post(Surface::Messages, &Surface::Messages.ask("m"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    let bought = tokens.recorded();
    assert!(
        (1..=2).contains(&bought.len()),
        "one token for all calls of a node: {}",
        bought.len()
    );
    let form = String::from_utf8_lossy(&bought[0].request.body).into_owned();
    assert!(
        form.contains("assertion=") && form.contains("jwt-bearer"),
        "{form}"
    );
    for call in 0..3 {
        assert_eq!(
            header(&scene.o1, call, "authorization").as_deref(),
            Some("Bearer ya29.x")
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_server_of_responses_is_spoken_to_in_it_by_those_who_speak_it_or_by_all() {
    let scene = scene(|o1| {
        let model = |id: &str, responses: &str| Model::new(id).leg(o1, 0).set_leg("responses", responses);
        vec![
            model("native", "native"),
            model("only", "only"),
            model("never", "translated"),
        ]
    })
    .await;
    let asked = [
        ("native", Surface::Responses, "/v1/responses"),
        ("native", Surface::Chat, "/v1/chat/completions"),
        ("native", Surface::Messages, "/v1/chat/completions"),
        ("only", Surface::Chat, "/v1/responses"),
        ("only", Surface::Messages, "/v1/responses"),
        ("never", Surface::Responses, "/v1/chat/completions"),
    ];
    for (n, (model, surface, target)) in asked.into_iter().enumerate() {
        let answer = scene.client.post(surface, &surface.ask(model)).await;

        assert_eq!(answer.status, 200, "{model} {surface:?}: {}", answer.text());
        assert_eq!(scene.o1.call(n).request.target, target, "{model} {surface:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn embeddings_are_asked_for_in_the_order_of_the_legs_at_their_own_paths() {
    let scene = scene(|o1| {
        let model = Model::new("e")
            .set("type", "embedding")
            .leg(o1, 0)
            .set_leg("priority", serde_json::Value::Null)
            .set_leg("base_url", format!("{}/first", o1.root_url()))
            .leg(o1, 0)
            .set_leg("priority", serde_json::Value::Null)
            .set_leg("base_url", o1.root_url())
            .set_leg("embeddings_path", "/v2/embeddings");
        vec![model]
    })
    .await;
    scene.o1.script([harness::Behaviour::failure(500, "down")]);

    let body = json!({"model": "e", "input": "hi"}).to_string();
    let answer = scene
        .client
        .post_inference("/v1/embeddings", body)
        .await
        .expect("an answer");

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(scene.o1.call(0).request.target, "/first/v1/embeddings");
    assert_eq!(scene.o1.call(1).request.target, "/v2/embeddings");
    assert_eq!(sent(&scene.o1, 1)["input"], "hi");
    scene.finish().await;
}

const LEG: &str = "models:\n  - id: m\n    route:\n      - kind: anthropic\n        api_key: secret-1\n";

/// Lines and the place that is told. `<leg>` is a model with a leg of Anthropic's, open at its end.
const MISTAKES: [(&str, &str); 12] = [
    (
        "<leg>        profile: vllm\n",
        "models.yaml:6: models[0].route[0].profile",
    ),
    (
        "<leg>        project: p\n",
        "models.yaml:6: models[0].route[0].project",
    ),
    (
        "<leg>        processor: xml\n",
        "models.yaml:6: models[0].route[0].processor",
    ),
    (
        "<leg>        responses: native\n",
        "models.yaml:6: models[0].route[0].responses",
    ),
    (
        "<leg>        responses: maybe\n",
        "models.yaml:6: models[0].route[0].responses",
    ),
    (
        "<leg>        openrouter_sort: price\n",
        "models.yaml:6: models[0].route[0].openrouter_sort",
    ),
    (
        "<leg>        auth_header_name: a b\n",
        "models.yaml:6: models[0].route[0].auth_header_name",
    ),
    (
        "<leg>        extra_headers:\n          host: h\n",
        "models.yaml:7: models[0].route[0].extra_headers.host",
    ),
    (
        "<leg>        chat_path: /a/../b\n",
        "models.yaml:6: models[0].route[0].chat_path",
    ),
    (
        "models:\n  - id: m\n    provider: vllm\n    base_url: http://h\n    api_keys:\n      - a\n      - { key: b, min_role: boss }\n",
        "models.yaml:7: models[0].api_keys[1].min_role",
    ),
    (
        "models:\n  - id: m\n    provider: claude\n    project: p\n    credentials_file: gone.json\n",
        "models.yaml:5: models[0].credentials_file",
    ),
    (
        "models:\n  - id: e\n    type: embedding\n    provider: gemini\n",
        "models.yaml:4: models[0].provider",
    ),
];

#[tokio::test]
async fn what_a_kind_cannot_be_told_stops_check_and_start_with_its_place_and_a_remedy() {
    for (text, place) in MISTAKES {
        let models = text.replace("<leg>", LEG);

        let (code, output) = Node::builder().models_yaml(&models).run(&["check-config"]).await;
        assert_eq!(code, Some(64), "{models}{output}");
        let told = output.lines().find_map(|line| line.split_once(place));
        let (_, rest) = told.unwrap_or_else(|| panic!("{place} is not in {output}"));
        assert!(rest.contains("; "), "no remedy: {output}");
        assert!(!output.contains("secret-1"), "{output}");
    }
    let (text, place) = MISTAKES[0];
    let refused = Node::builder()
        .models_yaml(&text.replace("<leg>", LEG))
        .start_refused()
        .await;
    assert_eq!(refused.0, Some(64));
    assert!(refused.1.join("\n").contains(place), "{:?}", refused.1);
}

#[tokio::test]
async fn every_kind_passes_the_check_and_none_of_its_secrets_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("account.json");
    std::fs::write(&file, r#"{"client_email":"a@b","private_key":"secret-k"}"#).expect("a file");
    let models = format!(
        "models:\n\
         - {{ id: a, provider: anthropic, supports_tools: true, api_key: secret-1 }}\n\
         - {{ id: b, provider: gemini, supports_tools: true, api_keys: [secret-2, {{ key: secret-3, min_role: pro }}] }}\n\
         - {{ id: c, provider: claude, supports_tools: true, project: p, location: us-east5, credentials_file: '{}' }}\n\
         - {{ id: d, provider: claude, supports_tools: true, project: p }}\n\
         - {{ id: e, provider: mistral, api_key: secret-4 }}\n\
         - {{ id: f, provider: 'openrouter[novita]', api_key: secret-5, openrouter_sort: price }}\n\
         - {{ id: g, type: embedding, provider: together, api_key: secret-6, route: [{{ embeddings_path: /embed }}] }}\n\
         - {{ id: h, provider: llama.cpp, base_url: 'http://127.0.0.1:8080', processor: qwen_coder, drop_params: true }}\n",
        file.display()
    );
    let builder = Node::builder()
        .models_yaml(&models)
        .env("GOOGLE_APPLICATION_CREDENTIALS", &file.display().to_string());

    let (code, output) = builder.run(&["check-config"]).await;

    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("models 8 endpoints 8"), "{output}");
    assert!(output.contains("no problems"), "{output}");
    assert!(!output.contains("secret-"), "{output}");
}
