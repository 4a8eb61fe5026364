//! How limits stand, for those who ask: balances, keys and sums of usage, headers, and the node's own figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use schemas::limit::layers::{Bound, Name};
use schemas::limit::limits::Kind;
use schemas::limit::quota::record::Record;
use schemas::subject::QUOTA_BUCKET;
use schemas::time::Timestamp;
use tokio::time::timeout;

use super::Limiter;

/// Records that are read at once for one question.
const READS_MAX: usize = 32;
/// How long one reading may take.
const READ_WAIT: Duration = Duration::from_secs(1);
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
    /// When it is whole again; `None` for a concurrency, and for what never is.
    pub(crate) resets_at: Option<Timestamp>,
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
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            fresh_ms: [AtomicU64::new(NEVER), AtomicU64::new(NEVER)],
            difference: AtomicU64::new(0),
        }
    }
}

impl Kept {
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
    /// How much of each limit is used, in the period of now; asks nothing of the limits themselves.
    pub(crate) async fn usage_of(&self, bounds: &[Bound]) -> Vec<Usage> {
        let usages: Vec<_> = bounds.iter().map(|bound| self.usage(bound)).collect();
        stream::iter(usages).buffered(READS_MAX).collect().await
    }

    async fn usage(&self, bound: &Bound) -> Usage {
        let now = self.now();
        let calendar = self.calendar(now.wall);
        let (used, resets_at) = match bound.key.kind() {
            Kind::Quota(span, _) => {
                let name = bound.name.of(calendar.period(span));
                (self.spent(&name).await, calendar.resets_at(span))
            }
            Kind::Rate(slice, _) => {
                let flow = self.0.machine.lock().holdings.flow(&bound.name, now);
                let micros = slice.micros();
                let rest = micros - now.wall.micros().rem_euclid(micros);
                (
                    Some(flow.map_or(0, |standing| standing.current)),
                    Some(now.wall.plus_micros(rest)),
                )
            }
            Kind::Concurrency => {
                let flow = self.0.machine.lock().holdings.flow(&bound.name, now);
                (Some(flow.map_or(0, |standing| standing.current)), None)
            }
        };
        Usage {
            bound: bound.clone(),
            used,
            resets_at,
        }
    }

    /// What of a quota is spent, as this node knows it or as its record says.
    async fn spent(&self, name: &Name) -> Option<u64> {
        let wide = |spent: u128| u64::try_from(spent).unwrap_or(u64::MAX);
        let read = timeout(READ_WAIT, self.0.ports.kv.get(QUOTA_BUCKET, name.as_str())).await;
        let known = self.0.machine.lock().holdings.spent_by(name);
        let record = match read {
            Ok(Ok(Some(entry))) => Some(entry.value.as_deref().and_then(Record::decode)?),
            Ok(Ok(None)) => Some(Record::default()),
            Ok(Err(_)) | Err(_) => None,
        };
        match (record, known) {
            (Some(record), Some(own)) => Some(wide(own.with(&record))),
            (Some(record), None) => Some(wide(record.spent())),
            (None, Some(own)) => Some(wide(own.alone())),
            (None, None) => None,
        }
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
