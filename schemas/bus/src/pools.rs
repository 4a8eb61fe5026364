//! Runs requests where their ways lead: in this node, in its own pool, or pool after pool. A pool in which nobody can
//! take a request is passed at once for the next, as is one that failed before anything of an answer was there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use schemas::balance::decision::{Decision, Excluded, Exclusion};
use schemas::command::Offer;
use schemas::event::request::Attempt;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Report};
use schemas::id::{BackendId, PoolName};
use schemas::money::NanoUsd;
use schemas::outcome::Outcome;
use schemas::pool::{Way, goes_on};

use crate::dispatch::{Dispatch, Dispatcher, End, Frame, Session};
use crate::remote::gateway::{RemoteDispatcher, Target};

/// Seconds after which a caller may try again whose pool nobody is in.
const RETRY_SECONDS: u64 = 2;

/// Who runs requests, by pool. Cheap to clone.
#[derive(Clone)]
pub struct Pools {
    /// The pool of this node.
    own: PoolName,
    /// The router in this node.
    here: Option<Arc<dyn Dispatcher>>,
    /// The way to routers elsewhere; `None` on a bus that is in this process.
    elsewhere: Option<RemoteDispatcher>,
}

impl Pools {
    /// Runs what is for the pool `own` in the router that is `here`, everything else over the bus.
    pub fn new(
        own: PoolName,
        here: Option<Arc<dyn Dispatcher>>,
        elsewhere: Option<RemoteDispatcher>,
    ) -> Self {
        Self { own, here, elsewhere }
    }

    /// Begins to run a request in a pool; `None` when no message reaches it.
    fn begin(&self, target: Target, dispatch: Dispatch) -> Option<Box<dyn Session>> {
        match (&self.here, &self.elsewhere) {
            (Some(here), _) if target.pool == self.own => Some(here.dispatch(dispatch)),
            (_, Some(elsewhere)) => Some(elsewhere.dispatch_to(target, dispatch)),
            (_, None) => None,
        }
    }
}

impl Dispatcher for Pools {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        if dispatch.ways.is_empty() {
            // Whoever follows the catalogue runs all of it: nothing stands between.
            if let Some(here) = &self.here {
                return here.dispatch(dispatch);
            }
            if let Some(elsewhere) = &self.elsewhere {
                return elsewhere.dispatch(dispatch);
            }
        }
        let Dispatch { offer, body, ways } = dispatch;
        let mut walk = Walk {
            pools: self.clone(),
            offer,
            body,
            ways: ways.into(),
            way: None,
            current: None,
            before: Before::default(),
            is_handed: false,
            is_stopped: false,
        };
        walk.set_out();
        Box::new(walk)
    }
}

/// What pools came to that were asked before.
#[derive(Debug, Default)]
struct Before {
    attempts: Vec<Attempt>,
    attempts_of_unknown_cost: u64,
    upstream_cost: Option<NanoUsd>,
    /// The first failure of somebody who was asked.
    failure: Option<(Outcome, Failure)>,
    excluded: Vec<Excluded>,
}

impl Before {
    /// Keeps what a way came to that is left.
    fn note(&mut self, report: Report, way: &Way) {
        let is_asked = !report.attempts.is_empty();
        if let Some(decision) = report.decision {
            self.excluded.extend(decision.excluded);
        } else if !is_asked {
            self.excluded
                .extend(way.candidates.iter().map(|endpoint| Excluded {
                    endpoint: endpoint.clone(),
                    backend: None,
                    reason: Exclusion::PoolAway,
                }));
        }
        if let Some(failure) = report.failure.filter(|_| is_asked) {
            self.failure.get_or_insert((report.outcome, failure));
        }
        self.attempts.extend(report.attempts);
        self.attempts_of_unknown_cost += report.attempts_of_unknown_cost;
        self.upstream_cost = sum(self.upstream_cost, report.upstream_cost_nano_usd);
    }

    /// Puts it before what the last way came to. Of failures, that of the first who was asked is told, unless a later one
    /// says more about the request.
    fn conclude(self, report: &mut Report) {
        let says_less = report.attempts.is_empty()
            || report
                .failure
                .as_ref()
                .is_some_and(|failure| failure.status >= 500);
        if let Some((outcome, failure)) = self.failure
            && report.failure.is_some()
            && says_less
            && !matches!(report.outcome, Outcome::ClientGone)
            && !report.delivered.content
        {
            (report.outcome, report.failure) = (outcome, Some(failure));
        }
        let own = std::mem::take(&mut report.attempts);
        if !self.excluded.is_empty() {
            let decision = report.decision.get_or_insert_with(|| Box::new(asked(&own)));
            decision.excluded.splice(0..0, self.excluded);
        }
        report.attempts = self.attempts;
        report.attempts.extend(own);
        report.attempts_of_unknown_cost += self.attempts_of_unknown_cost;
        report.upstream_cost_nano_usd = sum(self.upstream_cost, report.upstream_cost_nano_usd);
    }
}

