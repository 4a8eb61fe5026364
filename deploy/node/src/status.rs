//! What a node without a gateway tells on its `--admin-listen`: is it alive, is it ready, what does it count. Three
//! paths, one answer a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::spool::Spool;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::cluster::Roles;

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// How long one connection may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Most connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Rest after a failed accept.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// The type of a metrics page.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Who is told of, and how he is.
pub struct Subject {
    /// The node's name.
    pub node: String,
    /// What it runs.
    pub roles: Roles,
    /// Its outbox.
    pub spool: Spool,
    /// True while the bus is connected.
    pub connected: watch::Receiver<bool>,
    /// Cancelled once the node drains.
    pub draining: CancellationToken,
}

/// The listener, bound and not yet served.
pub struct Status {
    listener: TcpListener,
    address: SocketAddr,
}

impl Status {
    /// Binds the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`.
    pub async fn run(self, subject: Subject, registry: Registry, stop: CancellationToken) -> io::Result<()> {
        let desk = Arc::new(Desk::new(subject, registry));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                    let desk = Arc::clone(&desk);
                    // A peer that is slow or gone has itself to blame.
                    connections.spawn(async move {
                        let _ = timeout(ANSWER_WITHIN, desk.serve(stream)).await;
                    });
                }
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_REST).await,
            }
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; stop what listens there, or choose another address with --admin-listen")]
pub struct Error {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

struct Desk {
    subject: Subject,
    registry: Registry,
    spool_bytes: Gauge,
    spool_oldest_seconds: Gauge,
    bus_connected: Gauge,
}

/// Status line, content type, body.
type Answer = (&'static str, &'static str, String);

impl Desk {
    fn new(subject: Subject, mut registry: Registry) -> Self {
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let spool_bytes = gauge("waybill_spool_bytes", "Bytes of the spool on disk");
        let spool_oldest_seconds = gauge(
            "waybill_spool_oldest_seconds",
            "Age of the oldest event that is not in the books",
        );
        let bus_connected = gauge("waybill_bus_connected", "1 while the bus is connected");
        Self {
            subject,
            registry,
            spool_bytes,
            spool_oldest_seconds,
            bus_connected,
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            let mut buffer = [0; 1024];
            let bytes = stream.read(&mut buffer).await?;
            if bytes == 0 || head.len() + bytes > HEAD_BYTES_MAX {
                return Ok(());
            }
            head.extend_from_slice(buffer.get(..bytes).unwrap_or_default());
        }
        let (status, kind, body) = self.answer(&head);
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    }

    fn answer(&self, head: &[u8]) -> Answer {
        const FOUND: &str = "200 OK";
        const AWAY: &str = "503 Service Unavailable";
        const JSON: &str = "application/json";
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        if method != Some(b"GET".as_slice()) {
            return ("405 Method Not Allowed", JSON, "{}".to_owned());
        }
        let connected = *self.subject.connected.borrow();
        match target.split(|byte| *byte == b'?').next().unwrap_or_default() {
            b"/health" => {
                let body = json!({
                    "status": if connected { "healthy" } else { "degraded" },
                    "bus_connected": connected,
                    "version": env!("CARGO_PKG_VERSION"),
                    "node": self.subject.node,
                    "roles": self.subject.roles.list(),
                });
                (FOUND, JSON, body.to_string())
            }
            b"/health/ready" => {
                let (code, status) = match (self.subject.draining.is_cancelled(), connected) {
                    (true, _) => (AWAY, "draining"),
                    (false, true) => (FOUND, "ready"),
                    (false, false) => (FOUND, "degraded"),
                };
                (code, JSON, json!({ "status": status }).to_string())
            }
            b"/metrics" => (FOUND, METRICS_TYPE, self.metrics(connected)),
            _ => ("404 Not Found", JSON, "{}".to_owned()),
        }
    }

    fn metrics(&self, connected: bool) -> String {
        let spool = self.subject.spool.gauges();
        let wide = |figure| i64::try_from(figure).unwrap_or(i64::MAX);
        self.spool_bytes.set(wide(spool.bytes));
        self.spool_oldest_seconds.set(wide(spool.oldest_seconds));
        self.bus_connected.set(i64::from(connected));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use bus::clock::SystemClock;
    use bus::mint::Mint;

    use super::*;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    #[tokio::test]
    async fn a_node_without_a_gateway_tells_its_health_and_its_figures() {
        let directory = tempfile::tempdir().expect("directory");
        let options = bus::spool::Options {
            dir: directory.path().to_owned(),
            cluster: "a".to_owned(),
            bytes_max: 1 << 20,
            durability: bus::spool::Durability::Process,
        };
        let mint = Arc::new(Mint::new().expect("randomness"));
        let (spool, _) = Spool::open(options, Arc::new(SystemClock::new()), mint).expect("spool");
        let (connection, connected) = watch::channel(true);
        let (draining, stop) = (CancellationToken::new(), CancellationToken::new());
        let subject = Subject {
            node: "n".to_owned(),
            roles: Roles::all(),
            spool,
            connected,
            draining: draining.clone(),
        };
        let status = Status::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .expect("bind");
        let address = status.address();
        let mut node = JoinSet::new();
        node.spawn(status.run(subject, Registry::default(), stop.clone()));

        let healthy = ask(address, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(healthy.starts_with("HTTP/1.1 200 OK\r\n"), "{healthy}");
        assert!(
            healthy.contains(r#""roles":["gateway","router","health","ledger"]"#),
            "{healthy}"
        );
        let metrics = ask(address, "GET /metrics?x HTTP/1.1\r\n\r\n").await;
        assert!(metrics.contains("waybill_bus_connected 1\n"), "{metrics}");
        connection.send_replace(false);
        assert!(
            ask(address, "GET /health/ready HTTP/1.1\r\n\r\n")
                .await
                .contains("degraded")
        );
        draining.cancel();
        let ready = ask(address, "GET /health/ready HTTP/1.1\r\n\r\n").await;
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(
            ask(address, "POST /health HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 405 ")
        );
        assert!(
            ask(address, "GET /secrets HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        stop.cancel();
        node.join_next()
            .await
            .expect("a task")
            .expect("join")
            .expect("run");
    }
}
