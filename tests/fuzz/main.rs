//! Fuzzing of a node from outside: recorded requests go in bent, and recorded answers of upstreams come back bent, over
//! every pair of dialects. `make fuzz MINUTES=10 SEED=1`.
//!
//! Whatever comes, a node answers each call, soon, with a status that is documented; it does not end and nothing in it
//! panics; and every call that it let in has one row, with a cost that is not negative. What does not hold is printed with
//! the request that it came of, and the exit code is 1.
#![expect(clippy::expect_used, reason = "a test program")]

mod mutation;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use harness::{Behaviour, CALLER_KEY, Client, Scene, Upstream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::mutation::{Draws, bend, bend_value};

/// Statuses that a call may be answered with.
const DOCUMENTED: [u16; 15] = [
    200, 400, 401, 402, 403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504,
];
/// Calls at once.
const WORKERS: u64 = 8;
/// How long a call may take at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long rows may take to come after the last call.
const REST: Duration = Duration::from_secs(20);
/// Problems that are printed.
const TOLD_MAX: usize = 20;
/// What a node says when something in it panicked.
const PANICKED: &str = "panicked";
/// Names of the models, each served in another dialect.
const MODELS: [&str; 3] = ["chat", "messages", "gemini"];
/// Where calls go.
const PATHS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
];

/// What a run is told.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how many minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// What gives the bendings.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where `requests` and `transcripts` are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/dialects/tests"))]
    corpus: PathBuf,
}

/// A recorded file.
struct Recorded {
    name: String,
    bytes: Vec<u8>,
}

/// How many calls were answered with which status and code.
type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// What goes wrong, and what was sent.
type Problems = Arc<Mutex<Vec<String>>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let report = runtime.expect("a runtime").block_on(run(&arguments));
    writeln!(std::io::stdout().lock(), "{report:#}").expect("standard output takes the report");
    if report["pass"] == true {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn recorded(directory: &Path) -> Vec<Recorded> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).expect("a directory of recorded files");
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "json" || end == "sse") {
                found.push(Recorded {
                    name: path.display().to_string(),
                    bytes: std::fs::read(&path).expect("a recorded file"),
                });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(
        !found.is_empty(),
        "nothing is recorded in {}",
        directory.display()
    );
    found
}

/// `models.yaml` with a model in each dialect.
fn models(upstream: &Upstream) -> String {
    let models = MODELS.map(|name| {
        let (kind, url) = match name {
            "messages" => ("anthropic", upstream.root_url()),
            "gemini" => ("gemini", upstream.root_url()),
            _ => ("openai_compat", upstream.url()),
        };
        json!({
            "id": name, "name": name, "provider": kind, "supports_tools": true, "supports_structured_output": true,
            "context_length": 1_000_000, "max_output_length": 8_192,
            "pricing": {"prompt": "2", "completion": "8"},
            "route": [{"kind": kind, "base_url": url, "api_key": "upstream-key-fuzz", "weight": 1.0}],
        })
    });
    json!({"models": models}).to_string()
}

