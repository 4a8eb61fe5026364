//! A real engine: llama-server with a small model, found by discovery, called by the official clients, and its own
//! figures compared with the rows. It is built by `scripts/llama-server.sh`; `make test-engines` runs this.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use harness::{Client, Node};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::sdk::Script;

/// The port at which discovery looks for llama.cpp.
const PORT: u16 = 8080;
/// A name with a slash, as names of models have.
const MODEL: &str = "harness/tiny";
/// How long loading the model may take.
const LOAD_MAX: Duration = Duration::from_mins(2);

#[expect(
    clippy::disallowed_methods,
    reason = "where the engine was built is told by the environment"
)]
fn directory() -> PathBuf {
    let home = || std::env::var("HOME").expect("a home directory");
    let told = std::env::var("WAYBILL_ENGINE_DIR").ok().map(PathBuf::from);
    told.unwrap_or_else(|| PathBuf::from(home()).join(".cache/waybill/engine"))
}

/// Starts the engine and waits until it has loaded its model.
async fn engine() -> Child {
    let dir = directory();
    let program = dir.join("llama-server");
    assert!(
        program.exists(),
        "{} is not built; run scripts/llama-server.sh",
        program.display()
    );
    let mut command = Command::new(program);
    command
        .arg("-m")
        .arg(dir.join("model.gguf"))
        .arg("--chat-template-file")
        .arg(dir.join("tools.jinja"));
    command.args([
        "--alias",
        MODEL,
        "--host",
        "127.0.0.1",
        "--port",
        &PORT.to_string(),
    ]);
    command.args([
        "-c",
        "4096",
        "-np",
        "2",
        "-n",
        "256",
        "-t",
        "2",
        "--metrics",
        "--slots",
        "--props",
        "--no-ui",
        "--jinja",
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("the engine starts");
    let direct = direct();
    let deadline = Instant::now() + LOAD_MAX;
    loop {
        if let Ok(answer) = direct.call("GET", "/health", bytes::Bytes::new()).await
            && answer.status == 200
        {
            return child;
        }
        let running = matches!(child.try_wait(), Ok(None));
        assert!(
            running && Instant::now() < deadline,
            "the engine did not load its model (running: {running})"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// A client of the engine itself.
fn direct() -> Client {
    Client::new(std::net::SocketAddr::from(([127, 0, 0, 1], PORT)), "").patience(Duration::from_mins(3))
}

/// Tokens that the engine has generated since its start.
async fn generated() -> u64 {
    let page = direct().get("/metrics").await.text();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("llamacpp:tokens_predicted_total "));
    line.expect("the engine counts").trim().parse().expect("a count")
}

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
async fn rows_hold_the_engines_figures(node: &Node, key: &str) {
    let client = node.client(key).patience(Duration::from_mins(3));
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
        let before = generated().await;
        let silent = client.stream_chat(&streamed).await.collect().await;
        silent.whole();
        assert_eq!(silent.usage(), None, "nobody asked for the usage");
        let row = node.wait_row_as(key, silent.request_id()).await;
        assert_eq!(row["usage_source"], "upstream", "{row}");
        assert_eq!(
            row["output_tokens"].as_u64(),
            Some(generated().await - before),
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

#[tokio::test]
#[ignore = "needs llama-server: make test-engines"]
async fn a_discovered_engine_serves_both_clients_and_its_figures_are_in_the_rows() {
    let mut engine = engine().await;
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

    rows_hold_the_engines_figures(&node, &key).await;
    for script in [Script::OpenaiPython, Script::OpenaiNode] {
        let ran = script.run(&node, &key, (MODEL, "openai"), &["--engine"]).await;
        assert_eq!(ran, Ok(true), "{script:?}");
    }

    let path = format!("/api/v1/logs?limit=1000&model={}", MODEL.replace('/', "%2F"));
    let rows = node.client(&key).get(&path).await.json();
    let served: Vec<&Value> = rows["data"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["outcome"] == "ok")
        .collect();
    assert!(served.len() >= 9 + 2 * 8, "{} rows", served.len());
    for row in served {
        assert_eq!(
            (&row["usage_source"], &row["cost_nano_usd"], &row["usage_flags"]),
            (&json!("upstream"), &json!(0), &json!([])),
            "{row}"
        );
    }
    assert_eq!(node.stop().await, Some(0));
    engine.kill().await.expect("the engine ends");
}
