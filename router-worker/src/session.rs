//! The path of one request: plan, then attempt after attempt until one is whole, one broke off in the
//! caller's sight, or nothing is left to try. What to do next is decided in [`trail`], without I/O.

mod deciding;
mod fitted;
mod leasing;
mod offloading;
mod passing;
mod prepared;
mod trail;
mod waking;

use std::collections::VecDeque;
use std::sync::Arc;

use bus::dispatch::{Dispatch, End};
use bytes::Bytes;
use dialects::chat::usage::UsageFacts;
use dialects::dialect::Dialect;
use schemas::balance::decision::{Decision, Exclusion};
use schemas::catalog::Catalog;
use schemas::circuit::Verdict;
use schemas::command::Offer;
use schemas::event::request::Attempt;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Head, Report, Served};
use schemas::money::NanoUsd;
use schemas::outcome::Outcome;
use schemas::time::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use crate::affinity::Visit;
use crate::affinity::session::Stay;
use crate::attempt::{Call, Ending, Meter};
use crate::circuit::Claim;
use crate::fault::Fault;
use crate::keypool::{Held, Lease};
use crate::plan::{self, Candidate, all_open, none_available};
use crate::relay::{Relay, Stop};
use crate::state::Shared;

use deciding::remember;
use leasing::NoSeat;
use offloading::{Offloading, within};
use trail::{Step, Trail};
use waking::Sleepers;

pub(crate) use leasing::tell_of_sealed;
pub(crate) use prepared::{Preparation, Prepared};

/// A request that is being run.
pub(crate) struct Request {
    shared: Arc<Shared>,
    relay: Arc<Relay>,
    offer: Offer,
    body: Bytes,
    model_json: Bytes,
    stream_deadline: Option<Instant>,
    preparation: Preparation,
    stay: Stay,
    /// Tokens of an answer of the model.
    answer_tokens_max: u64,
    trail: Trail,
    sleepers: Sleepers,
    /// What was decided about whom to ask.
    decision: Option<Box<Decision>>,
    /// What is left to settle of it.
    wager: Option<plan::market::Wager>,
    /// Where it goes when it waits too long.
    offloading: Offloading,
    attempts: Vec<Attempt>,
    /// What upstreams charge for the attempts so far, as far as they tell.
    upstream_cost: Option<NanoUsd>,
    /// Attempts that told no cost and may have one.
    attempts_of_unknown_cost: u64,
    /// The status of an answer that passes as it is.
    passed: Option<u16>,
}

/// How the attempts at one candidate left the request.
enum Left {
    /// It has ended.
    Ended(Box<End>),
    /// Another candidate may be tried.
    Open,
}

impl Request {
    pub(crate) fn new(shared: Arc<Shared>, relay: Arc<Relay>, dispatch: Dispatch) -> Self {
        let attempts_max = shared.config.attempts_max.min(dispatch.offer.attempts_max);
        let pinned = dispatch.offer.pin.is_some();
        Self {
            trail: Trail::after(dispatch.offer.attempts_before, attempts_max, pinned),
            model_json: dialects::splice::json_string(&dispatch.offer.public_model),
            shared,
            relay,
            offer: dispatch.offer,
            body: dispatch.body,
            stream_deadline: None,
            preparation: Preparation::default(),
            stay: Stay::default(),
            answer_tokens_max: 0,
            sleepers: Sleepers::default(),
            decision: None,
            wager: None,
            offloading: Offloading::default(),
            attempts: Vec::with_capacity(1),
            upstream_cost: None,
            attempts_of_unknown_cost: 0,
            passed: None,
        }
    }

