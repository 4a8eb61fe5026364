//! nats-server with JetStream: one node, or three that are one cluster. Found at `NATS_SERVER`, else where
//! `scripts/setup.sh nats` puts it, else in the search path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{command, copy, free_addr, root};
use crate::client::Client;
use crate::node::process::Process;

/// How long a server may take until it serves.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long a server may take to end after a signal.
const END_MAX: Duration = Duration::from_secs(20);
/// How often the harness looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The users of `deploy/nats`, and the password of each.
const USERS: [&str; 8] = [
    "admin",
    "gateway",
    "router_default",
    "router_private",
    "node_default",
    "health",
    "ledger",
    "billing",
];
const PASSWORD: &str = "pass-of-a-user";
/// Servers of a cluster.
const NODES: usize = 3;

/// One server.
pub struct Nats {
    process: Process,
    addr: SocketAddr,
    monitor: SocketAddr,
    name: String,
    dir: TempDir,
}

impl Nats {
    /// Starts one server and waits until it serves.
    pub async fn start() -> Self {
        let server = Self::launch("n1", free_addr(), "");
        server.ready().await;
        server
    }

    /// Starts one server with the users and permissions of `deploy/nats`, which listens at every address of the machine.
    pub async fn start_guarded() -> Self {
        let deployed = |name: &str| {
            let path = root().join("deploy/nats").join(name);
            std::fs::read_to_string(path).expect("a file of deploy/nats")
        };
        let include = "include \"tenants.conf\"";
        let accounts = deployed("accounts.conf").replace(include, &deployed("tenants.conf"));
        let server = Self::launch("n1", free_addr(), &accounts);
        server.ready().await;
        server
    }

