//! Where a session is: the backend, since when, and when that was last written. A record is written again only when a
//! sixth of its life is over, which is 5 of 30 minutes, so that a busy session costs a write now and then.

use serde::{Deserialize, Serialize};

use super::{Level, Policy};
use crate::id::{BackendId, EndpointId};
use crate::time::Timestamp;

/// Parts of its life after the first of which a record is written again.
const LIFE_PARTS: u64 = 6;

/// The record of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The backend of it.
    pub backend: BackendId,
    /// Since when the session is there, by the clock of the node that put it there.
    pub created_at: Timestamp,
    /// When it was last written, by the clock of the node that did.
    pub written_at: Timestamp,
}

impl Record {
    /// A session that came to a backend just now.
    pub const fn new(endpoint_id: EndpointId, backend: BackendId, now: Timestamp) -> Self {
        Self {
            endpoint_id,
            backend,
            created_at: now,
            written_at: now,
        }
    }

    /// Reads a record; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// True while it counts.
    pub fn is_alive(&self, level: Level, policy: &Policy, now: Timestamp) -> bool {
        let idle_ms = now.millis_since(self.written_at);
        let age_ms = now.millis_since(self.created_at);
        idle_ms < policy.life_ms(level) && (policy.age_ms_max == 0 || age_ms < policy.age_ms_max)
    }

    /// True when it is to be written again so that it does not age out under a session that goes on; also when its
    /// writer's clock was so far ahead that it would seem fresh for too long.
    pub fn is_due(&self, level: Level, policy: &Policy, now: Timestamp) -> bool {
        let part_ms = policy.life_ms(level) / LIFE_PARTS;
        now.millis_since(self.written_at) >= part_ms || self.written_at.millis_since(now) >= part_ms
    }

    /// The same, written now.
    #[must_use]
    pub fn rewritten(&self, now: Timestamp) -> Self {
        Self {
            created_at: self.created_at.min(now),
            written_at: now,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests;
