//! A server on a socket that answers what a test says, and notes what it was asked.

use std::net::SocketAddr;
use std::sync::Arc;

use bus::clock::{Clock, SystemClock};
use bus::embedded::{self, Embedded};
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::spool::{self, Spool};
use bus::{Bus, Kv};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Ports;

/// What is answered to a path: bytes, or silence with `None`.
pub(crate) type Script = Box<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

struct State {
    script: Mutex<Script>,
    heads: Mutex<Vec<String>>,
}

/// A running server; it ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            script: Mutex::new(Box::new(script)),
            heads: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// Answers otherwise from now on.
    pub(crate) fn script(&self, script: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) {
        *self.state.script.lock() = Box::new(script);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state.heads.lock().clone()
    }

    /// How often a path was asked.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let line = format!("GET {path} ");
        self.state
            .heads
            .lock()
            .iter()
            .filter(|head| head.starts_with(&line))
            .count()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let (mut head, mut buffer) = (Vec::new(), [0; 1_024]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    state.heads.lock().push(head);
    let answer = (state.script.lock())(&path);
    match answer {
        // Whoever asked may be gone.
        Some(bytes) => drop(stream.write_all(&bytes).await),
        None => while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {},
    }
}

/// An answer of HTTP.
pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body.as_bytes()].concat()
}

/// TLS that trusts nobody: no test needs it.
pub(crate) fn tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// What all processes of a test share, and where it lies.
pub(crate) struct Stage {
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    dir: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = embedded::Options::default();
        let bus = Embedded::open(&dir.path().join("bus"), options, clock.clone()).expect("a bus");
        Self {
            kv: Arc::clone(&bus) as Arc<dyn Kv>,
            bus,
            clock,
            dir,
        }
    }

    /// What a process is given that is called `boot`.
    pub(crate) fn ports(&self, boot: &str) -> Ports {
        let options = spool::Options {
            dir: self.dir.path().join(boot),
            cluster: "main".to_owned(),
            bytes_max: 1 << 20,
            durability: spool::Durability::Process,
        };
        let mint = Arc::new(Mint::new().expect("randomness"));
        let (spool, _) = Spool::open(options, self.clock.clone(), mint).expect("a spool");
        Ports {
            catalog: CatalogView::default(),
            bus: Arc::clone(&self.bus),
            kv: Arc::clone(&self.kv),
            spool,
            clock: Arc::clone(&self.clock),
            boot: boot.into(),
        }
    }
}
