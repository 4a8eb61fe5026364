//! Candidates that sleep. Somebody else may serve at once, while they are woken; where nobody does, the request waits
//! for the first of them, and is the same request all the while.

use std::future::Future as _;

use schemas::balance::decision::Exclusion;
use schemas::wake::record::Outcome;
use tokio::time::Instant;

use bus::dispatch::End;

use crate::attempt::clocks::{Interruption, Timer, deadline, earlier, wait};
use crate::fault::Fault;
use crate::plan::Candidate;
use crate::state::Shared;
use crate::wake;

use super::{Left, Request, Settled, stopped};

/// What a request knows of candidates that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// The first that was found asleep.
    first: Option<Candidate>,
    /// It was waited for: whoever is not there now is not asleep.
    heard: bool,
}

impl Request {
    /// True for a candidate that sleeps. The first one is woken, whoever serves the request.
    pub(super) async fn sleeps(&mut self, shared: &Shared, candidate: &Candidate) -> bool {
        if candidate.endpoint.wake.is_none() || self.sleepers.heard {
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
            candidate.endpoint.wake.is_some() && !self.sleepers.heard && fault.suggests_sleep(was_sent);
        if sleeps {
            self.lay_down(shared, candidate);
        }
        sleeps
    }

    fn lay_down(&mut self, shared: &Shared, candidate: &Candidate) {
        if self.sleepers.first.is_none() {
            drop(shared.wakes.begin(candidate));
            self.sleepers.first = Some(candidate.clone());
        }
    }

    /// Waits for the first candidate that sleeps, and asks it. `None` where none does, or it failed: then there is
    /// nothing left to try.
    pub(super) async fn rouse(&mut self, shared: &Shared) -> Option<Box<End>> {
        let candidate = self.sleepers.first.take()?;
        if self.trail.is_reported() || !self.trail.may_repeat() {
            return None;
        }
        let outcome = match self.hear_of(shared, &candidate).await {
            Ok(outcome) => outcome,
            Err(stop) => {
                let (outcome, failure) = stopped(stop);
                return Some(self.end(outcome, Some(failure), Settled::default()));
            }
        };
        if let Some(failure) = outcome.failure() {
            return Some(self.failed(failure));
        }
        self.sleepers.heard = true;
        let prepared = self.prepare(shared, &candidate).ok()?;
        let backend = candidate.backend_id();
        // What was found of it while it slept says nothing about it now.
        let claim = shared
            .circuits
            .begin(&candidate.endpoint.id, &backend, true)
            .await?;
        match self.visit(shared, (&candidate, true), prepared, claim).await {
            Left::Ended(end) => Some(end),
            Left::Open => None,
        }
    }

    /// How waking a candidate goes, within the bound.
    async fn hear_of(&self, shared: &Shared, candidate: &Candidate) -> Result<Outcome, crate::relay::Stop> {
        let mut heard = shared.wakes.begin(candidate);
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