    /// Runs the request to its end.
    pub(crate) async fn run(mut self) -> Box<End> {
        let shared = Arc::clone(&self.shared);
        if !self.trail.started() {
            shared.budget.call(shared.clock.monotonic_ms());
        }
        let total = shared.config.clocks.stream_request;
        self.stream_deadline = total.and_then(|total| Instant::now().checked_add(total));
        let settings = &shared.config.affinity;
        let catalog = plan::snapshot(shared.catalog.load(), || shared.catalog.recent(), &self.offer);
        self.stay = Stay::of(settings, &catalog, &self.offer, &self.body);
        self.stay.find(&shared.affinity, shared.kv.as_ref()).await;
        let end = match self.plan(&shared, &catalog) {
            Ok(plan) => {
                self.answer_tokens_max = self.answer_tokens(&catalog);
                self.stay.decide(plan.verdict);
                let is_barred = plan.is_barred();
                self.decision = plan.decision;
                self.wager = plan.wager;
                self.offloading = Offloading::new(plan.offload);
                self.expect_asleep(&shared, plan.sleeper);
                self.walk(&shared, &plan.candidates, is_barred).await
            }
            Err(nobody) => {
                self.decision = nobody.decision;
                self.failed(nobody.failure)
            }
        };
        self.stay.spread(&shared.affinity).await;
        end
    }

    /// Tokens of an answer of the model.
    fn answer_tokens(&self, catalog: &Catalog) -> u64 {
        let model = catalog.model_of(&self.offer.owner, self.offer.model.as_str());
        model.map_or(0, |model| model.max_output_length)
    }

    /// Tries the candidates in their order.
    async fn walk(&mut self, shared: &Shared, candidates: &[Candidate], is_barred: bool) -> Box<End> {
        let mut ahead: VecDeque<&Candidate> = candidates.iter().collect();
        let mut refused_claim = is_barred;
        while let Some(candidate) = ahead.pop_front() {
            if !self.trail.suits(candidate.context_length) {
                self.pass_over(candidate, Exclusion::ContextLength);
                continue;
            }
            let prepared = match self.prepare(shared, candidate) {
                Ok(prepared) => prepared,
                Err(fault) => {
                    self.trail.note(fault, candidate.context_length);
                    self.pass_over(candidate, Exclusion::Untranslatable);
                    continue;
                }
            };
            if self.sleeps(shared, candidate).await {
                continue;
            }
            let backend = candidate.backend_id();
            let Some(claim) = shared
                .circuits
                .begin(&candidate.endpoint.id, &backend, candidate.bypass)
                .await
            else {
                refused_claim = true;
                self.pass_over(candidate, Exclusion::CircuitOpen { retry_in_ms: 0 });
                continue;
            };
            if self.trail.started() && !self.may_go_on(shared) {
                break;
            }
            if !claim.may_send() {
                refused_claim = true;
                self.pass_over(candidate, Exclusion::CircuitOpen { retry_in_ms: 0 });
                continue;
            }
            let last = !ahead.iter().any(|other| self.trail.suits(other.context_length));
            let left = self.visit(shared, (candidate, last), prepared, claim).await;
            if let Left::Ended(end) = left {
                return end;
            }
            if self.trail.step() == Step::Stop {
                break;
            }
            self.turn_aside(candidate, &mut ahead);
        }
        if let Some(end) = Box::pin(self.rouse(shared)).await {
            return end;
        }
        debug!(
            request.id = %self.offer.request_id,
            attempts = self.attempts.len(),
            decision = ?self.decision,
            "no attempt served the request"
        );
        let left = ahead
            .iter()
            .any(|candidate| self.trail.suits(candidate.context_length));
        self.give_up(shared, left, refused_claim)
    }

    /// Ends a request of which nothing was handed over. That nobody could be told what it asks for is not said while a
    /// circuit keeps somebody out who might.
    fn give_up(&mut self, shared: &Shared, left: bool, refused_claim: bool) -> Box<End> {
        let surfaced = self.trail.surfaced();
        match surfaced.filter(|fault| !(refused_claim && fault.concerns_translation())) {
            Some(fault) => {
                let failure = fault.failure_on(self.offer.surface);
                let (outcome, mut failure) = (before_content(fault), failure);
                failure.exhausted = self.trail.exhausted(left);
                self.end(outcome, Some(failure), Settled::default())
            }
            None if refused_claim => self.failed(all_open(shared.config.circuit.cooldown_ms)),
            None => self.failed(none_available()),
        }
    }

    /// Leave for an attempt beyond the first.
    fn may_go_on(&self, shared: &Shared) -> bool {
        self.relay.stopped().is_some() || shared.budget.repeat(shared.clock.monotonic_ms())
    }

