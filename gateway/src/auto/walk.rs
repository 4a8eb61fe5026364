//! The models that one call goes to, one after the other, and what came of each: pure, but for the catalogue that it
//! keeps. The gateway asks for the next one when a model has failed before anything of an answer left.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dialects::skim::Skim;
use schemas::auto::choice::{Decision, Nobody};
use schemas::auto::record::{Asked, Routed};
use schemas::auto::{self, MODELS_MAX};
use schemas::catalog::policy::{Purpose, Strategy};
use schemas::catalog::{Catalog, Model};
use schemas::command::Told;
use schemas::event::request::{Attempt, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::frame::Report;
use schemas::id::ModelName;
use schemas::money::{NanoUsd, PriceVersion};
use schemas::outcome::Outcome;
use schemas::time::Timestamp;

use super::consider::{Known, Seen, consider};
use super::session::Stay;
use crate::caller::Caller;
use crate::gate::Wishes;

/// Models that a call may go to, also where nothing can be sent to most of them, and models that its waybill tells of.
const WAYS_MAX: usize = 8;
/// Models that could not be asked, of which its waybill tells.
const EXCLUDED_MAX: usize = 32;

/// A call as it came, and the catalogue at its admission.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) at: Timestamp,
    pub(crate) surface: Surface,
    pub(crate) wishes: Wishes,
    pub(crate) told: Told,
    pub(crate) skim: Skim,
    pub(crate) body: Bytes,
}

/// A model to ask.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) model: Arc<Model>,
    /// Since when its prices hold, where they change with time.
    pub(crate) priced_since: Option<Timestamp>,
    /// The same, as the waybill has it.
    pub(crate) price_version: PriceVersion,
    /// Nobody said what it is for.
    pub(crate) unlabeled: bool,
    /// Its place among the candidates of the record.
    place: usize,
}

/// What one call has tried, and may try.
pub(crate) struct Walk {
    /// The call, until nobody else may be asked.
    pub(crate) call: Option<Arc<Call>>,
    /// Where its session is.
    pub(crate) stay: Stay,
    attempts_max: u32,
    left: VecDeque<Way>,
    current: Option<Way>,
    /// It was sent, or was to be sent, to more than one model.
    pub(crate) moved: bool,
    /// Models that were sent something.
    models: u32,
    past: Past,
    record: Routed,
}

/// What models before the current one came to.
#[derive(Default)]
struct Past {
    attempts: Vec<Attempt>,
    upstream_cost: Option<NanoUsd>,
    attempts_of_unknown_cost: u64,
    /// The first failure, of a model or of a limit.
    first: Option<Failure>,
}

impl Walk {
    /// Decides for a call; nobody is asked yet. Where nobody can be, gives what is told of that.
    pub(crate) fn begin(
        call: Call,
        strategy: Strategy,
        (stay, attempts_max): (Stay, u32),
        known: &dyn Known,
    ) -> Result<Self, (Nobody, Box<Routed>)> {
        let purpose = auto::purpose(call.surface);
        let by = (&*call.catalog, &*call.caller.key);
        let (seen, considered) = consider(by, (call.surface, &call.skim), call.at, known);
        let session = stay.model().cloned();
        match auto::choice::decide((strategy, purpose), &considered, session.as_ref()) {
            Ok(decision) => {
                let ways = ways(&call.catalog, &decision, &seen);
                let record = record((strategy, purpose), decision, session);
                Ok(Self {
                    call: Some(Arc::new(call)),
                    stay,
                    attempts_max,
                    left: ways,
                    current: None,
                    moved: false,
                    models: 0,
                    past: Past::default(),
                    record,
                })
            }
            Err(nobody) => {
                let told = Decision {
                    order: Vec::new(),
                    excluded: nobody.excluded.clone(),
                };
                let record = record((strategy, purpose), told, None);
                Err((nobody, Box::new(record)))
            }
        }
    }

    /// The next model, which is the current one from then on; `None` when there is none, or enough were asked.
    pub(crate) fn next(&mut self) -> Option<&Way> {
        let spent = u32::try_from(self.past.attempts.len()).unwrap_or(u32::MAX) >= self.attempts_max;
        self.current = if self.models >= MODELS_MAX || spent {
            None
        } else {
            self.left.pop_front()
        };
        self.current.as_ref()
    }

    /// The model that is asked.
    pub(crate) const fn current(&self) -> Option<&Way> {
        self.current.as_ref()
    }

    /// Attempts before, and the most there may be with those of the current model: one is left for each model behind it.
    pub(crate) fn attempts(&self) -> (u32, u32) {
        let before = u32::try_from(self.past.attempts.len()).unwrap_or(u32::MAX);
        let behind = u32::try_from(self.left.len()).unwrap_or(u32::MAX);
        let others = behind.min(MODELS_MAX.saturating_sub(self.models + 1));
        let share = auto::share(self.attempts_max.saturating_sub(before), others);
        (before, before.saturating_add(share))
    }

    /// Its answer begins: nobody else is asked, and what that would have needed is let go.
    pub(crate) fn stay_here(&mut self) {
        self.call = None;
        self.left.clear();
    }

    /// A limit bars the current model.
    pub(crate) fn barred(&mut self, failure: Failure) {
        self.fail(failure);
    }

