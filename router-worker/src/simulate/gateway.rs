//! One gateway of a simulated fleet: the parts of a router that know something, and the plan that is made from them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::clock::Clock;
use futures_util::FutureExt as _;
use schemas::balance::decision::Decision;
use schemas::balance::profile::Profile;
use schemas::balance::snapshot::{Engine, Terms};
use schemas::catalog::Catalog;
use schemas::command::Offer;
use schemas::engine::Sample;
use schemas::id::{BackendId, EndpointId, ModelName, NodeId};
use schemas::time::Timestamp;
use schemas::usage::Usage;

use crate::affinity::session::Stay;
use crate::affinity::{Affinity, Visit};
use crate::config::{self, Config};
use crate::plan::market::Wager;
use crate::plan::memory::{Begun, Memory};
use crate::plan::outlook::Outlook;
use crate::plan::{self, Admission, Sight};

/// The clock of the whole simulation, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Time(AtomicU64);

impl Time {
    pub(super) fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn advance(&self, now_us: u64) {
        self.0.fetch_max(now_us, Ordering::Relaxed);
    }
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.now_us()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        self.now_us() / 1_000
    }
}

/// Nothing fails here, so no circuit is open.
struct Closed;

impl Admission for Closed {
    fn admits(&self, _: &BackendId) -> Result<(), u64> {
        Ok(())
    }
}

/// A gateway with its router.
pub(super) struct Gateway {
    time: Arc<Time>,
    settings: config::Affinity,
    terms: Terms,
    pub(super) affinity: Affinity,
    memory: Memory,
    samples: RefCell<HashMap<BackendId, Sample>>,
    profile: RefCell<Option<Arc<Profile>>>,
}

/// What a request took of its model's budget, and what that was decided from.
pub(super) struct Bet {
    wager: Wager,
    decision: Box<Decision>,
}

/// Where a request goes.
pub(super) struct Sent<'g> {
    /// The backend.
    pub(super) backend: BackendId,
    /// It counts there until this is dropped.
    pub(super) visit: Visit<'g>,
    /// What is left to settle of its budget.
    pub(super) bet: Option<Bet>,
    /// It is one that the engine has not told of, until this is dropped.
    _young: Option<Begun<'g>>,
}

impl Gateway {
    pub(super) fn new(time: &Arc<Time>) -> Self {
        let mut config = Config::new(NodeId::from("simulated"));
        config.affinity.alone = false;
        // Callers that name no session are not what is compared.
        config.affinity.callers = false;
        let terms = config.terms();
        Self {
            time: Arc::clone(time),
            settings: config.affinity,
            terms,
            affinity: Affinity::new(config.affinity, Arc::clone(time) as Arc<dyn Clock>),
            memory: Memory::new(config.balance.soft_ban),
            samples: RefCell::default(),
            profile: RefCell::default(),
        }
    }

    /// Decides about a request and sends it there; `None` when nobody can be asked.
    pub(super) fn send(&self, catalog: &Catalog, request: (&Offer, &[u8]), draw: u64) -> Option<Sent<'_>> {
        let (offer, body) = request;
        let mut stay = Stay::of(&self.settings, catalog, offer, body);
        // Without a bucket to read there is nothing to wait for.
        stay.find(&self.affinity, None).now_or_never()?;
        let outlook = Known {
            gateway: self,
            now_ms: self.time.monotonic_ms(),
        };
        let planned = self.affinity.with_prefill(|prefill, now_ms| {
            let sight = Sight {
                circuits: &Closed,
                session: stay.found(),
                prefix: stay.prefix(),
                terms: &self.terms,
                outlook: &outlook,
                reading: prefill.map(|prefill| plan::Reading {
                    prefill,
                    prompt: stay.prompt(),
                    now_ms,
                }),
            };
            plan::plan(catalog, offer, &sight, draw)
        });
        let plan = planned.ok()?;
        stay.decide(plan.verdict);
        let candidate = plan.candidates.first()?;
        let backend = candidate.backend_id();
        stay.go(&self.affinity, (&candidate.endpoint.id, &backend));
        Some(Sent {
            visit: self.affinity.visit(&backend, stay.prompt()),
            _young: self.memory.begin(&candidate.endpoint, &backend),
            bet: plan
                .wager
                .zip(plan.decision)
                .map(|(wager, decision)| Bet { wager, decision }),
            backend,
        })
    }

    /// The first token of an answer came, after so many microseconds.
    pub(super) fn answered(&self, backend: &BackendId, took_us: u64) {
        self.memory.answered(backend, took_us, self.time.monotonic_ms());
    }

    /// A request is over: its budget is settled.
    pub(super) fn settle(&self, bet: Option<Bet>, served: &EndpointId, usage: &Usage) {
        let Some(Bet { wager, decision }) = bet else {
            return;
        };
        if let Some(correction) = wager.correction(&decision, Some(served), Some(usage)) {
            self.memory.spend(&wager.model, correction);
        }
    }

    /// It is told what was learned of the model.
    pub(super) fn learn(&self, profile: &Arc<Profile>) {
        *self.profile.borrow_mut() = Some(Arc::clone(profile));
    }

    /// It is told what an engine said.
    pub(super) fn hear(&self, backend: &BackendId, sample: Sample) {
        let seen = Sample {
            at_ms: self.time.monotonic_ms(),
            ..sample
        };
        self.samples.borrow_mut().insert(backend.clone(), seen);
    }
}

/// What a gateway knows of backends at one moment.
struct Known<'a> {
    gateway: &'a Gateway,
    now_ms: u64,
}

impl Outlook for Known<'_> {
    fn calls(&self, backend: &BackendId) -> u64 {
        self.gateway.affinity.calls(backend)
    }

    fn engine(&self, backend: &BackendId) -> Option<Engine> {
        let sample = self.gateway.samples.borrow().get(backend).copied()?;
        let sample = sample.is_fresh(self.now_ms).then_some(sample)?;
        let others = self.gateway.affinity.calls_of_others(backend);
        let memory = &self.gateway.memory;
        memory.engine(backend, &sample, (others, self.now_ms))
    }

    fn ttft_us(&self, backend: &BackendId) -> Option<u64> {
        self.gateway.memory.ttft_us(backend, self.now_ms)
    }

    fn profile(&self, _: &ModelName) -> Option<Arc<Profile>> {
        self.gateway.profile.borrow().clone()
    }

    fn balance(&self, model: &ModelName) -> i64 {
        self.gateway.memory.balance(model)
    }

    fn spend(&self, model: &ModelName, change_nano_usd: i64) {
        self.gateway.memory.spend(model, change_nano_usd);
    }

    fn turn(&self, endpoint: &EndpointId) -> u64 {
        self.gateway.memory.turn(endpoint)
    }

    fn take_turn(&self, endpoint: &EndpointId, seen: u64) -> bool {
        self.gateway.memory.take_turn(endpoint, seen)
    }
}
