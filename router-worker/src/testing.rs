//! What tests of the request path stand on: a router over a fixed catalogue, and upstreams on real sockets
//! that do byte by byte what a script says.

mod bucket;
mod server;

use std::future::poll_fn;
use std::sync::Arc;

use async_trait::async_trait;
use bus::clock::SystemClock;
use bus::dispatch::{Dispatch, Dispatcher as _, End, Frame, Session};
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::{Bytes, BytesMut};
use dialects::skim::{Limits, skim_chat, splice_facts};
use parking_lot::Mutex;
use schemas::affinity::hint::Spoken;
use schemas::catalog::modality::Modalities;
use schemas::catalog::{
    Backend, CredentialRef, Endpoint, Model, Origin, ProviderKind, Role, Route, endpoint_key, model_key,
};
use schemas::command::{Offer, Requirements, Told};
use schemas::event::health::{CircuitChanged, CredentialChanged};
use schemas::event::request::Surface;
use schemas::frame::Head;
use schemas::id::{BackendId, DEFAULT_TENANT, EndpointId, KeyId, ModelName, NodeId, PoolName, TenantId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::{Config, Credentials, Parts, Router};

pub(crate) use bucket::{Bucket, Mood};
pub(crate) use server::{Act, Server, chat, chunk, events, ok, response};

/// The model's public name.
pub(crate) const MODEL: &str = "m";
/// The name that upstreams know.
pub(crate) const UPSTREAM_MODEL: &str = "org/m-7b";

/// An endpoint over some backends, keyless.
pub(crate) fn endpoint(id: &str, urls: &[&str]) -> Endpoint {
    let backend = |(index, url): (usize, &&str)| Backend {
        id: if urls.len() == 1 {
            BackendId::from(id)
        } else {
            BackendId::from(format!("{id}#{index}").as_str())
        },
        base_url: (*url).to_owned(),
    };
    let provider = format!("provider-of-{id}").into();
    Endpoint {
        backends: urls.iter().enumerate().map(backend).collect(),
        ..Endpoint::of_file(EndpointId::from(id), ProviderKind::OpenaiCompat, provider)
    }
}

/// A route to an endpoint.
pub(crate) fn route(endpoint: &str, priority: i32) -> Route {
    Route {
        endpoint_id: EndpointId::from(endpoint),
        upstream_model: UPSTREAM_MODEL.into(),
        priority,
        weight_micro: 1_000_000,
        pool: PoolName::from("default"),
        context_length: 8_192,
        input_modalities: Modalities::TEXT,
        takes: Arc::default(),
        price: None,
        origin: Origin::File,
        rates: None,
    }
}

/// The model with these routes.
pub(crate) fn model(routes: Vec<Route>) -> Model {
    Model {
        id: ModelName::from(MODEL),
        name: MODEL.into(),
        aliases: Vec::new(),
        position: 0,
        input_modalities: Modalities::TEXT,
        output_modalities: Modalities::TEXT,
        quantization: "".into(),
        context_length: 8_192,
        max_output_length: 8_192,
        supports_tools: true,
        supports_structured_output: true,
        embeds: false,
        supported_params: Vec::new(),
        required_role: Role::Free,
        tenants: None,
        pricing: Vec::new(),
        created_at: Timestamp::default(),
        routes,
        origin: Origin::File,
        owner: TenantId::from(DEFAULT_TENANT),
        router: None,
    }
}

/// The records of a catalogue, as its bucket holds them.
pub(crate) fn records(endpoints: &[Endpoint], model: &Model) -> Vec<Entry> {
    let entry = |key: String, value: Vec<u8>| Entry {
        key,
        value: Some(Bytes::from(value)),
        revision: 1,
    };
    let mut records: Vec<Entry> = endpoints
        .iter()
        .map(|endpoint| {
            let value = serde_json::to_vec(endpoint).expect("serialize");
            entry(endpoint_key(&endpoint.id), value)
        })
        .collect();
    records.push(entry(
        model_key(&model.id),
        serde_json::to_vec(model).expect("serialize"),
    ));
    records
}

/// An offer of the model to all of its endpoints, for a whole answer.
pub(crate) fn offer(model: &Model) -> Offer {
    let skim = skim_chat(PLAIN.as_bytes(), &Limits::default()).expect("a valid body");
    Offer {
        request_id: Mint::new().expect("randomness").request_id(Timestamp::default()),
        tenant: TenantId::from("acme"),
        surface: Surface::Chat,
        model: ModelName::from(MODEL),
        owner: TenantId::from(DEFAULT_TENANT),
        public_model: MODEL.into(),
        candidates: model
            .routes
            .iter()
            .map(|route| route.endpoint_id.clone())
            .collect(),
        catalog_revision: 1,
        requirements: Requirements::default(),
        pin: None,
        splice: splice_facts(&skim),
        told: Told::default(),
        spoken: Spoken::default(),
        caller: KeyId::from("key-1"),
        role: Role::default(),
        started_at: Timestamp::default(),
        attempts_max: 4,
        attempts_before: 0,
        passes_sleepers: false,
        raw: None,
    }
}

/// A bucket that only tells what is in it.
struct Fixed(Vec<Entry>);

#[async_trait]
impl Kv for Fixed {
    async fn get(&self, _: &str, _: &str) -> Result<Option<Entry>, BusError> {
        Ok(None)
    }

    async fn put(&self, _: &str, _: &str, _: Bytes, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Closed)
    }

    async fn delete(&self, _: &str, _: &str, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Closed)
    }

    async fn watch(&self, _: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let (sender, receiver) = mpsc::channel(self.0.len() + 1);
        for entry in &self.0 {
            sender
                .send(Change::Entry(entry.clone()))
                .await
                .map_err(|_| BusError::Closed)?;
        }
        sender.send(Change::Current).await.map_err(|_| BusError::Closed)?;
        Ok(receiver)
    }
}

