//! The official client libraries against a node, before upstreams that speak OpenAI's, Anthropic's and Gemini's API and
//! refuse what those do. They are installed by `scripts/setup.sh sdk`; where they are not there the tests say so, and
//! fail where that must not be.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use harness::{CALLER_KEY, Call, Model, Node, NodeBuilder, PRICE, PROVIDER_KEY, Scene, Speech, Upstream};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::rows::assert_row;

mod actor;
pub(crate) mod heard;
pub(crate) mod page;

use heard::Heard;

/// How long a whole script may take.
const SCRIPT_MAX: Duration = Duration::from_mins(10);
/// Cases that every script has.
const CASES_MIN: usize = 12;
/// How many failures a script's case of a client that does not try again has.
const STUBBORN: usize = 2;
/// How long the rows of the last calls may take.
const SETTLED_MAX: Duration = Duration::from_secs(15);
/// How long the node passes an upstream by that failed three times: less than callers are told to wait.
const COOLDOWN_SECONDS: &str = "0.9";
/// Whose API the upstreams speak, the kind of their legs, and what they tell of 17 tokens of input: fresh, cached,
/// written to a cache, and the cost of them and 20 of output at the harness's prices.
const UPSTREAMS: [(&str, &str, [i64; 4]); 3] = [
    ("openai", "openai_compat", [10, 4, 3, 188_300]),
    ("anthropic", "anthropic", [10, 4, 3, 188_300]),
    ("gemini", "gemini", [13, 4, 0, 186_800]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program that runs code for a library of target/sdk, in its directory; `None` when that is not installed.
pub(crate) fn interpreter(library: &str) -> Option<Command> {
    let home = root().join("target/sdk").join(library);
    let (program, mark) = if library == "node" {
        (PathBuf::from("node"), home.join("package-lock.json.done"))
    } else {
        (home.join("bin/python"), home.with_extension("stamp"))
    };
    mark.exists().then(|| {
        let mut command = Command::new(program);
        command.current_dir(home);
        command
    })
}

/// A conformance script, and the program that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    OpenaiPython,
    OpenaiNode,
    AnthropicPython1,
    AnthropicPython2,
    AnthropicNode,
    AiSdk,
    LangchainPython,
    LitellmPython,
}

impl Script {
    /// Every one of the libraries that `make test` drives.
    pub(crate) const ALL: [Self; 7] = [
        Self::OpenaiPython,
        Self::OpenaiNode,
        Self::AnthropicPython1,
        Self::AnthropicPython2,
        Self::AnthropicNode,
        Self::AiSdk,
        Self::LangchainPython,
    ];

    /// Where the library is, under target/sdk, and the name of the script.
    const fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenaiPython => ("venv", "openai_python.py"),
            Self::AnthropicPython1 => ("anthropic1", "anthropic_python.py"),
            Self::AnthropicPython2 => ("anthropic2", "anthropic_python.py"),
            Self::LangchainPython => ("langchain", "langchain_python.py"),
            Self::LitellmPython => ("litellm", "litellm_python.py"),
            Self::OpenaiNode => ("node", "openai_node.mjs"),
            Self::AnthropicNode => ("node", "anthropic_node.mjs"),
            Self::AiSdk => ("node", "ai_sdk.mjs"),
        }
    }

    /// The command, `None` when the client library is not installed.
    fn command(self) -> Option<Command> {
        let (library, script) = self.place();
        let mut command = interpreter(library)?;
        command.arg(root().join("tests/sdk").join(script));
        Some(command)
    }

    /// How many calls the script makes that are not to be made again, whose client is told so.
    const fn stubborn(self) -> usize {
        match self {
            // They do not read that.
            Self::AiSdk | Self::LitellmPython => 0,
            // Over each of its three dialects.
            Self::LangchainPython => 3 * STUBBORN,
            _ => STUBBORN,
        }
    }

    /// Whether the script leaves a stream before its end.
    pub(crate) const fn closes_early(self) -> bool {
        matches!(self, Self::OpenaiPython | Self::OpenaiNode)
    }

    /// Runs the script against a node, which gives what was said when a case failed. False when it is not installed.
    #[expect(clippy::print_stderr, reason = "a test that was left out must be seen")]
    pub(crate) async fn run(
        self,
        node: &Node,
        key: &str,
        (model, upstream): (&str, &str),
        arguments: &[&str],
    ) -> Result<bool, String> {
        let Some(mut command) = self.command() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "{self:?}: the client is not installed; run scripts/setup.sh sdk"
            );
            eprintln!("LEFT OUT: the client for {self:?} is not installed; run scripts/setup.sh sdk");
            return Ok(false);
        };
        command
            .args(arguments)
            .env("WAYBILL_URL", format!("http://{}", node.addr()))
            .env("WAYBILL_KEY", key)
            .env("WAYBILL_MODEL", model)
            .env("WAYBILL_UPSTREAM", upstream);
        let (success, said) = executed(command).await;
        let count = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
        let planned = said.lines().find_map(|line| line.strip_prefix("1.."));
        let planned: usize = planned.and_then(|count| count.parse().ok()).unwrap_or(0);
        let all = planned >= CASES_MIN && count("ok ") + count("skip ") == planned;
        if success && all {
            Ok(true)
        } else {
            Err(format!("{self:?} before {upstream}:\n{said}"))
        }
    }
}

