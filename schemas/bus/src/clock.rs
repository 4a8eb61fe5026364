//! The only place that reads a clock. Wall time is for records, monotonic time for durations; the two are
//! never mixed, and nobody compares two machines' clocks.

#![expect(clippy::disallowed_methods, reason = "this module is where clocks are read")]

#[cfg(debug_assertions)]
use std::time::Duration;
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
    #[cfg(debug_assertions)]
    ahead: Duration,
}

impl SystemClock {
    /// A clock whose monotonic side starts at 0 now.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            #[cfg(debug_assertions)]
            ahead: Duration::ZERO,
        }
    }

    /// The same with wall time so far ahead of the machine's, for tests of what only hours bring. Without debug
    /// assertions, as in every release, there is no such clock.
    #[cfg(debug_assertions)]
    pub fn ahead(ahead: Duration) -> Self {
        Self { ahead, ..Self::new() }
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
        #[cfg(debug_assertions)]
        let since = since.saturating_add(self.ahead);
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
