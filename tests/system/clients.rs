//! Whole programs that call models, against a node before strict servers that follow a script: OpenAI's chat, Anthropic's
//! and Gemini's API. Some complete whole tasks, the others a turn whose first call fails.
//! `make test-clients` installs them (`scripts/setup.sh clients`) and runs these; one that is missing is an error.

use std::sync::atomic::{AtomicBool, Ordering};

use harness::{Behaviour, CALLER_KEY, Call, Model, NodeBuilder, Received, Scene, Upstream};
use serde_json::{Value, json};

mod program;

use program::{Ended, Program};

use crate::sdk::served;

/// Whose API the upstreams speak, by the kind of their legs.
const KINDS: [&str; 3] = ["openai_compat", "anthropic", "gemini"];
/// What the first tool writes and the second one reads.
const NOTE: &str = "fourteen crates";

/// One call that the model makes.
#[derive(Debug, Clone)]
struct Step {
    tool: &'static str,
    input: Value,
}

fn step(tool: &'static str, input: Value) -> Step {
    Step { tool, input }
}

/// The model: it makes the calls one after the other, then repeats what the last of them gave. Where a schema asks
/// for JSON it is asked for a title.
fn follow(steps: &[Step], request: &Received) -> Behaviour {
    let body = request.json();
    let results = results(&body);
    let answer = if asks_for_json(&body) {
        Behaviour::chat("{\"title\":\"A note\"}")
    } else if let Some(step) = steps.get(results.len()).filter(|_| offers_tools(&body)) {
        let id = format!("call_{}", results.len());
        Behaviour::chat("").tool_calls(&[(&id, step.tool, &step.input.to_string())])
    } else {
        let last = results.last().map_or("nothing", String::as_str);
        Behaviour::chat(&format!("The note says: {last}"))
    };
    answer.usage(900, 20)
}

/// Whether a request, of any dialect, has a schema that its answer must keep to.
fn asks_for_json(body: &Value) -> bool {
    let schemas = [
        &body["response_format"]["json_schema"],
        &body["output_config"]["format"],
        &body["generationConfig"]["responseJsonSchema"],
    ];
    schemas.iter().any(|schema| schema.is_object())
}

