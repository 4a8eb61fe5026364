//! Facts about health.

use serde::{Deserialize, Serialize};

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
