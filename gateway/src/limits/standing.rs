//! How limits stand, for those who ask: balances, keys and sums of usage, headers, and the node's own figures.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use schemas::id::SpoolId;
use schemas::limit::layers::{Bound, Name};
use schemas::limit::limits::Kind;
use schemas::limit::quota::record::Record;
use schemas::limit::quota::{Spent, spent_by_all};
use schemas::subject::QUOTA_BUCKET;
use schemas::time::Timestamp;
use tokio::time::timeout;

use super::Limiter;

/// Records that are read at once for one question.
const READS_MAX: usize = 32;
/// How long one reading may take.
const READ_WAIT: Duration = Duration::from_secs(1);
/// Quotas of which is remembered what was told last.
const KNOWN_MAX: usize = 10_000;
/// An age that was never told.
const NEVER: u64 = u64::MAX;

/// How much of one limit is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The limit.
    pub(crate) bound: Bound,
    /// What of it is used now, in its unit: settled in the running period for quotas, taken for rates and concurrency.
    /// It may be more than the limit, if that was lowered. `None` while the fleet does not answer.
    pub(crate) used: Option<u64>,
    /// False where the fleet could not be asked for all of it: `used` is what was known last.
    pub(crate) is_current: bool,
    /// When it is whole again; `None` for a concurrency, and for what never is.
    pub(crate) resets_at: Option<Timestamp>,
}

/// What other nodes say that they settled of quotas.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// By quota, each node once.
    pub(crate) quotas: HashMap<Name, Vec<Spent>>,
    /// The nodes that were heard, by their sources: of all that they settled.
    pub(crate) heard: HashSet<SpoolId>,
}

/// Figures of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Figures {
    /// Limits of which this node holds a part: slots in use or in hand, quotas taken and not spent.
    pub(crate) leases_held: u64,
    /// Requests that were admitted under a limit and have not ended.
    pub(crate) reservations_open: u64,
    /// By how much the counters of quotas and the books were found to differ, over all quotas, since the start.
    pub(crate) counter_ledger_difference: u64,
    /// For how long what is known of the buckets of quotas and slots may be outdated, in milliseconds; 0 where the
    /// buckets are in this process.
    pub(crate) watch_ages_ms: [u64; 2],
}

/// What is kept for the figures.
pub(super) struct Kept {
    /// When what was written here last came back through the watch of quotas and of slots, on the monotonic clock.
    fresh_ms: [AtomicU64; 2],
    difference: AtomicU64,
    /// What was last told of quotas that somebody asked about, for when the fleet does not answer.
    spent: Mutex<HashMap<Name, u64>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            fresh_ms: [AtomicU64::new(NEVER), AtomicU64::new(NEVER)],
            difference: AtomicU64::new(0),
            spent: Mutex::default(),
        }
    }
}

impl Kept {
    /// What is spent of a quota is known now.
    fn know(&self, name: &Name, spent: u64) {
        let mut known = self.spent.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(name.clone(), spent);
    }

    /// What was known last.
    fn known(&self, name: &Name) -> Option<u64> {
        self.spent.lock().get(name).copied()
    }

    /// The counters and the books differ by so much more.
    pub(super) fn differ(&self, by: u64) {
        self.difference.fetch_add(by, Ordering::Relaxed);
    }

    /// The watch of this bucket (0 quotas, 1 slots) was current at this time.
    pub(super) fn fresh(&self, bucket: usize, mono_ms: u64) {
        if let Some(fresh) = self.fresh_ms.get(bucket) {
            let known = fresh.load(Ordering::Relaxed);
            if known == NEVER || known < mono_ms {
                fresh.store(mono_ms, Ordering::Relaxed);
            }
        }
    }
}

impl Limiter {
    /// How much of each limit is used, in the period of now, by what the records and other nodes say; asks nothing of
    /// the limits themselves.
    pub(crate) async fn usage_of(&self, bounds: &[Bound], told: &Told) -> Vec<Usage> {
        let usages: Vec<_> = bounds.iter().map(|bound| self.usage(bound, told)).collect();
        stream::iter(usages).buffered(READS_MAX).collect().await
    }

