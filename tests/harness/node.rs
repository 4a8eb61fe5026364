//! Nodes as real processes: the built binary on a free port with a data directory of its own, started,
//! stopped, killed and started again, every line of its log kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

pub(crate) mod books;
pub mod config;
pub(crate) mod guard;
pub(crate) mod process;

use config::{API_KEY_SECRET, JWT_SECRET_KEY, Model, OPERATOR_KEY};
use guard::Guard;
use process::Process;

use crate::books::Books;
use crate::client::Client;

/// How long a node may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);
/// How long a node may take to end after a signal; tests with longer drains say so themselves.
const END_MAX: Duration = Duration::from_mins(1);
/// How often the harness looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The variable that sets a node's clock ahead.
const CLOCK_AHEAD: &str = "WAYBILL_TEST_CLOCK_AHEAD_SECONDS";

/// A role, and whether the nodes that have it or the others are meant; a variable and its value.
type OfRole = ((&'static str, bool), (String, String));

/// What a node is started with.
#[must_use]
#[derive(Debug, Clone)]
pub struct NodeBuilder {
    settings: Option<String>,
    models: Option<String>,
    env: BTreeMap<String, String>,
    env_of_roles: Vec<OfRole>,
    args: Vec<String>,
    name: String,
    roles: Option<String>,
    database: Option<String>,
    within: Vec<String>,
}

/// A node and its data directory. Dropped, the process is killed and the directory removed; one whose books were not
/// checked then fails its test.
pub struct Node {
    builder: NodeBuilder,
    dir: TempDir,
    process: Process,
    addr: SocketAddr,
    guard: Guard,
}

impl NodeBuilder {
    /// The text of `models.yaml`.
    pub fn models_yaml(mut self, text: &str) -> Self {
        self.models = Some(text.to_owned());
        self
    }

    /// The models of the node, as `models.yaml`.
    pub fn models(self, models: &[Model]) -> Self {
        self.models_yaml(&config::models_file(models))
    }

    /// The text of `waybill.yaml`, in place of the harness's own.
    pub fn waybill_yaml(mut self, text: &str) -> Self {
        self.settings = Some(text.to_owned());
        self
    }

    /// One key of the harness's `waybill.yaml`.
    pub fn setting(mut self, key: &str, value: impl Into<Value>) -> Self {
        let text = self
            .settings
            .take()
            .unwrap_or_else(|| config::settings().to_string());
        let mut settings: Value = serde_json::from_str(&text).expect("settings of the harness are JSON");
        settings[key] = value.into();
        self.settings = Some(settings.to_string());
        self
    }

    /// No files at all: the first-run behaviour. Keys are those that the node mints.
    pub fn without_config(mut self) -> Self {
        self.settings = Some(String::new());
        self.models = Some(String::new());
        self
    }

    /// One environment variable; otherwise the environment has only a search path.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// One environment variable of the nodes of a cluster that have a role, or that have it not.
    pub fn env_of(mut self, (role, has): (&'static str, bool), name: &str, value: &str) -> Self {
        self.env_of_roles
            .push(((role, has), (name.to_owned(), value.to_owned())));
        self
    }

    /// A wall clock that is ahead of the machine's by so many whole seconds: only builds with debug assertions heed it.
    pub fn ahead(self, ahead: Duration) -> Self {
        self.env(CLOCK_AHEAD, &ahead.as_secs().to_string())
    }

    /// One more argument of `serve`.
    pub fn arg(mut self, argument: &str) -> Self {
        self.args.push(argument.to_owned());
        self
    }

    /// The program, with its arguments, that starts the node in surroundings of its own and becomes it.
    pub fn within(mut self, program: &[&str]) -> Self {
        self.within = program.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// What the harness calls it in what it reports.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The roles of a node of a cluster; one without a gateway listens for its operators only.
    pub fn roles(mut self, roles: &str) -> Self {
        self.roles = Some(roles.to_owned());
        let is_meant = |(role, has): &(&str, bool)| roles.split(',').any(|one| one == *role) == *has;
        let told = self.env_of_roles.iter().filter(|(which, _)| is_meant(which));
        self.env.extend(told.map(|(_, variable)| variable.clone()));
        self.arg("--roles").arg(roles)
    }

    /// The bus of a cluster.
    pub fn nats(self, url: &str) -> Self {
        self.env("NATS_URL", url)
    }

    /// The database of a node that keeps the books.
    pub fn postgres(self, url: &str) -> Self {
        self.env("DATABASE_URL", url)
    }

    /// Where the tests read the books of its cluster.
    pub fn books_in(mut self, url: &str) -> Self {
        self.database = Some(url.to_owned());
        self
    }

    /// Whether it starts without files, so that its keys are those that it mints.
    fn is_bare(&self) -> bool {
        self.settings.as_deref() == Some("")
    }

    fn has_gateway(&self) -> bool {
        let has = |roles: &String| roles.split(',').any(|role| matches!(role, "all" | "gateway"));
        self.roles.as_ref().is_none_or(has)
    }

    /// Starts the node and waits until it listens; panics with its log when it does not.
    pub async fn start(self) -> Node {
        let dir = tempfile::Builder::new()
            .prefix("waybill-")
            .tempdir()
            .expect("a temporary directory");
        self.write_files(dir.path());
        let mut process = Process::start(&mut self.command(dir.path()), &dir.path().join("node.log"));
        let addr = process.listening(self.role_listening(), START_MAX).await;
        Node {
            builder: self,
            dir,
            process,
            addr,
            guard: Guard::default(),
        }
    }

    /// Starts a node that should refuse to; gives its exit code and its log.
    pub async fn start_refused(self) -> (Option<i32>, Vec<String>) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        self.write_files(dir.path());
        let mut process = Process::start(&mut self.command(dir.path()), &dir.path().join("node.log"));
        let code = process.ended(START_MAX).await;
        (code, process.lines())
    }

    /// Starts a node and sends SIGTERM as soon as its log has `told`; gives its exit code, or `None` when it still runs
    /// after `wait`, and its log.
    pub async fn start_terminated(self, told: &str, wait: Duration) -> (Option<i32>, Vec<String>) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        self.write_files(dir.path());
        let mut process = Process::start(&mut self.command(dir.path()), &dir.path().join("node.log"));
        let deadline = Instant::now() + START_MAX;
        while !process.lines().iter().any(|line| line.contains(told)) {
            assert!(Instant::now() < deadline, "not told: {told}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        process.signal("TERM").await;
        let code = timeout(wait, process.ended(END_MAX)).await.ok().flatten();
        (code, process.lines())
    }

    /// Runs a command of the binary on these files without a node; gives its exit code and output.
    pub async fn run(self, args: &[&str]) -> (Option<i32>, String) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        self.write_files(dir.path());
        let mut command = Command::new(binary());
        command.env_clear().current_dir(dir.path()).args(args);
        command.env("JWT_SECRET_KEY", JWT_SECRET_KEY);
        for (name, file) in [
            ("WAYBILL_CONFIG", "waybill.yaml"),
            ("MODELS_CONFIG_PATH", "models.yaml"),
        ] {
            if dir.path().join(file).exists() {
                command.env(name, file);
            }
        }
        command.envs(&self.env).stdin(Stdio::null());
        output_of(command).await
    }

    /// The role in the line that tells where it listens; `None` for whichever.
    fn role_listening(&self) -> Option<&'static str> {
        self.has_gateway().then_some("gateway")
    }

    fn write_files(&self, dir: &Path) {
        std::fs::create_dir_all(dir.join("data")).expect("a directory");
        let settings = self
            .settings
            .clone()
            .unwrap_or_else(|| config::settings().to_string());
        let models = self.models.clone().unwrap_or_else(|| config::models_file(&[]));
        for (name, text) in [("waybill.yaml", settings), ("models.yaml", models)] {
            if !text.is_empty() {
                std::fs::write(dir.join(name), text).expect("a file of the configuration");
            }
        }
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = match self.within.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary());
                command
            }
            None => Command::new(binary()),
        };
        command
            .env_clear()
            .current_dir(dir)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
            .env("API_KEY_SECRET", API_KEY_SECRET)
            .env("JWT_SECRET_KEY", JWT_SECRET_KEY);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.join("data"));
        if dir.join("waybill.yaml").exists() {
            command.arg("--config").arg(dir.join("waybill.yaml"));
        }
        if dir.join("models.yaml").exists() {
            command.env("MODELS_CONFIG_PATH", dir.join("models.yaml"));
        }
        if !self.has_gateway() {
            command.args(["--admin-listen", "127.0.0.1:0"]);
        }
        command.args(&self.args).envs(&self.env);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Node {
    /// A node of the harness's own `waybill.yaml` (see [`config::settings`]) and no models.
    pub fn builder() -> NodeBuilder {
        NodeBuilder {
            settings: None,
            models: None,
            env: BTreeMap::new(),
            env_of_roles: Vec::new(),
            args: Vec::new(),
            name: "node".to_owned(),
            roles: None,
            database: None,
            within: Vec::new(),
        }
    }

    /// What the harness calls it.
    pub fn name(&self) -> &str {
        &self.builder.name
    }

    /// Whether it takes calls.
    pub fn has_gateway(&self) -> bool {
        self.builder.has_gateway()
    }

    /// Where its books are.
    pub fn books(&self) -> Books {
        match &self.builder.database {
            Some(url) => Books::Postgres(url.clone()),
            None => Books::Sqlite(self.data_dir().join("ledger.db")),
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A client that presents `key`; what it is answered is checked with the books.
    pub fn client(&self, key: &str) -> Client {
        Client::new(self.addr, key).logging(self.guard.log())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Every line of its log so far, over all starts.
    pub fn logs(&self) -> Vec<String> {
        self.process.lines()
    }

    /// Waits until some line of the log holds `text`; panics after ten seconds.
    pub async fn wait_log(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(line) = self.logs().into_iter().find(|line| line.contains(text)) {
                return line;
            }
            assert!(
                Instant::now() < deadline,
                "no line with {text:?} in:\n{}",
                self.logs().join("\n")
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The key that a first run printed; panics when there is none.
    pub fn minted_key(&self) -> String {
        let word = |line: &String| {
            let key = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
            line.split(|character| !key(character))
                .find(|word| word.starts_with("sk-") && word.len() > 40)
                .map(str::to_owned)
        };
        self.logs()
            .iter()
            .find_map(word)
            .expect("a first run prints a key")
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most resident memory so far, in bytes.
    pub fn rss_max(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .expect("a figure of memory");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes * 1024
    }

    /// Sends SIGTERM and does not wait.
    pub async fn terminate(&self) {
        self.process.signal("TERM").await;
    }

    /// Sends a signal by its name, such as HUP.
    pub async fn signal(&self, name: &str) {
        self.process.signal(name).await;
    }

    /// Waits for the end of the process; gives its exit code, `None` after a signal.
    pub async fn ended(&mut self) -> Option<i32> {
        self.process.ended(END_MAX).await
    }

    /// SIGTERM, then waits; gives the exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.terminate().await;
        self.ended().await
    }

    /// SIGKILL, then waits.
    pub async fn kill(&mut self) {
        self.process.signal("KILL").await;
        self.ended().await;
    }

    /// Whether the process runs.
    pub fn running(&mut self) -> bool {
        self.process.running()
    }

    /// Starts an ended node again on its data directory; the port is a new one.
    pub async fn restart(&mut self) {
        assert!(!self.running(), "stop or kill the node first");
        self.guard.reopen();
        let mut command = self.builder.command(self.dir.path());
        self.process
            .again(&mut command, &self.dir.path().join("node.log"));
        self.addr = self
            .process
            .listening(self.builder.role_listening(), START_MAX)
            .await;
    }

    /// Sets its wall clock ahead of the machine's, from its next start on: only builds with debug assertions heed it.
    pub fn set_ahead(&mut self, ahead: Duration) {
        self.builder = self.builder.clone().ahead(ahead);
    }

    /// Writes `models.yaml` anew, for reloads and for the next start.
    pub fn write_models(&self, models: &[Model]) {
        std::fs::write(self.dir.path().join("models.yaml"), config::models_file(models))
            .expect("a file written");
    }

    /// Runs another command of the binary on this data directory; gives its exit code and output.
    pub async fn command(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(binary());
        command
            .env_clear()
            .env("API_KEY_SECRET", API_KEY_SECRET)
            .env("JWT_SECRET_KEY", JWT_SECRET_KEY)
            .env("WAYBILL_DATA_DIR", self.data_dir());
        command
            .env("WAYBILL_LISTEN", self.addr.to_string())
            .env("ADMIN_TOKEN", OPERATOR_KEY);
        if self.dir.path().join("waybill.yaml").exists() {
            command.env("WAYBILL_CONFIG", self.dir.path().join("waybill.yaml"));
        }
        if self.dir.path().join("models.yaml").exists() {
            command.env("MODELS_CONFIG_PATH", self.dir.path().join("models.yaml"));
        }
        if let Some(roles) = &self.builder.roles {
            command.env("WAYBILL_ROLES", roles);
        }
        command
            .args(args)
            .envs(&self.builder.env)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        output_of(command).await
    }
}

/// Runs a command to its end; gives its exit code and what it printed, stdout first.
async fn output_of(mut command: Command) -> (Option<i32>, String) {
    let output = timeout(END_MAX, command.kill_on_drop(true).output())
        .await
        .expect("the command ends")
        .expect("the command starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), text.concat())
}

/// The built binary: `WAYBILL_BIN`, else beside the executable, or above it, as tests lie in `deps`.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WAYBILL_BIN") {
        return PathBuf::from(path);
    }
    let program = std::env::current_exe().expect("the path of the program");
    let directories = program.ancestors().skip(1).take(2);
    let path = directories
        .map(|directory| directory.join("waybill"))
        .find(|path| path.exists());
    path.unwrap_or_else(|| {
        panic!(
            "no waybill is beside {}; run `cargo build -p node` first",
            program.display()
        )
    })
}
