//! Client libraries under limits: what they make of a 429, and what they show of the headers.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use harness::{CALLER_KEY, Scene};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use super::under::scene;

/// How long a script may take.
const SCRIPT_MAX: Duration = Duration::from_mins(1);

/// Runs a script with the library of this name. False when it is not installed.
#[expect(clippy::print_stderr, reason = "a test that was left out must be seen")]
async fn run(scene: &Scene, library: &str, script: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let home = root.join("target/sdk").join(library);
    if !home.with_extension("stamp").exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{library} is not installed; run scripts/setup.sh sdk"
        );
        eprintln!("LEFT OUT: {library} is not installed; run scripts/setup.sh sdk");
        return false;
    }
    let mut command = Command::new(home.join("bin/python"));
    command
        .arg(root.join("tests/sdk").join(script))
        .env("WAYBILL_URL", format!("http://{}", scene.node.addr()))
        .env("WAYBILL_KEY", CALLER_KEY)
        .env("WAYBILL_MODEL", "m")
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env("NO_PROXY", "127.0.0.1");
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(SCRIPT_MAX, running).await.expect("the script ends");
    let output = output.expect("the script starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    true
}

#[tokio::test]
async fn client_libraries_know_a_limit_when_they_meet_it_and_show_what_is_left() {
    let mut scene = scene(json!({"daily_calls": 1, "daily_usd": "1.00"})).await;
    scene.foreign_calls();

    let ran = run(&scene, "venv", "openai_limits.py").await;
    assert_eq!(scene.o1.calls(), usize::from(ran));
    if ran {
        run(&scene, "anthropic2", "anthropic_limits.py").await;
        assert_eq!(scene.o1.calls(), 1);
    }

    scene.finish().await;
}
