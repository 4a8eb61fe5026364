//! Services that sleep. A call finds one asleep; one node of the fleet tells it to wake; whoever needs it waits to hear
//! how that went.
//!
//! Guarantees: while the bus is there, one node at a time tells a service to wake, and another one takes its place when
//! it dies; one that did not come is not told again for some seconds; nobody waits longer than his own bound.

mod asking;
mod leading;

use std::collections::HashSet;
use std::sync::Arc;

use bus::Kv;
use bus::watching::{Told, watch_for_good};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use schemas::catalog::Catalog;
use schemas::event::health::WakeEnded;
use schemas::id::BackendId;
use schemas::subject::WAKE_BUCKET;
use schemas::wake::Wake;
use schemas::wake::record::Outcome;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::plan::Candidate;
use crate::state::Shared;

pub(crate) use asking::bound;
use leading::Round;

/// Takes the facts about services that were woken.
pub(crate) type Woken = Box<dyn Fn(&WakeEnded) + Send + Sync>;

/// How waking a backend went, as far as this node knows; nothing while it goes on.
pub(crate) type Heard = watch::Receiver<Option<Over>>;

/// A round that is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Over {
    /// How it went.
    pub(crate) outcome: Outcome,
    /// Since when.
    at: Instant,
}

/// What this node knows of services that sleep.
pub(crate) struct Wakes {
    /// The last round of each backend.
    rounds: DashMap<BackendId, Heard>,
    /// Rounds to be run: at most one for each backend.
    queue: mpsc::UnboundedSender<Job>,
    queued: Mutex<Option<mpsc::UnboundedReceiver<Job>>>,
    woken: Woken,
}

/// A round to be run.
struct Job {
    candidate: Candidate,
    tell: watch::Sender<Option<Over>>,
}

/// How a round stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It goes on.
    Running,
    /// It is over, and that still counts.
    Holds(Outcome),
    /// It counts no more, or nobody runs it.
    Past,
}

/// How a round stands for somebody who found its backend asleep at `found_at`: that it was awake before says nothing.
fn standing(heard: &Heard, found_at: Instant) -> Standing {
    match *heard.borrow() {
        Some(over) if over.outcome == Outcome::Awake && over.at < found_at => Standing::Past,
        Some(over) if over.at.elapsed() < over.outcome.life() => Standing::Holds(over.outcome),
        None if heard.has_changed().is_ok() => Standing::Running,
        Some(_) | None => Standing::Past,
    }
}

impl Wakes {
    pub(crate) fn new(woken: Woken) -> Self {
        let (queue, queued) = mpsc::unbounded_channel();
        Self {
            rounds: DashMap::new(),
            queue,
            queued: Mutex::new(Some(queued)),
            woken,
        }
    }

    /// Has a backend woken that was found asleep at `found_at`, where that is not under way or just done. Tells how it goes.
    pub(crate) fn begin(&self, candidate: &Candidate, found_at: Instant) -> Heard {
        let (tell, heard) = watch::channel(None);
        match self.rounds.entry(candidate.backend_id()) {
            Entry::Occupied(last) if standing(last.get(), found_at) != Standing::Past => {
                return last.get().clone();
            }
            Entry::Occupied(mut last) => drop(last.insert(heard.clone())),
            Entry::Vacant(none) => drop(none.insert(heard.clone())),
        }
        let candidate = candidate.clone();
        // Nobody runs it once the router ends: then whoever waits hears that, too.
        let _ = self.queue.send(Job { candidate, tell });
        heard
    }

    /// True for a backend that is being woken, or just did not come.
    pub(crate) fn sleeps(&self, backend: &BackendId) -> bool {
        let now = Instant::now();
        let last = self.rounds.get(backend).map(|heard| standing(&heard, now));
        match last {
            Some(Standing::Running) => true,
            Some(Standing::Holds(outcome)) => outcome != Outcome::Awake,
            Some(Standing::Past) | None => false,
        }
    }

    /// Forgets backends that the catalogue does not name any more.
    pub(crate) fn prune(&self, catalog: &Catalog) {
        let endpoints = catalog.endpoints();
        let backends = endpoints.iter().flat_map(|endpoint| &endpoint.backends);
        let named: HashSet<&BackendId> = backends.map(|backend| &backend.id).collect();
        self.rounds.retain(|backend, _| named.contains(backend));
    }
}

/// True when a backend says that it sleeps. Only vLLM does while it takes connections; it is asked before each call, since
/// nobody tells when it goes to sleep.
pub(crate) async fn says_so(shared: &Shared, candidate: &Candidate) -> bool {
    let Some(Wake::VllmSleep(vllm)) = candidate.endpoint.wake.as_deref() else {
        return false;
    };
    asking::is_sleeping(shared, candidate, vllm).await == Some(true)
}

/// Runs rounds until `shutdown`.
pub(crate) async fn run(shared: &Shared, shutdown: CancellationToken) {
    let Some(mut queued) = shared.wakes.queued.lock().take() else {
        return shutdown.cancelled().await;
    };
    let (news, _) = watch::channel(0_u64);
    let follow = async {
        match &shared.kv {
            Some(kv) => follow(kv, &news).await,
            None => std::future::pending().await,
        }
    };
    let rounds = async {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(job) = queued.recv() => running.push(round(shared, news.subscribe(), job)),
                Some(()) = running.next() => {}
                else => return,
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = follow => {}
        () = rounds => {}
    }
}

async fn round(shared: &Shared, news: watch::Receiver<u64>, job: Job) {
    let outcome = Round::new(shared, &job.candidate, news).run().await;
    // Whoever asked may have left.
    let at = Instant::now();
    let _ = job.tell.send(Some(Over { outcome, at }));
}

/// Counts what is told of the bucket, so that whoever waits looks at it. Never returns.
async fn follow(kv: &Arc<dyn Kv>, news: &watch::Sender<u64>) {
    watch_for_good(kv, WAKE_BUCKET, |told| {
        if told != Told::Begin {
            news.send_modify(|count| *count = count.wrapping_add(1));
        }
    })
    .await;
}

#[cfg(test)]
mod tests;
