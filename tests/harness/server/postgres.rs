//! A `PostgreSQL` server for one test, on a copy of a data directory that is made once. It forgets what it wrote when
//! the machine dies, not when the server is killed: that is all that tests of processes need. The server refuses to run
//! as root, so then it is user `postgres`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::{command, copy, free_addr, is_root, root, run};
use crate::node::process::Process;

/// How long the server may take until it answers.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long it may take to end after a signal.
const END_MAX: Duration = Duration::from_secs(20);
/// How often the harness looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Who the server runs as when the tests run as root.
const USER: &str = "postgres";
/// The database that every copy has.
const DATABASE: &str = "waybill";

/// A server with one empty database.
pub struct Postgres {
    process: Process,
    addr: SocketAddr,
    dir: TempDir,
    settings: &'static [&'static str],
}

impl Postgres {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with these settings, each `name=value`, which win over the harness's own.
    pub async fn start_with(settings: &'static [&'static str]) -> Self {
        let template = template().await;
        let dir = tempfile::Builder::new()
            .prefix("waybill-postgres-")
            .tempdir()
            .expect("a directory");
        copy(&template, &dir.path().join("data")).await;
        own(dir.path()).await;
        let addr = free_addr();
        let process = Process::start(
            &mut server(dir.path(), addr, settings),
            &dir.path().join("server.log"),
        );
        let mut server = Self {
            process,
            addr,
            dir,
            settings,
        };
        server.ready().await;
        server
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Every line that the server said so far.
    pub fn lines(&self) -> Vec<String> {
        self.process.lines()
    }

    /// The id of the process that all others of the server are children of.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The URL of its database.
    pub fn url(&self) -> String {
        self.url_at(self.addr)
    }

    /// The URL of its database by another address, for example that of a proxy.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("postgres://waybill@{addr}/{DATABASE}")
    }

    /// SIGKILL of the server; its workers notice and end.
    pub async fn kill(&mut self) {
        self.process.signal("KILL").await;
        self.process.ended(END_MAX).await;
    }

    /// Ends all connections and the server at once, as an operator's immediate stop does.
    pub async fn stop(&mut self) {
        self.process.signal("QUIT").await;
        self.process.ended(END_MAX).await;
    }

    /// Starts an ended server again on its port and its data.
    pub async fn restart(&mut self) {
        self.again();
        self.ready().await;
    }

    /// Copies its data directory aside: what a backup holds. Only of an ended server.
    pub async fn back_up(&mut self) {
        assert!(!self.process.running(), "stop the server first");
        let backup = self.dir.path().join("backup");
        drop(std::fs::remove_dir_all(&backup));
        copy(&self.dir.path().join("data"), &backup).await;
    }

    /// Puts the backup back in place of the data directory. Only of an ended server.
    pub async fn restore(&mut self) {
        assert!(!self.process.running(), "stop the server first");
        let data = self.dir.path().join("data");
        std::fs::remove_dir_all(&data).expect("a data directory");
        copy(&self.dir.path().join("backup"), &data).await;
        own(self.dir.path()).await;
    }

    fn again(&mut self) {
        let log = self.dir.path().join("server.log");
        let mut server = server(self.dir.path(), self.addr, self.settings);
        self.process.again(&mut server, &log);
    }

    /// Waits until a question is answered. Workers of a killed server may hold its memory for a moment, and then the
    /// next one ends at once: it is started again.
    async fn ready(&mut self) {
        let deadline = Instant::now() + READY_MAX;
        while !self.answers().await {
            assert!(
                Instant::now() < deadline,
                "the database does not answer:\n{}",
                self.process.lines().join("\n")
            );
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.process.running() {
                self.again();
            }
        }
    }

    async fn answers(&self) -> bool {
        let asked = async {
            let mut connection = PgConnection::connect(&self.url()).await.ok()?;
            let row = sqlx::query("SELECT 1").fetch_one(&mut connection).await.ok()?;
            row.try_get::<i32, _>(0).ok()
        };
        matches!(timeout(Duration::from_secs(5), asked).await, Ok(Some(1)))
    }
}

