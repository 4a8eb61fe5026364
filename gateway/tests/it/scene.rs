//! A running gateway on a free port with model `m`, tenant `acme` and a few keys, and a caller that speaks HTTP by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bus::clock::{Clock, SystemClock};
use bus::embedded::{Embedded, Options as BusOptions};
use bus::follow::{self, CatalogView};
use bus::mint::Mint;
use bus::registry::Nodes;
use bus::spool::{Durability, Options, Spool};
use bus::{Expected, Kv};
use gateway::key::{Grant, record};
use gateway::limits::{self, Limiter};
use gateway::{Config, Ports, caller, metrics};
use http_body_util::{BodyExt as _, Collected};
use prometheus_client::registry::Registry;
use schemas::catalog::modality::Modalities;
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::{Model, Origin, Role, Route, key_key, model_key};
use schemas::event::request::RequestSettled;
use schemas::id::{EndpointId, ModelName, NodeId, PoolName, TenantId};
use schemas::money::Price;
use schemas::secret::Secret;
use schemas::subject;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::script::Script;

pub(crate) const CALLER: &str = "sk-caller-of-acme-0001";
pub(crate) const ADMIN: &str = "sk-admin-of-acme-00001";
pub(crate) const OPERATOR: &str = "sk-operator-of-all-001";
const SECRET: &[u8] = b"a secret of the deployment";

/// A body for model `m`.
pub(crate) const PLAIN: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
/// The same, streamed.
pub(crate) const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// A running gateway.
pub(crate) struct Scene {
    pub(crate) addr: SocketAddr,
    /// The same without a socket.
    calls: gateway::Calls,
    pub(crate) script: Arc<Script>,
    pub(crate) spool: Spool,
    pub(crate) bus: Arc<Embedded>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
    _dir: TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(|bus| bus, change).await
    }

    /// A gateway whose buckets are bent.
    pub(crate) async fn on(
        bend: impl FnOnce(Arc<Embedded>) -> Arc<dyn Kv>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let dir = TempDir::new().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mint = Arc::new(Mint::new().expect("randomness"));
        let options = Options {
            dir: dir.path().join("spool"),
            cluster: "test".to_owned(),
            bytes_max: 1 << 30,
            durability: Durability::Process,
        };
        let (spool, _) = Spool::open(options, clock.clone(), mint.clone()).expect("a spool");
        let bus =
            Embedded::open(&dir.path().join("bus"), BusOptions::default(), clock.clone()).expect("a bus");
        seed(&bus, &mint).await;
        let shutdown = CancellationToken::new();
        let catalog = CatalogView::default();
        let ready = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let following = follow::run(
            bus.clone(),
            catalog.clone(),
            ready.clone(),
            CancellationToken::new(),
        );
        tasks.spawn(async move { following.await.expect("a watch") });
        ready.cancelled().await;
        let script = Arc::new(Script::default());
        let mut registry = Registry::default();
        let metrics = metrics::Metrics::register(&mut registry);
        let nodes = Nodes::new(clock.clone());
        let ports = Ports {
            limits: limiter(&bus, &nodes, &spool, &clock).await,
            bus: bus.clone(),
            kv: bend(bus.clone()),
            dispatcher: script.clone(),
            catalog,
            nodes,
            spool: spool.clone(),
            clock,
            mint,
            registry: Arc::new(registry),
            configuration: gateway::Configuration::default(),
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::new(listen, NodeId::from("n1"), Secret::new(SECRET.to_vec()));
        change(&mut config);
        let gateway = gateway::bind(config, ports, metrics).await.expect("a gateway");
        let (addr, calls) = (gateway.local_addr(), gateway.calls());
        let stop = shutdown.clone();
        tasks.spawn(async move {
            gateway::run(gateway, stop, CancellationToken::new())
                .await
                .expect("a run");
        });
        Self {
            addr,
            calls,
            script,
            spool,
            bus,
            shutdown,
            tasks,
            _dir: dir,
        }
    }

    /// Sends a request by hand and reads the answer to the end of the connection.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        let mut socket = self.connect().await;
        socket.write_all(request).await.expect("write");
        let mut bytes = Vec::new();
        let read = socket.read_to_end(&mut bytes);
        let _ = timeout(Duration::from_secs(10), read)
            .await
            .expect("an end in time");
        Answer::parse(&bytes)
    }

    /// The same as over a connection that stays open, without one.
    pub(crate) async fn within(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let (method, uri) = line.split_once(' ').expect("a method and a path");
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in [("host", "waybill")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let (parts, body) = self.calls.call(request).await.into_parts();
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        Answer::of(&parts, &body)
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("connect")
    }

    /// Calls with a key, closing afterwards.
    pub(crate) async fn call(&self, line: &str, key: &str, body: &str) -> Answer {
        self.raw(&request(line, key, "connection: close\r\n", body)).await
    }

    pub(crate) async fn chat(&self, body: &str) -> Answer {
        self.call("POST /v1/chat/completions", CALLER, body).await
    }

    /// The waybills in the spool, once there are `count`.
    pub(crate) async fn rows(&self, count: usize) -> Vec<RequestSettled> {
        for _ in 0..400 {
            let rows = self.events(subject::REQUEST_SETTLED);
            if rows.len() >= count {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{count} rows did not come");
    }

    /// The facts of a kind in the spool.
    pub(crate) fn events<T: for<'de> Deserialize<'de>>(&self, kind: &str) -> Vec<T> {
        let messages = self.spool.read(1, 512).expect("read");
        let envelopes = messages
            .iter()
            .map(|(_, message)| serde_json::from_slice::<Value>(&message.payload).expect("an envelope"));
        let of_kind = envelopes.filter(|envelope| envelope["type"] == kind);
        of_kind
            .map(|envelope| serde_json::from_value(envelope["data"].clone()).expect("a fact"))
            .collect()
    }
}

/// A request by hand.
pub(crate) fn request(line: &str, key: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: waybill\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The same as it was written.
    cased: String,
    pub(crate) body: String,
    /// The framing of a chunked body came to its end.
    pub(crate) complete: bool,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let cased = head.to_owned();
        let head = cased.to_ascii_lowercase();
        let (body, complete) = if head.contains("transfer-encoding: chunked") {
            dechunk(rest)
        } else {
            (rest.to_owned(), true)
        };
        Self {
            status,
            head,
            cased,
            body,
            complete,
        }
    }

    fn of(parts: &http::response::Parts, body: &[u8]) -> Self {
        let lines = parts.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            format!("\r\n{name}: {value}")
        });
        let head: String = std::iter::once(format!("HTTP/1.1 {}", parts.status.as_u16()))
            .chain(lines)
            .collect();
        Self {
            status: parts.status.as_u16(),
            cased: head.clone(),
            head,
            body: String::from_utf8_lossy(body).into_owned(),
            complete: true,
        }
    }

    /// An answer as a test says that it was.
    pub(crate) fn told(status: u16, head: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{head}");
        Self {
            status,
            cased: head.clone(),
            head,
            body: body.to_owned(),
            complete: true,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(own, _)| *own == name)
            .map(|(_, value)| value)
            .next()
    }

    /// A header as it was written, for what is not the same in small letters.
    pub(crate) fn raw_header(&self, name: &str) -> Option<&str> {
        let lines = self.cased.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().expect("a code").to_owned()
    }
}

