//! Facts about health.

use serde::{Deserialize, Serialize};

use crate::catalog::CredentialRef;
use crate::circuit::CircuitState;
use crate::id::{BackendId, EndpointId, NodeId};
use crate::time::Timestamp;

/// `health.circuit`: the circuit of a backend changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// `health.credential`: an upstream no longer accepts a credential of ours, or accepts it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