    /// Tries one candidate with one credential after the other. `last`: no other candidate is left.
    async fn visit(
        &mut self,
        shared: &Shared,
        (candidate, last): (&Candidate, bool),
        prepared: Prepared,
        claim: Claim<'_>,
    ) -> Left {
        let mut prepared = prepared;
        let mut tried: Vec<Lease> = Vec::new();
        let seat = match self.seat(shared, candidate).await {
            Ok(seat) if claim.may_send() => Ok(seat),
            // The turn came when the probe was no longer this one's.
            Ok(_) => Err(Fault::Saturated),
            Err(NoSeat::Fault(fault)) => Err(fault),
            Err(NoSeat::Stopped(stop)) => {
                let ending = Ending::Stopped(stop);
                return Left::Ended(self.conclude(candidate, claim, ending, &Meter::default()));
            }
        };
        let mut seat = match seat {
            Ok(seat) => seat,
            Err(fault) => {
                self.note_fault(fault, candidate);
                return Left::Open;
            }
        };
        let backend = candidate.backend_id();
        self.stay.go(&shared.affinity, (&candidate.endpoint.id, &backend));
        let mut visit = shared.affinity.visit(&backend, self.stay.prompt());
        let _young = shared.memory.begin(&candidate.endpoint, &backend);
        loop {
            tried.extend(seat.held.as_ref().map(|held| held.lease));
            let (ending, meter, started_at) = self
                .attempt(shared, (candidate, &prepared), seat.held.as_ref(), &visit)
                .await;
            seat.slot.answered(meter.status);
            self.record(shared, candidate, (&ending, &meter, started_at));
            self.judge(shared, candidate, (&tried, &ending));
            self.note(shared, candidate, (&ending, &mut visit));
            remember(shared, &backend, (&ending, meter.sent));
            let fault = match ending {
                Ending::Failed(fault) if !meter.committed && self.may_follow(&fault, meter.sent) => fault,
                ending => {
                    return Left::Ended(self.conclude(candidate, claim, ending, &meter));
                }
            };
            if self.fell_asleep(shared, candidate, (&fault, meter.sent)) {
                claim.settle(Verdict::Neutral, fault.status());
                self.trail.note(fault, candidate.context_length);
                return Left::Open;
            }
            if let Some(changed) = self.without_thoughts(shared, candidate, (&prepared, &fault)) {
                prepared = changed;
                continue;
            }
            let begun = self.offer.splice.stream && meter.first_byte_ms.is_some();
            let next = (self.trail.rotates(&fault, begun, last) && claim.may_send())
                .then(|| self.next_seat(shared, candidate, &tried))
                .flatten();
            if let Some(next) = next {
                seat = next;
                continue;
            }
            claim.settle(self.verdict(fault.verdict(), meter.sent), fault.status());
            self.note_fault(fault, candidate);
            return Left::Open;
        }
    }

