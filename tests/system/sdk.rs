//! The official clients for Python and Node against a node with scripted upstreams. They are installed by
//! `scripts/setup.sh sdk`; where they are not there the tests say so, and fail where that must not be.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, Model, Node, Received, Scene, Upstream, models_file};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a whole script may take.
const SCRIPT_MAX: Duration = Duration::from_mins(5);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A conformance script, and the program that runs it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    Python,
    Node,
}

impl Script {
    /// The command, `None` when the client library is not installed.
    fn command(self) -> Option<Command> {
        let (program, library, script) = match self {
            Self::Python => (
                root().join("target/sdk/venv/bin/python"),
                root().join("target/sdk/venv.stamp"),
                "openai_python.py",
            ),
            Self::Node => (
                PathBuf::from("node"),
                root().join("target/sdk/node/node_modules/openai"),
                "openai_node.mjs",
            ),
        };
        library.exists().then(|| {
            let mut command = Command::new(program);
            command.arg(root().join("tests/sdk").join(script));
            command
        })
    }

    /// Runs the script against a node; panics with its output when a case fails. False when it is not installed.
    #[expect(clippy::print_stderr, reason = "a test that was left out must be seen")]
    pub(crate) async fn run(self, node: &Node, key: &str, model: &str, arguments: &[&str]) -> bool {
        let Some(mut command) = self.command() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "{self:?}: the client is not installed; run scripts/setup.sh sdk"
            );
            eprintln!("LEFT OUT: the client for {self:?} is not installed; run scripts/setup.sh sdk");
            return false;
        };
        command
            .args(arguments)
            .env("WAYBILL_URL", format!("http://{}", node.addr()));
        command.env("WAYBILL_KEY", key).env("WAYBILL_MODEL", model);
        command
            .env_remove("HTTP_PROXY")
            .env_remove("HTTPS_PROXY")
            .env("NO_PROXY", "127.0.0.1");
        let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(SCRIPT_MAX, running)
            .await
            .expect("the script ends")
            .expect("the script starts");
        let said = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat();
        assert!(
            output.status.success() && !said.contains("not ok "),
            "{said}\n{}",
            node.logs().join("\n")
        );
        assert!(
            said.lines().filter(|line| line.starts_with("ok ")).count() >= 15,
            "{said}"
        );
        true
    }
}

/// An upstream that behaves as a model does: it calls tools, writes JSON, and refuses what is malformed.
fn answer(request: &Received) -> Behaviour {
    let body = request.json();
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let asked_tool =
        body["tools"].is_array() && messages.last().is_some_and(|message| message["role"] == "user");
    let answer = if messages.is_empty() {
        Behaviour::error(400, "messages must not be empty")
    } else if asked_tool {
        Behaviour::chat("").tool_calls(&[("call_1", "weather", "{\"city\":\"Oslo\"}")])
    } else if body["response_format"].is_object() {
        Behaviour::chat("{\"text\":\"hello\",\"count\":1}")
    } else {
        Behaviour::chat("hello from {call}")
    };
    answer.usage(9, 20)
}

async fn conforms(script: Script) {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [Model::new("m").leg(&o1, 0), Model::new("org/slashed").leg(&o1, 0)];
    let file = models_file(&models);
    let mut scene = Scene::start_on(o1, o2, move |node| node.models_yaml(&file)).await;
    scene.foreign_calls();
    scene.o1.on(answer);

    if script.run(&scene.node, CALLER_KEY, "m", &[]).await {
        let served = scene
            .o1
            .recorded()
            .iter()
            .filter(|call| {
                !call.request.json()["messages"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
            })
            .count();
        let rows = scene.node.wait_rows("model=m", served).await;
        let billed = rows.iter().filter(|row| row["outcome"] == "ok");
        assert!(
            billed
                .clone()
                .all(|row| row["output_tokens"] == 20 && row["usage_source"] == "upstream"),
            "{rows:?}"
        );
        assert!(
            billed.count() + 1 >= served,
            "only the stream that was closed early may be no whole answer"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn the_python_client_is_served_in_every_case_of_its_script() {
    conforms(Script::Python).await;
}

#[tokio::test]
async fn the_node_client_is_served_in_every_case_of_its_script() {
    conforms(Script::Node).await;
}
