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
mod figures;
mod health;
mod keypool;
mod limiter;
mod metrics;
mod plan;
mod provider;
mod questions;
mod relay;
mod retry;
mod session;
mod signs;
pub mod simulate;
mod state;
#[cfg(test)]
mod testing;
mod trial;
mod upstream;
mod wake;

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
use schemas::event::health::{CircuitChanged, CredentialChanged, EndpointChanged, WakeEnded};
use schemas::id::{DEFAULT_TENANT, TenantId};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::error;

use affinity::Affinity;
use circuit::{Circuits, Surroundings, Witness};
use keypool::Pools;
use limiter::Limiter;
use metrics::Metrics;
use plan::memory::Memory;
use provider::Targets;
use relay::{LocalSession, Relay};
use retry::Budget;
use session::Request;
use signs::{Healed, Place, Signs};
use state::Shared;
use upstream::Upstream;
use wake::{Wakes, Woken};

pub use config::{Affinity as AffinitySettings, Balance as BalanceSettings, Clocks, Concurrency, Config};
pub use credential::{Credentials, Machine};
pub use schemas::egress::{Egress, NETWORKS_MAX, Network, NoNetwork};
pub use upstream::connector::tls;
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
        let (spool, clock) = (&ports.spool, &ports.clock);
        let witness = teller(spool, clock, |changed: &CircuitChanged| {
            format!("a change of the circuit of {}", changed.backend)
        });
        let alert = teller(spool, clock, |changed: &CredentialChanged| {
            format!("a change of the credential {}", changed.credential.0)
        });
        let healed = teller(spool, clock, |changed: &EndpointChanged| {
            format!("a change of the health of {}", changed.backend)
        });
        let woken = teller(spool, clock, |ended: &WakeEnded| {
            format!("the waking of {}", ended.backend)
        });
        let given = Parts {
            catalog: ports.catalog,
            credentials: ports.credentials,
            clock: ports.clock,
            mint: ports.mint,
            metrics: Metrics::register(ports.registry),
            witness,
            alert,
            healed,
            woken,
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
        let place = Place {
            node: config.node.clone(),
            catalog: parts.catalog.clone(),
            hot_c: config.gpu_temperature_threshold,
        };
        let shared = Shared {
            samples: Signs::new(place, Arc::clone(&parts.clock), parts.healed),
            upstream: Upstream::new(&config)?,
            wakes: Wakes::new(parts.woken),
            affinity: Affinity::new(config.affinity, Arc::clone(&parts.clock)),
            memory: Memory::new(config.balance.soft_ban),
            terms: config.terms(),
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
    healed: Healed,
    woken: Woken,
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

/// Answers questions about the health of endpoints, asks engines and makes trials for others, keeps the circuits in agreement with those of other routers, and
/// shares with them where sessions are, until `shutdown`.
pub async fn run(router: Router, bus: Arc<dyn Bus>, shutdown: CancellationToken) -> Result<(), Error> {
    let shared = &router.shared;
    let agree = async {
        if let Some(kv) = &shared.kv {
            let (circuits, catalog) = (&shared.circuits, &shared.catalog);
            let (loads, alone) = ((&shared.affinity, &shared.limiter), shared.config.affinity.alone);
            tokio::join!(
                circuit::fleet::run(circuits, Arc::clone(kv), catalog, shutdown.clone()),
                affinity::fleet::run(loads, Arc::clone(kv), (&shared.boot, alone), shutdown.clone()),
                shared.samples.run(Arc::clone(kv), circuits, shutdown.clone()),
            );
        }
        Ok(())
    };
    let tidy = async {
        let mut ticks = tokio::time::interval(TIDY_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            shared.pools.prune(&shared.catalog.load());
            shared.wakes.prune(&shared.catalog.load());
        }
        Ok(())
    };
    let wakes = async {
        wake::run(shared, shutdown.clone()).await;
        Ok(())
    };
    let told = async {
        if shared.config.tells_health {
            tokio::try_join!(
                health::serve(shared, Arc::clone(&bus), shutdown.clone()),
                figures::serve(shared, Arc::clone(&bus), shutdown.clone()),
            )?;
        }
        Ok(())
    };
    let pool = &shared.config.pool;
    let trials = trial::serve(shared, (Arc::clone(&bus), pool), shutdown.clone());
    tokio::try_join!(told, trials, agree, tidy, wakes)?;
    Ok(())
}

/// What puts facts into the log. They belong to the platform, not to a tenant's request.
fn teller<F: Fact + 'static>(
    spool: &Spool,
    clock: &Arc<dyn Clock>,
    what: fn(&F) -> String,
) -> Box<dyn Fn(&F) + Send + Sync> {
    let (spool, clock) = (spool.clone(), Arc::clone(clock));
    Box::new(move |fact| {
        let tenant = TenantId::from(DEFAULT_TENANT);
        if let Err(problem) = spool.append(&tenant, clock.now(), fact) {
            let what = what(fact);
            error!(
                error = &problem as &dyn std::error::Error,
                "{what} is missing in the log"
            );
        }
    })
}
