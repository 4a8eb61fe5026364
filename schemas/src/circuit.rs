//! The circuit of one backend: three words for its state, what opens and closes it, and what an attempt's
//! ending says about a backend. A circuit opens after failures in a row, counted over the whole fleet, or when
//! a node's moving availability falls below a floor; it stays open for a cooldown, then lets exactly one probe
//! through, in the whole fleet.
//!
//! A success ends a row of failures. It is written only by a node that knows of failures, and then ends the row as the
//! record has it, also failures that this node has not heard of yet; a node that knows of none writes nothing. So
//! failures are in a row although other nodes saw successes between them, if all of them came within the time that
//! news takes to travel: milliseconds, and 250 of them at most. Fewer than the configured number never open a circuit.
//!
//! [`record`] is what the fleet shares, [`view`] how one node sees it and what it writes. Times are
//! milliseconds on the observer's own monotonic clock.

pub mod planted;
pub mod record;
pub mod view;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::BackendId;

/// The key of a backend's record in the bucket of circuits.
pub fn record_key(backend: &BackendId) -> String {
    crate::catalog::hex(backend.as_str().as_bytes())
}

/// What opens and closes a circuit. Defaults are those operators of the field know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// How long it stays open, and how long a probe may take, in milliseconds. 0 never gates.
    pub cooldown_ms: u64,
    /// Availability below which a failure opens it.
    pub availability_min: f64,
    /// Weight of the newest outcome in the moving availability.
    pub alpha: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            failures_max: 3,
            cooldown_ms: 30_000,
            availability_min: 0.7,
            alpha: 0.1,
        }
    }
}

/// What a reader of health sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// Requests pass.
    Closed,
    /// Nothing passes.
    Open,
    /// One probe passes.
    HalfOpen,
}

/// What an attempt's ending says about its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Healthy,
    /// It does not: counts against it.
    Faulty,
    /// Nothing: the caller's own fault, or it was never asked.
    Neutral,
}

/// Classifies a status: 5xx, 408, 429, 401 and 407 speak against the backend, other 4xx against the caller;
/// a failure without a status (connection, cut, idle) speaks against the backend.
pub const fn classify(status: Option<u16>) -> Verdict {
    match status {
        None | Some(401 | 407 | 408 | 429 | 500..) => Verdict::Faulty,
        Some(400..=499) => Verdict::Neutral,
        Some(_) => Verdict::Healthy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_caller_say_nothing_about_the_backend() {
        for status in [400, 402, 403, 404, 413, 422] {
            assert_eq!(classify(Some(status)), Verdict::Neutral, "{status}");
        }
        for status in [401, 407, 408, 429, 500, 502, 529] {
            assert_eq!(classify(Some(status)), Verdict::Faulty, "{status}");
        }
        assert_eq!(classify(None), Verdict::Faulty);
        assert_eq!(classify(Some(200)), Verdict::Healthy);
    }
}
