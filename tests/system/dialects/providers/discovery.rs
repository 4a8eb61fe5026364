//! Providers whose key is in the environment: their models are listed by them and served, and the key is in headers
//! alone.

use harness::{Node, PROVIDER_KEY, Upstream, chat};
use serde_json::json;

#[tokio::test]
async fn the_models_of_anthropic_and_gemini_are_served_when_their_keys_are_set() {
    let (anthropic, gemini) = (Upstream::start().strict(), Upstream::start().strict());
    anthropic.models(&["claude-x", "claude-3-x"]);
    gemini.models(&["gemini-x"]);
    let mut node = Node::builder()
        .without_config()
        .env("API_KEY_SECRET", "")
        .env("ANTHROPIC_API_KEY", PROVIDER_KEY)
        .env("ANTHROPIC_BASE_URL", &anthropic.root_url())
        .env("GEMINI_API_KEY", PROVIDER_KEY)
        .env("GEMINI_BASE_URL", &gemini.root_url())
        .start()
        .await;
    let key = node.minted_key();
    let client = node.client(&key);

    let list = client.get("/v1/models").await.json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|model| model["id"].as_str())
        .collect();
    for id in ["claude-x", "claude-3-x", "gemini-x"] {
        assert!(
            ids.contains(&id),
            "{id} is not in {ids:?}\n{}",
            node.logs().join("\n")
        );
    }
    for model in ["claude-x", "claude-3-x", "gemini-x"] {
        let answer = client.post_chat(&chat(model)).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let row = node.wait_row_as(&key, answer.request_id()).await;
        assert_eq!(row["usage_flags"], json!(["unpriced"]), "{row}");
    }
    let most = |call: usize| anthropic.call(call).request.json()["max_tokens"].clone();
    assert_eq!((most(0), most(1)), (32_000.into(), 4_096.into()));
    assert_eq!(anthropic.refusals(), Vec::<String>::new());
    assert_eq!(gemini.refusals(), Vec::<String>::new());
    for (upstream, path, header) in [
        (&anthropic, "/v1/models?limit=1000", "x-api-key"),
        (&gemini, "/v1beta/models?pageSize=1000", "x-goog-api-key"),
    ] {
        let reads = upstream.reads();
        assert_eq!(reads.len(), 1);
        assert_eq!(reads[0].target, path);
        assert_eq!(reads[0].header(header), Some(PROVIDER_KEY));
        for call in upstream.recorded() {
            assert_eq!(call.request.header(header), Some(PROVIDER_KEY));
            assert!(
                !call.request.target.contains(PROVIDER_KEY),
                "{}",
                call.request.target
            );
        }
    }
    assert!(!node.logs().join("\n").contains(PROVIDER_KEY));
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_listed_embedder_is_asked_for_embeddings_and_a_listed_model_for_answers() {
    let openai = Upstream::start();
    openai.models(&["gpt-x", "text-embedding-x"]);
    let mut node = Node::builder()
        .without_config()
        .env("API_KEY_SECRET", "")
        .env("OPENAI_API_KEY", PROVIDER_KEY)
        .env("OPENAI_BASE_URL", &openai.root_url())
        .start()
        .await;
    let key = node.minted_key();
    let client = node.client(&key);
    let embed = |model: &str| json!({"model": model, "input": "a"}).to_string();
    let post = async |path: &str, body: String| {
        let answer = client.post_inference(path, body).await;
        answer.expect("a whole answer")
    };

    let vectors = post("/v1/embeddings", embed("text-embedding-x")).await;

    assert_eq!(vectors.status, 200, "{}", vectors.text());
    assert_eq!(openai.call(0).request.target, "/v1/embeddings");
    assert_eq!(client.post_chat(&chat("gpt-x")).await.status, 200);
    assert_eq!(post("/v1/embeddings", embed("gpt-x")).await.status, 404);
    assert_eq!(client.post_chat(&chat("text-embedding-x")).await.status, 404);
    assert_eq!(openai.calls(), 2);
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_provider_that_does_not_tell_its_models_is_named_and_the_rest_is_served() {
    let silent = harness::refusing_addr();
    let mut node = Node::builder()
        .without_config()
        .env("API_KEY_SECRET", "")
        .env("ANTHROPIC_API_KEY", PROVIDER_KEY)
        .env("ANTHROPIC_BASE_URL", &format!("http://{silent}"))
        .start()
        .await;

    let log = node.logs().join("\n");
    assert!(log.contains("anthropic does not tell its models"), "{log}");
    assert!(!log.contains(PROVIDER_KEY), "{log}");
    let answer = node.client(&node.minted_key()).post_chat(&chat("echo")).await;
    assert_eq!(answer.status, 200);
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}
