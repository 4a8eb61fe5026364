//! The one task that carries the questions of the machines to the bus, and what goes with it: the clock, whether the
//! bus is away, whether counters have forgotten something, who else admits requests, and what may leave the spool.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use schemas::limit::Now;
use schemas::limit::holdings::steps::{Answer, Ask};
use schemas::limit::layers::Name;
use schemas::limit::limits::Slice;
use schemas::node::NodeRole;
use schemas::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::asking::{self, Answered};
use super::following::{self, Bucket};
use super::{Limiter, audit};

/// How often the machines look at what only time changes.
const TICK: Duration = Duration::from_millis(50);
/// How often the spool is told what may go, and the nodes are counted.
const CHORES: Duration = Duration::from_secs(1);
/// How often the counters are looked at, and how often while the bus is away.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_AWAY: Duration = Duration::from_millis(250);
/// How long a look may take.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// A bus that answers nothing for so long is away, in milliseconds.
const AWAY_MS: u64 = 1_000;
/// What the leader says is taken for a bucket that was made anew, when it is older than what is known for so long, in
/// milliseconds: longer than any election.
const ANEW_MS: u64 = 10_000;
/// How long giving back may take at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Drives a limiter until `stop`, then gives back what it holds.
pub(crate) async fn run(limiter: Limiter, stop: CancellationToken) {
    let driver = Driver::new(&limiter);
    let mut flights = FuturesUnordered::new();
    tokio::select! {
        () = stop.cancelled() => {}
        () = driver.drive(&mut flights) => {}
        () = driver.look() => {}
        () = following::follow(&limiter, Bucket::Quotas) => {}
        () = following::follow(&limiter, Bucket::Slots) => {}
        () = following::beat(&limiter) => {}
        () = audit::run(&limiter) => {}
    }
    // What cannot be given back in time is held until its lease ends, or until the next start.
    let _ = timeout(FAREWELL, driver.farewell(flights)).await;
}

impl Limiter {
    /// Has the records count what the spool of a process that ended holds of quotas, and gives back what else it held;
    /// true once they do. For a limiter that admits nothing.
    pub async fn tell(&self, within: Duration) -> bool {
        let driver = Driver::new(self);
        timeout(within, driver.farewell(Flights::new())).await.is_ok()
            && self.0.machine.lock().holdings.told_up_to().is_none()
    }
}

/// Questions under way.
type Flights<'a> = FuturesUnordered<BoxFuture<'a, Answered>>;

struct Driver<'a> {
    limiter: &'a Limiter,
    link: Mutex<Link>,
    /// The counters were looked at: until then nothing is added to them.
    has_looked: AtomicBool,
    looked: Notify,
}

/// What is known of the bus.
#[derive(Debug, Default)]
struct Link {
    /// Since when nothing was answered.
    silent_since: Option<Now>,
    is_cut: bool,
    /// Since when the counters of each slice count, by the last look.
    since: HashMap<Slice, Option<Timestamp>>,
    /// Records of which the leader says less than is known, and since when.
    older: HashMap<Name, u64>,
}

impl<'l> Driver<'l> {
    fn new(limiter: &'l Limiter) -> Self {
        Self {
            limiter,
            link: Mutex::new(Link::default()),
            has_looked: AtomicBool::new(false),
            looked: Notify::new(),
        }
    }

