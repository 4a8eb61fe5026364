//! What the node knows of its surroundings: does the bus answer, does the ledger, has it its database? Asked every two
//! seconds, so that health answers at once and a flood of probes asks nobody. The spool is looked at as often.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use schemas::query::LedgerState;
use schemas::subject::QUERY_LEDGER;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::manage;
use crate::state::Shared;

mod fill;

use fill::Fill;

/// How often is asked.
const BEAT: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    bus: AtomicBool,
    database: AtomicBool,
    ledger_lag_events: AtomicU64,
    pub(crate) fill: Fill,
}

impl Pulse {
    /// The bus answers.
    pub(crate) fn bus_connected(&self) -> bool {
        self.bus.load(Ordering::Relaxed)
    }

    /// The ledger answers, and its database answers the ledger.
    pub(crate) fn database_connected(&self) -> bool {
        self.database.load(Ordering::Relaxed)
    }

    /// Events in the log that were not in the books.
    pub(crate) fn ledger_lag_events(&self) -> u64 {
        self.ledger_lag_events.load(Ordering::Relaxed)
    }
}

/// Asks until `stop`.
pub(crate) async fn run(state: Shared, stop: CancellationToken) {
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = beats.tick() => {
                fill::look(&state);
                beat(&state).await;
            }
            () = stop.cancelled() => return,
        }
    }
}

async fn beat(state: &Shared) {
    let log = state.ports.bus.state().await;
    state.pulse.bus.store(log.is_ok(), Ordering::Relaxed);
    let ledger: Result<LedgerState, _> = manage::ask(state, QUERY_LEDGER, &(), ANSWER_WITHIN).await;
    if let (Ok(log), Ok(ledger)) = (&log, &ledger) {
        let lag = log.last.saturating_sub(ledger.cursor);
        state.pulse.ledger_lag_events.store(lag, Ordering::Relaxed);
    }
    let database = ledger.is_ok_and(|ledger| ledger.database_connected);
    state.pulse.database.store(database, Ordering::Relaxed);
}
