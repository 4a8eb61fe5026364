//! Facts about health.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::CredentialRef;
use crate::circuit::CircuitState;
use crate::id::{BackendId, EndpointId, NodeId};
use crate::time::Timestamp;
use crate::wake::record::Outcome;

/// `health.circuit`: the circuit of a backend changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CircuitChanged {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The backend.
    pub backend: BackendId,
    /// The state before.
    pub from: CircuitState,
    /// The state after.
    pub to: CircuitState,
    /// Failures in a row at that moment.
    pub consecutive_failures: u32,
    /// The last status seen, `None` for failures without one.
    pub last_error_status: Option<u16>,
    /// When.
    pub at: Timestamp,
    /// The node that saw it.
    pub node: NodeId,
}

/// `health.endpoint`: a backend whose health is asked for failed too often and is left out, or is back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointChanged {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The backend.
    pub backend: BackendId,
    /// Whether it is asked again.
    pub healthy: bool,
    /// What told it.
    pub cause: Cause,
    /// Probes that failed in a row; 0 for one that is back.
    pub failures: u32,
    /// When.
    pub at: Timestamp,
    /// The node that changed it.
    pub node: NodeId,
}

/// What tells of a backend's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A probe.
    Probe,
    /// A call that succeeded.
    Call,
    /// Nobody asks for its health any more.
    Unasked,
}

/// `health.credential`: an upstream no longer accepts a credential of ours, or accepts it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialChanged {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The credential by its name in the routers' books.
    pub credential: CredentialRef,
    /// Whether it is accepted now.
    pub accepted: bool,
    /// The status that it was refused with, `None` once it is accepted again.
    pub status: Option<u16>,
    /// When.
    pub at: Timestamp,
    /// The node that saw it.
    pub node: NodeId,
}

/// `health.wake`: somebody woke a service that slept, or tried to. Told by the one node that did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeEnded {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The backend that slept.
    pub backend: BackendId,
    /// How it is woken: `http`, `vllm_sleep` or `exec`.
    pub kind: std::sync::Arc<str>,
    /// How it went.
    pub outcome: Outcome,
    /// Milliseconds from the first step to the outcome.
    pub took_ms: u64,
    /// When it ended.
    pub at: Timestamp,
    /// The node that did it.
    pub node: NodeId,
}
