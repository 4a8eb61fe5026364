//! Whether a backend whose health is asked for is left out: pure. A probe that failed is followed by others so soon that
//! the decision falls within two intervals of the failure itself; who is out is asked each second, and one answer brings
//! him back. While a server starts, failures do not count.

use schemas::catalog::registered::HealthCheck;

/// How often a backend is asked that is down, in milliseconds.
pub(crate) const DOWN_EVERY_MS: u64 = 1_000;
/// The shortest time from one probe to the next, in milliseconds.
const EVERY_MS_MIN: u64 = 200;
/// The longest time that news of a recovery is held back, in milliseconds.
const HOLD_MS_MAX: u64 = 30_000;

/// How the health of a backend is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    interval_ms: u64,
    threshold: u32,
    start_period_ms: u64,
}

impl From<&HealthCheck> for Terms {
    fn from(check: &HealthCheck) -> Self {
        Self {
            interval_ms: u64::from(check.interval_seconds.max(1)) * 1_000,
            threshold: check.threshold.max(1),
            start_period_ms: u64::from(check.start_period_seconds) * 1_000,
        }
    }
}

/// What a probe changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The backend is to be left out: so many probes failed in a row.
    Out { failures: u32 },
    /// It is to be asked again.
    Back,
}

/// What probes say of one backend. Times are milliseconds on the prober's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch {
    out: bool,
    failures: u32,
    /// Until when failures do not count, unless a probe passes before.
    grace_until_ms: u64,
    due_ms: u64,
}

impl Watch {
    /// A backend that is first asked now. `out`: it was left out by whoever asked before; `age_ms` is how long ago its
    /// endpoint was made or changed, which is when its server is taken to have been started.
    pub(crate) const fn new(terms: &Terms, out: bool, age_ms: u64, now_ms: u64) -> Self {
        let left_ms = terms.start_period_ms.saturating_sub(age_ms);
        Self {
            out,
            failures: 0,
            grace_until_ms: now_ms.saturating_add(left_ms),
            due_ms: now_ms,
        }
    }

    /// True when it is to be asked.
    pub(crate) const fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms <= now_ms
    }

    /// True while it is left out.
    pub(crate) const fn is_out(&self) -> bool {
        self.out
    }

    /// Probes that failed in a row.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// It is being asked since `now_ms`, and not again before it has answered.
    pub(crate) const fn begin(&mut self) {
        self.due_ms = u64::MAX;
    }

    /// The probe that began at `began_ms` ended at `now_ms`.
    pub(crate) fn end(
        &mut self,
        terms: &Terms,
        passed: bool,
        (began_ms, now_ms): (u64, u64),
    ) -> Option<Change> {
        let change = if passed {
            self.pass()
        } else {
            self.fail(terms, now_ms)
        };
        let every_ms = if self.out {
            DOWN_EVERY_MS
        } else if passed {
            terms.interval_ms
        } else {
            (terms.interval_ms / u64::from(terms.threshold)).max(EVERY_MS_MIN)
        };
        self.due_ms = began_ms.saturating_add(every_ms).max(now_ms);
        change
    }

    /// Somebody else found that it works: a call that succeeded.
    pub(crate) const fn healed(&mut self, terms: &Terms, now_ms: u64) {
        self.out = false;
        self.failures = 0;
        self.due_ms = now_ms.saturating_add(terms.interval_ms);
    }

    fn pass(&mut self) -> Option<Change> {
        self.failures = 0;
        self.grace_until_ms = 0;
        std::mem::take(&mut self.out).then_some(Change::Back)
    }

    fn fail(&mut self, terms: &Terms, now_ms: u64) -> Option<Change> {
        if self.out || now_ms < self.grace_until_ms {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < terms.threshold {
            return None;
        }
        self.out = true;
        Some(Change::Out {
            failures: self.failures,
        })
    }
}

/// When it is told that a backend with an open circuit answers probes. One whose probes pass and whose calls fail would
/// have a call tried again each second: the time is doubled from opening to opening, until the circuit has stayed closed
/// for as long as news is held back at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recovery {
    /// The last opening that was told of, and when.
    told: Option<(u64, u64)>,
    hold_ms: u64,
}

impl Recovery {
    /// A probe passed while the circuit is in its `opening`th opening. True when that is to be told now.
    pub(crate) fn passed(&mut self, opening: u64, now_ms: u64) -> bool {
        if let Some((told, at_ms)) = self.told {
            let since_ms = now_ms.saturating_sub(at_ms);
            if told == opening || since_ms < self.hold_ms {
                return false;
            }
            if since_ms >= HOLD_MS_MAX.saturating_add(self.hold_ms) {
                self.hold_ms = 0;
            }
        }
        self.told = Some((opening, now_ms));
        self.hold_ms = (self.hold_ms * 2).clamp(DOWN_EVERY_MS, HOLD_MS_MAX);
        true
    }
}

#[cfg(test)]
mod tests;
