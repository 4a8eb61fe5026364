//! The books. The ledger reads the log, folds events into rows, applies them in one transaction with the raw
//! envelopes and its cursor, tells the spools how far they are kept, and answers questions over the bus.
//!
//! ```text
//!  Bus::read ─► record (parse) ─► fold (pure) ─► Store::apply ─► Store::sync ─► marks, progress
//!  Bus::serve ─► query ─► Store::{logs, log, usage}
//! ```
//!
//! Applying an event twice, or in another order, changes nothing.

mod apply;
mod book;
pub mod coverage;
pub mod fold;
mod query;
pub mod rebuild;
pub mod record;
mod state;
pub mod store;
pub mod usage;

#[cfg(test)]
mod fixture;

use std::sync::Arc;

use apply::Applier;
use bus::{Bus, Kv};
use query::Desk;
use serde::Deserialize;
use state::State;
use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// `[ledger]`: how the books are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Most events in one transaction, 1 to [`bus::BATCH_MESSAGES_MAX`].
    pub batch_events_max: usize,
    /// Milliseconds to wait for more events after the first of a batch.
    pub gather_ms: u64,
    /// Milliseconds between two moves of the marks that let spools forget.
    pub mark_interval_ms: u64,
    /// Seconds that a shutdown may spend on events that are already in the log.
    pub drain_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_events_max: 500,
            gather_ms: 25,
            mark_interval_ms: 500,
            drain_seconds: 5,
        }
    }
}

/// What the ledger is connected to.
#[derive(Clone)]
pub struct Ports {
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    store: Arc<dyn Store>,
    progress: Arc<watch::Sender<u64>>,
}

impl Ports {
    /// Connects a ledger.
    pub fn new(bus: Arc<dyn Bus>, kv: Arc<dyn Kv>, store: Arc<dyn Store>) -> Self {
        Self {
            bus,
            kv,
            store,
            progress: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Follows how far the ledger is.
    pub fn progress(&self) -> Progress {
        Progress(self.progress.subscribe())
    }
}

/// The last sequence of the stream that is safely in the books: the log may forget up to it.
#[derive(Debug, Clone)]
pub struct Progress(watch::Receiver<u64>);

impl Progress {
    /// The sequence as it stands; 0 before anything was applied.
    pub fn applied(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits for the next move and returns it; `None` once the ledger is gone.
    pub async fn moved(&mut self) -> Option<u64> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }
}

/// Why the ledger stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bus is closed.
    #[error("the bus failed")]
    Bus(#[from] bus::BusError),
    /// The database cannot be used as it is; events stay in the log.
    #[error("the ledger's database failed")]
    Store(#[from] store::StoreError),
}

/// Keeps the books until `shutdown`, then applies what is already in the log and returns. While the database
/// is away, events wait in the log and questions are answered with `unavailable`.
pub async fn run(config: Config, ports: Ports, shutdown: CancellationToken) -> Result<(), Error> {
    let state = Arc::new(State::default());
    let desk = Desk::open(&*ports.bus, Arc::clone(&ports.store), Arc::clone(&state)).await?;
    let applier = Applier::new(config, ports, state);
    // Questions are answered as long as events are applied, and no longer.
    let closing = CancellationToken::new();
    let applying = async {
        let result = applier.run(shutdown).await;
        closing.cancel();
        result
    };
    let (result, ()) = tokio::join!(applying, desk.run(closing.clone()));
    result
}
