//! What one router remembers of backends to choose among them: whom it could not connect to, how long they take, whose
//! turn it is, and how many calls went there since their engines were read. None of it is shared, and none outlives the
//! process: it is worth a better choice and nothing more.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use schemas::balance::Algorithm;
use schemas::balance::latency::Latency;
use schemas::balance::snapshot::Engine;
use schemas::catalog::Endpoint;
use schemas::engine::Sample;
use schemas::id::{BackendId, EndpointId, ModelName};

/// Backends, and endpoints, of which something is remembered; beyond, all is forgotten.
const KNOWN_MAX: usize = 65_536;

/// What is remembered. Times are milliseconds of the router's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ban_ms: u64,
    /// Until when each is asked last.
    bans: DashMap<BackendId, u64>,
    /// Until when anybody is.
    banned_until_ms: AtomicU64,
    latencies: DashMap<BackendId, Latency>,
    turns: DashMap<EndpointId, u64>,
    young: DashMap<BackendId, Young>,
    /// What calls left of the budgets of their models, in nano-dollars.
    balances: DashMap<ModelName, i64>,
}

/// Calls that went to a backend since its engine was read.
#[derive(Debug, Clone, Copy, Default)]
struct Young {
    /// Which reading it was.
    read_at_ms: u64,
    /// Those of this router that still run.
    own: u64,
    /// Calls that other routers ran there at that time.
    others_then: u64,
}

