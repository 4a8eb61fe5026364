//! What every handler shares: made once, read by all, cheap to clone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bus::clock::Clock;
use bus::dispatch::Dispatcher;
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::registry::Nodes;
use bus::spool::Spool;
use bus::{Bus, Kv};
use http::HeaderValue;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::auto::Profiles;
use crate::body::Bodies;
use crate::caller::Doorkeeper;
use crate::caller::flood::Floods;
use crate::config::Config;
use crate::configuration::Configuration;
use crate::connection::Connections;
use crate::demand;
use crate::error::Error;
use crate::idempotency::Keys;
use crate::limits::Limiter;
use crate::manage::feed::READERS_MAX;
use crate::metrics::Metrics;
use crate::open::Open;
use crate::pulse::Pulse;
use crate::refusal::Refusals;
use crate::sign_in::SignIn;
use crate::sign_in::settings::Site;
use crate::unwritten::Unwritten;

/// How a gateway reaches the rest of Waybill.
#[derive(Clone)]
pub struct Ports {
    /// The log, and questions to the ledger and the routers.
    pub bus: Arc<dyn Bus>,
    /// The catalogue's bucket, for changes.
    pub kv: Arc<dyn Kv>,
    /// Runs requests.
    pub dispatcher: Arc<dyn Dispatcher>,
    /// The catalogue, for reading.
    pub catalog: CatalogView,
    /// The nodes of the cluster.
    pub nodes: Nodes,
    /// What bounds requests, over all nodes.
    pub limits: Limiter,
    /// The node's outbox.
    pub spool: Spool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids and keys.
    pub mint: Arc<Mint>,
    /// The node's metrics, for `/metrics`.
    pub registry: Arc<Registry>,
    /// What the node says of its configuration.
    pub configuration: Configuration,
}

/// The state of a gateway, shared by its handlers.
pub(crate) type Shared = Arc<State>;

/// The state of a gateway.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    pub(crate) metrics: Metrics,
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) floods: Floods,
    pub(crate) sign_in: SignIn,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) open: Arc<Open>,
    pub(crate) connections: Connections,
    pub(crate) refusals: Refusals,
    pub(crate) bounds: demand::Kept,
    /// What is known of models that may be chosen.
    pub(crate) profiles: Profiles,
    pub(crate) unwritten: Unwritten,
    pub(crate) pulse: Pulse,
    /// Seats of those who are told events as they are booked.
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) cors_origins: Vec<HeaderValue>,
    /// What is known of idempotency keys.
    pub(crate) keys: Keys,
    /// Requests whose callers left, on their way to settlement, and changes that are done whole though they leave.
    pub(crate) leaving: TaskTracker,
    phase: AtomicU8,
}

/// Where a gateway is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serves.
    Serving = 0,
    /// Serves, and asks callers to go elsewhere.
    Draining = 1,
    /// Takes no further request.
    Closed = 2,
}

impl State {
    /// Fails on settings that can never work.
    pub(crate) fn new(config: Config, ports: Ports, metrics: Metrics) -> Result<Shared, Error> {
        let secret = config.api_key_secret.reveal();
        if secret.is_empty() {
            return Err(Error::Secret);
        }
        let origin = |origin: &String| {
            let value = HeaderValue::from_str(origin.trim_end_matches('/'));
            value.map_err(|_| Error::Header {
                field: "cors.origins",
            })
        };
        Ok(Arc::new(Self {
            doorkeeper: Doorkeeper::new(secret, config.admin_token.as_ref())
                .with_dispatch(config.grant_dispatch_token.as_ref()),
            floods: Floods::new(config.auth_failures_max),
            sign_in: SignIn::new(&config),
            bodies: Arc::new(
                Bodies::new(config.bodies_bytes_max)
                    .arriving_within(Duration::from_secs(config.body_seconds_max)),
            ),
            open: Arc::new(Open::new(config.requests_max)),
            connections: Connections::default(),
            refusals: Refusals::default(),
            bounds: demand::Kept::default(),
            profiles: Profiles::default(),
            unwritten: Unwritten::default(),
            pulse: Pulse::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            cors_origins: config.cors_origins.iter().map(origin).collect::<Result<_, _>>()?,
            keys: Keys::new(&ports, config.idempotency_bytes_max),
            leaving: TaskTracker::new(),
            phase: AtomicU8::new(Phase::Serving as u8),
            config,
            ports,
            metrics,
        }))
    }

    /// Milliseconds for which the view of the catalogue may be outdated.
    pub(crate) fn view_age_ms(&self) -> u64 {
        self.ports.catalog.age_ms(self.ports.clock.monotonic_ms())
    }

    /// True when the view of the catalogue is too old to tell who may call.
    pub(crate) fn stale(&self) -> bool {
        self.view_age_ms() > self.config.stale_seconds_max.saturating_mul(1_000)
    }

    /// What pages say of the site: as files have it by now.
    pub(crate) fn site(&self) -> Arc<Site> {
        let told = self.ports.configuration.site();
        told.unwrap_or_else(|| Arc::new(self.config.sign_in.site.clone()))
    }

    /// Where it is now.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Closed,
        }
    }

    /// Moves on; there is no way back.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }
}
