//! A PostgreSQL server for the tests of this package: one for all processes that run them, a database per test.
//! Every process that uses a server holds a shared lock on a file beside it; a watcher stops the server and removes
//! its data once nobody does. `WAYBILL_TEST_POSTGRES` names a server to use instead, by the URL of any database of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Seconds without a user after which a server is stopped.
const LINGER_SECONDS: u32 = 3;
/// How long a server may take until it answers.
const READY_MAX: Duration = Duration::from_secs(30);
/// How often a starting server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Who the server runs as when the tests run as root, which it refuses to.
const USER: &str = "postgres";

/// Waits until nobody uses the server, then stops it.
const WATCHER: &str = r#"
cd "$1" || exit
while :; do
  idle=0
  while [ "$idle" -lt "$2" ]; do
    sleep 1
    if flock -n -x users true; then idle=$((idle + 1)); else idle=0; fi
  done
  exec 9>gate
  flock 9
  if flock -n -x users true; then
    kill -QUIT "$(head -n 1 data/postmaster.pid)"
    while [ -e data/postmaster.pid ] && kill -0 "$(head -n 1 data/postmaster.pid)"; do sleep 0.1; done
    rm -rf data log
    if [ "$3" = private ]; then rm -rf "$1"; fi
    exit
  fi
  exec 9>&-
done
"#;

/// A server that is there as long as it is used.
pub(crate) struct Server {
    dir: PathBuf,
    _user: File,
}

impl Server {
    /// The server that all tests share, by its URL without a database.
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| {
            let user = output(Command::new("id").arg("-u"));
            let dir = std::env::temp_dir().join(format!("waybill-ledger-postgres-{user}"));
            Self::start(dir, "shared")
        })
    }

    /// A server of one's own, to be stopped and started.
    pub(crate) fn private() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("waybill-ledger-postgres-")
            .tempdir()
            .expect("a directory");
        Self::start(dir.keep(), "private")
    }

    fn start(dir: PathBuf, kind: &str) -> Self {
        std::fs::create_dir_all(&dir).expect("a directory");
        own(&dir);
        let lock = |name: &str| File::create(dir.join(name)).expect("a lock file");
        let (gate, user) = (lock("gate"), lock("users"));
        gate.lock().expect("the gate");
        user.lock_shared().expect("a use");
        let server = Self { dir, _user: user };
        if !server.answers() {
            drop(std::fs::remove_dir_all(server.dir.join("data")));
            server.make();
            server.restart();
            watch(&server.dir, kind);
        }
        server
    }

    /// Makes the data directory.
    fn make(&self) {
        let mut initdb = program("initdb");
        initdb.arg("-D").arg(self.dir.join("data"));
        initdb.args([
            "--username=waybill",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        output(&mut initdb);
    }

    /// Ends all connections and the server at once.
    pub(crate) fn stop(&self) {
        let pid = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).expect("a running server");
        let pid = pid.lines().next().expect("a process");
        output(Command::new("kill").args(["-QUIT", pid]));
        while self.dir.join("data/postmaster.pid").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts it, again or for the first time.
    pub(crate) fn restart(&self) {
        let log = File::create(self.dir.join("log")).expect("a log");
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(self.dir.join("data"));
        postgres.arg("-k").arg(&self.dir);
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=64MB",
            "max_connections=200",
            "log_min_messages=warning",
        ] {
            postgres.args(["-c", setting]);
        }
        let looks = READY_MAX.as_millis() / LOOK_EVERY.as_millis();
        for look in 0..looks {
            // Processes of a killed server may hold its memory for a moment: then it ends and is started again.
            if look % 100 == 0 && !self.dir.join("data/postmaster.pid").exists() {
                detach(&postgres, log.try_clone().expect("a log").into());
            }
            std::thread::sleep(LOOK_EVERY);
            if self.answers() {
                return;
            }
        }
        panic!("the database server does not answer");
    }

    fn answers(&self) -> bool {
        let mut ready = program("pg_isready");
        ready.arg("-q").arg("-h").arg(&self.dir);
        ready.status().is_ok_and(|status| status.success())
    }

    /// The URL of a database of it.
    pub(crate) fn url(&self, database: &str) -> String {
        let host = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://waybill@{host}/{database}")
    }
}

/// The URL of a new, empty database of the shared server.
pub(crate) async fn database() -> String {
    copy_of("template0").await.0
}

/// A database that begins as a copy of another, which nobody may be connected to. URL and name.
pub(crate) async fn copy_of(template: &str) -> (String, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("ledger_{}_{number}", std::process::id());
    let url = |database: &str| match std::env::var_os("WAYBILL_TEST_POSTGRES") {
        Some(given) => at(given.to_str().expect("a URL"), database),
        None => Server::shared().url(database),
    };
    let mut admin = PgConnection::connect(&url("postgres"))
        .await
        .expect("a connection");
    for text in [
        format!("DROP DATABASE IF EXISTS {name}"),
        format!("CREATE DATABASE {name} TEMPLATE {template}"),
    ] {
        sqlx::query(AssertSqlSafe(text))
            .execute(&mut admin)
            .await
            .expect("a database");
    }
    admin.close().await.expect("closed");
    (url(&name), name)
}

/// `url` with another database.
fn at(url: &str, database: &str) -> String {
    let (place, query) = url
        .split_once('?')
        .map_or((url, String::new()), |(place, query)| {
            (place, format!("?{query}"))
        });
    let (server, _) = place.rsplit_once('/').expect("a database in the URL");
    format!("{server}/{database}{query}")
}

fn watch(dir: &Path, kind: &str) {
    let mut watcher = Command::new("sh");
    watcher.args(["-c", WATCHER, "watcher"]).arg(dir);
    watcher.args([&LINGER_SECONDS.to_string(), kind]);
    detach(&watcher, Stdio::null());
}

/// Starts a program that outlives this process.
fn detach(command: &Command, errors: Stdio) {
    let mut detached = Command::new("setsid");
    detached.arg("--fork").arg(command.get_program());
    detached.args(command.get_args()).current_dir("/");
    detached.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    assert!(detached.status().expect("a program that runs").success());
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")) == "0"
}

fn own(dir: &Path) {
    if is_root() {
        output(Command::new("chown").arg(USER).arg(dir));
    }
}

/// A program of the newest server that is installed, run as somebody who may run it.
fn program(name: &str) -> Command {
    let dir = std::env::var_os("WAYBILL_POSTGRES_BIN").map(PathBuf::from);
    let installed = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten();
        versions.map(|version| version.path().join("bin")).max()
    };
    let program = dir
        .or_else(installed)
        .map(|dir| dir.join(name))
        .filter(|path| path.exists())
        .expect("the server programs of PostgreSQL are not installed: run scripts/setup.sh postgres");
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
