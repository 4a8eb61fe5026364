//! How a request that is run elsewhere ends: with its router's report, or with the gateway's own where there is none.

use bytes::Bytes;
use schemas::event::request::Attempt;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Report};
use schemas::id::{BackendId, EndpointId};
use schemas::outcome::Outcome;

use super::{Now, Phase, Request, Stop, Trouble};
use crate::dispatch::End;
use crate::remote::code::Last;

/// Seconds after which a caller for whom there was no router may try again.
const RETRY_SECONDS: u64 = 2;
/// What stands in an attempt of a router that could not tell whom it asked.
const UNTOLD: &str = "unknown";

/// What a caller is told for whom there was no router.
pub(super) fn untaken(trouble: Trouble) -> Failure {
    let (code, text) = match trouble {
        Trouble::BusAway => (
            FailureCode::StoreUnavailable,
            "the bus to the routers cannot be reached",
        ),
        Trouble::Nobody => (
            FailureCode::NoBackendsAvailable,
            "no router is there to run the request",
        ),
        Trouble::Busy => (FailureCode::Overloaded, "every router is running all it can"),
    };
    Failure::new(code, text).retry_after(RETRY_SECONDS)
}

impl Request {
    /// The router was lost: another one, if nothing was handed on yet and attempts are left.
    pub(super) fn lose(&mut self, now: Now) {
        self.count_lost(now);
        self.facts.attempts_max = self.facts.attempts_max.saturating_sub(1);
        self.phase = match self.stop {
            Some((stop, _)) => Phase::Ending(self.stopped(stop)),
            None if self.handed.head => Phase::Ending(self.cut()),
            None if self.facts.attempts_max == 0 => Phase::Ending(self.exhausted()),
            None => Phase::Open(None),
        };
    }

    /// Notes the attempt of a router that will not report.
    pub(super) fn count_lost(&mut self, now: Now) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let untold = || EndpointId::from(UNTOLD);
        let endpoint_id = self.facts.endpoint.clone().unwrap_or_else(untold);
        let latency = now.at.saturating_duration_since(running.began.at);
        self.lost.push(Attempt {
            backend: BackendId::from(endpoint_id.as_str()),
            endpoint_id,
            provider: UNTOLD.into(),
            status: None,
            outcome: Outcome::Lost,
            error_code: Some(FailureCode::NodeLost),
            started_at: running.began.wall,
            first_byte_ms: None,
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// The end as the router reports it. The time to the first content is measured here: the router would compare
    /// its clock with the gateway's.
    pub(super) fn reported(&mut self, last: Last, tail: Bytes, now: Now) -> Box<End> {
        let mut report = last.report;
        if report.delivered.ttft_ms.is_some() {
            let until_now = || now.wall.millis_since(self.facts.started_at);
            report.delivered.ttft_ms = Some(self.handed.ttft_ms.unwrap_or_else(until_now));
        }
        let mut attempts = std::mem::take(&mut self.lost);
        report.attempts_of_unknown_cost += attempts.len() as u64;
        attempts.append(&mut report.attempts);
        report.attempts = attempts;
        Box::new(End {
            report,
            tail,
            head: last.head.filter(|_| !self.handed.head),
        })
    }

    /// The end of a request that no router took, or that all that took it were lost with.
    pub(super) fn failed(&mut self, failure: Failure) -> Box<End> {
        self.ended(Outcome::UpstreamError, failure)
    }

    /// The end of a request whose caller left or whose node drains, without a router's report.
    pub(super) fn stopped(&mut self, stop: Stop) -> Box<End> {
        let (outcome, failure) = match stop {
            Stop::CallerGone => (
                Outcome::ClientGone,
                Failure::new(FailureCode::ClientGone, "the caller has left"),
            ),
            Stop::Interrupted => (
                Outcome::Timeout,
                Failure::new(FailureCode::StreamInterrupted, "the gateway is shutting down"),
            ),
        };
        self.ended(outcome, failure)
    }

    fn cut(&mut self) -> Box<End> {
        let text = "the router that ran the request was lost";
        self.ended(
            Outcome::UpstreamCut,
            Failure::new(FailureCode::StreamInterrupted, text),
        )
    }

    fn exhausted(&mut self) -> Box<End> {
        let text = "the routers that ran the request were lost";
        let mut failure = Failure::new(FailureCode::UpstreamError, text);
        failure.exhausted = true;
        self.failed(failure)
    }

    fn ended(&mut self, outcome: Outcome, failure: Failure) -> Box<End> {
        Box::new(End {
            report: Report {
                outcome,
                failure: Some(failure),
                attempts_of_unknown_cost: self.lost.len() as u64,
                passed: None,
                attempts: std::mem::take(&mut self.lost),
                served: None,
                usage: None,
                usage_flags: Vec::new(),
                upstream_cost_nano_usd: None,
                session: None,
                affinity: None,
                decision: None,
                delivered: Delivered {
                    content: self.handed.content,
                    // How much of what was handed on is text, only the router could tell.
                    output_bytes: 0,
                    ttft_ms: self.handed.ttft_ms,
                },
            },
            tail: Bytes::new(),
            head: None,
        })
    }
}
