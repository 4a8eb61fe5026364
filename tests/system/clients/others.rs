//! opencode, aider and LiteLLM.

use futures_util::future::join_all;
use harness::{CALLER_KEY, Model, Scene};
use serde_json::{Value, json};

use super::model::{
    self, KINDS, Mishap, PNG, SAYS, assert_instructed, assert_pictured, assert_read, assert_turns, broken,
    done, failing, long_instructions, refused, step, told_of_refusal, went_wrong,
};
use super::program::Program;
use crate::sdk::{Script, conforms, page, reach_by_their_page};

/// What is written and read again.
const NOTES: [&str; 2] = ["fourteen crates", "two barrels"];

fn opencode(scene: &Scene, more: &[&str]) -> Program {
    let code = page::code("opencode, in", &scene.node, CALLER_KEY);
    let mut settings: Value = serde_json::from_str(&code).expect("settings");
    settings["autoupdate"] = json!(false);
    settings["share"] = json!("disabled");
    let place = super::platform("opencode");
    Program::new(&format!("{place}/bin/opencode"))
        .file("work/opencode.json", settings.to_string().as_bytes())
        .file("work/AGENTS.md", long_instructions().as_bytes())
        .file("work/mark.png", &super::program::decoded(PNG))
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
        .args(&["run", "What does the note say?"])
        .args(more)
}

async fn opencode_completes(kind: &str) {
    let write = |name, note| step("write", json!({"filePath": name, "content": note}));
    let read = |name| step("read", json!({"filePath": name}));
    let plan = vec![
        vec![write("a.txt", NOTES[0]), write("b.txt", NOTES[1])],
        vec![read("a.txt"), read("b.txt")],
    ];
    let scene = model::scene(Model::new("m"), kind, plan).await;

    let ended = opencode(&scene, &["--file", "mark.png"]).run().await;

    done(&scene, &ended, &NOTES).await;
    assert_turns(&scene, &[2, 2], &ended);
    assert_pictured(&scene);
    assert_instructed(&scene);
    scene.finish().await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn opencode_completes_a_task_of_parallel_tools_and_a_picture_before_every_kind_of_upstream() {
    join_all(KINDS.map(opencode_completes)).await;
}

fn aider(scene: &Scene) -> Program {
    let code = page::code("aider:", &scene.node, CALLER_KEY);
    let command = code.lines().find_map(|line| line.strip_prefix("aider "));
    let named: Vec<&str> = command.expect("a command").split(' ').collect();
    Program::new("aider/bin/aider")
        .envs(page::exported(&code))
        .args(&named)
        .file("work/rules.md", long_instructions().as_bytes())
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .args(&["--message", "What does the note say?", "--read", "rules.md"])
        .args(&[
            "--no-git",
            "--yes-always",
            "--no-check-update",
            "--analytics-disable",
        ])
        .args(&[
            "--no-show-model-warnings",
            "--no-show-release-notes",
            "--no-pretty",
        ])
}

/// What aider has to be told of a model before it shows images to it.
const SIGHTED: &str =
    r#"{"openai/m": {"supports_vision": true, "litellm_provider": "openai", "mode": "chat"}}"#;

async fn aider_shows_a_picture(kind: &str) {
    let scene = model::scene(Model::new("m"), kind, Vec::new()).await;

    let ended = aider(&scene)
        .file("work/sighted.json", SIGHTED.as_bytes())
        .file("work/mark.png", &super::program::decoded(PNG))
        .args(&["--model-metadata-file", "sighted.json", "mark.png"])
        .run()
        .await;

    done(&scene, &ended, &[SAYS]).await;
    assert_pictured(&scene);
    assert_read(&scene);
    scene.finish().await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn aider_completes_a_turn_with_a_picture_before_every_kind_of_upstream() {
    join_all(KINDS.map(aider_shows_a_picture)).await;
}

/// A turn whose first call goes wrong: the program asks again, and says what came whole.
async fn turn(program: fn(&Scene) -> Program, kind: &str, (name, first, outcome): Mishap) {
    let scene = failing(kind, first).await;

    let ended = program(&scene).run().await;

    let case = format!("{name}, {kind}: {ended}");
    assert!(ended.success && ended.stdout.contains(SAYS), "{case}");
    went_wrong(&scene, outcome, true, &case).await;
    scene.finish().await;
}

/// A turn whose only call is refused as wrong.
async fn says_why(program: fn(&Scene) -> Program, kind: &str) {
    let scene = failing(kind, refused(400).1).await;
    let ended = program(&scene).run().await;
    told_of_refusal(&scene, &ended, kind).await;
    scene.finish().await;
}

async fn asks_again(program: fn(&Scene) -> Program) {
    let refusals = [429, 503, 529].map(refused);
    for mishap in refusals.into_iter().chain(broken()) {
        join_all(KINDS.map(|kind| turn(program, kind, mishap.clone()))).await;
    }
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn opencode_asks_again_where_a_call_failed_or_its_answer_broke_off() {
    asks_again(|scene| opencode(scene, &[])).await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn aider_asks_again_where_a_call_failed_or_its_answer_broke_off() {
    asks_again(aider).await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn opencode_and_aider_say_why_a_request_was_refused() {
    join_all(KINDS.map(|kind| says_why(|scene| opencode(scene, &[]), kind))).await;
    join_all(KINDS.map(|kind| says_why(aider, kind))).await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn litellm_is_served_before_every_kind_of_upstream() {
    drop(Program::new("litellm/bin/python"));
    reach_by_their_page(&[("LiteLLM, Python", "litellm")]).await;
    conforms(Script::LitellmPython).await;
}
