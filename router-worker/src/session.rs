//! The path of one request: plan, then attempt after attempt until one is whole, one broke off in the
//! caller's sight, or nothing is left to try. What to do next is decided in [`trail`], without I/O.

mod trail;

use std::sync::Arc;

use bus::dispatch::{Dispatch, End};
use bytes::Bytes;
use dialects::chat::usage::UsageFacts;
use dialects::estimate;
use dialects::splice::Spliced;
use schemas::circuit::Verdict;
use schemas::command::Offer;
use schemas::event::request::Attempt;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Head, Report, Served};
use schemas::outcome::Outcome;
use schemas::secret::Secret;
use schemas::time::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use crate::attempt::{Call, Ending, Meter};
use crate::circuit::Claim;
use crate::fault::Fault;
use crate::plan::{Candidate, Plan, all_open, none_available, plan};
use crate::provider;
use crate::relay::{Relay, Stop};
use crate::state::Shared;

use trail::{Step, Trail};

/// A request that is being run.
pub(crate) struct Request {
    shared: Arc<Shared>,
    relay: Arc<Relay>,
    offer: Offer,
    body: Bytes,
    model_json: Bytes,
    stream_deadline: Option<Instant>,
    trail: Trail,
    attempts: Vec<Attempt>,
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
            trail: Trail::new(attempts_max, pinned),
            model_json: dialects::splice::json_string(&dispatch.offer.public_model),
            shared,
            relay,
            offer: dispatch.offer,
            body: dispatch.body,
            stream_deadline: None,
            attempts: Vec::with_capacity(1),
        }
    }

    /// Runs the request to its end.
    pub(crate) async fn run(mut self) -> Box<End> {
        let shared = Arc::clone(&self.shared);
        shared.budget.call(shared.clock.monotonic_ms());
        let total = shared.config.clocks.stream_request;
        self.stream_deadline = total.and_then(|total| Instant::now().checked_add(total));
        let plan = {
            let catalog = shared.catalog.peek();
            plan(&catalog, &self.offer, &shared.circuits, shared.mint.draw())
        };
        match plan {
            Ok(plan) => self.walk(&shared, &plan).await,
            Err(failure) => self.failed(failure),
        }
    }

    /// Tries the candidates in their order.
    async fn walk(mut self, shared: &Shared, plan: &Plan) -> Box<End> {
        let mut candidates = plan.candidates.iter();
        let mut refused_claim = false;
        for candidate in candidates.by_ref() {
            if !self.trail.suits(candidate.context_length) {
                continue;
            }
            let backend = candidate.backend_id();
            let Some(claim) = shared
                .circuits
                .begin(&candidate.endpoint.id, &backend, candidate.bypass)
                .await
            else {
                refused_claim = true;
                continue;
            };
            if self.trail.started() && !self.may_go_on(shared) {
                break;
            }
            if !claim.may_send() {
                refused_claim = true;
                continue;
            }
            if let Left::Ended(end) = self.visit(shared, candidate, claim).await {
                return end;
            }
            if self.trail.step() == Step::Stop {
                break;
            }
        }
        debug!(
            request.id = %self.offer.request_id,
            attempts = self.attempts.len(),
            excluded = ?plan.excluded,
            "no attempt served the request"
        );
        let left = candidates.any(|candidate| self.trail.suits(candidate.context_length));
        self.give_up(shared, left, refused_claim)
    }

    /// Ends a request of which nothing was handed over.
    fn give_up(&mut self, shared: &Shared, left: bool, refused_claim: bool) -> Box<End> {
        match self.trail.surfaced() {
            Some(fault) => {
                let (outcome, mut failure) = (before_content(fault), fault.failure());
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

    /// Tries one candidate with one credential after the other.
    async fn visit(&mut self, shared: &Shared, candidate: &Candidate, claim: Claim<'_>) -> Left {
        let dialect = provider::dialect(&candidate.endpoint, self.offer.surface);
        let body = provider::body(candidate, dialect, &self.body, &self.offer.splice);
        let references = &candidate.endpoint.credentials;
        let mut credentials: Vec<Option<&Secret<String>>> = references
            .iter()
            .filter_map(|reference| shared.credentials.get(reference))
            .map(Some)
            .collect();
        if references.is_empty() {
            credentials.push(None);
        }
        if credentials.is_empty() {
            self.trail.note(Fault::Misconfigured, candidate.context_length);
            return Left::Open;
        }
        let last = credentials.len() - 1;
        for (place, credential) in credentials.into_iter().enumerate() {
            let (ending, meter, started_at) = self.attempt(shared, candidate, &body, credential).await;
            self.record(shared, candidate, (&ending, &meter, started_at));
            let fault = match ending {
                Ending::Failed(fault) if !meter.committed => fault,
                ending => {
                    return Left::Ended(self.conclude(candidate, claim, ending, &meter));
                }
            };
            let rotates =
                place < last && self.trail.rotates(&fault) && claim.may_send() && self.may_go_on(shared);
            if rotates {
                continue;
            }
            claim.settle(fault.verdict(), fault.status());
            self.trail.note(fault, candidate.context_length);
            return Left::Open;
        }
        Left::Open
    }

    async fn attempt(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        body: &Spliced,
        credential: Option<&Secret<String>>,
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
            caller_body: &self.body,
            body,
            model_json: &self.model_json,
            candidate,
            stream_deadline: self.stream_deadline,
        };
        self.trail.begin();
        let ending = call.run(credential, &mut meter).await;
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
            Ending::Failed(fault) => (fault.outcome(), Some(fault.failure().code)),
            Ending::Stopped(stop) => (stopped(*stop).0, Some(stopped(*stop).1.code)),
        };
        shared.metrics.attempt(&candidate.endpoint.id, outcome);
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
                claim.settle(Verdict::Healthy, meter.status);
                settled.head = head;
                settled.tail = tail;
                self.end(Outcome::Ok, None, settled)
            }
            Ending::Failed(fault) => {
                claim.settle(fault.verdict(), fault.status());
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

    /// Ends a request that no attempt was made for.
    fn failed(&mut self, failure: Failure) -> Box<End> {
        self.end(Outcome::UpstreamError, Some(failure), Settled::default())
    }

    fn end(&mut self, outcome: Outcome, failure: Option<Failure>, settled: Settled) -> Box<End> {
        let (usage, usage_flags) = settled
            .usage
            .map(|facts| self.completed(facts, settled.delivered).normalize())
            .map_or((None, Vec::new()), |(usage, flags)| (Some(usage), flags));
        Box::new(End {
            report: Report {
                outcome,
                failure,
                attempts: std::mem::take(&mut self.attempts),
                served: settled.served,
                usage,
                usage_flags,
                delivered: settled.delivered,
            },
            tail: settled.tail,
            head: settled.head,
        })
    }
}

impl Request {
    /// Where an upstream told only a part of the usage, the rest is estimated and the figures are marked.
    fn completed(&self, mut facts: UsageFacts, delivered: Delivered) -> UsageFacts {
        facts.malformed |= facts.prompt_tokens.is_none() || facts.completion_tokens.is_none();
        facts
            .prompt_tokens
            .get_or_insert(self.offer.requirements.prompt_tokens);
        facts
            .completion_tokens
            .get_or_insert(estimate::bytes_tokens(delivered.output_bytes));
        facts
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

/// The outcome of a request whose attempts all failed before content.
const fn before_content(fault: &Fault) -> Outcome {
    match fault {
        Fault::TimedOut => Outcome::Timeout,
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
