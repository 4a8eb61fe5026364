//! The retry budget: attempts beyond a request's first stay within a share of the live calls, so that an
//! upstream in trouble is not buried in repetitions. A floor keeps fallback working when calls are few.
//!
//! Counts are kept in seconds of a sliding window; nothing here locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Seconds that are counted together.
const WINDOW_SECONDS: u64 = 10;
/// Cells of the ring, one per second.
const CELLS: usize = 10;

/// Counts calls and repetitions of one router.
#[derive(Debug)]
pub(crate) struct Budget {
    ratio: f64,
    floor_per_second: u32,
    calls: Window,
    repetitions: Window,
}

impl Budget {
    /// Repetitions may be `ratio` of the calls, and `floor_per_second` in any case.
    pub(crate) fn new(ratio: f64, floor_per_second: u32) -> Self {
        Self {
            ratio,
            floor_per_second,
            calls: Window::default(),
            repetitions: Window::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn call(&self, now_ms: u64) {
        self.calls.add(now_ms / 1_000);
    }

    /// Takes leave for one attempt beyond the first; false when the budget is spent.
    pub(crate) fn repeat(&self, now_ms: u64) -> bool {
        let second = now_ms / 1_000;
        if !allows(
            self.ratio,
            self.floor_per_second,
            self.calls.sum(second),
            self.repetitions.sum(second),
        ) {
            return false;
        }
        self.repetitions.add(second);
        true
    }
}

/// Whether one more repetition fits, given the counts of the window.
fn allows(ratio: f64, floor_per_second: u32, calls: u64, repetitions: u64) -> bool {
    let floor = u64::from(floor_per_second) * WINDOW_SECONDS;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of seconds are far below 2^52, and the cast saturates"
    )]
    let share = (calls as f64 * ratio) as u64;
    repetitions < share.max(floor)
}

/// A ring of seconds; each cell holds its second and its count, 32 bits each.
#[derive(Debug, Default)]
struct Window {
    cells: [AtomicU64; CELLS],
}

impl Window {
    fn add(&self, second: u64) {
        let Some(cell) = usize::try_from(second % WINDOW_SECONDS)
            .ok()
            .and_then(|place| self.cells.get(place))
        else {
            return;
        };
        let stamp = second & u64::from(u32::MAX);
        let counted = |packed: u64| {
            let count = if packed >> 32 == stamp {
                packed & u64::from(u32::MAX)
            } else {
                0
            };
            Some(stamp << 32 | count.saturating_add(1).min(u64::from(u32::MAX)))
        };
        // The closure always gives a value, so there is no error to look at.
        let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }

    fn sum(&self, second: u64) -> u64 {
        let stamp = second & u64::from(u32::MAX);
        let recent = |packed: &u64| stamp.wrapping_sub(packed >> 32) < WINDOW_SECONDS;
        let cells = self.cells.iter().map(|cell| cell.load(Ordering::Relaxed));
        cells
            .filter(recent)
            .map(|packed| packed & u64::from(u32::MAX))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(budget: &Budget, now_ms: u64, tries: usize) -> usize {
        (0..tries).filter(|_| budget.repeat(now_ms)).count()
    }

    #[test]
    fn few_calls_may_use_the_floor_and_no_more() {
        let budget = Budget::new(0.2, 10);
        budget.call(50_000);

        assert_eq!(repeated(&budget, 50_000, 500), 100, "10 a second over 10 seconds");
        assert_eq!(repeated(&budget, 59_999, 1), 0);
        assert_eq!(repeated(&budget, 60_000, 500), 100, "the window has passed");
    }

    #[test]
    fn many_calls_allow_a_fifth_of_them() {
        let budget = Budget::new(0.2, 10);
        for call in 0..5_000 {
            budget.call(100_000 + call);
        }

        assert_eq!(repeated(&budget, 105_000, 5_000), 1_000);
    }

    #[test]
    fn a_second_long_past_is_not_counted() {
        let budget = Budget::new(1.0, 0);
        budget.call(1_000);

        assert_eq!(repeated(&budget, 11_000, 1), 0);
    }
}
