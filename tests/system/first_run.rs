//! The first run: nothing configured, one command, and a call is answered and booked.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Node, NodeBuilder, Surface, Upstream, chat_streamed};
use serde_json::json;
use tokio::time::Instant;

/// From the start of the process to the row of its first call.
const FIRST_ROW_MAX: Duration = Duration::from_secs(10);

fn bare() -> NodeBuilder {
    // Blank counts as unset: the node makes its own secret.
    Node::builder().without_config().env("API_KEY_SECRET", "")
}

#[tokio::test]
async fn the_first_call_has_its_row_within_ten_seconds_of_the_start() {
    let started = Instant::now();
    let mut node = bare().start().await;
    let key = node.minted_key();

    let answer = node
        .client(&key)
        .post_chat(&json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]}))
        .await;
    assert_eq!(
        (answer.status, answer.content().as_str()),
        (200, "hi"),
        "{}",
        answer.text()
    );
    let row = node.wait_row_as(&key, answer.request_id()).await;

    assert!(started.elapsed() < FIRST_ROW_MAX, "{:?}", started.elapsed());
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"], &row["tenant"]),
        (&json!("ok"), &json!(0), &json!("default"))
    );
    assert_eq!(
        row["usage_flags"],
        json!([]),
        "echo has a price, and it is 0: {row}"
    );
    let streamed = node
        .client(&key)
        .stream_chat(&chat_streamed("echo"))
        .await
        .collect()
        .await;
    assert!(streamed.whole().contains("say hi"));
    let list = node.client(&key).get("/v1/models").await.json();
    assert!(
        list["data"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|model| model["id"] == "echo"),
        "{list}"
    );
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn the_key_is_printed_once_with_a_ready_command_before_the_listening_line() {
    let mut node = bare().start().await;
    let lines = node.logs();
    let key = node.minted_key();
    let place = |text: &str| lines.iter().position(|line| line.contains(text));
    let printed = place(&key).expect("the key");

    assert!(printed < place("listening addr=").expect("the line"), "{lines:?}");
    let curl = place("curl http://").expect("a command");
    assert!(
        lines[curl].contains(&format!("{}/v1/chat/completions", node.addr())),
        "{lines:?}"
    );
    let command = lines[curl..]
        .iter()
        .take(4)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        command.contains(&key) && command.contains("\"model\": \"echo\""),
        "{command}"
    );
    assert_eq!(node.stop().await, Some(0));

    node.restart().await;
    let again = node.logs()[lines.len()..].join("\n");
    assert!(!again.contains("sk-"), "{again}");
    assert_eq!(
        node.client(&key)
            .post_chat(&json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]}))
            .await
            .status,
        200
    );
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_first_start_that_fails_leaves_no_key_that_nobody_saw() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = data.path().to_str().expect("a path in UTF-8");

    let (code, text) = bare()
        .run(&["serve", "--listen", &address, "--data-dir", data])
        .await;
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");

    let (code, list) = bare().run(&["keys", "list", "--data-dir", data]).await;
    assert_eq!((code, list.lines().count()), (Some(0), 1), "no key: {list}");
}

/// Every path below `directory` that others than its owner may use, with its mode.
fn open_to_others(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(&path).expect("a directory") {
            let entry = entry.expect("an entry");
            let metadata = entry.metadata().expect("metadata");
            let mode = metadata.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                found.push((entry.path(), mode));
            }
            if metadata.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_data_directory_that_a_node_makes_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let path = data.display().to_string();

    let (code, text) = bare().run(&["keys", "list", "--data-dir", &path]).await;

    assert_eq!(code, Some(0), "{text}");
    assert!(data.join("bus").is_dir());
    assert_eq!(open_to_others(dir.path()), []);
}

#[tokio::test]
async fn what_a_node_keeps_is_for_its_owner_alone() {
    let mut node = bare().start().await;
    let key = node.minted_key();
    let client = node.client(&key);
    let answer = client
        .post_chat(&json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]}))
        .await;
    node.wait_row_as(&key, answer.request_id()).await;
    let kept = client
        .post(Surface::Responses, &json!({"model": "echo", "input": "hi"}))
        .await;
    assert_eq!(kept.status, 200, "{}", kept.text());
    let data = node.data_dir();
    for name in [
        "secrets/api_key_secret",
        "ledger.db",
        "bus/log",
        "bus/kv",
        "spool",
    ] {
        assert!(data.join(name).exists(), "{name} is kept");
    }

    assert_eq!(open_to_others(&data), []);

    // As a version left it that did not look after this.
    std::fs::set_permissions(data.join("bus"), Permissions::from_mode(0o755)).expect("open");
    std::fs::set_permissions(data.join("ledger.db"), Permissions::from_mode(0o644)).expect("open");
    assert_eq!(node.stop().await, Some(0));
    node.restart().await;

    assert_eq!(open_to_others(&data), []);
    node.check_books().await;
}

#[tokio::test]
async fn a_models_file_leaves_the_demo_model_out_unless_it_is_asked_for() {
    let upstream = Upstream::start();
    let models = [harness::Model::new("m").leg(&upstream, 0)];
    for (demo, expected) in [(false, json!(["m"])), (true, json!(["m", "echo"]))] {
        let mut builder = Node::builder().models(&models);
        if demo {
            builder = builder.setting("demo", true);
        }
        let mut node = builder.start().await;
        let list = node.client(harness::CALLER_KEY).get("/v1/models").await.json();
        let ids: Vec<_> = list["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|model| model["id"].clone())
            .collect();
        assert_eq!(json!(ids), expected, "demo: {demo}");
        assert!(!node.logs().join("\n").contains("curl"), "the catalogue has keys");
        node.check_books().await;
    }
}