fn offers_tools(body: &Value) -> bool {
    body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// What the calls of a conversation gave, in any dialect.
fn results(body: &Value) -> Vec<String> {
    let turns = ["messages", "contents"].map(|member| body[member].as_array());
    let mut results = Vec::new();
    for turn in turns.into_iter().flatten().flatten() {
        if turn["role"] == "tool" {
            results.push(turn["content"].to_string());
        }
        let parts = ["content", "parts"].map(|member| turn[member].as_array());
        for part in parts.into_iter().flatten().flatten() {
            if part["type"] == "tool_result" {
                results.push(part["content"].to_string());
            } else if let Some(response) = part.get("functionResponse") {
                results.push(response["response"].to_string());
            }
        }
    }
    results
}

/// A node that serves model `m` from a strict upstream of this kind, which follows `steps`.
async fn scene(model: Model, kind: &str, steps: Vec<Step>) -> Scene {
    let (o1, o2) = (Upstream::start().strict(), Upstream::start());
    let models = [served(model, &o1, kind)];
    let mut scene = Scene::start_on(o1, o2, |node: NodeBuilder| node.models(&models)).await;
    scene.foreign_calls();
    scene.o1.on(move |request| follow(&steps, request));
    scene
}

/// The node's address as a client's setting.
fn url(scene: &Scene, path: &str) -> String {
    format!("http://{}{path}", scene.node.addr())
}

/// The calls of the conversation with tools, in order.
fn conversation(scene: &Scene) -> Vec<Call> {
    let mut calls = scene.o1.recorded();
    calls.retain(|call| offers_tools(&call.request.json()));
    calls
}

/// The task is done: all calls were made, their results came back, the program says what the last gave, nothing was
/// refused by the upstream, and every call is one row.
async fn done(scene: &Scene, ended: &Ended, calls: usize) {
    let refusals = scene.o1.refusals();
    assert!(
        ended.success && ended.stdout.contains(NOTE) && refusals.is_empty(),
        "refusals: {refusals:#?}\n{ended}\n{}",
        scene.logs()
    );
    let turns = conversation(scene);
    let given: Vec<usize> = turns
        .iter()
        .map(|call| results(&call.request.json()).len())
        .collect();
    assert_eq!(given, (0..=calls).collect::<Vec<_>>(), "{ended}");
    let last = turns.last().map(|call| results(&call.request.json()));
    let last = last
        .and_then(|results| results.last().cloned())
        .unwrap_or_default();
    assert!(last.contains(NOTE), "{last}");
    let rows = scene.node.wait_rows("outcome=ok", scene.o1.calls()).await;
    assert_eq!(rows.len(), scene.o1.calls(), "{rows:#?}");
    assert!(rows.iter().all(|row| row["output_tokens"] == 20), "{rows:#?}");
}

/// The place of a program that comes in a package for this machine, such as `codex-linux-x64`.
fn platform(package: &str) -> String {
    let arch = if std::env::consts::ARCH == "aarch64" {
        "arm64"
    } else {
        "x64"
    };
    format!("clients/node_modules/{package}-linux-{arch}")
}

fn claude(scene: &Scene) -> Program {
    let place = platform("@anthropic-ai/claude-code");
    Program::new(&format!("{place}/claude"))
        .env("ANTHROPIC_BASE_URL", &url(scene, ""))
        .env("ANTHROPIC_AUTH_TOKEN", CALLER_KEY)
        .env("ANTHROPIC_MODEL", "m")
        .env("ANTHROPIC_DEFAULT_HAIKU_MODEL", "m")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .args(&[
            "-p",
            "Write the note, then read it to me.",
            "--output-format",
            "json",
        ])
        .args(&["--allowedTools", "Write,Read", "--permission-mode", "acceptEdits"])
}

/// Claude Code's task, with a model as it is declared. Gives how many titles the model was asked for, and how many
/// requests the node refused.
async fn claude_completes(model: Model, kind: &str) -> (usize, usize) {
    let files = tempfile::tempdir().expect("a directory");
    let note = files.path().join("note.txt");
    let steps = vec![
        step("Write", json!({"file_path": note, "content": NOTE})),
        step("Read", json!({"file_path": note})),
    ];
    let scene = scene(model, kind, steps).await;

    let program = claude(&scene).args(&["--add-dir", &files.path().display().to_string()]);
    let ended = program.run().await;

    done(&scene, &ended, 2).await;
    let calls = scene.o1.recorded();
    let is_title = |call: &&Call| asks_for_json(&call.request.json());
    let titles = calls.iter().filter(is_title).count();
    let refused = scene.node.logs_api("outcome=rejected&status=400").await;
    scene.finish().await;
    (titles, refused.len())
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_completes_a_task_of_two_tools() {
    assert_eq!(claude_completes(Model::new("m"), "openai_compat").await, (1, 0));
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_completes_its_task_before_anthropic() {
    assert_eq!(claude_completes(Model::new("m"), "anthropic").await, (1, 0));
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_completes_its_task_before_gemini() {
    assert_eq!(claude_completes(Model::new("m"), "gemini").await, (1, 0));
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn claude_code_lives_without_a_title_from_a_model_that_writes_no_json() {
    let plain = Model::new("m").set("supports_structured_output", false);

    assert_eq!(claude_completes(plain, "openai_compat").await, (0, 1));
}

/// Codex's settings.
fn codex_settings(scene: &Scene) -> String {
    let provider = format!(
        "{{ name = \"Waybill\", base_url = \"{}\", env_key = \"WAYBILL_KEY\", wire_api = \"responses\" }}",
        url(scene, "/v1")
    );
    format!(
        "model = \"m\"\nmodel_provider = \"waybill\"\nmodel_providers.waybill = {provider}\n\
         check_for_update_on_startup = false\nweb_search = \"disabled\"\n[analytics]\nenabled = false\n"
    )
}

/// Codex's task, before an upstream of this kind.
async fn codex_completes(kind: &str) {
    let patch = format!("*** Begin Patch\n*** Add File: note.txt\n+{NOTE}\n*** End Patch\n");
    let steps = vec![
        step(
            "exec_command",
            json!({"cmd": format!("apply_patch <<'END'\n{patch}END")}),
        ),
        step("get_goal", json!({})),
        step("exec_command", json!({"cmd": "cat note.txt"})),
    ];
    let scene = scene(Model::new("m"), kind, steps).await;

    let program = Program::new("clients/node_modules/.bin/codex")
        .file(".codex/config.toml", &codex_settings(&scene))
        .env("WAYBILL_KEY", CALLER_KEY)
        .args(&["exec", "--skip-git-repo-check"])
        .args(&["--dangerously-bypass-approvals-and-sandbox"])
        .args(&["Write the note, then read it to me."]);
    let ended = program.run().await;

    done(&scene, &ended, 3).await;
    scene.finish().await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_completes_a_task_of_two_tools() {
    codex_completes("openai_compat").await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_completes_its_task_before_anthropic() {
    codex_completes("anthropic").await;
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn codex_completes_its_task_before_gemini() {
    codex_completes("gemini").await;
}

/// The same scene without steps, in which the first call that `concerns` fails.
async fn failing_scene(kind: &str, concerns: fn(&Value) -> bool) -> Scene {
    let scene = scene(Model::new("m"), kind, Vec::new()).await;
    let failed = AtomicBool::new(false);
    scene.o1.on(move |request| {
        if concerns(&request.json()) && !failed.swap(true, Ordering::Relaxed) {
            Behaviour::failure(500, "the scripted upstream fails once")
        } else {
            follow(&[], request)
        }
    });
    scene
}

/// The program tried again what had failed, ended well, said what the model said, and the upstream refused nothing.
async fn answered(scene: Scene, ended: &Ended) {
    let refusals = scene.o1.refusals();
    assert!(
        ended.success && ended.stdout.contains("The note says: nothing") && refusals.is_empty(),
        "refusals: {refusals:#?}\n{ended}\n{}",
        scene.logs()
    );
    let failed = scene.node.wait_rows("outcome=upstream_error&status=502", 1).await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    let whole = scene.o1.calls() - 1;
    let rows = scene.node.wait_rows("outcome=ok", whole).await;
    assert_eq!(rows.len(), whole, "{rows:#?}");
    assert!(rows.iter().all(|row| row["output_tokens"] == 20), "{rows:#?}");
    scene.finish().await;
}

fn opencode(scene: &Scene) -> Program {
    // It asks for 32000 tokens of a model of which it is told nothing.
    let limit = json!({"context": 128_000, "output": 4_096});
    let settings = json!({
        "model": "waybill/m", "small_model": "waybill/m", "autoupdate": false, "share": "disabled",
        "provider": {"waybill": {
            "npm": "@ai-sdk/openai-compatible", "models": {"m": {"limit": limit}},
            "options": {"baseURL": url(scene, "/v1"), "apiKey": CALLER_KEY},
        }},
    });
    let place = platform("opencode");
    Program::new(&format!("{place}/bin/opencode"))
        .file("work/opencode.json", &settings.to_string())
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
        .args(&["run", "What does the note say?"])
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn opencode_completes_a_turn_whose_first_call_fails_before_every_kind_of_upstream() {
    for kind in KINDS {
        // A title is asked for as well, without tools.
        let scene = failing_scene(kind, offers_tools).await;
        let ended = opencode(&scene).run().await;
        answered(scene, &ended).await;
    }
}

fn aider(scene: &Scene) -> Program {
    Program::new("aider/bin/aider")
        .env("OPENAI_API_BASE", &url(scene, "/v1"))
        .env("OPENAI_API_KEY", CALLER_KEY)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .args(&["--model", "openai/m", "--message", "What does the note say?"])
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

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn aider_completes_a_turn_whose_first_call_fails_before_every_kind_of_upstream() {
    for kind in KINDS {
        let scene = failing_scene(kind, |_| true).await;
        let ended = aider(&scene).run().await;
        answered(scene, &ended).await;
    }
}

fn litellm(scene: &Scene) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/litellm_turn.py");
    Program::new("litellm/bin/python")
        .env("WAYBILL_URL", &url(scene, ""))
        .env("WAYBILL_KEY", CALLER_KEY)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .args(&[script])
}

#[tokio::test]
#[ignore = "needs whole programs: make test-clients"]
async fn litellm_completes_a_turn_in_each_of_its_dialects_before_every_kind_of_upstream() {
    for kind in KINDS {
        let scene = failing_scene(kind, |_| true).await;
        let ended = litellm(&scene).run().await;
        answered(scene, &ended).await;
    }
}
