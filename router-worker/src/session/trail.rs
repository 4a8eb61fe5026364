//! What a request has tried so far, and what that allows: pure.
//!
//! The error that a caller sees is the first attempt's, unless that one says nothing about the request and a
//! later one does: a dead endpoint must not turn a caller's mistake into something he retries. That an endpoint
//! cannot be told what was asked for counts only where it is so of all: another one might have done it.

use crate::fault::{Fault, Remedy, Waited};

/// What to do after a candidate failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Try the next candidate that suits.
    Next,
    /// Report.
    Stop,
}

/// The trail of one request.
#[derive(Debug)]
pub(super) struct Trail {
    attempts: u32,
    attempts_max: u32,
    pinned: bool,
    /// One per candidate that failed, in order.
    faults: Vec<Fault>,
    /// The widest context that refused the prompt as too long.
    refused_context: Option<u64>,
}

impl Trail {
    /// The trail of a request for which `before` attempts were made at other models.
    pub(super) const fn after(before: u32, attempts_max: u32, pinned: bool) -> Self {
        Self {
            attempts: before,
            attempts_max,
            pinned,
            faults: Vec::new(),
            refused_context: None,
        }
    }

    /// An attempt begins.
    pub(super) const fn begin(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// True once an attempt was made.
    pub(super) const fn started(&self) -> bool {
        self.attempts > 0
    }

    /// A candidate with this context failed for good.
    pub(super) fn note(&mut self, fault: Fault, context_length: u64) {
        if fault.remedy() == Remedy::WiderEndpoint {
            let widest = self.refused_context.unwrap_or(0).max(context_length);
            self.refused_context = Some(widest);
        }
        self.faults.push(fault);
    }

    /// The same of one that was asked again after the request had waited there too long: it counts in the place of that.
    pub(super) fn note_again(&mut self, fault: Fault, context_length: u64) {
        self.note(fault, context_length);
        let waited = self
            .faults
            .iter()
            .position(|fault| matches!(fault, Fault::Waited(_)));
        if let (Some(place), Some(fault)) = (waited, self.faults.pop()) {
            self.faults.insert(place, fault);
            self.faults.remove(place + 1);
        }
    }

    /// What the request waited for, if that is why the last candidate was left.
    pub(super) fn waited(&self) -> Option<Waited> {
        match self.faults.last() {
            Some(Fault::Waited(waited)) => Some(*waited),
            _ => None,
        }
    }

    /// Whether a candidate of this context may be tried at all.
    pub(super) fn suits(&self, context_length: u64) -> bool {
        self.refused_context
            .is_none_or(|refused| context_length > refused)
    }

    /// Whether the same endpoint is tried with its next credential. `begun`: a body had begun; `last`: there is no
    /// other endpoint, so that a failure that lies in no credential is worth the trial too.
    pub(super) fn rotates(&self, fault: &Fault, begun: bool, last: bool) -> bool {
        let worth = match fault.remedy() {
            Remedy::NextCredential => true,
            Remedy::NextEndpoint => last && matches!(fault.status(), Some(408 | 500..)),
            Remedy::WiderEndpoint | Remedy::Report => false,
        };
        worth && !begun && self.attempts < self.attempts_max
    }

    /// Whether the same is tried once more, changed.
    pub(super) const fn may_repeat(&self) -> bool {
        self.attempts < self.attempts_max
    }

    /// True once a candidate found the request itself at fault.
    pub(super) fn is_reported(&self) -> bool {
        self.faults.last().map(Fault::remedy) == Some(Remedy::Report)
    }

    /// What to do now that the last candidate failed.
    pub(super) fn step(&self) -> Step {
        if self.is_reported() || self.pinned || self.attempts >= self.attempts_max {
            Step::Stop
        } else {
            Step::Next
        }
    }

    /// Whether a repetition by the caller would only do the same again, given that candidates are left.
    pub(super) fn exhausted(&self, left: bool) -> bool {
        let reported = self
            .faults
            .last()
            .is_none_or(|fault| fault.remedy() == Remedy::Report);
        let is_said = self.faults.iter().all(Fault::concerns_translation);
        !reported && !is_said && (self.pinned || !left)
    }

    /// The failure the caller is told of; `None` while there is none.
    pub(super) fn surfaced(&self) -> Option<&Fault> {
        let mut others = self.faults.iter().filter(|fault| !fault.concerns_translation());
        let Some(first) = others.clone().next() else {
            return self.faults.first();
        };
        if first.concerns_request() {
            return Some(first);
        }
        let telling = others.find(|fault| fault.concerns_request());
        Some(telling.unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use dialects::superset::request::Unmappable;
    use http::HeaderMap;

    use crate::fault::Refusal;

    use super::*;

    fn refused(status: u16) -> Fault {
        Fault::from(Refusal::of_answer(status, &HeaderMap::new(), b"{}"))
    }

    fn too_long() -> Fault {
        let body = b"{\"error\":{\"message\":\"prompt is too long\"}}";
        Fault::from(Refusal::of_answer(400, &HeaderMap::new(), body))
    }

    fn surfaced(faults: Vec<Fault>) -> Fault {
        let mut trail = Trail::after(0, 4, false);
        for fault in faults {
            trail.note(fault, 0);
        }
        trail.surfaced().expect("a fault").clone()
    }

    #[test]
    fn a_later_error_about_the_request_displaces_one_that_says_nothing_about_it() {
        assert_eq!(surfaced(vec![Fault::Unreachable, refused(400)]), refused(400));
        assert_eq!(
            surfaced(vec![refused(500), refused(429), refused(422)]),
            refused(422)
        );
    }

    #[test]
    fn credentials_and_rates_of_a_fallback_never_displace_the_first_error() {
        for status in [401, 403, 407, 408, 429, 500] {
            assert_eq!(
                surfaced(vec![Fault::Unreachable, refused(status)]),
                Fault::Unreachable
            );
        }
    }

    #[test]
    fn of_two_errors_about_the_request_the_first_is_told() {
        assert_eq!(surfaced(vec![refused(400), refused(422)]), refused(400));
    }

    #[test]
    fn a_prompt_that_was_too_long_suits_only_a_wider_context() {
        let mut trail = Trail::after(0, 4, false);
        assert!(trail.suits(1));

        trail.note(too_long(), 262_144);

        assert!(!trail.suits(262_144));
        assert!(!trail.suits(8_192));
        assert!(trail.suits(1_000_000));
        assert_eq!(trail.step(), Step::Next);
    }

    #[test]
    fn what_comes_of_one_that_is_asked_again_stands_for_the_wait_there() {
        let mut trail = Trail::after(0, 4, false);
        trail.note(Fault::Waited(Waited::Engine), 0);
        assert_eq!(trail.waited(), Some(Waited::Engine));
        trail.note(refused(503), 0);
        assert_eq!(trail.waited(), None);
        assert_eq!(trail.surfaced(), Some(&Fault::Waited(Waited::Engine)));

        trail.note_again(refused(500), 0);

        assert_eq!(trail.surfaced(), Some(&refused(500)));
        assert_eq!(trail.faults, [refused(500), refused(503)]);
    }

    #[test]
    fn attempts_are_bounded_rotations_included() {
        let mut trail = Trail::after(0, 2, false);
        trail.begin();
        assert!(trail.rotates(&refused(429), false, false));
        trail.begin();

        assert!(!trail.rotates(&refused(429), false, false));
        trail.note(refused(429), 0);
        assert_eq!(trail.step(), Step::Stop);
        assert!(!trail.exhausted(true));
        assert!(trail.exhausted(false));
    }

    #[test]
    fn a_pinned_request_and_a_faulty_request_are_not_tried_elsewhere() {
        let mut pinned = Trail::after(0, 4, true);
        pinned.begin();
        pinned.note(Fault::Unreachable, 0);
        assert_eq!(pinned.step(), Step::Stop);

        let mut faulty = Trail::after(0, 4, false);
        faulty.begin();
        faulty.note(refused(400), 0);
        assert_eq!(faulty.step(), Step::Stop);
        assert!(
            !faulty.exhausted(false),
            "nothing was exhausted, the request is wrong"
        );
    }

    #[test]
    fn attempts_at_other_models_count() {
        let mut trail = Trail::after(3, 4, false);
        assert!(trail.started());
        trail.begin();
        assert!(!trail.rotates(&refused(429), false, false));
        trail.note(refused(500), 0);
        assert_eq!(trail.step(), Step::Stop);
    }

    #[test]
    fn only_credentials_and_rates_rotate() {
        let mut trail = Trail::after(0, 4, false);
        trail.begin();
        for status in [401, 402, 403, 425, 429] {
            assert!(trail.rotates(&refused(status), false, false), "{status}");
            assert!(!trail.rotates(&refused(status), true, true), "{status}");
        }
        for status in [400, 404, 408, 422, 500] {
            assert!(!trail.rotates(&refused(status), false, false), "{status}");
        }
    }

    #[test]
    fn other_failures_rotate_only_where_no_endpoint_is_left() {
        let mut trail = Trail::after(0, 4, false);
        trail.begin();
        for status in [408, 500, 503, 529] {
            assert!(trail.rotates(&refused(status), false, true), "{status}");
        }
        for status in [400, 404, 413, 422] {
            assert!(!trail.rotates(&refused(status), false, true), "{status}");
        }
        assert!(!trail.rotates(&Fault::Unreachable, false, true));
    }

    #[test]
    fn what_an_endpoint_cannot_be_told_counts_only_where_it_is_so_of_all() {
        let unmappable = || {
            Fault::from(Unmappable {
                param: "seed".into(),
                problem: "it has none".into(),
            })
        };
        assert_eq!(surfaced(vec![unmappable()]), unmappable());
        assert_eq!(
            surfaced(vec![unmappable(), Fault::Unreachable]),
            Fault::Unreachable
        );
        assert_eq!(surfaced(vec![unmappable(), refused(422)]), refused(422));

        let mut trail = Trail::after(0, 4, false);
        trail.note(unmappable(), 0);
        assert_eq!(trail.step(), Step::Next);
        assert!(!trail.exhausted(false));
    }
}
