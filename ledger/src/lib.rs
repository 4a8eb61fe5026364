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
mod audit;
mod book;
pub mod coverage;
pub mod fold;
mod query;
mod quotas;
mod reaper;
pub mod rebuild;
pub mod record;
pub mod sealing;
mod state;
pub mod store;
pub mod usage;

#[cfg(test)]
mod fixture;

use std::sync::Arc;

use apply::Applier;
use bus::waiting::once_there;
use bus::{Bus, Kv};
use query::Desk;
use quotas::Releaser;
use reaper::Reaper;
use sealing::sealer::Sealer;
use serde::Deserialize;
use state::State;
use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use reaper::Reaping;
pub use sealing::sealer::Sealing;

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
    /// Milliseconds for which the cursor of the ledger that applies may stand still, although the log has more,
    /// before one that stands by takes over.
    pub patience_ms: u64,
    /// Seconds for which a node must have been gone before its open requests may be declared lost.
    pub gone_seconds: u64,
    /// Seconds for which a node must have been gone before what it holds of quotas is free, unless an operator declared
    /// its source gone.
    pub holder_gone_seconds: u64,
    /// Seconds that a request may live at most, by the clocks of the gateways: an hour is the longest a stream may
    /// take. A request is declared lost only after that, unless an operator declared its source gone.
    pub request_seconds_max: u64,
    /// Milliseconds between two looks for open requests of nodes that are gone.
    pub reap_interval_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_events_max: 500,
            gather_ms: 25,
            mark_interval_ms: 500,
            drain_seconds: 5,
            patience_ms: 3_000,
            gone_seconds: 600,
            holder_gone_seconds: 24 * 3_600,
            request_seconds_max: 3_600,
            reap_interval_ms: 5_000,
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
    state: Arc<State>,
    reaping: Option<Reaping>,
    sealing: Option<Sealing>,
}

impl Ports {
    /// Connects a ledger.
    pub fn new(bus: Arc<dyn Bus>, kv: Arc<dyn Kv>, store: Arc<dyn Store>) -> Self {
        Self {
            bus,
            kv,
            store,
            progress: Arc::new(watch::Sender::new(0)),
            state: Arc::default(),
            reaping: None,
            sealing: None,
        }
    }

    /// Has this ledger declare requests lost whose node is gone. Not for a node that is alone: it settles its own
    /// requests when it comes back.
    #[must_use]
    pub fn with_reaping(mut self, reaping: Reaping) -> Self {
        self.reaping = Some(reaping);
        self
    }

    /// Has this ledger seal days.
    #[must_use]
    pub fn with_sealing(mut self, sealing: Sealing) -> Self {
        self.sealing = Some(sealing);
        self
    }

    /// Whether the database answers, as of a second ago; false before the ledger runs.
    pub fn database_connected(&self) -> bool {
        self.state.connected()
    }

    /// True while this ledger applies, false while it stands by.
    pub fn applying(&self) -> bool {
        self.state.applying()
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

/// Waits for a bus that is away, keeps the books until `shutdown`, then applies what is already in the log and returns.
/// While the database is away, events wait in the log and questions are answered with `unavailable`.
pub async fn run(config: Config, ports: Ports, shutdown: CancellationToken) -> Result<(), Error> {
    let open = || Desk::open(&*ports.bus, Arc::clone(&ports.store), Arc::clone(&ports.state));
    let desk = tokio::select! {
        biased;
        desk = once_there("the ledger cannot be asked", open) => desk?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let sealer = Sealer::new(&ports);
    let (reaper, releaser) = (Reaper::new(&config, &ports), Releaser::new(&config, &ports));
    let applier = Applier::new(config, ports);
    // Questions are answered as long as events are applied, and no longer.
    let closing = CancellationToken::new();
    let applying = async {
        let result = applier.run(shutdown).await;
        closing.cancel();
        result
    };
    let reaping = async {
        if let (Some(reaper), Some(releaser)) = (reaper, releaser) {
            let looking = async { tokio::join!(reaper.run(), releaser.run()) };
            closing.run_until_cancelled(looking).await;
        }
    };
    let sealing = async {
        if let Some(sealer) = sealer {
            closing.run_until_cancelled(sealer.run()).await;
        }
    };
    let (result, (), (), ()) = tokio::join!(applying, desk.run(closing.clone()), reaping, sealing);
    result
}
