//! Claude Code: whole tasks, and turns whose first calls go wrong.

use futures_util::future::join_all;
use harness::{CALLER_KEY, Model, Scene};
use serde_json::{Value, json};

use super::model::{
    self, DOCUMENT, KINDS, Mishap, PNG, SAYS, SCHEMA, assert_instructed, assert_pictured, assert_turns,
    broken, done, failing, long_instructions, refused, step, told_of_refusal, went_wrong,
};
use super::program::Program;
use crate::sdk::heard::Heard;
use crate::sdk::page;

/// What is written and read again.
const NOTES: [&str; 2] = ["fourteen crates", "two barrels"];

fn claude(scene: &Scene, prompt: &str) -> Program {
    let place = super::platform("@anthropic-ai/claude-code");
    Program::new(&format!("{place}/claude"))
        .envs(page::exported(&page::code(
            "Claude Code:",
            &scene.node,
            CALLER_KEY,
        )))
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .args(&["-p", prompt, "--output-format", "json"])
}

/// A task of parallel calls, a picture and long instructions, with a model as it is declared. Gives how many titles the
/// model was asked for, and how many requests the node refused.
async fn completes(model: Model, kind: &str) -> (usize, usize) {
    let files = tempfile::tempdir().expect("a directory");
    let path = |name: &str| files.path().join(name);
    let picture = super::program::decoded(PNG);
    std::fs::write(path("mark.png"), picture).expect("a file");
    let write = |name, note| step("Write", json!({"file_path": path(name), "content": note}));
    let read = |name| step("Read", json!({"file_path": path(name)}));
    let plan = vec![
        vec![write("a.txt", NOTES[0]), write("b.txt", NOTES[1])],
        vec![read("mark.png")],
        vec![read("a.txt"), read("b.txt")],
    ];
    let scene = model::scene(model, kind, plan).await;

    let ended = claude(
        &scene,
        "Write the notes, look at the mark, then read me the notes.",
    )
    .args(&["--add-dir", &files.path().display().to_string()])
    .args(&["--append-system-prompt", &long_instructions()])
    .args(&["--allowedTools", "Write,Read", "--permission-mode", "acceptEdits"])
    .run()
    .await;

    done(&scene, &ended, &NOTES).await;
    assert_turns(&scene, &[2, 1, 2], &ended);
    assert_pictured(&scene);
    assert_instructed(&scene);
    let calls = scene.o1.recorded();
    let titles = calls
        .iter()
        .filter(|call| Heard::of(&call.request).schema.is_object())
        .count();
    let refused = scene.node.logs_api("outcome=rejected&status=400").await;
    scene.finish().await;
    (titles, refused.len())
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_completes_a_task_of_parallel_tools_and_a_picture_before_every_kind_of_upstream() {
    for kind in KINDS {
        assert_eq!(completes(Model::new("m"), kind).await, (1, 0), "{kind}");
    }
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_lives_without_a_title_from_a_model_that_writes_no_json() {
    let plain = Model::new("m").set("supports_structured_output", false);

    assert_eq!(completes(plain, "openai_compat").await, (0, 1));
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_gets_a_document_by_its_schema_before_every_kind_of_upstream() {
    for kind in KINDS {
        // It offers a tool that takes the document.
        let document = serde_json::from_str(DOCUMENT).expect("a document");
        let plan = vec![vec![step("StructuredOutput", document)]];
        let scene = model::scene(Model::new("m"), kind, plan).await;
        let ended = claude(&scene, "Count the crates.")
            .args(&["--json-schema", SCHEMA])
            .run()
            .await;
        done(&scene, &ended, &[]).await;
        let said: Value = serde_json::from_str(&ended.stdout).expect("a report");
        assert_eq!(said["structured_output"].to_string(), DOCUMENT, "{ended}");
        scene.finish().await;
    }
}

/// A turn whose first call goes wrong: the program asks again and says what came whole, or says that it failed.
async fn turn(kind: &str, (name, first, outcome): Mishap, again: bool) {
    let scene = failing(kind, first).await;

    let ended = claude(&scene, "What does the note say?").run().await;

    let case = format!("{name}, {kind}: {ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    assert_eq!(
        (ended.success, report["is_error"] == true),
        (again, !again),
        "{case}"
    );
    assert_eq!(report["result"] == SAYS, again, "{case}");
    assert!(!ended.stdout.contains("half"), "{case}");
    went_wrong(&scene, outcome, again, &case).await;
    scene.finish().await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_asks_again_where_the_upstream_was_busy_or_its_answer_broke_off() {
    for mishap in [refused(429), refused(503), refused(529)]
        .into_iter()
        .chain(broken())
    {
        join_all(KINDS.map(|kind| turn(kind, mishap.clone(), true))).await;
    }
}

/// It heeds `x-should-retry: false`.
#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_believes_that_other_failures_of_every_leg_are_final() {
    join_all(KINDS.map(|kind| turn(kind, refused(500), false))).await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_says_why_a_request_was_refused() {
    for kind in KINDS {
        let scene = failing(kind, refused(400).1).await;
        let ended = claude(&scene, "What does the note say?").run().await;
        told_of_refusal(&scene, &ended, kind).await;
        scene.finish().await;
    }
}
