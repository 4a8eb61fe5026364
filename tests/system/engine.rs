//! Real engines: llama-server with a small model, found by discovery, called by every official client and on every
//! surface, and its own figures compared with the rows. `scripts/llama-server.sh` builds it; `make test-engines` runs
//! this.

use std::net::SocketAddr;

use harness::{Counts, Model, Node, Surface, refusing_addr};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::sdk::Script;

mod server;
mod steering;

use server::{Engine, MODEL, PATIENCE};

/// The port at which discovery looks for llama.cpp.
const PORT: u16 = 8080;
/// How long the rows of a script's last calls may take.
const SETTLED_MAX: Duration = Duration::from_secs(5);
/// Tokens that the engine may have made of an answer before it hears that its caller left.
const LEFT_MAX: u64 = 32;
/// Answers that each script has at least.
const SCRIPT_ANSWERS_MIN: usize = 8;

/// Input tokens of a row as the engine counts them: fresh and cached together.
fn prompt_tokens(row: &Value) -> Option<u64> {
    Some(row["input_tokens"].as_u64()? + row["cached_tokens"].as_u64()?)
}

fn assert_same(row: &Value, usage: &Value) {
    assert_eq!(row["usage_source"], "upstream", "{row}");
    assert_eq!(
        prompt_tokens(row),
        usage["prompt_tokens"].as_u64(),
        "{usage} in {row}"
    );
    assert_eq!(
        row["output_tokens"], usage["completion_tokens"],
        "{usage} in {row}"
    );
    if let Some(cached) = usage["prompt_tokens_details"]["cached_tokens"].as_u64() {
        assert_eq!(row["cached_tokens"].as_u64(), Some(cached), "{usage} in {row}");
    }
}

fn body(more: &Value) -> Value {
    let mut body = json!({
        "model": MODEL, "max_tokens": 24, "temperature": 0,
        "messages": [{"role": "user", "content": "Name three colours."}],
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Each row's tokens are those that the engine told in its answer, or counted where the caller was told nothing.
async fn rows_hold_the_engines_figures(engine: &Engine, node: &Node, key: &str) {
    let client = node.client(key).patience(PATIENCE);
    let schema =
        json!({"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]});
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}});
    let shapes = [
        json!({}),
        json!({"tools": [tool], "tool_choice": "required"}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}}),
    ];
    for shape in shapes {
        let plain = client.post_chat(&body(&shape)).await;
        assert_eq!(plain.status, 200, "{}", plain.text());
        assert_same(
            &node.wait_row_as(key, plain.request_id()).await,
            &plain.json()["usage"],
        );

        let mut streamed = body(&shape);
        streamed["stream"] = json!(true);
        let before = engine.counted().await;
        let silent = client.stream_chat(&streamed).await.collect().await;
        silent.whole();
        assert_eq!(silent.usage(), None, "nobody asked for the usage");
        let row = node.wait_row_as(key, silent.request_id()).await;
        assert_eq!(row["usage_source"], "upstream", "{row}");
        assert_eq!(
            row["output_tokens"].as_u64(),
            Some(engine.counted().await.since(before).output),
            "{row}"
        );

        streamed["stream_options"] = json!({"include_usage": true});
        let told = client.stream_chat(&streamed).await.collect().await;
        told.whole();
        assert_same(
            &node.wait_row_as(key, told.request_id()).await,
            &told.usage().expect("the usage"),
        );
    }
}

/// On every surface, whole and streamed: the row has what the engine counted, and so does what the caller was told.
async fn every_surface_tells_and_books_what_the_engine_counted(engine: &Engine, node: &Node, key: &str) {
    let client = node.client(key).patience(PATIENCE);
    for surface in Surface::ALL {
        for stream in [false, true] {
            let mut body = if stream {
                surface.ask_streamed_with_usage(MODEL)
            } else {
                surface.ask(MODEL)
            };
            let limit = if surface == Surface::Responses {
                "max_output_tokens"
            } else {
                "max_tokens"
            };
            body[limit] = json!(16);
            let before = engine.counted().await;
            let (id, told) = if stream {
                let streamed = client.stream(surface, &body).await.collect().await;
                streamed.whole();
                (streamed.request_id().to_owned(), streamed.told())
            } else {
                let whole = client.post(surface, &body).await;
                assert_eq!(whole.status, 200, "{surface:?}: {}", whole.text());
                (whole.request_id().to_owned(), whole.told(surface))
            };

            let row = node.wait_row_as(key, &id).await;
            let counted = engine.counted().await.since(before);
            assert_eq!(row["usage_source"], "upstream", "{surface:?}: {row}");
            assert_eq!(row["input_tokens"], counted.fresh, "{surface:?}: {row}");
            assert_eq!(row["output_tokens"], counted.output, "{surface:?}: {row}");
            let due = Counts {
                fresh: counted.fresh,
                cached: row["cached_tokens"].as_u64().expect("a number"),
                written: 0,
                output: counted.output,
            };
            assert_eq!(told.usage, Some(due), "{surface:?}: {row}");
            assert!(!told.text.is_empty(), "{surface:?}: {told:?}");
        }
    }
}

