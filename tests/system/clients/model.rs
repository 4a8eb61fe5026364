//! The model behind whole programs: it makes the calls of its plan turn by turn, then repeats what the last turn of them
//! gave. And the scene around it: a node before one strict upstream.

use std::sync::atomic::{AtomicBool, Ordering};

use harness::{Behaviour, Call, Model, NodeBuilder, Received, Scene, Then, Upstream};
use serde_json::Value;

use super::program::Ended;
use crate::sdk::heard::Heard;
use crate::sdk::served;

/// Whose API the upstreams speak, by the kind of their legs.
pub(super) const KINDS: [&str; 3] = ["openai_compat", "anthropic", "gemini"];
/// What the model says that has called nothing.
pub(super) const SAYS: &str = "The note says: nothing";
/// Why the upstream refuses.
const WHY: &str = "the scripted upstream refuses this";
/// A picture of one pixel, in base64.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
/// A schema for the answer, and the document that the model writes for it.
pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"crates":{"type":"integer"}},"required":["crates"],"additionalProperties":false}"#;
pub(super) const DOCUMENT: &str = r#"{"crates":14}"#;
/// A phrase of long instructions, and how often it is there.
const PHRASE: &str = "You answer for a freight office.";
const PHRASES: usize = 1500;
/// Tokens that every answer is said to have.
const OUTPUT_TOKENS: u64 = 20;

/// One call that the model makes.
#[derive(Debug, Clone)]
pub(super) struct Step {
    tool: &'static str,
    input: Value,
}

pub(super) fn step(tool: &'static str, input: Value) -> Step {
    Step { tool, input }
}

/// Calls turn by turn; those of one turn are made at once.
pub(super) type Plan = Vec<Vec<Step>>;

/// Instructions that are long.
pub(super) fn long_instructions() -> String {
    format!("{PHRASE} ").repeat(PHRASES)
}

/// What the model answers.
pub(super) fn follow(plan: &Plan, request: &Received) -> Behaviour {
    let heard = Heard::of(request);
    let answer = if heard.schema["properties"].get("crates").is_some() {
        Behaviour::chat(DOCUMENT)
    } else if heard.schema.is_object() {
        Behaviour::chat("{\"title\":\"A note\"}")
    } else if let Some((at, turn)) = due(plan, &heard) {
        let calls: Vec<(String, &str, String)> = turn
            .iter()
            .zip(at..)
            .map(|(step, place)| (format!("call_{place}"), step.tool, step.input.to_string()))
            .collect();
        let calls: Vec<(&str, &str, &str)> = calls
            .iter()
            .map(|(id, tool, input)| (id.as_str(), *tool, input.as_str()))
            .collect();
        Behaviour::chat("").tool_calls(&calls)
    } else if heard.results.is_empty() {
        Behaviour::chat(SAYS)
    } else {
        let last = plan.last().map_or(1, Vec::len);
        let results = heard.results.iter().rev().take(last).rev();
        Behaviour::chat(&format!(
            "The note says: {}",
            results.cloned().collect::<Vec<_>>().join(" ")
        ))
    };
    answer.usage(900, OUTPUT_TOKENS)
}

/// The turn of the plan that comes next, and how many calls were made before it.
fn due<'a>(plan: &'a Plan, heard: &Heard) -> Option<(usize, &'a Vec<Step>)> {
    let mut before = 0;
    for turn in plan.iter().filter(|_| !heard.tools.is_empty()) {
        if before == heard.results.len() {
            return Some((before, turn));
        }
        before += turn.len();
    }
    None
}

/// A node that serves model `m` from a strict upstream of this kind, which follows `plan`.
pub(super) async fn scene(model: Model, kind: &str, plan: Plan) -> Scene {
    let (o1, o2) = (Upstream::start().strict(), Upstream::start());
    let models = [served(model, &o1, kind)];
    let mut scene = Scene::start_on(o1, o2, |node: NodeBuilder| node.models(&models)).await;
    scene.foreign_calls();
    scene.o1.on(move |request| follow(&plan, request));
    scene
}

/// Whether a call is about the conversation: titles are asked for without tools, by a schema or among instructions.
pub(super) fn converses(request: &Received) -> bool {
    let heard = Heard::of(request);
    !heard.tools.is_empty() || (heard.schema.is_null() && !heard.instructions.contains("title"))
}

/// The same scene without a plan, in which the first call of the conversation goes wrong.
pub(super) async fn failing(kind: &str, first: Behaviour) -> Scene {
    let scene = scene(Model::new("m"), kind, Vec::new()).await;
    let failed = AtomicBool::new(false);
    scene.o1.on(move |request| {
        if converses(request) && !failed.swap(true, Ordering::Relaxed) {
            first.clone()
        } else {
            follow(&Vec::new(), request)
        }
    });
    scene
}