impl Memory {
    /// `ban`: how long a backend is asked last that could not be connected to; zero for not at all.
    pub(crate) fn new(ban: Duration) -> Self {
        Self {
            ban_ms: u64::try_from(ban.as_millis()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// A backend could not be connected to, or did not answer at all.
    pub(crate) fn unreachable(&self, backend: &BackendId, now_ms: u64) {
        if self.ban_ms > 0 {
            let until_ms = now_ms.saturating_add(self.ban_ms);
            bounded(&self.bans, backend).insert(backend.clone(), until_ms);
            self.banned_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// A backend answered.
    pub(crate) fn reachable(&self, backend: &BackendId) {
        if self.banned_until_ms.load(Ordering::Relaxed) > 0 {
            self.bans.remove(backend);
        }
    }

    /// How long it is to be asked last.
    pub(crate) fn banned_ms(&self, backend: &BackendId, now_ms: u64) -> Option<u64> {
        if self.banned_until_ms.load(Ordering::Relaxed) <= now_ms {
            return None;
        }
        let left_ms = self.bans.get(backend)?.saturating_sub(now_ms);
        (left_ms > 0).then_some(left_ms)
    }

    /// The first token of a streamed answer came.
    pub(crate) fn answered(&self, backend: &BackendId, took_us: u64, now_ms: u64) {
        bounded(&self.latencies, backend)
            .entry(backend.clone())
            .and_modify(|latency| latency.add(took_us, now_ms))
            .or_insert_with(|| Latency::first(took_us, now_ms));
    }

    /// How long it is expected to take to the first token.
    pub(crate) fn ttft_us(&self, backend: &BackendId, now_ms: u64) -> Option<u64> {
        let latency = self.latencies.get(backend)?;
        Some(latency.expected_us(now_ms))
    }

    /// What calls of a model left of their budgets so far, in nano-dollars; below 0 where they took more.
    pub(crate) fn balance(&self, model: &ModelName) -> i64 {
        self.balances.get(model).map_or(0, |balance| *balance)
    }

    /// Another call of it leaves so much.
    pub(crate) fn spend(&self, model: &ModelName, change_nano_usd: i64) {
        if change_nano_usd != 0 {
            let mut balance = bounded(&self.balances, model).entry(model.clone()).or_default();
            *balance = balance.saturating_add(change_nano_usd);
        }
    }

    /// Choices made so far among backends that are asked in turn.
    pub(crate) fn turn(&self, endpoint: &EndpointId) -> u64 {
        self.turns.get(endpoint).map_or(0, |turn| *turn)
    }

    /// Counts one more, unless somebody did since `seen` was read.
    pub(crate) fn take_turn(&self, endpoint: &EndpointId, seen: u64) -> bool {
        let mut turn = bounded(&self.turns, endpoint)
            .entry(endpoint.clone())
            .or_default();
        let is_mine = *turn == seen;
        if is_mine {
            *turn = turn.wrapping_add(1);
        }
        is_mine
    }

    /// What an engine said, and what went there since: calls of this router that began since then and still run, and by
    /// how many those of the others became more. `others` are those that they run now.
    pub(crate) fn engine(
        &self,
        backend: &BackendId,
        sample: &Sample,
        (others, now_ms): (u64, u64),
    ) -> Option<Engine> {
        let mut young = bounded(&self.young, backend).entry(backend.clone()).or_default();
        if young.read_at_ms != sample.at_ms {
            *young = Young {
                read_at_ms: sample.at_ms,
                own: 0,
                others_then: others,
            };
        }
        let sent = young.own.saturating_add(others.saturating_sub(young.others_then));
        Engine::of(sample, now_ms, sent)
    }

    /// A call goes to a backend of which engines are read; it counts as young until what is returned is dropped, or the
    /// engine is read again.
    pub(crate) fn begin(&self, endpoint: &Endpoint, backend: &BackendId) -> Option<Begun<'_>> {
        if endpoint.balancing() != Algorithm::EngineAware {
            return None;
        }
        let mut young = self.young.get_mut(backend)?;
        young.own = young.own.saturating_add(1);
        Some(Begun {
            memory: self,
            backend: backend.clone(),
            read_at_ms: young.read_at_ms,
        })
    }
}

/// A call that went to a backend since its engine was read.
pub(crate) struct Begun<'a> {
    memory: &'a Memory,
    backend: BackendId,
    read_at_ms: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(mut young) = self.memory.young.get_mut(&self.backend)
            && young.read_at_ms == self.read_at_ms
        {
            young.own = young.own.saturating_sub(1);
        }
    }
}

/// The map, emptied when it is full of what may have been gone for long and there is another one to know.
fn bounded<'m, K: Hash + Eq, V>(map: &'m DashMap<K, V>, key: &K) -> &'m DashMap<K, V> {
    if !map.contains_key(key) && map.len() >= KNOWN_MAX {
        map.clear();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> BackendId {
        BackendId::from("e#0")
    }

    #[test]
    fn whoever_cannot_be_connected_to_is_asked_last_for_a_while_and_until_it_answers() {
        let memory = Memory::new(Duration::from_secs(15));
        assert_eq!(memory.banned_ms(&backend(), 0), None);

        memory.unreachable(&backend(), 1_000);
        assert_eq!(memory.banned_ms(&backend(), 1_000), Some(15_000));
        assert_eq!(memory.banned_ms(&backend(), 15_999), Some(1));
        assert_eq!(memory.banned_ms(&backend(), 16_000), None);

        memory.unreachable(&backend(), 20_000);
        memory.reachable(&backend());
        assert_eq!(memory.banned_ms(&backend(), 20_001), None);
    }

    #[test]
    fn without_a_time_nobody_is_asked_last() {
        let memory = Memory::new(Duration::ZERO);
        memory.unreachable(&backend(), 1_000);
        assert_eq!(memory.banned_ms(&backend(), 1_000), None);
    }

    #[test]
    fn a_turn_is_taken_once() {
        let memory = Memory::default();
        let endpoint = EndpointId::from("e");
        assert_eq!(memory.turn(&endpoint), 0);
        assert!(memory.take_turn(&endpoint, 0));
        assert!(!memory.take_turn(&endpoint, 0));
        assert_eq!(memory.turn(&endpoint), 1);
    }

    #[test]
    fn calls_are_young_from_their_start_to_their_end_or_the_next_reading() {
        let memory = Memory::default();
        let mut read = crate::testing::endpoint("e", &["http://0", "http://1"]);
        assert!(
            memory.begin(&read, &backend()).is_none(),
            "nobody chooses by this engine"
        );
        read.algorithm = Algorithm::EngineAware;
        let mut sample = Sample {
            waiting: Some(1),
            at_ms: 100,
            ..Sample::default()
        };
        let sent = |sample: &Sample, others| {
            let engine = memory.engine(&backend(), sample, (others, 100));
            engine.expect("it is fresh").sent
        };
        assert!(
            memory.begin(&read, &backend()).is_none(),
            "nobody reads this engine"
        );
        assert_eq!(sent(&sample, 4), 0);

        let first = memory.begin(&read, &backend());
        let second = memory.begin(&read, &backend());
        assert_eq!(sent(&sample, 4), 2);
        assert_eq!(sent(&sample, 7), 5, "the others run three more");
        drop(first);
        assert_eq!(sent(&sample, 7), 4);

        sample.at_ms = 5_100;
        assert_eq!(sent(&sample, 7), 0, "it tells of them itself");
        drop(second);
        let _third = memory.begin(&read, &backend());
        assert_eq!(sent(&sample, 2), 1);
    }

    #[test]
    fn what_it_remembers_has_a_bound() {
        let memory = Memory::new(Duration::from_secs(15));
        for number in 0..=KNOWN_MAX {
            memory.unreachable(&BackendId::from(number.to_string().as_str()), 0);
        }
        assert_eq!(memory.bans.len(), 1);
    }
}
