//! What bounds requests, kept over all nodes. Admission asks [`Limiter`], which decides on what this node holds and
//! asks the fleet only where that does not do; what a request holds is a `Held`, which its own state machine ends by
//! one of `Held::settle` and `Held::release`.
//!
//! ```text
//!  admit ──► Holdings (pure, one lock) ──► Held ──charge──► waybill in the spool ──settle──► Holdings
//!                  ▲   │ asks                                        │
//!          answers │   ▼                                             └─ trimmed when the records count it
//!              driver ───► Kv (wb_quota, wb_slots), Counters
//! ```
//!
//! A request that nothing bounds costs nothing here. The driver is the one task that talks to the bus: it answers each
//! question of the machines exactly once, follows both buckets, and says up to where the spool may be trimmed.

mod alone;
mod asking;
mod audit;
mod driver;
mod following;
mod held;
mod machine;
mod replay;
mod standing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::clock::Clock;
use bus::counter::Counters;
use bus::registry::Nodes;
use bus::spool::{self, Spool};
use bus::{Bus, Kv};
use chrono_tz::Tz;
use parking_lot::{Mutex, RwLock};
use schemas::limit::Now;
use schemas::limit::holdings::Holdings;
use schemas::limit::holdings::demand::{Demand, Refusal};
use schemas::limit::layers::Bound;
use schemas::limit::planted::Planted;
use schemas::limit::window::Calendar;
use schemas::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::timeout;

pub(crate) use driver::run;
pub(crate) use held::Held;
pub(crate) use standing::{Told, Usage};

use crate::standing::Period;
use machine::{Asked, Machine};

/// What a limiter is told by its node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This run of the node: the name under which it holds slots.
    pub boot: Arc<str>,
    /// How long a request waits for what cannot be decided here.
    pub admit_wait: Duration,
    /// Time zone of billing days and months.
    pub billing_tz: Tz,
    /// Other nodes hold limits in the same buckets.
    pub shared: bool,
    /// What is wrong with them on purpose: nothing, outside of tests.
    pub planted: Planted,
}

/// How a limiter reaches what nodes share.
#[derive(Clone)]
pub struct Ports {
    /// Questions to the ledger.
    pub bus: Arc<dyn Bus>,
    /// The buckets of slots and quotas.
    pub kv: Arc<dyn Kv>,
    /// The counters of rates.
    pub counters: Arc<dyn Counters>,
    /// The nodes of the cluster.
    pub nodes: Nodes,
    /// The node's outbox: what it holds of quotas is counted again after a restart.
    pub spool: Spool,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Why a limiter cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spool cannot be read.
    #[error("the spool cannot be read")]
    Spool(#[from] spool::Error),
    /// The bus does not do what is asked.
    #[error("the records of limits cannot be read or written")]
    Bus(#[from] bus::BusError),
}

/// Admits requests by all their limits or by none; cheap to clone.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    settings: Settings,
    ports: Ports,
    machine: Mutex<Machine>,
    /// Something is to be asked at once.
    wake: Notify,
    /// Something was answered.
    learned: Notify,
    period: RwLock<Arc<Period>>,
    /// Nodes that are known to admit requests.
    fleet: AtomicU64,
    figures: standing::Kept,
}

/// What a request needs of its limits.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// All that bounds it, in order (`schemas::limit::layers::Subjects::bounds`); empty for a request that nothing
    /// bounds.
    pub(crate) bounds: Arc<[Bound]>,
    /// Tokens of prompt and answer that it may use at most.
    pub(crate) tokens: u64,
    /// Nano-dollars that it may cost at most.
    pub(crate) nano_usd: u64,
    /// When it arrived: fixes its day and month.
    pub(crate) at: Timestamp,
}

impl Limiter {
    /// A limiter that holds nothing yet, but for what the spool says of the time before: to be made before the spool is
    /// published from, which keeps what the records do not count from being trimmed. On a bus that no other node uses
    /// the slots of the process before are free at once. Fails when spool or bus cannot be read.
    pub async fn open(settings: Settings, ports: Ports) -> Result<Self, Error> {
        ports.spool.keep_after(0);
        if !settings.shared {
            alone::free_slots(&*ports.kv).await?;
        }
        let replay = replay::of(&ports.spool)?;
        let source = ports.spool.id().clone();
        let holdings = Holdings::new(source, settings.boot.clone(), replay, settings.planted);
        let period = Period::at(settings.billing_tz, ports.clock.now());
        Ok(Self(Arc::new(Shared {
            settings,
            ports,
            machine: Mutex::new(Machine::new(holdings)),
            wake: Notify::new(),
            learned: Notify::new(),
            period: RwLock::new(Arc::new(period)),
            fleet: AtomicU64::new(1),
            figures: standing::Kept::default(),
        })))
    }

    /// Admits a request by all its limits or by none. What cannot be decided here is waited for, `admit_wait` at most;
    /// dropping the future gives everything back. A refusal says all that a 429 (or a 503) tells.
    pub(crate) async fn admit(&self, wanted: Wanted) -> Result<Held, Refusal> {
        if wanted.bounds.is_empty() {
            return Ok(Held::nothing());
        }
        let demand = Demand {
            calendar: self.calendar(wanted.at),
            bounds: wanted.bounds,
            tokens: wanted.tokens,
            nano_usd: wanted.nano_usd,
        };
        let mut waiting = match self.ask(demand) {
            Asked::Granted(grant) => return Ok(Held::new(self, grant)),
            Asked::Refused(refusal) => return Err(*refusal),
            Asked::Waiting(waiting) => waiting,
        };
        self.0.wake.notify_one();
        match timeout(self.0.settings.admit_wait, waiting.answer()).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) | Err(_) => waiting.give_up(),
        }
    }

    /// The day and month of an instant, and when they end.
    pub(crate) fn calendar(&self, at: Timestamp) -> Calendar {
        self.period(at).calendar
    }

    /// The same, with how their ends are shown.
    pub(crate) fn period(&self, at: Timestamp) -> Arc<Period> {
        let known = Arc::clone(&self.0.period.read());
        if known.calendar.holds(at) {
            return known;
        }
        let period = Arc::new(Period::at(self.0.settings.billing_tz, at));
        *self.0.period.write() = Arc::clone(&period);
        period
    }

    /// The moment that decisions are made in.
    fn now(&self) -> Now {
        let clock = &self.0.ports.clock;
        Now {
            wall: clock.now(),
            mono_ms: clock.monotonic_ms(),
            nodes: self.0.fleet.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
