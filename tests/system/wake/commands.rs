//! Commands that wake: of files alone, without a shell, without anything of the node's environment.

use harness::{OPERATOR_KEY, chat};
use serde_json::json;

use super::engine::closed_addr;
use super::{scene, sleeper};

#[tokio::test]
async fn a_command_has_nothing_of_the_nodes_environment_and_is_in_no_listing() {
    let directory = tempfile::tempdir().expect("a directory");
    let seen = directory.path().join("seen");
    // What it prints is nothing to anybody, however much it is.
    let script = format!(
        "/usr/bin/env > '{}'; /usr/bin/yes | /usr/bin/head -c 1000000; exit 75",
        seen.display()
    );
    let wake = json!({"kind": "exec", "command": ["/bin/sh", "-c", script], "timeout_seconds": 20});
    let scene = scene(vec![sleeper(closed_addr(), wake)]).await;

    let answer = scene.client.post_chat(&chat("z")).await;

    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (503, "wake_queued_gpu_borrowed"),
        "{}",
        answer.text()
    );
    let seen = std::fs::read_to_string(&seen).expect("what the command saw");
    let mut names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    // A shell says these by itself.
    names.retain(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    names.sort_unstable();
    assert_eq!(names, ["PATH", "WAKE_BACKEND", "WAKE_ENDPOINT"], "{seen}");
    let listed = scene
        .client
        .with_key(OPERATOR_KEY)
        .get("/api/v1/endpoints")
        .await
        .text();
    assert!(listed.contains("\"kind\":\"exec\""), "{listed}");
    assert!(!listed.contains("/bin/sh"), "{listed}");
    scene.finish().await;
}