    fn launch(name: &str, addr: SocketAddr, cluster: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("waybill-nats-")
            .tempdir()
            .expect("a directory");
        let monitor = free_addr();
        let listen = if cluster.contains("accounts {") {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port()))
        } else {
            addr
        };
        let text = format!(
            "server_name: {name}\nlisten: \"{listen}\"\nhttp: \"{monitor}\"\nmax_payload: 8MB\n\
             jetstream {{ store_dir: \"{}\", max_mem: 2GB, max_file: 64GB }}\n{cluster}",
            dir.path().join("store").display()
        );
        std::fs::write(dir.path().join("nats.conf"), text).expect("a configuration");
        let process = Process::start(&mut Self::program(&dir), &dir.path().join("server.log"));
        Self {
            process,
            addr,
            monitor,
            name: name.to_owned(),
            dir,
        }
    }

    fn program(dir: &TempDir) -> tokio::process::Command {
        let mut command = command(&binary(), None);
        command.arg("--config").arg(dir.path().join("nats.conf"));
        for user in USERS {
            let user = user.to_uppercase();
            command.env(format!("WAYBILL_NATS_{user}_PASSWORD"), PASSWORD);
        }
        command
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addr)
    }

    /// Its URL for one of the users of `deploy/nats`, at another address of the machine.
    pub fn url_of(&self, user: &str, host: IpAddr) -> String {
        format!("nats://{user}:{PASSWORD}@{host}:{}", self.addr.port())
    }

    /// Where its streams are.
    pub fn store_dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// SIGKILL, then waits.
    pub async fn kill(&mut self) {
        self.process.signal("KILL").await;
        self.process.ended(END_MAX).await;
    }

    /// SIGTERM, then waits.
    pub async fn stop(&mut self) {
        self.process.signal("TERM").await;
        self.process.ended(END_MAX).await;
    }

    /// Starts an ended server again on its port and its store, and waits until it serves.
    pub async fn restart(&mut self) {
        self.process
            .again(&mut Self::program(&self.dir), &self.dir.path().join("server.log"));
        self.ready().await;
    }

    /// Copies its streams aside: what a disk that is rolled back holds. Only of an ended server.
    pub async fn back_up(&mut self) {
        assert!(!self.process.running(), "stop the server first");
        let backup = self.dir.path().join("backup");
        drop(std::fs::remove_dir_all(&backup));
        copy(&self.store_dir(), &backup).await;
    }

    /// Puts the copy back in place of the streams. Only of an ended server.
    pub async fn restore(&mut self) {
        assert!(!self.process.running(), "stop the server first");
        std::fs::remove_dir_all(self.store_dir()).expect("a directory of streams");
        copy(&self.dir.path().join("backup"), &self.store_dir()).await;
    }

    async fn ready(&self) {
        let deadline = Instant::now() + READY_MAX;
        while self
            .monitored("/healthz")
            .await
            .is_none_or(|page| page["status"] != "ok")
        {
            assert!(
                Instant::now() < deadline,
                "nats-server does not serve:\n{}",
                self.process.lines().join("\n")
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A page of its monitoring port; `None` while it does not answer.
    async fn monitored(&self, path: &str) -> Option<Value> {
        let client = Client::new(self.monitor, "").patience(Duration::from_secs(5));
        let answer = client.call("GET", path, bytes::Bytes::new()).await.ok()?;
        serde_json::from_slice(&answer.body).ok()
    }
}

/// Three servers that are one cluster.
pub struct NatsCluster {
    /// The servers.
    pub servers: Vec<Nats>,
}

impl NatsCluster {
    /// Starts three servers and waits until each of them serves.
    pub async fn start() -> Self {
        let routes: Vec<SocketAddr> = (0..NODES).map(|_| free_addr()).collect();
        let urls: Vec<String> = routes.iter().map(|route| format!("\"nats://{route}\"")).collect();
        let urls = urls.join(", ");
        let launch = |(number, route): (usize, &SocketAddr)| {
            let cluster = format!(
                "cluster {{ name: waybill, listen: \"{route}\", routes: [{urls}], no_advertise: true }}\n"
            );
            Nats::launch(&format!("n{}", number + 1), free_addr(), &cluster)
        };
        let servers: Vec<Nats> = routes.iter().enumerate().map(launch).collect();
        for server in &servers {
            server.ready().await;
        }
        Self { servers }
    }

    /// The URLs of all servers, with commas between them.
    pub fn urls(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(Nats::url).collect();
        urls.join(",")
    }

    /// The place among the servers of a stream's leader; panics when it has none for a while. A server that has ended
    /// leads nothing, although the others name it until they have noticed.
    pub async fn leader_of(&mut self, stream: &str) -> usize {
        let deadline = Instant::now() + READY_MAX;
        loop {
            for asked in 0..self.servers.len() {
                let page = self.servers[asked]
                    .monitored("/jsz?streams=true&accounts=true")
                    .await;
                let name = page.as_ref().and_then(|page| leader_in(page, stream));
                let place = self.servers.iter().position(|server| Some(&*server.name) == name);
                if let Some(place) = place.filter(|place| self.servers[*place].process.running()) {
                    return place;
                }
            }
            assert!(Instant::now() < deadline, "the stream {stream} has no leader");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The name of a stream's leader in the page about streams.
fn leader_in<'a>(page: &'a Value, stream: &str) -> Option<&'a str> {
    let accounts = page["account_details"].as_array()?;
    let streams = accounts
        .iter()
        .filter_map(|account| account["stream_detail"].as_array());
    let found = streams.flatten().find(|detail| detail["name"] == stream)?;
    found["cluster"]["leader"].as_str()
}

/// Whether the program is on this machine.
pub fn is_installed() -> bool {
    found().is_some_and(|path| path.exists())
}

fn binary() -> PathBuf {
    found().expect("nats-server is not installed: run scripts/setup.sh nats")
}

fn found() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("NATS_SERVER") {
        return Some(PathBuf::from(path));
    }
    let path = root().join("target/servers/nats/bin/nats-server");
    if path.exists() {
        return Some(path);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|dir| dir.join("nats-server"))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_read_from_the_page_about_streams() {
        let page = serde_json::json!({"account_details": [
            {"stream_detail": [{"name": "A", "cluster": {"leader": "n2"}}, {"name": "B", "cluster": {}}]},
        ]});

        assert_eq!(leader_in(&page, "A"), Some("n2"));
        assert_eq!(leader_in(&page, "B"), None);
        assert_eq!(leader_in(&page, "C"), None);
    }

    #[tokio::test]
    async fn a_server_serves_again_on_its_port_after_a_kill() {
        let mut nats = Nats::start().await;
        let url = nats.url();

        nats.kill().await;
        assert!(tokio::net::TcpStream::connect(nats.addr()).await.is_err());
        nats.restart().await;

        assert_eq!(nats.url(), url);
        assert!(tokio::net::TcpStream::connect(nats.addr()).await.is_ok());
        nats.stop().await;
    }

    #[tokio::test]
    async fn three_servers_become_one_cluster() {
        let cluster = NatsCluster::start().await;

        let page = cluster.servers[0]
            .monitored("/jsz")
            .await
            .expect("a page about streams");

        assert_eq!(page["meta_cluster"]["cluster_size"], 3, "{page}");
        assert_eq!(cluster.urls().split(',').count(), 3);
    }
}
