//! Facts about spools.

use serde::{Deserialize, Serialize};

use crate::id::SpoolId;

/// `spool.lost`: a range of sequences that no reader could recover; it fills the hole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
