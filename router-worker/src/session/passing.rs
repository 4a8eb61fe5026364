//! Requests that pass as they are: when one may be sent again, what its answer says about its backend, and what its
//! caller is told.

use bus::dispatch::End;
use schemas::circuit::Verdict;
use schemas::command::Raw;

use super::{Request, Settled};
use crate::attempt::{Told, tells_of_backend};
use crate::fault::Fault;

impl Request {
    /// Whether another attempt may follow one that failed so: nobody knows what a request does that passes as it is, so
    /// that one which may have been taken is not sent again.
    pub(super) fn may_follow(&self, fault: &Fault, was_sent: bool) -> bool {
        let is_safe = |raw: &Raw| matches!(raw.method.as_ref(), "GET" | "HEAD" | "OPTIONS");
        let raw = self.offer.raw.as_deref();
        raw.is_none_or(is_safe) || !was_sent || matches!(fault, Fault::Refused(_))
    }

    /// What an ending says about its backend: nothing, where it answered to something that is no call of a model.
    pub(super) fn verdict(&self, verdict: Verdict, was_sent: bool) -> Verdict {
        let raw = self.offer.raw.as_deref().filter(|_| was_sent);
        if raw.is_none_or(tells_of_backend) {
            verdict
        } else {
            Verdict::Neutral
        }
    }

    /// Ends the request with the words of an upstream that failed, where they pass, else with ours.
    pub(super) fn tell(&mut self, told: Told, status: Option<u16>, settled: Settled) -> Box<End> {
        self.passed = status.filter(|_| told.passes);
        let failure = told.fault.failure();
        let failure = match self.passed {
            Some(status) => failure.with_status(status),
            None => failure,
        };
        let settled = Settled {
            head: told.head,
            tail: told.tail,
            ..settled
        };
        self.end(told.fault.outcome(), Some(failure), settled)
    }
}