fn server(dir: &Path, addr: SocketAddr, settings: &[&str]) -> Command {
    let mut command = command(&program("postgres"), Some(USER));
    command.current_dir("/").arg("-D").arg(dir.join("data"));
    let own = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "full_page_writes=off",
        "shared_buffers=16MB",
        "max_connections=100",
        "max_wal_size=256MB",
        "restart_after_crash=on",
        "log_min_messages=warning",
    ];
    for setting in own.iter().chain(settings) {
        command.args(["-c", setting]);
    }
    command.args(["-p", &addr.port().to_string()]);
    command
}

/// A data directory with an empty database, made once a version.
async fn template() -> PathBuf {
    let version = program("postgres")
        .display()
        .to_string()
        .replace(|character: char| !character.is_ascii_digit(), "");
    let home = root().join("target/servers").join(format!("postgres-{version}"));
    if home.exists() {
        return home;
    }
    std::fs::create_dir_all(home.parent().expect("it has a parent")).expect("a directory");
    let making = tempfile::Builder::new()
        .prefix("waybill-initdb-")
        .tempdir()
        .expect("a directory");
    own(making.path()).await;
    let data = making.path().join("data");
    let mut initdb = command(&program("initdb"), Some(USER));
    initdb.current_dir("/").arg("-D").arg(&data).args([
        "--username=waybill",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--wal-segsize=4",
    ]);
    run(initdb).await;
    let mut create = command(&program("postgres"), Some(USER));
    create
        .current_dir("/")
        .args(["--single", "-D"])
        .arg(&data)
        .arg("postgres");
    let statement = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(statement.path(), format!("CREATE DATABASE {DATABASE}\n")).expect("a statement");
    create.stdin(statement.reopen().expect("a file"));
    run(create).await;
    let copied = home.with_extension(std::process::id().to_string());
    copy(&data, &copied).await;
    // Another test may have been faster: then its copy is as good.
    if std::fs::rename(&copied, &home).is_err() {
        drop(std::fs::remove_dir_all(&copied));
    }
    home
}

/// Gives a directory to the user that the server runs as.
async fn own(dir: &Path) {
    if is_root() {
        let mut command = Command::new("chown");
        command.args(["-R", USER]).arg(dir);
        run(command).await;
    }
}

/// Whether the server's programs are on this machine.
pub fn is_installed() -> bool {
    found("postgres").is_some_and(|path| path.exists())
}

/// A program of the server's package, the newest version's.
fn program(name: &str) -> PathBuf {
    found(name).expect("PostgreSQL's server is not installed: run scripts/setup.sh postgres")
}

fn found(name: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("WAYBILL_POSTGRES_BIN") {
        return Some(PathBuf::from(dir).join(name));
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    versions
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.exists())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_committed_is_there_after_a_kill_and_a_restored_backup_is_older() {
        let mut server = Postgres::start().await;
        execute(&server, "CREATE TABLE t AS SELECT 1 AS n").await;
        server.kill().await;
        assert!(PgConnection::connect(&server.url()).await.is_err());

        server.restart().await;
        server.stop().await;
        server.back_up().await;
        server.restart().await;
        execute(&server, "UPDATE t SET n = n + 1").await;
        assert_eq!(number(&server).await, 2);

        server.stop().await;
        server.restore().await;
        server.restart().await;
        assert_eq!(number(&server).await, 1);
    }

    async fn execute(server: &Postgres, statement: &'static str) {
        let mut connection = PgConnection::connect(&server.url()).await.expect("a connection");
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .expect("a statement");
    }

    async fn number(server: &Postgres) -> i32 {
        let mut connection = PgConnection::connect(&server.url()).await.expect("a connection");
        let row = sqlx::query("SELECT n FROM t")
            .fetch_one(&mut connection)
            .await
            .expect("a row");
        row.get(0)
    }
}
