//! `GET /api/v1/nodes`: who is there, as this node knows it. For operators.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use schemas::configuration::Told;
use schemas::id::{NodeId, PoolName};
use schemas::node::{NodeRecord, NodeRole, SILENCE_SECONDS_MAX};
use schemas::time::Timestamp;
use serde::Serialize;

use super::openapi::Operation;
use super::{json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// The nodes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Nodes")]
pub(crate) struct Nodes {
    /// Those that are there and those that were a day ago, by name.
    data: Vec<Shown>,
}

/// A node, as it tells of itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct Shown {
    /// Its name.
    node: NodeId,
    /// What it does: `gateway`, `router`, `health`, `ledger`.
    roles: Vec<&'static str>,
    /// The pool of its router.
    pool: PoolName,
    /// Its program's version.
    version: Arc<str>,
    /// Where its gateway listens.
    #[schemars(with = "Option<String>")]
    address: Option<SocketAddr>,
    /// When it was started.
    started_at: Timestamp,
    /// The revision of the catalogue that it works with.
    catalog_revision: u64,
    /// What it says of its configuration files; null of a version that does not say.
    configuration: Option<Told>,
    /// Whether its ledger's database answers; null without that role.
    database_connected: Option<bool>,
    /// Seconds since it was heard last.
    silent_seconds: u64,
    /// False once it counts as gone.
    is_live: bool,
}

/// What the path does.
pub(crate) const LIST: Operation =
    Operation::read::<Nodes>("Lists the nodes, with the revisions that they work with").of_operators();

/// The nodes of the cluster.
pub(crate) async fn list(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse(&failure);
    }
    let nodes = state.ports.nodes.all().into_iter();
    let mut data: Vec<Shown> = nodes
        .map(|(record, silent_ms)| shown(record, silent_ms))
        .collect();
    data.sort_by(|one, other| {
        one.node
            .cmp(&other.node)
            .then(one.started_at.cmp(&other.started_at))
    });
    json(&Nodes { data })
}

fn shown(record: NodeRecord, silent_ms: u64) -> Shown {
    Shown {
        node: record.node,
        roles: record.roles.into_iter().map(NodeRole::word).collect(),
        pool: record.pool,
        version: record.version,
        address: record.address,
        started_at: record.started_at,
        catalog_revision: record.catalog_revision,
        configuration: record.configuration,
        database_connected: record.database_connected,
        silent_seconds: silent_ms / 1_000,
        is_live: silent_ms <= SILENCE_SECONDS_MAX * 1_000,
    }
}