/// The rows of the engine's answers.
async fn served(node: &Node, key: &str) -> Vec<Value> {
    let path = format!("/api/v1/logs?limit=1000&model={}", MODEL.replace('/', "%2F"));
    let page = node.client(key).get(&path).await.json();
    let mut rows = page["data"].as_array().expect("rows").clone();
    rows.retain(|row| row["outcome"] == "ok");
    rows
}

fn sum(rows: &[Value], member: &str) -> u64 {
    rows.iter().filter_map(|row| row[member].as_u64()).sum()
}

/// Runs one script, whose rows have together what the engine counted meanwhile.
async fn conforms(script: Script, engine: &Engine, node: &Node, key: &str) {
    let (earlier, before) = (served(node, key).await, engine.counted().await);
    let ran = script.run(node, key, (MODEL, "openai"), &["--engine"]).await;
    assert_eq!(ran, Ok(true), "{script:?}");

    let counted = engine.counted().await.since(before);
    let due = sum(&earlier, "output_tokens") + counted.output;
    let deadline = Instant::now() + SETTLED_MAX;
    let mut rows = served(node, key).await;
    while sum(&rows, "output_tokens") != due && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
        rows = served(node, key).await;
    }
    assert!(
        rows.len() >= earlier.len() + SCRIPT_ANSWERS_MIN,
        "{script:?}: {} rows",
        rows.len() - earlier.len()
    );
    let missing = due.checked_sub(sum(&rows, "output_tokens"));
    if script.closes_early() {
        assert!(
            missing.is_some_and(|missing| missing <= LEFT_MAX),
            "{script:?}: {missing:?}"
        );
        return;
    }
    assert_eq!(missing, Some(0), "{script:?}");
    let fresh = sum(&rows, "input_tokens") - sum(&earlier, "input_tokens");
    assert_eq!(fresh, counted.fresh, "{script:?}");
}

#[tokio::test]
#[ignore = "needs llama-server: make test-engines"]
async fn a_discovered_engine_serves_every_client_and_its_figures_are_in_the_rows() {
    let engine = Engine::start(SocketAddr::from(([127, 0, 0, 1], PORT)), &[]).await;
    let mut node = Node::builder().without_config().start().await;
    let key = node.minted_key();
    let list = node.client(&key).get("/v1/models").await.json();
    let ids: Vec<&Value> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert!(
        ids.contains(&&json!(MODEL)),
        "not discovered: {ids:?}\n{}",
        node.logs().join("\n")
    );

    rows_hold_the_engines_figures(&engine, &node, &key).await;
    every_surface_tells_and_books_what_the_engine_counted(&engine, &node, &key).await;
    node.foreign_calls();
    for script in Script::ALL {
        conforms(script, &engine, &node, &key).await;
    }

    for row in served(&node, &key).await {
        assert_eq!(
            (&row["usage_source"], &row["cost_nano_usd"], &row["usage_flags"]),
            (&json!("upstream"), &json!(0), &json!([])),
            "{row}"
        );
    }
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
    engine.stop().await;
}

#[tokio::test]
#[ignore = "needs llama-server: make test-engines"]
async fn an_engine_of_embeddings_answers_in_both_encodings_and_its_figures_are_in_the_rows() {
    let addr = refusing_addr();
    let engine = Engine::start(addr, &["--embeddings", "--pooling", "mean"]).await;
    let model = Model::new("e")
        .leg_at(&format!("http://{addr}/v1"), 0)
        .set("model_type", "embedding")
        .set_leg("provider_model_id", MODEL);
    let mut node = Node::builder().models(&[model]).start().await;
    let client = node.client(harness::CALLER_KEY).patience(PATIENCE);

    for encoding in ["float", "base64"] {
        let body = json!({"model": "e", "input": ["a crate", "the harbor"], "encoding_format": encoding});
        let answer = client
            .post_inference("/v1/embeddings", body.to_string())
            .await
            .expect("a whole answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = answer.json();
        let is_vector = |entry: &Value| match encoding {
            "base64" => entry["embedding"].is_string(),
            _ => entry["embedding"]
                .as_array()
                .is_some_and(|vector| vector.len() > 1),
        };
        let entries = told["data"].as_array().expect("a list");
        assert_eq!((entries.len(), &told["model"]), (2, &json!("e")));
        assert!(entries.iter().all(is_vector), "{encoding}");
        let row = node.wait_row(answer.request_id()).await;
        assert!(told["usage"]["prompt_tokens"].as_u64() > Some(2), "{told}");
        assert_eq!(
            prompt_tokens(&row),
            told["usage"]["prompt_tokens"].as_u64(),
            "{row}"
        );
        assert_eq!(
            (&row["usage_source"], &row["output_tokens"]),
            (&json!("upstream"), &json!(0)),
            "{row}"
        );
    }
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
    engine.stop().await;
}
