//! The requests that run. A sweep goes through them four times a second: it tells the log of those that are open for
//! more than a second, and ends those whose caller takes nothing. A frame costs a few relaxed atomics here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::task::AtomicWaker;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::connection::Connection;
use crate::state::State;

/// How often the sweep goes.
const SWEEP: Duration = Duration::from_millis(250);
/// Open for longer, a request is told to the log before it settles.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// How often a drain looks whether anything runs.
const IDLE_POLL: Duration = Duration::from_millis(10);

/// One request that runs.
pub(crate) struct Slot {
    /// Its intent.
    pub(crate) accepted: RequestAccepted,
    /// The connection it came on.
    pub(crate) connection: Option<Arc<Connection>>,
    opened: Instant,
    told: AtomicBool,
    /// Milliseconds from `opened` to when a piece was handed to the caller's connection and not yet taken, plus
    /// one; 0 while we wait for the upstream.
    handed_ms: AtomicU64,
    interrupted: AtomicBool,
    waker: AtomicWaker,
}

impl Slot {
    /// A piece was handed over at `now`.
    pub(crate) fn handed(&self, now: Instant) {
        self.handed_ms
            .store(millis(now.duration_since(self.opened)) + 1, Ordering::Relaxed);
    }

    /// The caller took everything; `context` is woken by an interruption. True when there is one already.
    pub(crate) fn waiting(&self, context: &Context<'_>) -> bool {
        self.handed_ms.store(0, Ordering::Relaxed);
        self.waker.register(context.waker());
        self.interrupted()
    }

    /// It is to end now.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    fn stalled(&self, now: Instant, stall_ms: u64) -> bool {
        let handed_ms = self.handed_ms.load(Ordering::Relaxed);
        handed_ms != 0 && millis(now.duration_since(self.opened)).saturating_sub(handed_ms - 1) >= stall_ms
    }
}

/// The requests that run, and how many more may.
pub(crate) struct Open {
    slots: DashMap<RequestId, Arc<Slot>>,
    count: AtomicUsize,
    requests_max: usize,
}

/// A request's place among those in flight, from its first byte to its settlement.
pub(crate) struct Place(Arc<Open>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Open {
    /// Room for `requests_max` requests at once.
    pub(crate) fn new(requests_max: usize) -> Self {
        Self {
            slots: DashMap::new(),
            count: AtomicUsize::new(0),
            requests_max,
        }
    }

    /// A place, `None` when all are taken.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let place = Place(self.clone());
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        (others < self.requests_max).then_some(place)
    }

    /// Requests in flight.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes an admitted request until [`Self::close`].
    pub(crate) fn open(&self, accepted: RequestAccepted, connection: Option<Arc<Connection>>) -> Arc<Slot> {
        let request_id = accepted.request_id;
        let slot = Arc::new(Slot {
            accepted,
            connection,
            opened: Instant::now(),
            told: AtomicBool::new(false),
            handed_ms: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        self.slots.insert(request_id, slot.clone());
        slot
    }

    /// Forgets a settled request.
    pub(crate) fn close(&self, request_id: RequestId) {
        self.slots.remove(&request_id);
    }

    /// Ends every request that runs.
    pub(crate) fn interrupt(&self) {
        for slot in &self.slots {
            slot.interrupt();
        }
    }

    /// Waits until nothing runs, at most `wait`. True when nothing does.
    pub(crate) async fn idle(&self, wait: Duration) -> bool {
        let idle = async {
            while self.count() > 0 {
                sleep(IDLE_POLL).await;
            }
        };
        timeout(wait, idle).await.is_ok()
    }

    /// Those that the log must be told of by now.
    fn untold(&self, now: Instant) -> Vec<Arc<Slot>> {
        let due = |slot: &Arc<Slot>| {
            now.duration_since(slot.opened) > TOLD_AFTER && !slot.told.swap(true, Ordering::Relaxed)
        };
        let slots = self.slots.iter().map(|entry| entry.value().clone());
        slots.filter(due).collect()
    }

    /// The connections of those whose caller takes nothing.
    fn stalled(&self, now: Instant, stall_ms: u64) -> Vec<Arc<Connection>> {
        let stalled = self.slots.iter().filter(|slot| slot.stalled(now, stall_ms));
        stalled.filter_map(|slot| slot.connection.clone()).collect()
    }
}

/// Sweeps until `stop`.
pub(crate) async fn sweep(state: Arc<State>, stop: CancellationToken) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => sweep_once(&state),
            () = stop.cancelled() => return,
        }
    }
}

fn sweep_once(state: &State) {
    let now = Instant::now();
    for slot in state.open.untold(now) {
        let accepted = &slot.accepted;
        let told = state
            .ports
            .spool
            .append(&accepted.payer.tenant, state.ports.clock.now(), accepted);
        if let Err(problem) = told {
            error!(request.id = %accepted.request_id, error = &problem as &dyn std::error::Error, "a long request cannot be told to the log");
        }
    }
    let stall_ms = state.config.client_stall_seconds.saturating_mul(1_000);
    if stall_ms > 0 {
        for connection in state.open.stalled(now, stall_ms) {
            connection.abort();
        }
        state
            .connections
            .abort_stalled(state.ports.clock.monotonic_ms(), stall_ms);
    }
    state.refusals.flush(state);
    write_again(state);
}

/// Writes the waybills that the disk did not take.
pub(crate) fn write_again(state: &State) {
    let spool = &state.ports.spool;
    state.unwritten.write(|settled| {
        spool
            .settle(settled.ended_at, settled)
            .map(|appended| appended.sequence)
    });
}

/// A duration in whole milliseconds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settle::tests::accepted;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_told_once_and_only_after_a_second() {
        let open = Open::new(10);
        open.open(accepted(), None);

        assert_eq!(open.untold(Instant::now()).len(), 0);
        tokio::time::advance(Duration::from_millis(1_001)).await;

        assert_eq!(open.untold(Instant::now()).len(), 1);
        assert_eq!(open.untold(Instant::now()).len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_stalls_only_while_something_is_handed_to_him() {
        let open = Open::new(10);
        let slot = open.open(accepted(), None);
        let context = Context::from_waker(futures_util::task::noop_waker_ref());
        slot.handed(Instant::now());
        tokio::time::advance(Duration::from_mins(1)).await;

        assert!(slot.stalled(Instant::now(), 60_000));
        assert!(!slot.waiting(&context));
        tokio::time::advance(Duration::from_mins(10)).await;

        assert!(!slot.stalled(Instant::now(), 60_000));
    }

    #[tokio::test(start_paused = true)]
    async fn places_run_out_and_come_back() {
        let open = Arc::new(Open::new(1));

        let first = open.enter();
        assert!(first.is_some());
        assert!(open.enter().is_none());
        assert_eq!(open.count(), 1);
        assert!(!open.idle(Duration::from_secs(1)).await);
        drop(first);

        assert!(open.idle(Duration::from_secs(1)).await);
        assert!(open.enter().is_some());
    }
}
