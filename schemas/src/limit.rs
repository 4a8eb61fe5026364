//! What a caller may use, over any number of nodes. A **limit** bounds a rate, a concurrency or a quota of a tenant, a
//! user or a key; all that bound a request are its **layers**, and it is admitted by all of them or by none.
//!
//! [`limits`] are what operators write, [`layers`] what of it bounds one request and under which names it is counted,
//! [`window`] the days and months of the bill. [`rate`], [`slots`] and [`quota`] are the three kinds: each is what the
//! fleet shares (a counter or a record) and one node's side of it, which says what to ask for and never waits.
//! [`holdings`] is all of it for one node: it admits, and it gives back. Nothing here reads a clock or does I/O.
//!
//! A node never trusts a write before it is confirmed: what it may use is the least of what the record says now and
//! of what it may say once a write whose answer is missing has been applied.

pub mod holdings;
pub mod layers;
pub mod limits;
pub mod planted;
pub mod quota;
pub mod rate;
pub mod shared;
pub mod slots;
pub mod window;
mod wishes;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Room in the spool that each admitted request holds until it settles, in bytes.
pub const SPOOL_RESERVATION_BYTES: u64 = 8 * 1024;

/// What one request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Reservation {
    /// Room in the spool, in bytes.
    pub spool_bytes: u64,
}

/// What a decision has to know of the moment it is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The node's wall clock: says which second, minute, day and month it is.
    pub wall: Timestamp,
    /// The node's monotonic clock, in milliseconds: everything that lasts is measured on it.
    pub mono_ms: u64,
    /// Nodes that are known to admit requests, this one included; 0 counts as 1.
    pub nodes: u64,
}

impl Now {
    /// The number of nodes, at least 1.
    pub(crate) fn fleet(self) -> u64 {
        self.nodes.max(1)
    }

    /// Milliseconds since an earlier moment of the monotonic clock.
    pub(crate) const fn since(self, earlier_ms: u64) -> u64 {
        self.mono_ms.saturating_sub(earlier_ms)
    }
}

/// What a wish for a part of a limit is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// It is had.
    Granted,
    /// The fleet has to be asked: ask again, under the same number, once something was answered.
    Waiting,
    /// It cannot be had.
    Refused(Shortage),
}

/// Why something cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The limit is reached.
    Used,
    /// The fleet cannot be asked, and what is in hand does not do.
    Away,
    /// Too many wait already.
    Crowded,
}

/// How a limit stands, as far as one node can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The limit.
    pub limit: u64,
    /// What of it is taken.
    pub current: u64,
    /// What of it is left.
    pub remaining: u64,
}

impl Standing {
    /// A limit of which `remaining` is left.
    pub(crate) fn left(limit: u64, remaining: u64) -> Self {
        let remaining = remaining.min(limit);
        Self {
            limit,
            current: limit - remaining,
            remaining,
        }
    }
}
