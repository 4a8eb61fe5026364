//! Two ledgers on one log: the one whose cursor moves applies, the other watches the cursor and reads nothing. It takes
//! over when the cursor has stood still for a while although the log has more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::{Applier, resume_at};
use crate::Error;
use crate::store::{Cursor, StoreError};

/// Looks at the cursor within the patience.
const LOOKS: u32 = 3;
/// A ledger that is overtaken soon after it took over becomes more patient, up to so many times as patient: two that
/// are too slow for their own patience must not take turns.
const PATIENCE_FACTOR_MAX: u32 = 8;
/// Soon, as a multiple of the patience.
const SOON_FACTOR: u32 = 10;
/// How many looks pass until the missing events are counted again.
const LOOKS_PER_COUNT: u32 = 10;

/// How patient a ledger is that stands by.
#[derive(Debug)]
pub(super) struct Patience {
    base: Duration,
    factor: u32,
    /// When it took over from another.
    took_over: Option<Instant>,
}

/// The cursor as it was seen, and since when it could have moved and did not.
#[derive(Debug, Clone, Copy)]
struct Seen {
    cursor: Option<Cursor>,
    since: Instant,
}

impl Patience {
    pub(super) fn new(base: Duration) -> Self {
        Self {
            base,
            factor: 1,
            took_over: None,
        }
    }

    fn now(&self) -> Duration {
        self.base * self.factor
    }

    /// It was overtaken.
    fn overtaken(&mut self, now: Instant) {
        let soon = self.now() * SOON_FACTOR;
        let taken = self.took_over.take();
        self.factor = match taken {
            Some(at) if now.saturating_duration_since(at) < soon => {
                (self.factor * 2).min(PATIENCE_FACTOR_MAX)
            }
            _ => 1,
        };
    }
}

impl Applier {
    /// Returns when this ledger has to apply.
    pub(super) async fn stand_by(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        self.patience.overtaken(now);
        self.standing_by = true;
        self.state.set_applying(false);
        info!(
            cursor = self.reached,
            "another ledger applies this log; this one stands by"
        );
        let mut seen = Seen {
            cursor: self.cursor,
            since: now,
        };
        let pause = self.patience.now() / LOOKS;
        for look in 1_u32.. {
            tokio::time::sleep(pause).await;
            let now = Instant::now();
            seen = self.look_at_the_other(seen, now).await?;
            if now.saturating_duration_since(seen.since) >= self.patience.now() {
                break;
            }
            if look % LOOKS_PER_COUNT == 0
                && let Ok(coverage) = self.ports.store.coverage().await
            {
                self.state.set_missing(coverage.missing());
            }
        }
        info!("the cursor stands still although the log has more: this ledger takes over");
        self.patience.took_over = Some(Instant::now());
        self.standing_by = false;
        Ok(())
    }

    /// Sees how far the other one is.
    async fn look_at_the_other(&self, seen: Seen, now: Instant) -> Result<Seen, Error> {
        let store = Arc::clone(&self.ports.store);
        let cursor = match store.cursor().await {
            Ok(cursor) => cursor,
            Err(problem) => {
                // The other one cannot do better.
                self.note_database(Err(&problem));
                return Ok(Seen { since: now, ..seen });
            }
        };
        self.note_database(Ok(()));
        self.state.set_cursor(cursor.map_or(0, |cursor| cursor.sequence));
        let log = match self.ports.bus.state().await {
            Ok(log) => log,
            Err(bus::BusError::Closed) => return Err(bus::BusError::Closed.into()),
            Err(_) => return Ok(Seen { since: now, ..seen }),
        };
        let (from, _) = resume_at(cursor, log);
        if cursor == seen.cursor && from <= log.last {
            Ok(seen)
        } else {
            Ok(Seen { cursor, since: now })
        }
    }

    /// Notes whether the database answers, and says so when that is news.
    pub(super) fn note_database(&self, answer: Result<(), &StoreError>) {
        let news = self.state.set_connected(answer.is_ok());
        match answer {
            Ok(()) if news => info!("the ledger's database answers again"),
            Err(problem) if news => tracing::error!(
                retryable = problem.retryable(),
                error = problem as &dyn std::error::Error,
                "the ledger's database does not do its work; events wait in the log"
            ),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_is_overtaken_soon_after_it_took_over_becomes_more_patient() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(3 * second);
        patience.overtaken(start);
        assert_eq!(patience.now(), 3 * second, "at the start two ledgers meet once");

        for (took_over, overtaken, expected) in [(0, 10, 6), (100, 150, 12), (200, 210, 24), (300, 310, 24)] {
            patience.took_over = Some(start + took_over * second);
            patience.overtaken(start + overtaken * second);
            assert_eq!(patience.now(), expected * second);
        }
        patience.took_over = Some(start);
        patience.overtaken(start + 1_000 * second);
        assert_eq!(patience.now(), 3 * second);
    }
}
