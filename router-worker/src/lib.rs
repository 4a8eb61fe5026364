//! Runs requests: plans an order of endpoints, attempts them one after the other, relays the answer, and
//! reports. The path of a request: [`Router::dispatch`] → `session` (what next?) → `plan` (whom?) →
//! `attempt` (one call) → `upstream` (the wire).
//!
//! Guarantees: a caller's bytes choose no destination and no credential; a generation is never sent twice
//! with the same credential (but for a reused connection that died silently); nothing is attempted again
//! once content was handed over; every session ends in exactly one report.

mod affinity;
mod attempt;
mod circuit;
mod config;
mod credential;
mod fault;
mod health;
mod keypool;
mod limiter;
mod metrics;
mod plan;
mod provider;
mod relay;
mod retry;
mod session;
mod state;
#[cfg(test)]
mod testing;
mod trial;
mod upstream;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bus::clock::Clock;
use bus::dispatch::{Dispatch, Dispatcher, Session};
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::spool::Spool;
use bus::{Bus, Kv};
use prometheus_client::registry::Registry;
use schemas::event::Fact;
use schemas::event::health::CredentialChanged;
use schemas::id::{DEFAULT_TENANT, TenantId};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::error;

use affinity::Affinity;
use circuit::{Circuits, Surroundings, Witness};
use keypool::Pools;
use limiter::Limiter;
use metrics::Metrics;
use provider::Targets;
use relay::{LocalSession, Relay};
use retry::Budget;
use session::Request;
use state::Shared;
use upstream::Upstream;

pub use config::{Affinity as AffinitySettings, Clocks, Concurrency, Config};
pub use credential::{Credentials, Machine};
pub use schemas::egress::{Egress, NETWORKS_MAX, Network, NoNetwork};
pub use upstream::read::{ReadError, Reader};

/// How often the credentials of endpoints that are gone are forgotten.
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// What a router is given by the node it runs in.
pub struct Ports<'a> {
    /// What is configured.
    pub catalog: CatalogView,
    /// The upstreams' secrets.
    pub credentials: Arc<Credentials>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub mint: Arc<Mint>,
    /// Takes the events about circuits.
    pub spool: Spool,
    /// Where the fleet shares what its nodes know of circuits and sessions; `None` for a router that keeps that to itself.
    pub kv: Option<Arc<dyn Kv>>,
    /// Takes the metrics.
    pub registry: &'a mut Registry,
}

/// A router could not start, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bus does not hand out questions (any more).
    #[error("the bus does not let the router answer questions")]
    Bus(#[from] bus::BusError),
    /// TLS cannot be set up.
    #[error("TLS towards upstreams cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// A router-worker in this process. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

impl Router {
    /// Sets up the upstream clients; connects to nothing.
    pub fn new(config: Config, ports: Ports<'_>) -> Result<Self, Error> {
        let (spool, clock) = (ports.spool.clone(), Arc::clone(&ports.clock));
        let witness: Witness = Box::new(move |changed| {
            let backend = &changed.backend;
            note(
                &spool,
                clock.as_ref(),
                (changed, &format_args!("the circuit of {backend}")),
            );
        });
        let (spool, clock) = (ports.spool, Arc::clone(&ports.clock));
        let alert: Alert = Box::new(move |changed| {
            let name = &changed.credential.0;
            note(
                &spool,
                clock.as_ref(),
                (changed, &format_args!("the credential {name}")),
            );
        });
        let given = Parts {
            catalog: ports.catalog,
            credentials: ports.credentials,
            clock: ports.clock,
            mint: ports.mint,
            metrics: Metrics::register(ports.registry),
            witness,
            alert,
            kv: ports.kv,
        };
        Self::assemble(config, given)
    }

    fn assemble(config: Config, parts: Parts) -> Result<Self, Error> {
        let run = format!("{:016x}", parts.mint.draw());
        let boot = format!("{}.{run}", config.node);
        let circuits = Circuits::new(
            config.circuit,
            Surroundings {
                node: config.node.clone(),
                boot: boot.into(),
                shared: parts.kv.is_some(),
                clock: Arc::clone(&parts.clock),
                metrics: parts.metrics.clone(),
                witness: parts.witness,
            },
        );
        let shared = Shared {
            upstream: Upstream::new(&config)?,
            affinity: Affinity::new(config.affinity, Arc::clone(&parts.clock)),
            boot: run.into(),
            budget: Budget::new(config.retry_ratio, config.retry_floor_per_second),
            targets: Targets::default(),
            pools: Pools::default(),
            limiter: Limiter::new(config.concurrency, parts.metrics.clone()),
            alert: parts.alert,
            catalog: parts.catalog,
            credentials: parts.credentials,
            clock: parts.clock,
            mint: parts.mint,
            circuits,
            metrics: parts.metrics,
            kv: parts.kv,
            config,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

/// What a router is made of, wherever it comes from.
struct Parts {
    catalog: CatalogView,
    credentials: Arc<Credentials>,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    metrics: Metrics,
    witness: Witness,
    alert: Alert,
    kv: Option<Arc<dyn Kv>>,
}

/// Takes the facts about credentials.
type Alert = Box<dyn Fn(&CredentialChanged) + Send + Sync>;

impl Dispatcher for Router {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        let relay = Arc::new(Relay::default());
        let request = Request::new(Arc::clone(&self.shared), Arc::clone(&relay), dispatch);
        Box::new(LocalSession::new(relay, request.run()))
    }
}

/// Answers questions about the health of endpoints and makes trials of them, keeps the circuits in agreement with those of other routers, and
/// shares with them where sessions are, until `shutdown`.
pub async fn run(router: Router, bus: Arc<dyn Bus>, shutdown: CancellationToken) -> Result<(), Error> {
    let shared = &router.shared;
    let agree = async {
        if let Some(kv) = &shared.kv {
            let (circuits, catalog) = (&shared.circuits, &shared.catalog);
            let (affinity, alone) = (&shared.affinity, shared.config.affinity.alone);
            tokio::join!(
                circuit::fleet::run(circuits, Arc::clone(kv), catalog, shutdown.clone()),
                affinity::fleet::run(affinity, Arc::clone(kv), (&shared.boot, alone), shutdown.clone()),
            );
        }
        Ok(())
    };
    let tidy = async {
        let mut ticks = tokio::time::interval(TIDY_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            shared.pools.prune(&shared.catalog.load());
        }
        Ok(())
    };
    let pool = &shared.config.pool;
    let trials = trial::serve(shared, (Arc::clone(&bus), pool), shutdown.clone());
    tokio::try_join!(health::serve(shared, bus, shutdown.clone()), trials, agree, tidy)?;
    Ok(())
}

/// Puts a change of something into the log. Changes belong to the platform, not to a tenant's request.
fn note<F: Fact>(spool: &Spool, clock: &dyn Clock, (changed, what): (&F, &dyn Display)) {
    let tenant = TenantId::from(DEFAULT_TENANT);
    if let Err(problem) = spool.append(&tenant, clock.now(), changed) {
        error!(
            error = &problem as &dyn std::error::Error,
            "a change of {what} is missing in the log"
        );
    }
}
