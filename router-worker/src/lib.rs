//! Runs requests: plans an order of endpoints, attempts them one after the other, relays the answer, and
//! reports. The path of a request: [`Router::dispatch`] → `session` (what next?) → `plan` (whom?) →
//! `attempt` (one call) → `upstream` (the wire).
//!
//! Guarantees: a caller's bytes choose no destination and no credential; a generation is never sent twice
//! with the same credential (but for a reused connection that died silently); nothing is attempted again
//! once content was handed over; every session ends in exactly one report.

mod config;
mod credential;

use std::sync::Arc;

use bus::Bus;
use bus::clock::Clock;
use bus::dispatch::{Dispatch, Dispatcher, Session};
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::spool::Spool;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub use config::{Clocks, Config};
pub use credential::Credentials;

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
    /// Takes the metrics.
    pub registry: &'a mut Registry,
}

/// A router could not start, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bus does not hand out questions (any more).
    #[error("the bus does not let the router answer questions")]
    Bus(#[from] bus::BusError),
}

/// A router-worker in this process. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    config: Arc<Config>,
}

impl Router {
    /// Sets up the upstream clients; connects to nothing.
    pub fn new(config: Config, ports: Ports<'_>) -> Result<Self, Error> {
        let _ = ports;
        Ok(Self {
            config: Arc::new(config),
        })
    }
}

impl Dispatcher for Router {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        let _ = (&self.config, dispatch);
        unimplemented!("the session")
    }
}

/// Answers questions about the health of endpoints until `shutdown`.
pub async fn run(router: Router, bus: Arc<dyn Bus>, shutdown: CancellationToken) -> Result<(), Error> {
    let _ = (router, bus);
    shutdown.cancelled().await;
    Ok(())
}
