//! Candidates that sleep. Somebody else may serve at once, while the first of them is woken; where nobody does, the
//! request waits for it, and is the same request all the while. Where other models may be asked instead, it does not wait
//! before they were.

use std::future::Future as _;

use bus::dispatch::End;
use schemas::balance::decision::Exclusion;
use schemas::wake::record::Outcome;
use tokio::time::Instant;

use crate::attempt::clocks::{Interruption, Timer, deadline, earlier, wait};
use crate::fault::Fault;
use crate::plan::Candidate;
use crate::relay::Stop;
use crate::state::Shared;
use crate::wake;

use super::{Left, Request, Settled, stopped};

/// What a request knows of candidates that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Those that were found asleep, in order, and when.
    found: Vec<(Candidate, Instant)>,
    /// One of them is awake: whoever is not there now does not sleep.
    woken: bool,
}

impl Request {
    /// True for a candidate that sleeps. The first one is woken, whoever serves the request.
    pub(super) async fn sleeps(&mut self, shared: &Shared, candidate: &Candidate) -> bool {
        if candidate.endpoint.wake.is_none() || self.sleepers.woken {
            return false;
        }
        let sleeps =
            shared.wakes.sleeps(&candidate.backend_id()) || Box::pin(wake::says_so(shared, candidate)).await;
        if sleeps {
            self.pass_over(candidate, Exclusion::Asleep);
            self.lay_down(shared, candidate);
        }
        sleeps
    }

    /// True when a fault means that a candidate sleeps, which is none of its backend's.
    pub(super) fn fell_asleep(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        fault: (&Fault, bool),
    ) -> bool {
        let (fault, was_sent) = fault;
        let sleeps =
            candidate.endpoint.wake.is_some() && !self.sleepers.woken && fault.suggests_sleep(was_sent);
        if sleeps {
            self.lay_down(shared, candidate);
        }
        sleeps
    }

    /// Has a candidate woken that nobody asks, because probes or its circuit keep it out.
    pub(super) fn expect_asleep(&mut self, shared: &Shared, candidate: Option<Candidate>) {
        if let Some(candidate) = candidate {
            self.lay_down(shared, &candidate);
        }
    }

    fn lay_down(&mut self, shared: &Shared, candidate: &Candidate) {
        let now = Instant::now();
        if self.sleepers.found.is_empty() {
            drop(shared.wakes.begin(candidate, now));
        }
        self.sleepers.found.push((candidate.clone(), now));
    }

    /// Waits for the first candidate that sleeps, and asks it; for the next where it is told at once that the first does
    /// not come. `None` where none sleeps, or the one that woke failed: then there is nothing left to try.
    pub(super) async fn rouse(&mut self, shared: &Shared) -> Option<Box<End>> {
        let mut told = None;
        for (candidate, found_at) in std::mem::take(&mut self.sleepers.found) {
            if self.trail.is_reported() || !self.trail.may_repeat() {
                return None;
            }
            let outcome = match self.hear_of(shared, (&candidate, found_at)).await {
                Ok(outcome) => outcome,
                Err(stop) => {
                    let (outcome, failure) = stopped(stop);
                    return Some(self.end(outcome, Some(failure), Settled::default()));
                }
            };
            let Some(failure) = outcome.failure() else {
                return self.ask_woken(shared, &candidate).await;
            };
            told.get_or_insert(failure);
            if outcome == Outcome::Late {
                break;
            }
        }
        told.map(|failure| self.failed(failure))
    }

    async fn ask_woken(&mut self, shared: &Shared, candidate: &Candidate) -> Option<Box<End>> {
        self.sleepers.woken = true;
        let prepared = self.prepare(shared, candidate).ok()?;
        let backend = candidate.backend_id();
        // What was found of it while it slept says nothing about it now.
        let claim = shared
            .circuits
            .begin(&candidate.endpoint.id, &backend, true)
            .await?;
        match self.visit(shared, (candidate, true), prepared, claim).await {
            Left::Ended(end) => Some(end),
            Left::Open => None,
        }
    }

    /// How waking a candidate goes, within the bound; how it went, where nobody waits.
    async fn hear_of(
        &self,
        shared: &Shared,
        (candidate, found_at): (&Candidate, Instant),
    ) -> Result<Outcome, Stop> {
        let mut heard = shared.wakes.begin(candidate, found_at);
        if self.offer.passes_sleepers {
            return Ok(heard.borrow().map_or(Outcome::Late, |over| over.outcome));
        }
        let mut hearing = Box::pin(async move {
            // Nobody tells any more: the router ends.
            heard.wait_for(Option::is_some).await.ok().and_then(|told| *told)
        });
        let mut timer = Timer::default();
        let bound = deadline(Instant::now(), Some(wake::bound(&candidate.endpoint)));
        timer.set(earlier(bound, self.stream_deadline));
        match wait(&self.relay, &mut timer, |context| hearing.as_mut().poll(context)).await {
            Ok(over) => Ok(over.map_or(Outcome::Late, |over| over.outcome)),
            Err(Interruption::TimedOut) => Ok(Outcome::Late),
            Err(Interruption::Stopped(stop)) => Err(stop),
        }
    }
}
