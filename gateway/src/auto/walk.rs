//! The models that one call goes to, one after the other, and what came of each: pure, but for the catalogue that it
//! keeps. The gateway asks for the next one when a model has failed before anything of an answer left. Who is ready goes
//! first: a model whose service sleeps is waited for when nobody else is left.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dialects::skim::Skim;
use schemas::auto::choice::{Choice, Decision, Nobody, decide};
use schemas::auto::record::{Asked, Routed};
use schemas::auto::{self, MODELS_MAX};
use schemas::catalog::policy::{Purpose, Strategy};
use schemas::catalog::{Catalog, Model};
use schemas::command::Told;
use schemas::event::request::{Attempt, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::frame::Report;
use schemas::id::{EndpointId, ModelName};
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
    /// The catalogue that has it and its prices.
    pub(crate) catalog: Arc<Catalog>,
    /// Its place among the candidates of the record.
    place: usize,
    /// It was sent something.
    was_sent: bool,
    /// It was found asleep, and is waited for.
    is_awaited: bool,
}

impl Way {
    fn new(catalog: &Arc<Catalog>, seen: &Seen, (unlabeled, place): (bool, usize)) -> Self {
        Self {
            model: Arc::clone(&seen.model),
            priced_since: seen.priced_since,
            price_version: PriceVersion::of(&catalog.revision_text, seen.priced_since),
            unlabeled,
            catalog: Arc::clone(catalog),
            place,
            was_sent: false,
            is_awaited: false,
        }
    }

    /// Whether one of its endpoints is among those that its model has now.
    fn leads_to(&self, model: &Model) -> bool {
        let is_one = |id: &EndpointId| model.routes.iter().any(|route| route.endpoint_id == *id);
        self.model.owner == model.owner && self.model.routes.iter().any(|route| is_one(&route.endpoint_id))
    }
}