async fn run(arguments: &Arguments) -> Value {
    let requests = Arc::new(recorded(&arguments.corpus.join("requests")));
    let answers = recorded(&arguments.corpus.join("transcripts"));
    let (upstream, other) = (Upstream::start(), Upstream::start());
    let draws = Mutex::new(Draws::new(arguments.seed.wrapping_add(77)));
    upstream.on(move |request| answer(&mut draws.lock(), &answers, &request.target));
    let models = models(&upstream);
    let mut scene = Scene::start_on(upstream, other, |node| {
        node.models_yaml(&models)
            .env("CIRCUIT_FAILURE_THRESHOLD", "1000000")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await;
    scene.foreign_calls();
    scene.upstream_faults_allowed();

    let deadline = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let problems = Problems::default();
    let counts = Counts::default();
    let ids: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let caller = Caller {
            client: scene.client.with_key(CALLER_KEY).lenient().patience(PATIENCE),
            requests: Arc::clone(&requests),
            problems: Arc::clone(&problems),
            counts: Arc::clone(&counts),
            ids: Arc::clone(&ids),
        };
        workers.spawn(caller.run(Draws::new(arguments.seed.wrapping_mul(1_000) + worker), deadline));
    }
    while let Some(ended) = workers.join_next().await {
        if let Err(problem) = ended {
            problems.lock().push(format!("a caller objects: {problem}"));
        }
    }
    let ids = std::mem::take(&mut *ids.lock());
    let calls: u64 = counts.lock().values().sum();
    judge(&mut scene, &ids, &problems).await;
    let problems = std::mem::take(&mut *problems.lock());
    json!({
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "calls": calls,
        "answers": &*counts.lock(),
        "problems": problems.len(),
        "told": problems.iter().take(TOLD_MAX).collect::<Vec<_>>(),
        "pass": problems.is_empty() && calls > 0,
    })
}

/// What an upstream answers to a path: a recorded answer of its dialect, mostly bent.
fn answer(draws: &mut Draws, answers: &[Recorded], target: &str) -> Behaviour {
    let dialect = ["messages", "responses", "gemini"]
        .into_iter()
        .find(|dialect| {
            target.contains(dialect) || (*dialect == "gemini" && target.contains("enerateContent"))
        })
        .unwrap_or("chat");
    let fitting: Vec<&Recorded> = answers
        .iter()
        .filter(|answer| answer.name.contains(dialect))
        .collect();
    let recorded = if draws.once_in(8) {
        draws.one(answers)
    } else {
        *draws.one(&fitting)
    };
    let other = draws.one(answers);
    let mut body = recorded.bytes.clone();
    if !draws.once_in(5) {
        body = match serde_json::from_slice::<Value>(&body) {
            Ok(mut value) if draws.once_in(2) => {
                bend_value(draws, &mut value);
                value.to_string().into_bytes()
            }
            _ => bend(draws, &body, &other.bytes),
        };
    }
    let is_stream = if draws.once_in(20) {
        draws.once_in(2)
    } else {
        recorded.name.ends_with("sse")
    };
    let content = if is_stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let status = if draws.once_in(12) {
        *draws.one(&[400, 401, 404, 429, 500, 503])
    } else {
        200
    };
    let head = format!("HTTP/1.1 {status} Told\r\ncontent-type: {content}\r\n");
    let mut bytes = head.into_bytes();
    if is_stream {
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
    } else {
        let length = if draws.once_in(30) {
            body.len() + 5
        } else {
            body.len()
        };
        bytes.extend_from_slice(format!("content-length: {length}\r\nconnection: close\r\n\r\n").as_bytes());
    }
    bytes.extend_from_slice(&body);
    Behaviour::raw(bytes)
}

/// One of the callers.
struct Caller {
    client: Client,
    requests: Arc<Vec<Recorded>>,
    problems: Problems,
    counts: Counts,
    ids: Arc<Mutex<Vec<String>>>,
}

impl Caller {
    async fn run(self, mut draws: Draws, deadline: Instant) {
        while Instant::now() < deadline {
            let (path, body) = self.request(&mut draws);
            let sent = format!("POST {path} {}", String::from_utf8_lossy(&body));
            let begun = Instant::now();
            let answer = self.client.post_inference(&path, Bytes::from(body)).await;
            let took = begun.elapsed();
            if took >= PATIENCE {
                self.tell(&format!("no answer within {took:?}"), &sent);
                continue;
            }
            // A broken stream is what is left to say once its head is out: the row tells the rest.
            let Ok(answer) = answer else {
                continue;
            };
            let kind = format!("{} {}", answer.status, code(&answer.body));
            *self.counts.lock().entry(kind).or_default() += 1;
            if !DOCUMENTED.contains(&answer.status) {
                self.tell(&format!("status {}: {}", answer.status, answer.text()), &sent);
            } else if answer.request_id().is_empty() {
                self.tell("an answer without a request id", &sent);
            } else if answer.status >= 400 && !answer.text().contains("\"error\"") {
                self.tell(
                    &format!("status {} without an error: {}", answer.status, answer.text()),
                    &sent,
                );
            }
            if answer.status == 200 && !path.ends_with("count_tokens") {
                self.ids.lock().push(answer.request_id().to_owned());
            }
        }
    }

    /// A recorded request, with a model that is there, mostly bent.
    fn request(&self, draws: &mut Draws) -> (String, Vec<u8>) {
        let recorded = draws.one(&self.requests);
        let other = draws.one(&self.requests);
        let mut value: Value = serde_json::from_slice(&recorded.bytes).unwrap_or(Value::Null);
        value["model"] = json!(draws.one(&MODELS));
        let fitting = if value.get("input").is_some() {
            "/v1/responses"
        } else {
            "/v1/chat/completions"
        };
        let path = if draws.once_in(6) {
            *draws.one(&PATHS)
        } else {
            fitting
        };
        let bytes = match draws.below(6) {
            0..=1 => value.to_string().into_bytes(),
            2..=4 => {
                bend_value(draws, &mut value);
                value.to_string().into_bytes()
            }
            _ => bend(draws, value.to_string().as_bytes(), &other.bytes),
        };
        (path.to_owned(), bytes)
    }

    fn tell(&self, what: &str, sent: &str) {
        let cut = |text: &str| text.chars().take(4_000).collect::<String>();
        self.problems.lock().push(format!("{}\n{}", cut(what), cut(sent)));
    }
}

/// The code of an error.
fn code(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &body["error"];
    let code = error["code"].as_str().or_else(|| error["type"].as_str());
    let param = error["param"]
        .as_str()
        .map(|param| param.split(['.', '[']).next().unwrap_or_default());
    [code.unwrap_or_default(), param.unwrap_or_default()]
        .join(" ")
        .trim()
        .to_owned()
}

/// Looks at the node and at its books.
async fn judge(scene: &mut Scene, ids: &[String], problems: &Problems) {
    if !scene.node.running() {
        problems.lock().push("the node has ended".to_owned());
    }
    let logs = scene.logs();
    for line in logs.lines().filter(|line| line.contains(PANICKED)) {
        problems.lock().push(format!("the node's log: {line}"));
    }
    let deadline = Instant::now() + REST;
    loop {
        let rows = scene.node.books().table("api_logs").await;
        let mut seen = BTreeSet::new();
        let mut wrong = Vec::new();
        for row in &rows {
            let of = |name: &str| row.get(name).and_then(Option::as_deref).unwrap_or_default();
            if !seen.insert(of("request_id").to_owned()) {
                wrong.push(format!("{} is in the books twice", of("request_id")));
            }
            if of("cost_nano_usd").parse::<i64>().is_ok_and(|cost| cost < 0) {
                wrong.push(format!("{} costs {}", of("request_id"), of("cost_nano_usd")));
            }
        }
        let missing = ids.iter().filter(|id| !seen.contains(*id));
        wrong.extend(missing.map(|id| format!("{id} was answered and has no row")));
        if wrong.is_empty() || Instant::now() > deadline {
            problems.lock().extend(wrong);
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    // What the clients were answered was judged here: many answers are broken on purpose.
    scene.client.log().clear();
    let found = scene.judge().await;
    let of_node = found.iter().filter(|one| {
        !matches!(
            one,
            harness::Violation::WrongCost { .. } | harness::Violation::StrayRows { .. }
        )
    });
    problems.lock().extend(of_node.map(|one| format!("{one:?}")));
}
