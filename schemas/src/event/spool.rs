//! Facts about spools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{NodeId, SpoolId};
use crate::time::Timestamp;

/// `spool.lost`: a range of sequences that no reader could recover; it fills the hole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolLost {
    /// The spool.
    pub spool: SpoolId,
    /// First lost sequence.
    pub from: u64,
    /// Last lost sequence.
    pub to: u64,
    /// Why: `checksum`, `missing_segment`, `missing_end`.
    pub cause: String,
}

/// `spool.filled`: a spool has become nearly full, or is no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolFilled {
    /// The spool.
    pub spool: SpoolId,
    /// Whether it is nearly full now.
    pub nearly_full: bool,
    /// Bytes of its records and of the room that running requests hold.
    pub bytes: u64,
    /// From how many on billable requests are refused.
    pub bytes_max: u64,
    /// When.
    pub at: Timestamp,
    /// The node that writes it.
    pub node: NodeId,
}
