//! What all requests of a router share.

use std::sync::Arc;

use bus::Kv;
use bus::clock::Clock;
use bus::follow::CatalogView;
use bus::mint::Mint;
use schemas::balance::snapshot::Terms;

use crate::Alert;
use crate::affinity::Affinity;
use crate::circuit::Circuits;
use crate::config::Config;
use crate::credential::Credentials;
use crate::keypool::Pools;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::plan::memory::Memory;
use crate::provider::Targets;
use crate::retry::Budget;
use crate::signs::Signs;
use crate::upstream::Upstream;
use crate::wake::Wakes;

/// The parts of a router.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) catalog: CatalogView,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mint: Arc<Mint>,
    pub(crate) circuits: Circuits,
    pub(crate) affinity: Affinity,
    pub(crate) memory: Memory,
    pub(crate) terms: Terms,
    pub(crate) budget: Budget,
    pub(crate) targets: Targets,
    pub(crate) pools: Pools,
    pub(crate) limiter: Limiter,
    pub(crate) alert: Alert,
    /// What others found out about backends.
    pub(crate) samples: Signs,
    pub(crate) upstream: Upstream,
    pub(crate) wakes: Wakes,
    pub(crate) metrics: Metrics,
    pub(crate) kv: Option<Arc<dyn Kv>>,
    /// Names this run of the router among others, by characters that every bus takes.
    pub(crate) boot: Arc<str>,
}
