//! The description of the management API that a node serves, against what it does: schemathesis makes calls out of it,
//! right ones and wrong ones, and looks whether every answer is one that is described. It is installed by
//! `scripts/setup.sh sdk`; where it is not there the tests say so, and fail where that must not be.

use std::path::Path;

use harness::{CALLER_KEY, OPERATOR_KEY, Scene};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::{minted, operator};
use crate::sdk::{executed, interpreter};

/// What is looked for in every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance";
/// How long whoever it is may go on with it, in seconds.
const SECONDS_MAX: &str = "20";
/// An operator's token: what he calls may revoke any key, and the checker still has to be let in.
const TOKEN: &str = OPERATOR_KEY;
/// What changes everything under the other calls, or takes the books away while others read them.
const LEFT_OUT: [&str; 3] = [
    "/api/v1/system/rebuild",
    "/admin/config/import",
    "/admin/config/rollback",
];

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
    command.args([
        "-c",
        "from schemathesis.cli import schemathesis; schemathesis()",
        "run",
    ]);
    Some(command)
}

/// Calls what a description says, with a key. Gives whether all was as described, and what was said.
async fn judged(mut command: Command, (description, url): (&Path, &str), key: &str) -> (bool, String) {
    command
        .arg(description)
        .args(["--url", url, "--checks", CHECKS, "--seed", "1", "--workers", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "3"])
        .args([
            "--max-time",
            SECONDS_MAX,
            "--no-shrink",
            "--request-timeout",
            "20",
        ])
        .args(["--generation-database", "none", "--no-color"])
        // A second credential would be refused with the first.
        .args(["--generation-with-security-parameters", "false"])
        .args(["--header", &format!("Authorization: Bearer {key}")]);
    executed(command).await
}

/// How many operations were called.
fn tested(said: &str) -> usize {
    let tested = said.lines().find_map(|line| line.trim().strip_prefix("Tested: "));
    tested.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Writes a description into a file.
fn written(dir: &TempDir, description: &Value) -> std::path::PathBuf {
    let path = dir.path().join("openapi.json");
    std::fs::write(&path, description.to_string()).expect("write");
    path
}

/// A node with an operator's token.
async fn started() -> Scene {
    let mut scene = Scene::start_with(|node| node.env("ADMIN_TOKEN", TOKEN)).await;
    scene.pin();
    scene
}

#[tokio::test]
async fn the_node_answers_as_its_description_says() {
    let scene = started().await;
    let url = format!("http://{}", scene.node.addr());
    let dir = TempDir::new().expect("a directory");
    let mut description = scene.client.get("/api/v1/openapi.json").await.json();
    let paths = description["paths"].as_object_mut().expect("paths");
    for path in LEFT_OUT {
        assert!(paths.remove(path).is_some(), "{path}");
    }
    let methods = |path: &Value| path.as_object().map_or(0, serde_json::Map::len);
    let operations: usize = paths.values().map(methods).sum();
    let path = written(&dir, &description);
    let key = json!({"name": "administrator", "tenant": "acme", "role": "admin"});
    let administrator = minted(&operator(&scene), key).await;

    // The most powerful last: an administrator may revoke his own key, an operator everybody's.
    for (who, key) in [
        ("member", CALLER_KEY),
        ("administrator", &administrator),
        ("operator", TOKEN),
    ] {
        let Some(command) = command() else { break };
        let (good, said) = judged(command, (&path, &url), key).await;
        assert!(good && tested(&said) == operations, "as {who}:\n{said}");
    }
    let after = scene.client.with_key(TOKEN).get("/api/v1/tenants").await;
    assert_eq!(after.status, 200, "the operator was let in to the end");
    scene.finish().await;
}

#[tokio::test]
async fn a_status_that_is_not_described_is_found() {
    let scene = started().await;
    let url = format!("http://{}", scene.node.addr());
    let dir = TempDir::new().expect("a directory");
    let mut description = scene.client.get("/api/v1/openapi.json").await.json();
    let one = "/api/v1/users/{id}";
    let mut operations = description["paths"][one].take();
    let responses = operations["get"]["responses"].as_object_mut().expect("responses");
    assert!(responses.remove("404").is_some());
    description["paths"] = json!({one: {"get": operations["get"].take()}});
    let path = written(&dir, &description);

    if let Some(command) = command() {
        let (good, said) = judged(command, (&path, &url), TOKEN).await;
        assert!(!good && said.contains("Undocumented status code"), "{said}");
    }
    scene.finish().await;
}
