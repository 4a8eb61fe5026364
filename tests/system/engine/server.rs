//! The engine: llama-server with the model that `scripts/llama-server.sh` assembled.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use harness::Client;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A name with a slash, as names of models have.
pub(super) const MODEL: &str = "harness/tiny";
/// How long loading the model may take.
const LOAD_MAX: Duration = Duration::from_mins(2);
/// How long a call may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
/// What it is started with besides its address and its model. It says what is likeliest, so that it says it again.
const ARGUMENTS: &str = "-c 4096 -np 2 -n 256 -t 2 --temp 0 --metrics --slots --props --no-ui --jinja";

/// A running engine.
pub(super) struct Engine {
    child: Child,
    addr: SocketAddr,
}

/// Tokens that an engine has counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// Input that it read, without what it found in its cache.
    pub(super) fresh: u64,
    /// Output.
    pub(super) output: u64,
}

impl Counted {
    /// What was counted since.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            fresh: self.fresh - before.fresh,
            output: self.output - before.output,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where the engine was built is told by the environment"
)]
fn directory() -> PathBuf {
    let home = || std::env::var("HOME").expect("a home directory");
    let told = std::env::var("WAYBILL_ENGINE_DIR").ok().map(PathBuf::from);
    told.unwrap_or_else(|| PathBuf::from(home()).join(".cache/waybill/engine"))
}

impl Engine {
    /// Starts the engine and waits until it has loaded its model.
    pub(super) async fn start(addr: SocketAddr, more: &[&str]) -> Self {
        let dir = directory();
        let program = dir.join("llama-server");
        assert!(
            program.exists(),
            "{} is not built; run scripts/llama-server.sh",
            program.display()
        );
        let mut command = Command::new(program);
        let (host, port) = (addr.ip().to_string(), addr.port().to_string());
        command
            .arg("-m")
            .arg(dir.join("model.gguf"))
            .arg("--chat-template-file")
            .arg(dir.join("tools.jinja"))
            .args(["--alias", MODEL, "--host", &host, "--port", &port])
            .args(ARGUMENTS.split(' '))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn().expect("the engine starts");
        let mut engine = Self { child, addr };
        engine.loaded().await;
        engine
    }

    async fn loaded(&mut self) {
        let client = self.client();
        let deadline = Instant::now() + LOAD_MAX;
        loop {
            let answer = client.call("GET", "/health", Bytes::new()).await;
            let running = matches!(self.child.try_wait(), Ok(None));
            assert!(
                running && Instant::now() < deadline,
                "the engine did not load its model (running: {running})"
            );
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A client of the engine itself.
    pub(super) fn client(&self) -> Client {
        Client::new(self.addr, "").patience(PATIENCE)
    }

    /// What it has counted so far.
    pub(super) async fn counted(&self) -> Counted {
        let page = self.client().get("/metrics").await.text();
        let of = |name: &str| {
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.expect("the engine counts").trim().parse().expect("a count")
        };
        Counted {
            fresh: of("llamacpp:prompt_tokens_total"),
            output: of("llamacpp:tokens_predicted_total"),
        }
    }

    /// Ends it.
    pub(super) async fn stop(mut self) {
        self.child.kill().await.expect("the engine ends");
    }
}
