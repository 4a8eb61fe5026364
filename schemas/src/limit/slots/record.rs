//! Who holds how many slots of one limit: the record that the fleet shares. It has no times: whoever reads it counts
//! a holder's lease by himself, from first seeing its newest beat.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Holders that a record may have; a longer one is not believed.
pub const HOLDERS_MAX: usize = 1_024;

/// The slots of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// By the boot of the process.
    pub holders: BTreeMap<Arc<str>, Holder>,
}

/// What one process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holder {
    /// How many slots.
    pub count: u64,
    /// Grows with everything that the process writes, and never comes again: a new one renews its lease.
    pub beat: u64,
    /// It has less than its part and was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wants: bool,
}

impl Record {
    /// Reads a record; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        (record.holders.len() <= HOLDERS_MAX).then_some(record)
    }

    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// How many slots are held in all.
    pub fn total(&self) -> u64 {
        let counts = self.holders.values().map(|holder| holder.count);
        counts.fold(0, u64::saturating_add)
    }

    /// What a process holds.
    pub fn holder(&self, boot: &str) -> Holder {
        self.holders.get(boot).copied().unwrap_or_default()
    }
}