/// A router, and what it told about circuits and credentials.
pub(crate) struct Scene {
    pub(crate) router: Router,
    pub(crate) changes: Arc<Mutex<Vec<CircuitChanged>>>,
    pub(crate) alerts: Arc<Mutex<Vec<CredentialChanged>>>,
    model: Model,
}

impl Scene {
    /// A router with these settings over these endpoints.
    pub(crate) async fn new(config: Config, endpoints: &[Endpoint], model: &Model) -> Self {
        let credentials = ["k1", "k2"].into_iter().map(|name| {
            let secret = Secret::new(format!("secret-{name}"));
            (CredentialRef(name.to_owned()), secret)
        });
        Self::holding(credentials.collect(), config, endpoints, model).await
    }

    /// The same with these credentials.
    pub(crate) async fn holding(
        credentials: Credentials,
        config: Config,
        endpoints: &[Endpoint],
        model: &Model,
    ) -> Self {
        let view = CatalogView::default();
        let kv = Arc::new(Fixed(records(endpoints, model)));
        // Followed until everything was told; the snapshot stays.
        let ready = CancellationToken::new();
        tokio::select! {
            ended = bus::follow::run(kv, view.clone(), ready.clone(), CancellationToken::new()) => {
                assert!(ended.is_ok(), "the catalogue cannot be followed");
            }
            () = ready.cancelled() => {}
        }
        let changes = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&changes);
        let alerts = Arc::new(Mutex::new(Vec::new()));
        let alerted = Arc::clone(&alerts);
        let parts = Parts {
            catalog: view,
            credentials: Arc::new(credentials),
            clock: Arc::new(SystemClock::new()),
            mint: Arc::new(Mint::new().expect("randomness")),
            metrics: Metrics::default(),
            witness: Box::new(move |changed| told.lock().push(changed.clone())),
            alert: Box::new(move |changed| alerted.lock().push(changed.clone())),
            healed: Box::new(|_| ()),
            woken: Box::new(|_| ()),
            kv: None,
        };
        Self {
            router: Router::assemble(config, parts).expect("a router"),
            changes,
            alerts,
            model: model.clone(),
        }
    }

    /// Has the router share its circuits in a bucket; it has to be run for that.
    pub(crate) fn share(&mut self, kv: Arc<dyn Kv>) {
        let shared = &self.router.shared;
        let told = Arc::clone(&self.changes);
        let parts = Parts {
            catalog: shared.catalog.clone(),
            credentials: Arc::clone(&shared.credentials),
            clock: Arc::clone(&shared.clock),
            mint: Arc::clone(&shared.mint),
            metrics: Metrics::default(),
            witness: Box::new(move |changed| told.lock().push(changed.clone())),
            alert: Box::new(|_| ()),
            healed: Box::new(|_| ()),
            woken: Box::new(|_| ()),
            kv: Some(kv),
        };
        self.router = Router::assemble(shared.config.clone(), parts).expect("a router");
    }

    /// The usual router over servers: the first is asked first, the others are its fallbacks in order.
    pub(crate) async fn over(servers: &[&Server]) -> Self {
        Self::with(config(), servers).await
    }

    /// The same with settings.
    pub(crate) async fn with(config: Config, servers: &[&Server]) -> Self {
        let name = |index: usize| format!("e{}", index + 1);
        let endpoints: Vec<Endpoint> = servers
            .iter()
            .enumerate()
            .map(|(index, server)| endpoint(&name(index), &[&server.url()]))
            .collect();
        let routes = (0_i32..)
            .zip(&endpoints)
            .map(|(priority, endpoint)| route(endpoint.id.as_str(), priority))
            .collect();
        Self::new(config, &endpoints, &model(routes)).await
    }

    /// An offer of a body.
    pub(crate) fn offer(&self, body: &str) -> Dispatch {
        let skim = skim_chat(body.as_bytes(), &Limits::default()).expect("a valid body");
        let now = self.router.shared.clock.now();
        Dispatch {
            offer: Offer {
                request_id: self.router.shared.mint.request_id(now),
                splice: splice_facts(&skim),
                told: Told::default(),
                role: Role::default(),
                started_at: now,
                ..offer(&self.model)
            },
            body: Bytes::copy_from_slice(body.as_bytes()),
            ways: Vec::new(),
        }
    }

    /// Runs a call to its end.
    pub(crate) async fn call(&self, body: &str) -> Played {
        self.play(self.offer(body)).await
    }

    /// Runs an offer to its end.
    pub(crate) async fn play(&self, dispatch: Dispatch) -> Played {
        let mut session = self.router.dispatch(dispatch);
        let mut played = Played::default();
        while played.end.is_none() {
            played.take(frame(session.as_mut()).await);
        }
        played
    }
}