    /// Notes what the ending of an attempt says about what stays at its backend.
    fn note(&mut self, shared: &Shared, candidate: &Candidate, (ending, visit): (&Ending, &mut Visit<'_>)) {
        let backend = candidate.backend_id();
        match ending {
            Ending::Whole { .. } => {
                visit.whole();
                shared.samples.succeeded(&backend);
            }
            Ending::Failed(fault) if fault.verdict() == Verdict::Faulty => {
                self.stay.failed(&shared.affinity, &backend);
            }
            Ending::Failed(_) | Ending::Told(_) | Ending::Stopped(_) => {}
        }
    }

    /// The request without earlier thoughts, once, for an upstream that does not accept their proofs: they are
    /// another's. Nothing was generated, so the same credential may be used again.
    fn without_thoughts(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        (prepared, fault): (&Prepared, &Fault),
    ) -> Option<Prepared> {
        let repeats = prepared.dialect == Dialect::Messages
            && fault.doubts_thoughts()
            && self.trail.may_repeat()
            && match &prepared.way {
                Some(_) => self.preparation.forget_thoughts(),
                None => self.preparation.forget_passing_thoughts(prepared),
            }
            && self.may_go_on(shared);
        repeats.then(|| self.prepare(shared, candidate).ok()).flatten()
    }

    /// What a candidate is sent.
    fn prepare(&mut self, shared: &Shared, candidate: &Candidate) -> Result<Prepared, Fault> {
        if self.offer.raw.is_some() {
            return Ok(Prepared::passing(&self.body));
        }
        let answer_tokens = || self.answer_tokens_max;
        let mut prepared = self
            .preparation
            .prepare(candidate, &self.offer, &self.body, &answer_tokens)?;
        if candidate.endpoint.priority_scheduling {
            let backend = candidate.backend_id();
            prepared.prioritize(self.stay.priority(&shared.affinity, &backend));
        }
        Ok(prepared)
    }

    async fn attempt(
        &mut self,
        shared: &Shared,
        (candidate, prepared): (&Candidate, &Prepared),
        held: Option<&Held>,
        visit: &Visit<'_>,
    ) -> (Ending, Meter, Timestamp) {
        let started_at = shared.clock.now();
        let mut meter = Meter {
            started_ms: shared.clock.monotonic_ms(),
            ..Meter::default()
        };
        let call = Call {
            shared,
            relay: &self.relay,
            offer: &self.offer,
            caller_body: prepared.fitted.as_ref().unwrap_or(&self.body),
            prepared,
            model_json: &self.model_json,
            candidate,
            session: self.stay.told(),
            visit,
            stream_deadline: self.stream_deadline,
        };
        self.trail.begin();
        let credential = held.map(|held| held.declaration.secret.as_ref());
        let patience = self.offloading.patience(candidate);
        let patience = patience.filter(|_| self.offer.splice.stream && self.offer.raw.is_none());
        let ending = match patience {
            None => call.run(credential, &mut meter).await,
            Some(patience) => within(patience, visit, Box::pin(call.run(credential, &mut meter))).await,
        };
        // What was left may have been taken.
        meter.sent |= matches!(ending, Ending::Failed(Fault::Waited(_)));
        (ending, meter, started_at)
    }

    /// Writes down an attempt.
    fn record(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        (ending, meter, started_at): (&Ending, &Meter, Timestamp),
    ) {
        let (outcome, error_code) = match ending {
            Ending::Whole { .. } => (Outcome::Ok, None),
            Ending::Failed(fault) if meter.committed => {
                (after_content(fault), Some(fault.interruption().code))
            }
            Ending::Failed(fault) => (fault.outcome(), Some(fault.code())),
            Ending::Told(told) => (told.fault.outcome(), Some(told.fault.code())),
            Ending::Stopped(stop) => (stopped(*stop).0, Some(stopped(*stop).1.code)),
        };
        shared.metrics.attempt(&candidate.endpoint.id, outcome);
        match meter.usage.and_then(|usage| usage.cost_nano_usd) {
            Some(cost) => {
                let before = self.upstream_cost.map_or(0, |cost| cost.0);
                self.upstream_cost = Some(NanoUsd(before.saturating_add(cost)));
            }
            None => self.attempts_of_unknown_cost += u64::from(meter.may_have_cost(ending)),
        }
        self.attempts.push(Attempt {
            endpoint_id: candidate.endpoint.id.clone(),
            backend: candidate.backend_id(),
            provider: Arc::clone(&candidate.endpoint.provider),
            status: meter.status,
            outcome,
            error_code,
            started_at,
            first_byte_ms: meter.first_byte_ms,
            latency_ms: shared.clock.monotonic_ms().saturating_sub(meter.started_ms),
        });
    }

    /// Ends the request with its last attempt.
    fn conclude(
        &mut self,
        candidate: &Candidate,
        claim: Claim<'_>,
        ending: Ending,
        meter: &Meter,
    ) -> Box<End> {
        let served = Served {
            endpoint_id: candidate.endpoint.id.clone(),
            backend: candidate.backend_id(),
            provider: Arc::clone(&candidate.endpoint.provider),
            model: Arc::clone(&candidate.upstream_model),
        };
        let mut settled = Settled {
            served: Some(served),
            usage: meter.usage,
            delivered: meter.delivered,
            ..Settled::default()
        };
        match ending {
            Ending::Whole { head, tail } => {
                claim.settle(self.verdict(Verdict::Healthy, true), meter.status);
                settled.head = head;
                settled.tail = tail;
                self.passed = meter.status.filter(|_| self.offer.raw.is_some());
                self.end(Outcome::Ok, None, settled)
            }
            Ending::Told(told) => {
                claim.settle(self.verdict(told.fault.verdict(), true), meter.status);
                self.tell(*told, meter.status, settled)
            }
            Ending::Failed(fault) if !meter.committed => {
                claim.settle(self.verdict(fault.verdict(), meter.sent), fault.status());
                self.end(
                    before_content(&fault),
                    Some(fault.failure_on(self.offer.surface)),
                    settled,
                )
            }
            Ending::Failed(fault) => {
                claim.settle(self.verdict(fault.verdict(), meter.sent), fault.status());
                self.end(after_content(&fault), Some(fault.interruption()), settled)
            }
            Ending::Stopped(stop) => {
                claim.settle(Verdict::Neutral, None);
                if !meter.committed && settled.usage.is_none() {
                    settled.served = None;
                }
                let (outcome, failure) = stopped(stop);
                self.end(outcome, Some(failure), settled)
            }
        }
    }

    /// Ends a request that no attempt was made for. What is the caller's own mistake was refused here.
    fn failed(&mut self, failure: Failure) -> Box<End> {
        let outcome = if failure.status < 500 {
            Outcome::Rejected
        } else {
            Outcome::UpstreamError
        };
        self.end(outcome, Some(failure), Settled::default())
    }

    fn end(&mut self, outcome: Outcome, failure: Option<Failure>, settled: Settled) -> Box<End> {
        if outcome != Outcome::Ok {
            self.stay.give_up(&self.shared.affinity);
        }
        let (prompt, output) = (
            self.offer.requirements.prompt_tokens,
            settled.delivered.output_bytes,
        );
        let (usage, usage_flags) = settled
            .usage
            .map(|facts| facts.completed(prompt, output).normalize())
            .map_or((None, Vec::new()), |(usage, flags)| (Some(usage), flags));
        let is_served = outcome == Outcome::Ok || usage.is_some();
        let served = settled.served.as_ref().filter(|_| is_served);
        self.settle_wager(served, usage.as_ref());
        let told = self.stay.told();
        if let Some((_, verdict)) = &told {
            self.shared.metrics.session(verdict);
        }
        Box::new(End {
            report: Report {
                outcome,
                failure,
                attempts: std::mem::take(&mut self.attempts),
                served: settled.served,
                usage,
                usage_flags,
                upstream_cost_nano_usd: self.upstream_cost,
                attempts_of_unknown_cost: self.attempts_of_unknown_cost,
                passed: self.passed,
                delivered: settled.delivered,
                session: told.and_then(|(session, _)| session.cloned()),
                affinity: told.map(|(_, verdict)| verdict.to_string().into()),
                decision: self.decision.take(),
            },
            tail: settled.tail,
            head: settled.head,
        })
    }
}

/// What the last attempt leaves for the report.
#[derive(Default)]
struct Settled {
    head: Option<Head>,
    tail: Bytes,
    served: Option<Served>,
    usage: Option<UsageFacts>,
    delivered: Delivered,
}

/// The outcome of a request whose attempts all failed before content. What no endpoint could be told was sent to none:
/// it was refused here.
const fn before_content(fault: &Fault) -> Outcome {
    match fault {
        Fault::TimedOut | Fault::Unconnected => Outcome::Timeout,
        _ if fault.concerns_translation() => Outcome::Rejected,
        _ => Outcome::UpstreamError,
    }
}

/// The outcome of a request whose answer broke off in the caller's sight.
const fn after_content(fault: &Fault) -> Outcome {
    match fault {
        Fault::TimedOut => Outcome::Timeout,
        Fault::Cut | Fault::Unreachable => Outcome::UpstreamCut,
        _ => Outcome::UpstreamError,
    }
}

/// Outcome and failure of a request that was ended from outside.
fn stopped(stop: Stop) -> (Outcome, Failure) {
    match stop {
        Stop::CallerGone => (
            Outcome::ClientGone,
            Failure::new(FailureCode::ClientGone, "the caller has left"),
        ),
        Stop::Interrupted => (
            Outcome::Timeout,
            Failure::new(FailureCode::StreamInterrupted, "the gateway is shutting down"),
        ),
    }
}
