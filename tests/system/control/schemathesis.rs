//! The description of the management API that a node serves, against what it does: schemathesis makes calls out of it,
//! right ones and wrong ones, and looks whether every answer is one that is described. It is installed by
//! `scripts/setup.sh sdk`; where it is not there the tests say so, and fail where that must not be.

use std::path::Path;

use harness::{CALLER_KEY, OPERATOR_KEY};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::{minted, one_node, operator};
use crate::sdk::{executed, interpreter};

/// What is looked for in every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance";
/// Calls that are made at least, by whoever it is.
const CALLS_MIN: usize = 300;

/// The command, `None` when schemathesis is not installed.
#[expect(clippy::print_stderr, reason = "a test that was left out must be seen")]
fn command() -> Option<Command> {
    let Some(mut command) = interpreter("schemathesis") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "schemathesis is not installed; run scripts/setup.sh sdk"
        );
        eprintln!("LEFT OUT: schemathesis is not installed; run scripts/setup.sh sdk");
        return None;
    };
    command.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]);
    Some(command)
}

/// Calls what a description says, with a key. Gives whether all was as described, and what was said.
async fn judged(mut command: Command, (description, url): (&Path, &str), key: &str, examples: u32) -> (bool, String) {
    command
        .arg(description)
        .args(["--url", url, "--checks", CHECKS, "--seed", "1", "--workers", "2"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", &examples.to_string()])
        .args(["--generation-database", "none", "--no-color", "--request-timeout", "20"])
        .args(["--header", &format!("Authorization: Bearer {key}")]);
    executed(command).await
}

/// How many calls were made.
fn calls(said: &str) -> usize {
    let counted = said.lines().find_map(|line| line.trim().strip_suffix(" passed"));
    let generated = counted.and_then(|line| line.split_whitespace().next());
    generated.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Writes a description into a file.
fn written(dir: &TempDir, description: &Value) -> std::path::PathBuf {
    let path = dir.path().join("openapi.json");
    std::fs::write(&path, description.to_string()).expect("write");
    path
}

#[tokio::test]
async fn the_node_answers_as_its_description_says() {
    let scene = one_node().await;
    let url = format!("http://{}", scene.node.addr());
    let dir = TempDir::new().expect("a directory");
    let mut description = scene.client.get("/api/v1/openapi.json").await.json();
    // It would take the books away while others read them.
    let paths = description["paths"].as_object_mut().expect("paths");
    assert!(paths.remove("/api/v1/system/rebuild").is_some());
    let path = written(&dir, &description);
    let key = json!({"name": "administrator", "tenant": "acme", "role": "admin"});
    let administrator = minted(&operator(&scene), key).await;

    for (who, key) in [
        ("operator", OPERATOR_KEY),
        ("administrator", &administrator),
        ("member", CALLER_KEY),
    ] {
        let Some(command) = command() else { return };
        let (good, said) = judged(command, (&path, &url), key, 4).await;
        assert!(good, "as {who}:\n{said}");
        assert!(calls(&said) >= CALLS_MIN, "as {who}:\n{said}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_status_that_is_not_described_is_found() {
    let scene = one_node().await;
    let url = format!("http://{}", scene.node.addr());
    let dir = TempDir::new().expect("a directory");
    let mut description = scene.client.get("/api/v1/openapi.json").await.json();
    let one = "/api/v1/users/{id}";
    let mut operations = description["paths"][one].take();
    let responses = operations["get"]["responses"].as_object_mut().expect("responses");
    assert!(responses.remove("404").is_some());
    description["paths"] = json!({one: {"get": operations["get"].take()}});
    let path = written(&dir, &description);

    let Some(command) = command() else { return };
    let (good, said) = judged(command, (&path, &url), OPERATOR_KEY, 10).await;

    assert!(!good && said.contains("Undocumented HTTP status code"), "{said}");
    scene.finish().await;
}