fn dechunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        if size == 0 {
            return (body, true);
        }
        body.push_str(&after[..size.min(after.len())]);
        rest = after.get(size + 2..).unwrap_or("");
    }
    (body, false)
}

async fn limiter(bus: &Arc<Embedded>, nodes: &Nodes, spool: &Spool, clock: &Arc<dyn Clock>) -> Limiter {
    let settings = limits::Settings {
        boot: "boot".into(),
        admit_wait: Duration::from_secs(8),
        billing_tz: chrono_tz::Tz::UTC,
        shared: false,
        planted: schemas::limit::planted::Planted::default(),
    };
    let ports = limits::Ports {
        bus: bus.clone(),
        kv: bus.clone(),
        counters: bus.clone(),
        nodes: nodes.clone(),
        spool: spool.clone(),
        clock: clock.clone(),
    };
    Limiter::open(settings, ports).await.expect("limits")
}

async fn seed(bus: &Embedded, mint: &Mint) {
    let put = |key: String, value: Vec<u8>| async move {
        bus.put(subject::CATALOG_BUCKET, &key, value.into(), Expected::Any)
            .await
            .expect("put");
    };
    for name in ["acme", "default"] {
        let tenant = Tenant::new(TenantId::from(name), Origin::File);
        put(tenant_key(&tenant.id), serde_json::to_vec(&tenant).expect("json")).await;
    }
    for (text, name, tenant, role) in [
        (CALLER, "caller", "acme", Role::Free),
        (ADMIN, "admin", "acme", Role::Admin),
        (OPERATOR, "operator", "default", Role::Operator),
    ] {
        let grant = Grant {
            name: name.into(),
            tenant: TenantId::from(tenant),
            user: None,
            role,
            models: None,
            limits: schemas::limit::limits::Limits::default(),
            output_default_max: None,
            expires_at: None,
        };
        let key = record(mint, text, grant, Origin::File, SystemClock::new().now());
        let place = key_key(&caller::digest(SECRET, text));
        put(place, serde_json::to_vec(&key).expect("json")).await;
    }
    for (name, required_role) in [
        ("m", Role::Free),
        ("org/staff", Role::Internal),
        ("vectors", Role::Free),
    ] {
        let mut model = model(name, required_role);
        model.embeds = name == "vectors";
        put(model_key(&model.id), serde_json::to_vec(&model).expect("json")).await;
    }
}

fn model(name: &str, required_role: Role) -> Model {
    let route = Route {
        endpoint_id: EndpointId::new(format!("{name}:o1")),
        upstream_model: "up".into(),
        priority: 0,
        weight_micro: 1_000_000,
        pool: PoolName::from("default"),
        context_length: 8_192,
        input_modalities: Modalities::TEXT,
        takes: Arc::default(),
        price: Some(Price {
            input: 2_000_000_000,
            output: 8_000_000_000,
            ..Price::default()
        }),
        origin: Origin::File,
        rates: None,
    };
    Model {
        id: ModelName::from(name),
        name: name.into(),
        aliases: vec![ModelName::new(format!("{name}-latest"))],
        position: 0,
        input_modalities: Modalities::TEXT,
        output_modalities: Modalities::TEXT,
        quantization: "fp8".into(),
        context_length: 8_192,
        max_output_length: 4_096,
        supports_tools: true,
        supports_structured_output: false,
        embeds: false,
        supported_params: vec!["temperature".to_owned()],
        required_role,
        tenants: None,
        pricing: vec![("prompt".to_owned(), "2".to_owned())],
        created_at: SystemClock::new().now(),
        routes: vec![route],
        origin: Origin::File,
        owner: schemas::catalog::operators(),
        router: None,
    }
}

/// Takes one of so many faults; false when none is left.
pub(crate) fn one_of(count: &AtomicUsize) -> bool {
    let less = |left: usize| left.checked_sub(1);
    count
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
}
