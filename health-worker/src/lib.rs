//! Looks after the health of upstreams: reads what engines say of themselves, asks backends whether they live, and how hot
//! their hosts are. Of all processes with this role one does it, `lead` says which; what it finds out lies in bucket
//! [`schemas::subject::HEALTH_BUCKET`], which routers watch.
//!
//! Guarantees: no credential of an upstream is here or leaves from here; an address that an endpoint of run time may not
//! have is not called; every question has a bound on its time and on the size of its answer; whoever takes over goes on
//! from what is written. Without the bus nothing is written, and routers go by what they see themselves.

mod asked;
mod engine;
mod exposition;
mod http;
mod lead;
mod learning;
mod rounds;
mod seen;
mod target;
#[cfg(test)]
mod testing;
mod thermometer;
mod verdict;

use std::sync::Arc;

use bus::clock::Clock;
use bus::follow::CatalogView;
use bus::spool::Spool;
use bus::{Bus, Kv};
use schemas::egress::Egress;
use schemas::id::NodeId;
use tokio_util::sync::CancellationToken;

use crate::http::Client;
use crate::rounds::Rounds;

pub use thermometer::Thermometer;

/// Bytes of an answer with figures that are read at most.
const FIGURES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How the role behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node it runs on.
    pub node: NodeId,
    /// The program's version, which servers are told.
    pub version: String,
    /// There is no other process with this role: nobody has to be asked who leads.
    pub alone: bool,
    /// Servers that may be engines are asked for their figures, and whether they live while their circuits are open.
    pub engines: bool,
    /// Where endpoints may lie that were registered at run time.
    pub egress: Egress,
    /// How servers are reached over TLS.
    pub tls: rustls::ClientConfig,
    /// Who tells how hot hosts are.
    pub thermometers: Vec<Thermometer>,
}

/// What the role is given by the node it runs in.
pub struct Ports {
    /// What is configured.
    pub catalog: CatalogView,
    /// The log, from which it is learned how long calls take.
    pub bus: Arc<dyn Bus>,
    /// Where what is found out is shared.
    pub kv: Arc<dyn Kv>,
    /// Takes the events about backends.
    pub spool: Spool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This run of the node.
    pub boot: Arc<str>,
}

/// Looks after health, or stands by, until `shutdown`.
pub async fn run(
    config: Config,
    ports: Ports,
    shutdown: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let client = Client::new(config.egress.clone(), config.tls.clone(), &config.version);
    let rounds = Rounds::new(&config, &ports, client);
    let work = async {
        // Neither ends by itself.
        let look = || async {
            tokio::join!(rounds.run(), learning::run(&ports));
        };
        if config.alone {
            look().await;
        } else {
            lead::run(&ports, &config.node, look).await;
        }
    };
    let _ = shutdown.run_until_cancelled(work).await;
    if !config.alone {
        lead::leave(&ports).await;
    }
    Ok(())
}
