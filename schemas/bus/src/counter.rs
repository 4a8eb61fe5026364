//! The Counters port: numbers that many nodes add to at once. For rates only: after a failover an addition whose
//! answer was lost may count twice, so nothing that is billed stands on a counter.

use async_trait::async_trait;
use schemas::time::Timestamp;

use crate::BusError;

/// How long a counter lives without additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slice {
    /// Slices of a second: in memory, gone after 30 s.
    Second,
    /// Slices of a minute: on disk, gone after 150 s.
    Minute,
}

/// Numbers that many nodes add to at once.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Adds to the counter `<scope>.<slice>` and returns its value afterwards, in one atomic step. A counter that
    /// does not exist (any more) begins at 0. `name` consists of our own ids, digits, `.`, `-` and `_`.
    async fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError>;

    /// Since when the counters of these slices have forgotten nothing, by the clock of whoever keeps them; `None` while
    /// they never have. Another answer than before, or one within the running slice, says that a counter may tell less
    /// than was added to it.
    async fn since(&self, slice: Slice) -> Result<Option<Timestamp>, BusError>;
}
