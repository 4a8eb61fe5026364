//! How long a backend takes to its first token: a mean that moves, rises at once and falls slowly. It falls also while
//! nobody asks, so that a backend which was slow once is tried again.

/// How long it takes until a measurement counts for about a third, in milliseconds.
const FADE_MS: f64 = 10_000.0;

/// The moving mean of one backend. Times are milliseconds on one monotonic clock, durations microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    mean_us: f64,
    at_ms: u64,
}

impl Latency {
    /// The first measurement.
    pub fn first(took_us: u64, now_ms: u64) -> Self {
        Self {
            mean_us: float(took_us),
            at_ms: now_ms,
        }
    }

    /// One more.
    pub fn add(&mut self, took_us: u64, now_ms: u64) {
        let took_us = float(took_us);
        let kept = self.kept(now_ms);
        self.mean_us = took_us.max(self.mean_us * kept + took_us * (1.0 - kept));
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// What is to be expected now, in microseconds.
    pub fn expected_us(&self, now_ms: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not below zero, and the cast saturates"
        )]
        let expected = (self.mean_us * self.kept(now_ms)) as u64;
        expected
    }

    /// How much of the mean is left.
    fn kept(&self, now_ms: u64) -> f64 {
        (-float(now_ms.saturating_sub(self.at_ms)) / FADE_MS).exp()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a moment more or less in three hundred years"
)]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_at_once_and_falls_slowly_also_while_nobody_asks() {
        let mut latency = Latency::first(100_000, 0);
        latency.add(900_000, 10);
        assert_eq!(latency.expected_us(10), 900_000);

        latency.add(100_000, 20);
        let fallen = latency.expected_us(20);
        assert!((890_000..900_000).contains(&fallen), "{fallen}");

        let later = latency.expected_us(10_020);
        assert!((320_000..340_000).contains(&later), "{later}");
        assert_eq!(latency.expected_us(10_000_000), 0);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_changes_nothing() {
        let mut latency = Latency::first(500, 1_000);
        latency.add(400, 900);
        assert_eq!(latency.expected_us(900), 500);
    }
}