    /// Asks, and learns what is answered. Never returns.
    async fn drive<'a>(&'a self, flights: &mut Flights<'a>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut chores = interval(CHORES);
        chores.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(answered) = flights.next() => {
                    let more = std::iter::from_fn(|| flights.next().now_or_never().flatten());
                    let answers = std::iter::once(answered).chain(more).collect();
                    self.learn(answers);
                }
                () = self.limiter.0.wake.notified() => {}
                _ = ticks.tick() => self.tick(),
                _ = chores.tick() => self.chores(),
            }
            for ask in self.asks() {
                flights.push(self.ask(ask).boxed());
            }
        }
    }

    /// Lets go on whoever can, and says what is to be asked.
    fn asks(&self) -> Vec<Ask> {
        let now = self.limiter.now();
        let mut machine = self.limiter.0.machine.lock();
        machine.resume(now);
        machine.holdings.steps(now)
    }

    async fn ask(&self, ask: Ask) -> Answered {
        if matches!(ask, Ask::Add(..)) {
            self.after_a_look().await;
        }
        asking::ask(&self.limiter.0.ports, ask).await
    }

    fn tick(&self) {
        let now = self.limiter.now();
        self.limiter.0.machine.lock().holdings.tick(now);
    }

    fn learn(&self, answers: Vec<Answered>) {
        let now = self.limiter.now();
        for answered in &answers {
            self.heard(answered.is_heard, now);
        }
        let mut machine = self.limiter.0.machine.lock();
        for Answered { answer, is_read, .. } in answers {
            let known = machine.holdings.revision(answer.name());
            if is_read && self.is_anew(&answer, known, now) {
                warn!(
                    record.name = answer.name().as_str(),
                    "a record of a limit is older than it was: its bucket was made anew"
                );
                machine.holdings.answer_anew(answer, now);
            } else {
                machine.holdings.answer(answer, now);
            }
        }
        drop(machine);
        self.limiter.0.learned.notify_waiters();
    }

    /// Whether the leader has said for a while that a record is older than what is known of it.
    fn is_anew(&self, answer: &Answer, known: Option<u64>, now: Now) -> bool {
        let found = match answer {
            Answer::SlotsAre(_, found) => found.as_ref().map(|(revision, _)| *revision),
            Answer::QuotaIs(_, found) => found.as_ref().map(|(revision, _)| *revision),
            _ => return false,
        };
        let mut link = self.link.lock();
        if found >= known {
            link.older.remove(answer.name());
            return false;
        }
        let since_ms = *link.older.entry(answer.name().clone()).or_insert(now.mono_ms);
        let is_anew = now.mono_ms.saturating_sub(since_ms) >= ANEW_MS;
        if is_anew {
            link.older.remove(answer.name());
        }
        is_anew
    }

    /// Notes whether the bus answered.
    fn heard(&self, is_heard: bool, now: Now) {
        let mut link = self.link.lock();
        if is_heard {
            // While the node is cut off, only a look at the counters ends that.
            if !link.is_cut {
                link.silent_since = None;
            }
            return;
        }
        let since = *link.silent_since.get_or_insert(now);
        if link.is_cut || now.mono_ms.saturating_sub(since.mono_ms) < AWAY_MS {
            return;
        }
        link.is_cut = true;
        drop(link);
        warn!("the bus is away: limits are kept by what this node holds");
        self.limiter.0.machine.lock().holdings.cut(since);
    }

    /// Looks at the counters: whether the bus is there, and whether they have forgotten something. Never returns.
    async fn look(&self) {
        loop {
            let looked = timeout(LOOK_WAIT, self.since()).await;
            let now = self.limiter.now();
            match looked {
                Ok(Ok(since)) => self.looked(&since, now),
                Ok(Err(_)) | Err(_) => self.heard(false, now),
            }
            let is_silent = self.link.lock().silent_since.is_some();
            sleep(if is_silent { LOOK_AWAY } else { LOOK }).await;
        }
    }

    async fn since(&self) -> Result<[(Slice, Option<Timestamp>); 2], bus::BusError> {
        let counters = &self.limiter.0.ports.counters;
        let second = counters.since(asking::slice(Slice::Second)).await?;
        let minute = counters.since(asking::slice(Slice::Minute)).await?;
        Ok([(Slice::Second, second), (Slice::Minute, minute)])
    }

    fn looked(&self, since: &[(Slice, Option<Timestamp>)], now: Now) {
        let mut link = self.link.lock();
        let mut anew = Vec::new();
        for (slice, since) in since {
            let has_forgotten = match link.since.insert(*slice, *since) {
                Some(before) => before != *since,
                None => is_young(*since, *slice, now),
            };
            if has_forgotten {
                anew.push(*slice);
            }
        }
        let was_cut = std::mem::take(&mut link.is_cut);
        link.silent_since = None;
        drop(link);
        if was_cut {
            info!("the bus is back: limits are kept with the other nodes");
        }
        if was_cut || !anew.is_empty() {
            self.limiter.0.machine.lock().holdings.restore(&anew, now);
            self.limiter.0.wake.notify_one();
        }
        self.has_looked.store(true, Ordering::Release);
        self.looked.notify_waiters();
    }

    /// Returns once the counters were looked at.
    async fn after_a_look(&self) {
        loop {
            let looked = self.looked.notified();
            if self.has_looked.load(Ordering::Acquire) {
                return;
            }
            looked.await;
        }
    }

    /// Counts the nodes, and says what may leave the spool.
    fn chores(&self) {
        let shared = &self.limiter.0;
        // While the bus is away all others are silent, and still there.
        if self.link.lock().silent_since.is_none() {
            let live = shared.ports.nodes.live();
            let gateways = live.iter().filter(|node| node.roles.contains(&NodeRole::Gateway));
            let gateways = u64::try_from(gateways.count()).unwrap_or(u64::MAX);
            shared.fleet.store(gateways.max(1), Ordering::Relaxed);
        }
        self.trim();
    }

    fn trim(&self) {
        let spool = &self.limiter.0.ports.spool;
        // What is appended from here on may not be settled when the machines are asked.
        let appended = spool.appended();
        let told = self.limiter.0.machine.lock().holdings.told_up_to();
        spool.keep_after(told.unwrap_or(appended));
    }

    /// Gives back what is held, so that others need not wait for it.
    async fn farewell<'a>(&'a self, mut flights: Flights<'a>) {
        self.limiter.0.machine.lock().holdings.retire();
        loop {
            self.tick();
            for ask in self.asks() {
                flights.push(self.ask(ask).boxed());
            }
            match flights.next().await {
                Some(answered) => self.learn(vec![answered]),
                None => break,
            }
        }
        self.trim();
    }
}

/// Whether counters of which nothing was known before may tell less than was added to them: they began in the running
/// slice, or just before it.
fn is_young(since: Option<Timestamp>, slice: Slice, now: Now) -> bool {
    since.is_some_and(|since| {
        let age = now.wall.micros().saturating_sub(since.micros());
        age < slice.micros().saturating_mul(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_began_in_the_running_slice_are_young() {
        let now = Now {
            wall: Timestamp::from_micros(300_000_000),
            mono_ms: 0,
            nodes: 1,
        };
        for (since, minute, second) in [
            (None, false, false),
            (Some(1), false, false),
            (Some(290_000_000), true, false),
            (Some(299_000_000), true, true),
        ] {
            let since = since.map(Timestamp::from_micros);
            assert_eq!(is_young(since, Slice::Minute, now), minute, "{since:?}");
            assert_eq!(is_young(since, Slice::Second, now), second, "{since:?}");
        }
    }
}
