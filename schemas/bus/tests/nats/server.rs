//! A NATS server of one's own: a free port, a directory that goes with it, and an end by force.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bus::layout::{Sizes, Storage, Stream, bucket, cluster};
use bus::nats::{Nats, Options};
use bus::{BusError, Message};
use bytes::Bytes;
use tempfile::TempDir;

/// How long a server may take to start.
const START_POLLS: usize = 1_000;
const POLL: Duration = Duration::from_millis(10);

/// A running server.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    config: PathBuf,
    /// Its address.
    pub(crate) url: String,
}

/// The server's program.
#[expect(
    clippy::disallowed_methods,
    reason = "tests look for a program of the machine"
)]
pub(crate) fn program() -> PathBuf {
    if let Ok(named) = std::env::var("NATS_SERVER") {
        return named.into();
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers/nats/bin/nats-server");
    if installed.exists() {
        return installed;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join("nats-server"))
        .find(|found| found.exists())
        .expect("there is no nats-server: run `scripts/setup.sh nats`, or name one in NATS_SERVER")
}

fn listening(dir: &Path, child: &mut Child) -> String {
    let file = dir.join(format!("nats-server_{}.ports", child.id()));
    for _ in 0..START_POLLS {
        let ports = std::fs::read(&file).unwrap_or_default();
        if let Ok(ports) = serde_json::from_slice::<serde_json::Value>(&ports)
            && let Some(url) = ports["nats"][0].as_str()
        {
            return url.to_owned();
        }
        assert!(
            child.try_wait().expect("the server's state").is_none(),
            "the server ended: {}",
            std::fs::read_to_string(dir.join("log")).unwrap_or_default()
        );
        std::thread::sleep(POLL);
    }
    panic!("the server does not start");
}

fn spawn(dir: &Path, config: &Path, command: &mut Command) -> Child {
    let log = std::fs::File::create(dir.join("log")).expect("log");
    command
        .arg("-c")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server's program runs")
}

impl Server {
    /// A server with JetStream and no users.
    pub(crate) fn start() -> Self {
        Self::with("jetstream { store_dir: \"$DIR/store\", max_memory_store: 512MB, max_file_store: 8GB }")
    }

    /// A server with these settings, in which `$DIR` is its directory.
    pub(crate) fn with(settings: &str) -> Self {
        Self::launch(settings, "127.0.0.1:-1")
    }

    fn launch(settings: &str, listen: &str) -> Self {
        let dir = TempDir::new().expect("dir");
        let path = dir.path().display().to_string();
        let head = format!("listen: \"{listen}\"\nports_file_dir: \"{path}\"\nserver_name: \"test\"\n");
        let config = dir.path().join("nats.conf");
        std::fs::write(&config, head + &settings.replace("$DIR", &path)).expect("config");
        Self::run(dir, config, &mut Command::new(program()))
    }

    /// A server with a file of `deploy/nats`, at free ports; `command` has what else it needs.
    pub(crate) fn deployed(file: &str, command: &mut Command) -> Self {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats");
        Self::configured(&deploy.join(file), command)
    }

    /// The same with a configuration of one's own.
    pub(crate) fn configured(config: &Path, command: &mut Command) -> Self {
        let dir = TempDir::new().expect("dir");
        command
            .args(["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir"])
            .arg(dir.path())
            .env("WAYBILL_NATS_STORE", dir.path().join("store"));
        Self::run(dir, config.to_path_buf(), command)
    }

    fn run(dir: TempDir, config: PathBuf, command: &mut Command) -> Self {
        let mut child = spawn(dir.path(), &config, command);
        let url = listening(dir.path(), &mut child);
        Self {
            child,
            dir,
            config,
            url,
        }
    }

    /// Kills the server without a warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("the end");
    }

    /// Makes the server stand still (`STOP`), with all of its threads when this returns, or go on (`CONT`).
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.expect("kill runs").success());
        while signal == "STOP" && !stands_still(&id) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes away what it has on disk; it must not run.
    pub(crate) fn lose_disk(&self) {
        std::fs::remove_dir_all(self.dir.path().join("store")).expect("a store");
    }

    /// Starts it again, at the same address and with what it had on disk.
    pub(crate) fn start_again(&mut self) {
        let config = std::fs::read_to_string(&self.config).expect("config");
        let address = self.url.strip_prefix("nats://").expect("an address");
        let fixed = config.replace("127.0.0.1:-1", address);
        std::fs::write(&self.config, fixed).expect("config");
        self.child = spawn(self.dir.path(), &self.config, &mut Command::new(program()));
        assert_eq!(listening(self.dir.path(), &mut self.child), self.url);
    }

    /// A node's connection.
    pub(crate) async fn connect(&self) -> Arc<Nats> {
        Nats::connect(self.options()).await.expect("connect")
    }

    /// How a node connects: with the layout of a cluster and the buckets of the promises.
    pub(crate) fn options(&self) -> Options {
        Options {
            urls: vec![self.url.clone()],
            layout: layout(),
            connect_wait: Duration::from_secs(5),
            ..Options::default()
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A small cluster's layout and the buckets of the promises.
pub(crate) fn layout() -> Vec<Stream> {
    let mut all = cluster(&sizes());
    for name in [
        "wb_got",
        "wb_got_other",
        "wb_expect",
        "wb_grow",
        "wb_watch",
        "wb_watch_other",
        "wb_nothing",
        "wb_reopen",
    ] {
        all.push(bucket(name, Storage::File, 1 << 20));
    }
    all.push(Stream {
        ttl: true,
        ..bucket("wb_life", Storage::File, 1 << 20)
    });
    all
}

/// Sizes that fit a test's server.
pub(crate) fn sizes() -> Sizes {
    Sizes {
        events_bytes_max: 64 << 20,
        catalog_bytes_max: 16 << 20,
        responses_bytes_max: 16 << 20,
        idempotency_bytes_max: 16 << 20,
        bucket_bytes_max: 4 << 20,
        memory_bytes_max: 4 << 20,
        ..Sizes::default()
    }
}

/// An event.
pub(crate) fn message(id: &str) -> Message {
    Message {
        subject: "wb.ev.request.acme".to_owned(),
        id: id.to_owned(),
        payload: Bytes::from(format!("payload of {id}")),
    }
}

/// Tries until it succeeds, as publishers do.
pub(crate) async fn until_done<T, F>(mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, BusError>>,
{
    let mut failure = BusError::Closed;
    for _ in 0..1_000 {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => failure = error,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never succeeds: {failure:?}");
}

/// True when every thread of a process is stopped.
fn stands_still(id: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("a process");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Its name, in brackets, comes first.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
        state.flatten().is_none_or(|state| state == 'T')
    })
}