/// What one call has tried, and may try.
pub(crate) struct Walk {
    /// The call, until nobody else may be asked.
    pub(crate) call: Option<Arc<Call>>,
    /// Where its session is.
    pub(crate) stay: Stay,
    attempts_max: u32,
    left: VecDeque<Way>,
    /// Those that were found asleep while others were left.
    asleep: VecDeque<Way>,
    current: Option<Way>,
    /// The revision of the catalogue by which it was decided last who is left.
    revision: u64,
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
    /// The first limit that barred a model.
    barred: Option<Failure>,
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
        match decide((strategy, purpose), &considered, session.as_ref()) {
            Ok(decision) => {
                let ways = ways(&call.catalog, &decision, &seen);
                let record = record((strategy, purpose), decision, session);
                Ok(Self {
                    revision: call.catalog.revision,
                    call: Some(Arc::new(call)),
                    stay,
                    attempts_max,
                    left: ways,
                    asleep: VecDeque::new(),
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
        let is_spent = self.spent() >= self.attempts_max;
        let may_be_another = self.models < MODELS_MAX;
        let other = may_be_another.then(|| self.left.pop_front()).flatten();
        let next = other.or_else(|| {
            let fits = |way: &Way| way.was_sent || may_be_another;
            let place = self.asleep.iter().position(fits)?;
            let way = self.asleep.remove(place)?;
            Some(Way {
                is_awaited: true,
                ..way
            })
        });
        self.current = next.filter(|_| !is_spent);
        self.current.as_ref()
    }

    /// Attempts so far.
    fn spent(&self) -> u32 {
        u32::try_from(self.past.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Whether the current model is not waited for where its service sleeps: others may be ready.
    pub(crate) fn passes_sleepers(&self) -> bool {
        let is_awaited = self.current.as_ref().is_some_and(|way| way.is_awaited);
        let has_others = !self.left.is_empty() || !self.asleep.is_empty();
        // An attempt is left for who comes, or there is no coming back.
        has_others && !is_awaited && self.spent().saturating_add(1) < self.attempts_max
    }

    /// Decides anew who is left, by what is configured now: who is there no more is not asked, and who has come since is.
    /// Whoever stays keeps the prices of the admission.
    pub(crate) fn renew(&mut self, newest: &Arc<Catalog>, known: &dyn Known) {
        let Some(call) = self.call.clone().filter(|_| newest.revision != self.revision) else {
            return;
        };
        self.revision = newest.revision;
        let by = (&**newest, &*call.caller.key);
        let (seen, considered) = consider(by, (call.surface, &call.skim), call.at, known);
        let decided = decide((self.record.strategy, self.record.purpose), &considered, None);
        let order = decided.map_or_else(|_| Vec::new(), |decision| decision.order);
        let mut before = std::mem::take(&mut self.left);
        for choice in order {
            let Some(seen) = seen.get(choice.place) else {
                continue;
            };
            let held = before.iter().position(|way| way.model.id == choice.model);
            match held.and_then(|place| before.remove(place)) {
                Some(way) if way.leads_to(&seen.model) => self.left.push_back(way),
                Some(way) => {
                    let other = Way::new(newest, seen, (choice.unlabeled, way.place));
                    self.left.push_back(other);
                }
                None => self.add(newest, seen, choice),
            }
        }
        for gone in before {
            self.fell_out(gone.place, FailureCode::ModelNotFound);
        }
        let is_there = |way: &Way| {
            let mut there = seen.iter().filter(|seen| seen.model.id == way.model.id);
            there.any(|seen| way.leads_to(&seen.model))
        };
        self.asleep.retain(is_there);
    }

    /// A model that was none of the candidates.
    fn add(&mut self, newest: &Arc<Catalog>, seen: &Seen, choice: Choice) {
        let candidates = &mut self.record.candidates;
        if candidates.iter().any(|asked| asked.model == choice.model) {
            return;
        }
        let place = candidates.len();
        if place >= WAYS_MAX {
            self.record.left_out = self.record.left_out.saturating_add(1);
            return;
        }
        let way = Way::new(newest, seen, (choice.unlabeled, place));
        self.left.push_back(way);
        candidates.push(asked(choice));
    }

    /// The model that is asked.
    pub(crate) const fn current(&self) -> Option<&Way> {
        self.current.as_ref()
    }

    /// Attempts before, and the most there may be with those of the current model: one is left for each model behind it.
    pub(crate) fn attempts(&self) -> (u32, u32) {
        let before = self.spent();
        let behind = u32::try_from(self.left.len()).unwrap_or(u32::MAX);
        let others = behind.min(MODELS_MAX.saturating_sub(self.models + 1));
        let share = auto::share(self.attempts_max.saturating_sub(before), others);
        (before, before.saturating_add(share))
    }

    /// Its answer begins: nobody else is asked, and what that would have needed is let go.
    pub(crate) fn stay_here(&mut self) {
        self.call = None;
        self.left.clear();
        self.asleep.clear();
    }

    /// A limit bars the current model.
    pub(crate) fn barred(&mut self, failure: Failure) {
        if failure.exceeded.is_some() {
            self.past.barred.get_or_insert_with(|| failure.clone());
        }
        self.fail(failure);
    }

    /// Why a call ends of which limits bar every model.
    pub(crate) fn first_failure(&mut self) -> Option<Failure> {
        self.past.first.take()
    }

    /// The current model was asked, and is one of those that were sent something, or is found asleep.
    fn mark(&mut self, report: &Report) {
        let Some(way) = &mut self.current else {
            return;
        };
        if !report.attempts.is_empty() && !std::mem::replace(&mut way.was_sent, true) {
            self.models = self.models.saturating_add(1);
        }
        let failure = report.failure.as_ref().map(|failure| failure.code);
        if failure != Some(FailureCode::ServiceWaking) {
            return;
        }
        if way.is_awaited {
            // It was waited for as long as a call waits.
            self.asleep.clear();
        } else {
            self.asleep.push_back(way.clone());
        }
    }

    /// Takes what the current model came to, once: attempts and costs go on with the call.
    pub(crate) fn note(&mut self, report: &mut Report) {
        self.mark(report);
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
        if let Some(place) = self.current.as_ref().map(|way| way.place) {
            self.fell_out(place, failure.code);
        }
        self.past.first.get_or_insert(failure);
    }

    fn fell_out(&mut self, place: usize, code: FailureCode) {
        if let Some(asked) = self.record.candidates.get_mut(place) {
            asked.failed = Some(code);
        }
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
            if report.outcome == Outcome::Ok
                && let Some(way) = &self.current
                && let Some(asked) = self.record.candidates.get_mut(way.place)
            {
                // It may have slept when it was asked first.
                asked.failed = None;
            }
            return true;
        }
        self.give_up(report);
        false
    }

    /// No model answered, or refused, the call. Where a limit barred one that might have, that is why.
    fn give_up(&mut self, report: &mut Report) {
        let (first, barred) = (self.past.first.take(), self.past.barred.take());
        let retry_seconds = first.as_ref().and_then(|failure| failure.retry_after_seconds);
        let was_sent = self.models > 0;
        let is_own = first.as_ref().is_some_and(|failure| failure.status < 500);
        let is_refused = !was_sent && (is_own || barred.is_some());
        report.outcome = match report.outcome {
            _ if is_refused => Outcome::Rejected,
            Outcome::Rejected => Outcome::UpstreamError,
            outcome if was_sent => outcome,
            _ => Outcome::UpstreamError,
        };
        report.failure = Some(match (barred, first) {
            (Some(limit), _) => limit,
            (None, _) if was_sent => {
                let exhausted = report.failure.as_ref().is_some_and(|failure| failure.exhausted);
                let mut failure = Failure::new(
                    FailureCode::AutoRoutingAllFailed,
                    "every model that was chosen for this request failed",
                );
                failure.exhausted = exhausted && self.left.is_empty();
                failure
            }
            // Nothing was sent to anybody: what the call asks for cannot be said.
            (None, Some(failure)) if is_own => failure,
            _ => super::no_candidates(retry_seconds.unwrap_or(super::RETRY_SECONDS)),
        });
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

fn ways(catalog: &Arc<Catalog>, decision: &Decision, seen: &[Seen]) -> VecDeque<Way> {
    let order = decision.order.iter().take(WAYS_MAX).enumerate();
    let ways = order.filter_map(|(place, choice)| {
        let seen = seen.get(choice.place)?;
        Some(Way::new(catalog, seen, (choice.unlabeled, place)))
    });
    ways.collect()
}

fn asked(choice: Choice) -> Asked {
    Asked {
        model: choice.model,
        scores: choice.scores,
        unlabeled: choice.unlabeled,
        failed: None,
    }
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
    let candidates = decision.order.into_iter().take(WAYS_MAX);
    Routed {
        strategy,
        purpose,
        model: None,
        session_model,
        candidates: candidates.map(asked).collect(),
        excluded,
        left_out,
    }
}
