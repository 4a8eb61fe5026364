//! What a node says of itself in bucket `wb_node`: written at its start and each [`BEAT_SECONDS`] from then on,
//! deleted when it ends in order. Nobody compares two machines' clocks: a node counts as gone when an observer has
//! seen no new revision of its record for [`SILENCE_SECONDS_MAX`] on the observer's own clock.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configuration::Told;
use crate::id::{NodeId, PoolName, SpoolId};
use crate::time::Timestamp;

/// Seconds between two beats.
pub const BEAT_SECONDS: u64 = 2;
/// Seconds without a beat after which a node counts as gone.
pub const SILENCE_SECONDS_MAX: u64 = 10;

/// What a process can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Takes callers' requests.
    Gateway,
    /// Runs them.
    Router,
    /// Watches upstreams.
    Health,
    /// Keeps the books.
    Ledger,
}

impl NodeRole {
    /// Every role, in the order they are named.
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Router, Self::Health, Self::Ledger];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Router => "router",
            Self::Health => "health",
            Self::Ledger => "ledger",
        }
    }
}

/// A node, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name.
    pub node: NodeId,
    /// This run of it.
    pub boot: Arc<str>,
    /// The spool that its events come from.
    pub spool: SpoolId,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// The pool of its router.
    pub pool: PoolName,
    /// Its program's version.
    pub version: Arc<str>,
    /// Where its gateway listens.
    pub address: Option<SocketAddr>,
    /// When it was started.
    pub started_at: Timestamp,
    /// Its view of the catalogue.
    pub catalog_revision: u64,
    /// What it says of its configuration; `None` of a version that does not say.
    #[serde(default)]
    pub configuration: Option<Told>,
    /// Whether its ledger's database answers; `None` without that role.
    pub database_connected: Option<bool>,
}
