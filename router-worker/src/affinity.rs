//! Sessions that stay on one backend, so that what its engine has cached of their prompts is used again: where they
//! are, as this router knows it and as the fleet shares it, how many calls run at each backend, and what backends have
//! yet to read. What follows from that is decided in `schemas::affinity` and in the plan.
//!
//! Guarantees: no call fails and none waits longer than a moment because of this; a bus that is away means that other
//! nodes do not hear of it; all that is remembered has a bound.

mod exchange;
pub(crate) mod fleet;
mod places;
pub(crate) mod session;
mod visit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Kv;
use bus::clock::Clock;
use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use schemas::affinity::load::{Calls, Others};
use schemas::affinity::prefill::{Prefill, Prompt};
use schemas::id::BackendId;
use tokio::sync::mpsc;

use crate::config::Affinity as Settings;

use places::Places;

pub(crate) use visit::Visit;

/// Records that wait to be written; beyond, others do not hear of a session until it is written again.
const WRITES_MAX: usize = 4_096;
/// How long a bus that did not answer is not asked again, in milliseconds.
const AWAY_MS: u64 = 1_000;

/// What a router knows of sessions and loads.
pub(crate) struct Affinity {
    settings: Settings,
    clock: Arc<dyn Clock>,
    places: Mutex<Places>,
    /// Calls that run here, by backend; none where there are none.
    calls: DashMap<BackendId, u64>,
    others: RwLock<Others>,
    prefill: Option<Mutex<Prefill>>,
    queue: mpsc::Sender<Arc<str>>,
    queued: Mutex<Option<mpsc::Receiver<Arc<str>>>>,
    /// Until when the bus is not asked, in milliseconds of the clock.
    away_until_ms: AtomicU64,
}

impl Affinity {
    pub(crate) fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let (queue, queued) = mpsc::channel(WRITES_MAX);
        Self {
            prefill: settings.prefill.map(|terms| Mutex::new(Prefill::new(terms))),
            settings,
            clock,
            places: Mutex::default(),
            calls: DashMap::new(),
            others: RwLock::default(),
            queue,
            queued: Mutex::new(Some(queued)),
            away_until_ms: AtomicU64::new(0),
        }
    }

    /// Calls that the fleet runs at a backend, as far as it is heard.
    pub(crate) fn calls(&self, backend: &BackendId) -> u64 {
        let own = self.calls.get(backend).map_or(0, |calls| *calls);
        own.saturating_add(self.calls_of_others(backend))
    }

    /// The same without those that this router runs.
    pub(crate) fn calls_of_others(&self, backend: &BackendId) -> u64 {
        self.others.read().calls(backend)
    }

    /// Calls that this router runs.
    fn own_calls(&self) -> Calls {
        let own = self.calls.iter();
        Calls(own.map(|entry| (entry.key().clone(), *entry.value())).collect())
    }

    /// Shows what backends have to read, and when it is; nothing where that does not count.
    pub(crate) fn with_prefill<T>(&self, show: impl FnOnce(Option<&Prefill>, u64) -> T) -> T {
        match &self.prefill {
            Some(prefill) => {
                let now_ms = self.clock.monotonic_ms();
                show(Some(&prefill.lock()), now_ms)
            }
            None => show(None, 0),
        }
    }

    /// A call goes to a backend, until what is returned is dropped. `prompt` is what the backend has to read of it.
    pub(crate) fn visit(&self, backend: &BackendId, prompt: Option<&Prompt>) -> Visit<'_> {
        *self.calls.entry(backend.clone()).or_default() += 1;
        let lease = self.prefill.as_ref().zip(prompt).map(|(prefill, prompt)| {
            let now_ms = self.clock.monotonic_ms();
            prefill.lock().begin(prompt.clone(), backend, now_ms)
        });
        Visit::new(self, backend.clone(), lease)
    }

    /// A backend failed: nothing is taken to be in its cache.
    pub(crate) fn failed(&self, backend: &BackendId) {
        if let Some(prefill) = &self.prefill {
            prefill.lock().forget(backend);
        }
    }

    fn leave(&self, backend: &BackendId) {
        self.calls.remove_if_mut(backend, |_, calls| {
            *calls = calls.saturating_sub(1);
            *calls == 0
        });
    }

    /// The bus, unless it did not answer a moment ago.
    fn bus<'k>(&self, kv: Option<&'k Arc<dyn Kv>>) -> Option<&'k Arc<dyn Kv>> {
        kv.filter(|_| self.clock.monotonic_ms() >= self.away_until_ms.load(Ordering::Relaxed))
    }

    /// The bus did not answer.
    fn is_away(&self) {
        let until_ms = self.clock.monotonic_ms().saturating_add(AWAY_MS);
        self.away_until_ms.store(until_ms, Ordering::Relaxed);
    }
}