/// Runs code to its end: whether that was a good one, and what it said.
pub(crate) async fn executed(mut command: Command) -> (bool, String) {
    command
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env("NO_PROXY", "127.0.0.1");
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(SCRIPT_MAX, running)
        .await
        .expect("the script ends")
        .expect("the script starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

/// A model whose one leg is of `kind`, at an upstream that speaks the dialect of the path it is called at.
pub(crate) fn served(model: Model, upstream: &Upstream, kind: &str) -> Model {
    let url = if kind == "openai_compat" {
        upstream.url()
    } else {
        upstream.root_url()
    };
    // The newer generation of Gemini is strict about signatures.
    let name = if kind == "gemini" { "gemini-3-pro" } else { "m" };
    model
        .leg_at(&url, 0)
        .set_leg("kind", kind)
        .set_leg("provider_model_id", name)
        .set_leg("api_key", PROVIDER_KEY)
        .set("input_modalities", json!(["text", "image"]))
}

/// A model before an upstream of each kind, and one with a slash in its name.
fn models(upstream: &Upstream) -> Vec<Model> {
    let of = |(name, kind, _)| served(Model::new(&format!("m-{name}")), upstream, kind);
    let mut models = vec![Model::new("org/slashed").leg(upstream, 0)];
    models.extend(UPSTREAMS.map(of));
    models
}

/// Everything that must be so for one script, before an upstream of every kind.
#[expect(clippy::print_stderr, reason = "what scripts say is read line by line")]
pub(crate) async fn conforms(script: Script) {
    let (o1, o2) = (Upstream::start().strict(), Upstream::start());
    let models = models(&o1);
    let bend = |node: NodeBuilder| {
        node.models(&models)
            .env("CIRCUIT_COOLDOWN_SECONDS", COOLDOWN_SECONDS)
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    };
    let mut scene = Scene::start_on(o1, o2, bend).await;
    scene.foreign_calls();
    let failed = Mutex::new(HashSet::new());
    scene.o1.on(move |request| match actor::fails_once(request) {
        Some((prompt, status)) if newly(&failed, format!("{} {prompt}", request.target)) => {
            actor::fail(status)
        }
        _ => actor::answer(request),
    });

    let runs = UPSTREAMS.map(|(name, _, _)| {
        let node = &scene.node;
        async move {
            let model = format!("m-{name}");
            script.run(node, CALLER_KEY, (&model, name), &[]).await
        }
    });
    let ran = join_all(runs).await;

    let failed: Vec<&String> = ran.iter().filter_map(|ran| ran.as_ref().err()).collect();
    for said in &failed {
        eprintln!("{said}");
    }
    assert!(failed.is_empty(), "cases of {} runs failed", failed.len());
    if ran.iter().all(|ran| *ran == Ok(true)) {
        let strange: Vec<String> = scene.o1.refusals();
        let empty = |why: &String| why.contains("messages: must be a list with at least one entry");
        assert!(strange.iter().all(empty), "sent to upstreams: {strange:#?}");
        for (name, _, figures) in UPSTREAMS {
            scene.price(&format!("m-{name}"), Some(PRICE));
            booked(&scene, script, name, figures).await;
        }
    }
    scene.finish().await;
}

/// Whether `key` was never met before.
fn newly(met: &Mutex<HashSet<String>>, key: String) -> bool {
    met.lock().expect("nobody panics with it").insert(key)
}

/// The calls of an upstream for one model that were answered, or begun to be.
fn calls_of(scene: &Scene, name: &str) -> Vec<Call> {
    let speech = |call: &Call| Speech::of(&call.request);
    let of = |call: &Call| match speech(call) {
        Speech::Messages => "anthropic",
        Speech::Gemini => "gemini",
        Speech::CountTokens => "nobody",
        _ => "openai",
    };
    let mut calls = scene.o1.recorded();
    calls.retain(|call| of(call) == name);
    calls
}

/// The rows of whole answers of a model, and how many answers were left by their callers, once that makes `whole` of
/// them; what there is when that takes too long.
async fn settled(scene: &Scene, model: &str, whole: usize) -> (Vec<Value>, usize) {
    let deadline = Instant::now() + SETTLED_MAX;
    loop {
        let rows = |outcome: &str| format!("model={model}&outcome={outcome}");
        let billed = scene.node.logs_api(&rows("ok")).await;
        let left = scene.node.logs_api(&rows("client_gone")).await.len();
        if billed.len() + left >= whole || Instant::now() >= deadline {
            return (billed, left);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Each whole answer has its row with all its tokens, and what was no whole answer costs nothing.
async fn booked(scene: &Scene, script: Script, name: &str, [input, cached, written, cost]: [i64; 4]) {
    let calls = calls_of(scene, name);
    let once: HashSet<_> = calls
        .iter()
        .filter_map(|call| actor::fails_once(&call.request))
        .collect();
    let whole = calls.iter().filter(|call| actor::is_whole(&call.request)).count() - once.len();
    let (billed, left) = settled(scene, &format!("m-{name}"), whole).await;
    for row in &billed {
        assert_row(
            row,
            &json!({
                "input_tokens": input, "cached_tokens": cached, "cache_write_tokens": written,
                "output_tokens": 20, "cost_nano_usd": cost, "usage_source": "upstream", "status": 200,
            }),
        );
    }
    assert_eq!(
        billed.len() + left,
        whole,
        "{name}: every whole answer is one row"
    );
    assert!(
        left <= usize::from(script.closes_early()),
        "{name}: {left} streams were left"
    );
    let stubborn = |call: &&Call| Heard::of(&call.request).prompt.contains("stubborn");
    assert_eq!(
        calls.iter().filter(stubborn).count(),
        script.stubborn(),
        "{name}: a client that is told not to try again does not"
    );
}

/// Runs the code that the page of clients has for each of these, in its library of target/sdk; each makes a call.
pub(crate) async fn reach_by_their_page(clients: &[(&'static str, &str)]) {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let of = |&(client, library): &(&'static str, &str)| {
        let Some(mut command) = interpreter(library) else {
            assert!(std::env::var_os("CI").is_none(), "{client} is not installed");
            return None;
        };
        let flags: &[&str] = if library == "node" {
            &["--input-type=module", "-e"]
        } else {
            &["-c"]
        };
        command
            .args(flags)
            .arg(page::code(client, &scene.node, CALLER_KEY));
        Some(async move { (client, executed(command).await) })
    };

    let ran = join_all(clients.iter().filter_map(of)).await;

    for (client, (success, said)) in &ran {
        assert!(success, "{client}: {said}");
    }
    let rows = scene.node.wait_rows("outcome=ok&model=m", ran.len()).await;
    assert_eq!(rows.len(), ran.len(), "{rows:#?}");
    scene.finish().await;
}

#[tokio::test]
async fn the_code_that_the_page_has_for_each_library_reaches_a_node() {
    reach_by_their_page(&[
        ("OpenAI, Python", "venv"),
        ("OpenAI, Node", "node"),
        ("Anthropic, Python", "anthropic1"),
        ("Anthropic, Python", "anthropic2"),
        ("Anthropic, TypeScript", "node"),
        ("Vercel AI SDK", "node"),
        ("LangChain, Python", "langchain"),
    ])
    .await;
}

#[tokio::test]
async fn the_openai_client_for_python_is_served_before_every_kind_of_upstream() {
    conforms(Script::OpenaiPython).await;
}

#[tokio::test]
async fn the_openai_client_for_node_is_served_before_every_kind_of_upstream() {
    conforms(Script::OpenaiNode).await;
}

#[tokio::test]
async fn the_older_anthropic_client_for_python_is_served_before_every_kind_of_upstream() {
    conforms(Script::AnthropicPython1).await;
}

#[tokio::test]
async fn the_newer_anthropic_client_for_python_is_served_before_every_kind_of_upstream() {
    conforms(Script::AnthropicPython2).await;
}

#[tokio::test]
async fn the_anthropic_client_for_typescript_is_served_before_every_kind_of_upstream() {
    conforms(Script::AnthropicNode).await;
}

#[tokio::test]
async fn the_ai_sdk_is_served_before_every_kind_of_upstream() {
    conforms(Script::AiSdk).await;
}

#[tokio::test]
async fn langchain_is_served_before_every_kind_of_upstream() {
    conforms(Script::LangchainPython).await;
}