/// The defaults, on a node for tests.
pub(crate) fn config() -> Config {
    Config::new(NodeId::from("node-1"))
}

/// The next frame of a session.
pub(crate) async fn frame(session: &mut dyn Session) -> Frame {
    poll_fn(|context| session.poll_frame(context)).await
}

/// What a session gave.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) head: Option<Head>,
    pub(crate) chunks: BytesMut,
    pub(crate) end: Option<Box<End>>,
}

impl Played {
    pub(crate) fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Head(head) => {
                assert!(
                    self.head.is_none() && self.chunks.is_empty(),
                    "one head, before chunks"
                );
                self.head = Some(head);
            }
            Frame::Chunk(bytes) => {
                assert!(self.head.is_some() && !bytes.is_empty(), "chunks follow a head");
                self.chunks.extend_from_slice(&bytes);
            }
            Frame::End(end) => self.end = Some(end),
        }
    }

    pub(crate) fn end(&self) -> &End {
        self.end.as_ref().expect("it has ended")
    }

    /// What a caller reads in all.
    pub(crate) fn text(&self) -> String {
        let all = [&self.chunks[..], &self.end().tail[..]].concat();
        String::from_utf8(all).expect("text")
    }

    /// Status of each attempt.
    pub(crate) fn statuses(&self) -> Vec<Option<u16>> {
        let attempts = self.end().report.attempts.iter();
        attempts.map(|attempt| attempt.status).collect()
    }

    /// The code of the failure.
    pub(crate) fn code(&self) -> Option<&'static str> {
        let failure = self.end().report.failure.as_ref()?;
        Some(failure.code.as_str())
    }

    /// The endpoint that served.
    pub(crate) fn served(&self) -> Option<&str> {
        let served = self.end().report.served.as_ref()?;
        Some(served.endpoint_id.as_str())
    }
}

/// A call for a whole answer.
pub(crate) const PLAIN: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#;
/// A call for a stream.
pub(crate) const STREAM: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hello there"}]}"#;
