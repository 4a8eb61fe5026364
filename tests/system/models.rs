//! The listing of models, and the paths that need no key.

use harness::{ADMIN_KEY, Model, Node, Scene, Upstream, chat, models_file};
use serde_json::{Value, json};

async fn scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("org/deep/model:free")
            .leg(&o1, 0)
            .set("name", "A Model")
            .set("aliases", json!(["short"])),
        Model::new("hidden").leg(&o1, 0).set("admin_only", true),
        Model::new("of-zenith")
            .leg(&o1, 0)
            .set("tenants", json!(["zenith"])),
    ];
    let file = models_file(&models);
    Scene::start_on(o1, o2, move |node| node.models_yaml(&file)).await
}

fn ids(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list");
    data.iter()
        .map(|model| model["id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test]
async fn the_listing_shows_what_the_caller_may_use_in_the_order_of_the_file() {
    let scene = scene().await;
    let list = |key: &str| {
        let client = scene.client.with_key(key);
        async move { client.get("/v1/models").await.json() }
    };

    let own = list(harness::CALLER_KEY).await;
    assert_eq!(
        (own["object"].as_str(), ids(&own)),
        (Some("list"), vec!["m", "org/deep/model:free"])
    );
    assert_eq!(
        ids(&list(harness::OTHER_KEY).await),
        ["m", "org/deep/model:free", "of-zenith"]
    );
    assert_eq!(
        ids(&list(ADMIN_KEY).await),
        ["m", "org/deep/model:free", "hidden"]
    );
    let anonymous = list("").await;
    assert_eq!(
        list("sk-nobody-knows-this-key").await,
        anonymous,
        "a bad key counts as none"
    );
    assert_eq!(ids(&anonymous), ["m", "org/deep/model:free"]);
    let shown = &own["data"][1];
    let created = shown["created"].as_i64().expect("a time in seconds");
    assert!(created > 1_700_000_000 && created < 10_000_000_000, "{shown}");
    let expected = json!({
        "id": "org/deep/model:free", "object": "model", "created": created, "owned_by": "waybill", "name": "A Model",
        "input_modalities": ["text"], "output_modalities": ["text"],
        "context_length": 131_072, "max_output_length": 16_384, "quantization": "bf16",
        "pricing": {"completion": "8", "input_cache_reads": "0.2", "input_cache_writes": "2.5", "prompt": "2"},
        "supported_sampling_parameters": ["temperature", "top_p", "max_tokens"],
        "supported_features": ["tools", "json_mode", "structured_outputs"],
    });
    assert_eq!(shown, &expected);
    scene.finish().await;
}

#[tokio::test]
async fn a_model_is_found_by_its_name_with_slashes_plain_or_escaped() {
    let scene = scene().await;

    for path in [
        "org/deep/model:free",
        "org%2Fdeep%2Fmodel:free",
        "org%2fdeep%2fmodel%3Afree",
        "org/deep%2Fmodel:free",
        "short",
    ] {
        let answer = scene.client.get(&format!("/v1/models/{path}")).await;
        assert_eq!(
            (answer.status, &answer.json()["id"]),
            (200, &json!("org/deep/model:free")),
            "{path}: {}",
            answer.text()
        );
    }
    for path in [
        "org",
        "org/deep",
        "org/deep/model:free/",
        "m%00",
        "M",
        "%FF",
        "hidden",
        "of-zenith",
    ] {
        let answer = scene.client.get(&format!("/v1/models/{path}")).await;
        assert!([400, 404].contains(&answer.status), "{path}: {}", answer.text());
        assert!(!answer.error_code().is_empty(), "{path}: {}", answer.text());
    }
    assert_eq!(
        scene.client.post_chat(&chat("org/deep/model:free")).await.status,
        200
    );
    let alias = scene.client.post_chat(&chat("short")).await;
    assert_eq!(alias.status, 200, "{}", alias.text());
    assert_eq!(
        scene.row(alias.request_id()).await["model"],
        "org/deep/model:free"
    );
    scene.finish().await;
}

#[tokio::test]
async fn the_root_answers_without_a_key() {
    let scene = scene().await;
    let nobody = scene.client.with_key("");

    let head = nobody
        .call("HEAD", "/", bytes::Bytes::new())
        .await
        .expect("an answer");
    let root = nobody.get("/").await;

    assert_eq!((head.status, head.body.len(), root.status), (200, 0, 200));
    assert!(root.json().is_object(), "{}", root.text());
    for client in [nobody.http2(), nobody.with_key("sk-nobody-knows-this-key")] {
        assert_eq!(client.get("/").await.status, 200);
    }
    scene.finish().await;
}

#[tokio::test]
async fn figures_and_rows_do_not_tell_a_hidden_model_from_one_that_is_not_there() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("hidden")
            .leg(&o1, 0)
            .set("aliases", json!(["guess"]))
            .set("admin_only", true),
    ];
    let file = models_file(&models);
    let mut scene = Scene::start_on(o1, o2, move |node| node.models_yaml(&file)).await;
    // Figures are those of one node.
    scene.pin();
    let mut refused = Vec::new();
    for model in ["guess", "hidden", "nothing"] {
        let answer = scene.client.post_chat(&chat(model)).await;
        assert_eq!(answer.status, 404, "{model}: {}", answer.text());
        refused.push((model, answer.request_id().to_owned()));
    }

    for (model, id) in refused {
        let row = scene.node.wait_row_as(harness::CALLER_KEY, &id).await;
        assert_eq!(row["model"], model, "as the caller wrote it: {row}");
    }
    let page = scene.node.metrics().await;
    let counted = page
        .lines()
        .find(|line| line.starts_with("waybill_requests_total{") && line.contains("outcome=\"rejected\""));
    assert_eq!(
        counted,
        Some("waybill_requests_total{surface=\"chat\",model=\"\",outcome=\"rejected\"} 3"),
        "{page}"
    );
    assert!(!page.contains("model=\"hidden\""), "{page}");
    scene.finish().await;
}

/// The examples of models in a document, each as a file of its own.
fn examples(document: &str) -> Vec<String> {
    let blocks = document.split("```yaml\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let models = blocks.filter(|block| block.contains("- id:"));
    let whole = |block: &str| format!("models:\n{}", block.strip_prefix("models:\n").unwrap_or(block));
    models.map(whole).collect()
}

#[tokio::test]
async fn the_examples_of_the_providers_document_take_tools_and_have_no_problems() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let dir = tempfile::tempdir().expect("a directory");
    let account = dir.path().join("account.json");
    std::fs::write(&account, r#"{"client_email":"a@b","private_key":"k"}"#).expect("a file");
    let examples = examples(&document);
    assert_eq!(examples.len(), 5, "{examples:?}");

    for example in examples {
        let file = example.replace("/etc/waybill/vertex.json", &account.display().to_string());
        assert!(file.contains("supports_tools: true"), "{file}");
        let mut builder = Node::builder().models_yaml(&file);
        for name in ["OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
            builder = builder.env(name, harness::PROVIDER_KEY);
        }

        let (code, output) = builder.run(&["check-config"]).await;

        assert_eq!(code, Some(0), "{file}\n{output}");
        assert!(
            output.contains("models 1 ") && output.contains("no problems"),
            "{file}\n{output}"
        );
    }
}