/// Something that goes wrong with a call: its name, what the upstream answers, and the outcome that its row tells.
pub(super) type Mishap = (String, Behaviour, &'static str);

/// A refusal with this status before anything else.
pub(super) fn refused(status: u16) -> Mishap {
    let answer = Behaviour::failure(status, WHY);
    (format!("refused with {status}"), answer, "upstream_error")
}

/// Streams that break after half of their text: a closed connection, an end without an end mark, an error.
pub(super) fn broken() -> [Mishap; 3] {
    let half = || Behaviour::chat("The note says: half of it");
    let failing = half().failure_after(3, 529, "the scripted upstream fails in between");
    [
        ("cut".into(), half().stop_after(3, Then::Cut), "upstream_cut"),
        ("ended early".into(), half().cut_after_chunks(3), "upstream_cut"),
        ("broken by an error".into(), failing, "upstream_error"),
    ]
}

/// What must be so when the first call of a conversation went wrong: it was asked again if `again`, nothing else was
/// refused, and every call is one row, of which the first costs nothing.
pub(super) async fn went_wrong(scene: &Scene, outcome: &str, again: bool, case: &str) {
    assert_eq!(scene.o1.refusals(), Vec::<String>::new(), "{case}");
    assert_eq!(conversation(scene).len(), 1 + usize::from(again), "{case}");
    let rows = scene.node.wait_rows(&format!("outcome={outcome}"), 1).await;
    assert_eq!(
        (rows.len(), &rows[0]["cost_nano_usd"]),
        (1, &Value::from(0)),
        "{case}"
    );
    billed(scene, scene.o1.calls() - 1).await;
}

/// What must be so when the upstream refused a request as wrong: the program says why, and does not ask again.
pub(super) async fn told_of_refusal(scene: &Scene, ended: &Ended, kind: &str) {
    let said = ended.to_string();
    let case = format!("{kind}: {said}");
    assert!(said.contains(WHY) && !said.contains(SAYS), "{case}");
    went_wrong(scene, "upstream_error", false, &case).await;
}

/// What must be so of a whole task, or of a whole turn: the program ended well and says `said`, the upstream refused
/// nothing, and every call is one row.
pub(super) async fn done(scene: &Scene, ended: &Ended, said: &[&str]) {
    let refusals = scene.o1.refusals();
    assert!(
        ended.success && said.iter().all(|said| ended.stdout.contains(said)) && refusals.is_empty(),
        "refusals: {refusals:#?}\n{ended}\n{}",
        scene.logs()
    );
    billed(scene, scene.o1.calls()).await;
}

/// So many calls were whole, and are billed.
pub(super) async fn billed(scene: &Scene, whole: usize) {
    let rows = scene.node.wait_rows("outcome=ok", whole).await;
    assert_eq!(rows.len(), whole, "{rows:#?}");
    assert!(
        rows.iter().all(|row| row["output_tokens"] == OUTPUT_TOKENS),
        "{rows:#?}"
    );
}

/// The calls of the conversation, in order.
pub(super) fn conversation(scene: &Scene) -> Vec<Heard> {
    let calls = scene.o1.recorded();
    let turns = calls.iter().filter(|call: &&Call| converses(&call.request));
    turns.map(|call| Heard::of(&call.request)).collect()
}

/// How many results each call of the conversation had: the model was called once a turn, and was given all of them.
pub(super) fn assert_turns(scene: &Scene, plan: &[usize], ended: &Ended) {
    let turns = conversation(scene);
    let given: Vec<usize> = turns.iter().map(|turn| turn.results.len()).collect();
    let due = (0..=plan.len()).map(|turn| plan.iter().take(turn).sum::<usize>());
    assert_eq!(given, due.collect::<Vec<_>>(), "{ended}");
}

/// Every call of the conversation came with all the long instructions.
pub(super) fn assert_instructed(scene: &Scene) {
    for turn in conversation(scene) {
        assert_eq!(turn.instructions.matches(PHRASE).count(), PHRASES);
    }
}

/// Every call came with all the long instructions, in whichever turn.
pub(super) fn assert_read(scene: &Scene) {
    for call in scene.o1.recorded() {
        let body = call.request.json().to_string();
        assert_eq!(body.matches(PHRASE).count(), PHRASES, "{body:.2000}");
    }
}

/// The last call of the conversation came with the picture.
pub(super) fn assert_pictured(scene: &Scene) {
    let turns = conversation(scene);
    let images = turns.last().map(|turn| turn.images.clone()).unwrap_or_default();
    assert_eq!(images, [("image/png".to_owned(), PNG.to_owned())]);
}
