//! Codex: whole tasks, and turns whose first calls go wrong.

use futures_util::future::join_all;
use harness::{CALLER_KEY, Model, Scene};
use serde_json::json;

use super::model::{
    self, DOCUMENT, KINDS, Mishap, PNG, SAYS, SCHEMA, assert_instructed, assert_pictured, assert_turns,
    broken, done, failing, long_instructions, refused, step, told_of_refusal, went_wrong,
};
use super::program::Program;
use crate::sdk::page;

/// What is written and read again.
const NOTES: [&str; 2] = ["fourteen crates", "two barrels"];

/// Codex's settings.
fn settings(scene: &Scene) -> String {
    let provider = page::code("Codex, in", &scene.node, CALLER_KEY);
    format!(
        "{provider}check_for_update_on_startup = false\nweb_search = \"disabled\"\n\
         developer_instructions = \"{}\"\n[analytics]\nenabled = false\n",
        long_instructions()
    )
}

fn codex(scene: &Scene, prompt: &str, more: &[&str]) -> Program {
    Program::new("clients/node_modules/.bin/codex")
        .file(".codex/config.toml", settings(scene).as_bytes())
        .env("WAYBILL_KEY", CALLER_KEY)
        .args(&["exec", "--skip-git-repo-check"])
        .args(&["--dangerously-bypass-approvals-and-sandbox", prompt])
        .args(more)
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_completes_a_task_of_parallel_tools_and_a_picture_before_every_kind_of_upstream() {
    let patch = format!(
        "*** Begin Patch\n*** Add File: a.txt\n+{}\n*** Add File: b.txt\n+{}\n*** End Patch\n",
        NOTES[0], NOTES[1]
    );
    let run = |command: &str| step("exec_command", json!({"cmd": command}));
    for kind in KINDS {
        let plan = vec![
            vec![
                run(&format!("apply_patch <<'END'\n{patch}END")),
                step("get_goal", json!({})),
            ],
            vec![run("cat a.txt"), run("cat b.txt")],
        ];
        let scene = model::scene(Model::new("m"), kind, plan).await;

        let ended = codex(
            &scene,
            "Write the notes, then read them to me.",
            &["--image", "mark.png"],
        )
        .file("work/mark.png", &super::program::decoded(PNG))
        .run()
        .await;

        done(&scene, &ended, &NOTES).await;
        assert_turns(&scene, &[2, 2], &ended);
        assert_pictured(&scene);
        assert_instructed(&scene);
        scene.finish().await;
    }
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_gets_a_document_by_its_schema_before_every_kind_of_upstream() {
    for kind in KINDS {
        let scene = model::scene(Model::new("m"), kind, Vec::new()).await;
        let ended = codex(&scene, "Count the crates.", &["--output-schema", "schema.json"])
            .file("work/schema.json", SCHEMA.as_bytes())
            .run()
            .await;
        done(&scene, &ended, &[DOCUMENT]).await;
        scene.finish().await;
    }
}

/// A turn whose first call goes wrong: the program asks again, and says what came whole.
async fn turn(kind: &str, (name, first, outcome): Mishap) {
    let scene = failing(kind, first).await;

    let ended = codex(&scene, "What does the note say?", &[]).run().await;

    let case = format!("{name}, {kind}: {ended}");
    assert_eq!((ended.success, ended.stdout.trim()), (true, SAYS), "{case}");
    went_wrong(&scene, outcome, true, &case).await;
    scene.finish().await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_asks_again_where_a_call_failed_or_its_answer_broke_off() {
    let refusals = [429, 500, 503, 529].map(refused);
    for mishap in refusals.into_iter().chain(broken()) {
        join_all(KINDS.map(|kind| turn(kind, mishap.clone()))).await;
    }
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_says_why_a_request_was_refused() {
    for kind in KINDS {
        let scene = failing(kind, refused(400).1).await;
        let ended = codex(&scene, "What does the note say?", &[]).run().await;
        told_of_refusal(&scene, &ended, kind).await;
        scene.finish().await;
    }
}