    /// Why a call ends of which limits bar every model.
    pub(crate) fn first_failure(&mut self) -> Option<Failure> {
        self.past.first.take()
    }

    /// Takes what the current model came to, once: attempts and costs go on with the call.
    pub(crate) fn note(&mut self, report: &mut Report) {
        if !report.attempts.is_empty() {
            self.models = self.models.saturating_add(1);
        }
        self.past.attempts.append(&mut report.attempts);
        if let Some(cost) = report.upstream_cost_nano_usd.take() {
            let before = self.past.upstream_cost.map_or(0, |cost| cost.0);
            self.past.upstream_cost = Some(NanoUsd(before.saturating_add(cost.0)));
        }
        let unknown = std::mem::take(&mut report.attempts_of_unknown_cost);
        self.past.attempts_of_unknown_cost = self.past.attempts_of_unknown_cost.saturating_add(unknown);
        if report.outcome != Outcome::Ok {
            let failure = report.failure.clone();
            self.fail(failure.unwrap_or_else(|| Failure::new(FailureCode::Internal, "the request failed")));
        }
    }

    fn fail(&mut self, failure: Failure) {
        let place = self.current.as_ref().map(|way| way.place);
        if let Some(asked) = place.and_then(|place| self.record.candidates.get_mut(place)) {
            asked.failed = Some(failure.code);
        }
        self.past.first.get_or_insert(failure);
    }

    /// Gives all that was noted back: the report is that of the whole call. `begun`: its answer had begun to leave.
    /// False when no model answered, or refused, the call.
    pub(crate) fn conclude(&mut self, report: &mut Report, (begun, moved_on): (bool, bool)) -> bool {
        report.attempts = std::mem::take(&mut self.past.attempts);
        report.upstream_cost_nano_usd = self.past.upstream_cost.take();
        report.attempts_of_unknown_cost = std::mem::take(&mut self.past.attempts_of_unknown_cost);
        let answered = begun || !moved_on;
        if answered {
            self.record.model = self.current.as_ref().map(|way| way.model.id.clone());
            return true;
        }
        let first = self.past.first.take();
        let retry_seconds = first.as_ref().and_then(|failure| failure.retry_after_seconds);
        report.failure = Some(match first {
            _ if self.models > 0 => {
                report.outcome = match report.outcome {
                    Outcome::Rejected => Outcome::UpstreamError,
                    outcome => outcome,
                };
                let exhausted = report.failure.as_ref().is_some_and(|failure| failure.exhausted);
                let mut failure = Failure::new(
                    FailureCode::AutoRoutingAllFailed,
                    "every model that was chosen for this request failed",
                );
                failure.exhausted = exhausted && self.left.is_empty();
                failure
            }
            // Nothing was sent to anybody: what the call asks for cannot be said, or its limits bar it.
            Some(failure) if failure.status < 500 => {
                report.outcome = Outcome::Rejected;
                failure
            }
            _ => {
                report.outcome = Outcome::UpstreamError;
                super::nobody(false).retry_after(retry_seconds.unwrap_or(super::RETRY_SECONDS))
            }
        });
        false
    }

    /// How the model was chosen, for the waybill.
    pub(crate) fn record(&self) -> &Routed {
        &self.record
    }

    /// How the choice ended, for the metric.
    pub(crate) fn outcome(&self, outcome: Outcome) -> &'static str {
        match (outcome, self.current.as_ref()) {
            (Outcome::Ok, Some(way)) if way.place == 0 => "first",
            (Outcome::Ok, _) => "fallback",
            (Outcome::ClientGone, _) => "client_gone",
            _ if self.record.model.is_none() => "all_failed",
            _ => "failed",
        }
    }
}

fn ways(catalog: &Catalog, decision: &Decision, seen: &[Seen]) -> VecDeque<Way> {
    let order = decision.order.iter().take(WAYS_MAX).enumerate();
    let ways = order.filter_map(|(place, choice)| {
        let seen = seen.get(choice.place)?;
        Some(Way {
            model: Arc::clone(&seen.model),
            priced_since: seen.priced_since,
            price_version: PriceVersion::of(&catalog.revision_text, seen.priced_since),
            unlabeled: choice.unlabeled,
            place,
        })
    });
    ways.collect()
}

fn record(
    (strategy, purpose): (Strategy, Purpose),
    decision: Decision,
    session: Option<ModelName>,
) -> Routed {
    let beyond = |count: usize, most: usize| u64::try_from(count.saturating_sub(most)).unwrap_or(u64::MAX);
    let left_out =
        beyond(decision.order.len(), WAYS_MAX).saturating_add(beyond(decision.excluded.len(), EXCLUDED_MAX));
    let first = decision.order.first().map(|choice| &choice.model);
    let session_model = session.filter(|model| first == Some(model));
    let mut excluded = decision.excluded;
    excluded.truncate(EXCLUDED_MAX);
    let asked = decision.order.into_iter().take(WAYS_MAX);
    Routed {
        strategy,
        purpose,
        model: None,
        session_model,
        candidates: asked
            .map(|choice| Asked {
                model: choice.model,
                scores: choice.scores,
                unlabeled: choice.unlabeled,
                failed: None,
            })
            .collect(),
        excluded,
        left_out,
    }
}