/// What was decided where that was not said: nobody was left out, and these were asked.
fn asked(attempts: &[Attempt]) -> Decision {
    let mut order: Vec<BackendId> = attempts.iter().map(|attempt| attempt.backend.clone()).collect();
    order.dedup();
    Decision {
        order,
        ..Decision::default()
    }
}

fn sum(one: Option<NanoUsd>, other: Option<NanoUsd>) -> Option<NanoUsd> {
    match (one, other) {
        (Some(one), Some(other)) => Some(NanoUsd(one.0.saturating_add(other.0))),
        (one, other) => one.or(other),
    }
}

/// A request on its ways.
struct Walk {
    pools: Pools,
    offer: Offer,
    body: Bytes,
    ways: VecDeque<Way>,
    /// The way it is on.
    way: Option<Way>,
    /// Who runs it there; `None` when no message reaches the pool.
    current: Option<Box<dyn Session>>,
    before: Before,
    /// Something of an answer was handed on.
    is_handed: bool,
    /// It was ended from outside.
    is_stopped: bool,
}

impl Walk {
    /// Sets out on the next way.
    fn set_out(&mut self) {
        self.current = None;
        let Some(way) = self.ways.pop_front() else {
            return;
        };
        let mut offer = self.offer.clone();
        offer.candidates = Arc::clone(&way.candidates);
        let made = u32::try_from(self.before.attempts.len()).unwrap_or(u32::MAX);
        offer.attempts_before = offer.attempts_before.saturating_add(made);
        let target = Target {
            pool: way.pool.clone(),
            part: way.part.clone(),
            is_last: self.ways.is_empty(),
        };
        let dispatch = Dispatch::new(offer, self.body.clone());
        self.current = self.pools.begin(target, dispatch);
        self.way = Some(way);
    }

    /// May the next way be tried after this end?
    fn may_go_on(&self, report: &Report) -> bool {
        let made = self.before.attempts.len() + report.attempts.len();
        let made = u32::try_from(made).unwrap_or(u32::MAX);
        let left = self
            .offer
            .attempts_max
            .saturating_sub(self.offer.attempts_before.saturating_add(made));
        !self.is_handed && !self.is_stopped && !self.ways.is_empty() && left > 0 && goes_on(report)
    }
}

impl Session for Walk {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        loop {
            let frame = match &mut self.current {
                Some(session) => ready!(session.poll_frame(context)),
                None => Frame::End(Box::new(unreached())),
            };
            let mut end = match frame {
                Frame::End(end) => end,
                frame => {
                    self.is_handed = true;
                    return Poll::Ready(frame);
                }
            };
            if self.may_go_on(&end.report)
                && let Some(way) = self.way.take()
            {
                self.before.note(end.report, &way);
                self.set_out();
                continue;
            }
            std::mem::take(&mut self.before).conclude(&mut end.report);
            return Poll::Ready(Frame::End(end));
        }
    }

    fn cancel(&mut self) {
        self.is_stopped = true;
        if let Some(session) = &mut self.current {
            session.cancel();
        }
    }

    fn interrupt(&mut self) {
        self.is_stopped = true;
        if let Some(session) = &mut self.current {
            session.interrupt();
        }
    }
}

/// The end of a request for a pool that no message reaches from here.
fn unreached() -> End {
    let text = "no router is there to run the request";
    let failure = Failure::new(FailureCode::NoBackendsAvailable, text).retry_after(RETRY_SECONDS);
    End {
        report: Report {
            outcome: Outcome::UpstreamError,
            failure: Some(failure),
            attempts: Vec::new(),
            served: None,
            usage: None,
            usage_flags: Vec::new(),
            upstream_cost_nano_usd: None,
            attempts_of_unknown_cost: 0,
            passed: None,
            delivered: Delivered::default(),
            session: None,
            affinity: None,
            decision: None,
        },
        tail: Bytes::new(),
        head: None,
    }
}

#[cfg(test)]
mod tests;
