//! Whom to ask, with all that is known at the moment; and what is told of that afterwards.

use std::sync::Arc;

use schemas::balance::decision::{Decision, Excluded, Exclusion};
use schemas::balance::profile::Profile;
use schemas::balance::snapshot::Engine;
use schemas::catalog::Catalog;
use schemas::frame::Served;
use schemas::health::Spared;
use schemas::id::{BackendId, EndpointId, ModelName};
use schemas::usage::Usage;

use super::Request;
use crate::attempt::Ending;
use crate::fault::Fault;
use crate::plan::outlook::Outlook;
use crate::plan::{self, Candidate, Nobody, Plan, Sight};
use crate::state::Shared;

/// What is known of backends at one moment.
struct Seen<'a> {
    shared: &'a Shared,
    now_ms: u64,
}

impl Outlook for Seen<'_> {
    fn calls(&self, backend: &BackendId) -> u64 {
        self.shared.affinity.calls(backend)
    }

    fn engine(&self, backend: &BackendId) -> Option<Engine> {
        let sample = self.shared.samples.sample(backend)?;
        let others = self.shared.affinity.calls_of_others(backend);
        let memory = &self.shared.memory;
        memory.engine(backend, &sample, (others, self.now_ms))
    }

    fn ttft_us(&self, backend: &BackendId) -> Option<u64> {
        self.shared.memory.ttft_us(backend, self.now_ms)
    }

    fn banned_ms(&self, backend: &BackendId) -> Option<u64> {
        self.shared.memory.banned_ms(backend, self.now_ms)
    }

    fn spared(&self, backend: &BackendId) -> Option<Spared> {
        self.shared.samples.spared(backend)
    }

    fn profile(&self, model: &ModelName) -> Option<Arc<Profile>> {
        self.shared.samples.profile(model)
    }

    fn balance(&self, model: &ModelName) -> i64 {
        self.shared.memory.balance(model)
    }

    fn spend(&self, model: &ModelName, change_nano_usd: i64) {
        self.shared.memory.spend(model, change_nano_usd);
    }

    fn turn(&self, endpoint: &EndpointId) -> u64 {
        self.shared.memory.turn(endpoint)
    }

    fn take_turn(&self, endpoint: &EndpointId, seen: u64) -> bool {
        self.shared.memory.take_turn(endpoint, seen)
    }
}

impl Request {
    /// Whom to ask, in which order.
    pub(super) fn plan(&self, shared: &Shared, catalog: &Catalog) -> Result<Plan, Box<Nobody>> {
        let outlook = Seen {
            shared,
            now_ms: shared.clock.monotonic_ms(),
        };
        shared.affinity.with_prefill(|prefill, now_ms| {
            let sight = Sight {
                circuits: &shared.circuits,
                session: self.stay.found(),
                prefix: self.stay.prefix(),
                terms: &shared.terms,
                outlook: &outlook,
                reading: prefill.map(|prefill| plan::Reading {
                    prefill,
                    prompt: self.stay.prompt(),
                    now_ms,
                }),
            };
            plan::plan(catalog, &self.offer, &sight, shared.mint.draw())
        })
    }

    /// Settles with the budget of the model what the call cost in the end. Where a leg served that tells no usage, it stays
    /// at what was supposed; one of a lower priority spent nothing of this budget.
    pub(super) fn settle_wager(&mut self, served: Option<&Served>, usage: Option<&Usage>) {
        let Some(wager) = self.wager.take() else {
            return;
        };
        let served = served.map(|served| &served.endpoint_id);
        let decision = self.decision.as_deref();
        if let Some(correction) = decision.and_then(|decision| wager.correction(decision, served, usage)) {
            self.shared.memory.spend(&wager.model, correction);
        }
    }

    /// Tells of a candidate that it was passed over.
    pub(super) fn pass_over(&mut self, candidate: &Candidate, reason: Exclusion) {
        let backend = candidate.backend_id();
        let decision = self.decision.get_or_insert_with(|| {
            Box::new(Decision {
                order: vec![backend.clone()],
                ..Decision::default()
            })
        });
        decision.excluded.push(Excluded {
            endpoint: candidate.endpoint.id.clone(),
            backend: Some(backend),
            reason,
        });
    }
}

/// Remembers whether a backend could be connected to. `sent`: something went out, so it could.
pub(super) fn remember(shared: &Shared, backend: &BackendId, (ending, sent): (&Ending, bool)) {
    match ending {
        Ending::Whole { .. } | Ending::Told(_) => shared.memory.reachable(backend),
        Ending::Failed(Fault::Unreachable | Fault::Unconnected) if !sent => {
            let now_ms = shared.clock.monotonic_ms();
            shared.memory.unreachable(backend, now_ms);
        }
        Ending::Failed(_) | Ending::Stopped(_) => {}
    }
}