    /// The quotas among some limits, by the names of their running periods.
    pub(crate) fn running(&self, bounds: &[Bound]) -> Vec<Name> {
        let calendar = self.calendar(self.now().wall);
        let name = |bound: &Bound| match bound.key.kind() {
            Kind::Quota(span, _) => Some(bound.name.of(calendar.period(span))),
            Kind::Rate(..) | Kind::Concurrency => None,
        };
        bounds.iter().filter_map(name).collect()
    }

    /// What this node settled of quotas, those of which it holds something.
    pub(crate) fn settled(&self, names: &[Name]) -> BTreeMap<Name, Spent> {
        let machine = self.0.machine.lock();
        let settled = |name: &Name| Some((name.clone(), machine.holdings.spent_by(name)?));
        names.iter().filter_map(settled).collect()
    }

    async fn usage(&self, bound: &Bound, told: &Told) -> Usage {
        let now = self.now();
        let calendar = self.calendar(now.wall);
        let flow = || {
            let standing = self.0.machine.lock().holdings.flow(&bound.name, now);
            (Some(standing.map_or(0, |standing| standing.current)), true)
        };
        let ((used, is_current), resets_at) = match bound.key.kind() {
            Kind::Quota(span, _) => {
                let name = bound.name.of(calendar.period(span));
                (self.spent(&name, told).await, calendar.resets_at(span))
            }
            Kind::Rate(slice, _) => {
                let micros = slice.micros();
                let rest = micros - now.wall.micros().rem_euclid(micros);
                (flow(), Some(now.wall.plus_micros(rest)))
            }
            Kind::Concurrency => (flow(), None),
        };
        Usage {
            bound: bound.clone(),
            used,
            is_current,
            resets_at,
        }
    }

    /// What of a quota is spent, and whether that is all that there is to know: by its record, by this node and by the
    /// others; without a record what was known last. A node that was not heard leaves a doubt only where it has
    /// something in hand.
    async fn spent(&self, name: &Name, told: &Told) -> (Option<u64>, bool) {
        let wide = |spent: u128| u64::try_from(spent).unwrap_or(u64::MAX);
        let read = timeout(READ_WAIT, self.0.ports.kv.get(QUOTA_BUCKET, name.as_str())).await;
        let own = self.0.machine.lock().holdings.spent_by(name);
        let record = match read {
            Ok(Ok(Some(entry))) => entry.value.as_deref().and_then(Record::decode),
            Ok(Ok(None)) => Some(Record::default()),
            Ok(Err(_)) | Err(_) => None,
        };
        let Some(record) = record else {
            let own = own.map(|own| wide(own.alone()));
            return (own.max(self.0.figures.known(name)), false);
        };
        let others = told.quotas.get(name).into_iter().flatten();
        let spent = wide(spent_by_all(&record, own.iter().chain(others)));
        self.0.figures.know(name, spent);
        let source = self.0.ports.spool.id();
        let is_whole = record.untold().all(|of| of == source || told.heard.contains(of));
        (Some(spent), is_whole)
    }

    /// Figures of this node.
    pub(crate) fn figures(&self) -> Figures {
        let now = self.now();
        let machine = self.0.machine.lock();
        let quotas = machine.holdings.held().filter(|(_, held)| *held > 0).count();
        let slots = machine
            .holdings
            .slots_held()
            .filter(|(_, held)| *held > 0)
            .count();
        let open = machine.holdings.open();
        drop(machine);
        let age = |fresh: &AtomicU64| match fresh.load(Ordering::Relaxed) {
            NEVER => 0,
            fresh_ms if self.0.settings.shared => now.mono_ms.saturating_sub(fresh_ms),
            _ => 0,
        };
        let [of_quotas, of_slots] = &self.0.figures.fresh_ms;
        Figures {
            leases_held: wide(quotas + slots),
            reservations_open: wide(open),
            counter_ledger_difference: self.0.figures.difference.load(Ordering::Relaxed),
            watch_ages_ms: [age(of_quotas), age(of_slots)],
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
