//! The only place that reads a clock. Wall time is for records, monotonic time for durations; the two are
//! never mixed, and nobody compares two machines' clocks.

#![expect(clippy::disallowed_methods, reason = "this module is where clocks are read")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use schemas::time::Timestamp;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Wall time, for records.
    fn now(&self) -> Timestamp;

    /// Milliseconds since some fixed moment of this process, never going back.
    fn monotonic_ms(&self) -> u64;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic side starts at 0 now.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
