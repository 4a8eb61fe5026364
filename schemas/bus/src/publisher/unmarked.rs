//! What the log has taken and the ledger has not marked, and the pure decision which of it goes to the log again:
//! what the ledger's cursor has passed without a mark is not in the log, whatever the log once said.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

/// Places of batches that are remembered; beyond it two neighbors become one.
const BATCHES_MAX: usize = 4_096;
/// Events published again at a time, at first and at most: doubled as long as it turns out that more are missing.
const AGAIN_EVENTS_MIN: u64 = 256;
const AGAIN_EVENTS_MAX: u64 = 8_192;
/// Longest pause between two attempts to publish the same events again.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// What the log has taken and the ledger has not marked.
#[derive(Debug)]
pub(super) struct Unmarked {
    grace: Duration,
    /// By sequence.
    taken: VecDeque<Taken>,
    mark: u64,
    /// How far the ledger has read the log that these places are in.
    cursor: u64,
    /// What was published again last.
    again: Option<Taken>,
    /// Since when the ledger could have marked more than it has.
    since: Option<Instant>,
    pause: Duration,
    events_max: u64,
}

/// Events up to a sequence, and the highest place of them in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Taken {
    last: u64,
    place: u64,
}

impl Unmarked {
    /// Nothing taken yet. `grace` is how long the ledger may take to mark what it has read.
    pub(super) fn new(grace: Duration, mark: u64) -> Self {
        Self {
            grace,
            taken: VecDeque::new(),
            mark,
            cursor: 0,
            again: None,
            since: None,
            pause: grace,
            events_max: AGAIN_EVENTS_MIN,
        }
    }

    /// True when the log holds something that is not marked.
    pub(super) fn any(&self) -> bool {
        !self.taken.is_empty()
    }

    /// The log took everything up to `last`, at places up to `place`.
    pub(super) fn took(&mut self, last: u64, place: u64) {
        if last <= self.mark {
            return;
        }
        self.taken.push_back(Taken { last, place });
        if self.taken.len() > BATCHES_MAX {
            let mut pairs = std::mem::take(&mut self.taken).into_iter();
            while let Some(first) = pairs.next() {
                let second = pairs.next().unwrap_or(first);
                self.taken.push_back(Taken {
                    last: second.last,
                    place: first.place.max(second.place),
                });
            }
        }
    }

    /// The ledger has everything up to `mark`.
    pub(super) fn marked(&mut self, mark: u64) {
        if mark <= self.mark {
            return;
        }
        self.mark = mark;
        while self.taken.pop_front_if(|taken| taken.last <= mark).is_some() {}
        if self.again.is_none() {
            self.since = None;
        }
    }

    /// The ledger has read the log up to `cursor`; 0 when it reads another log.
    pub(super) fn read_up_to(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    /// Everything that is not marked will be published again: what the log said counts no more.
    pub(super) fn forget(&mut self) {
        *self = Self {
            cursor: self.cursor,
            ..Self::new(self.grace, self.mark)
        };
    }

    /// The events to publish again now, if any.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<RangeInclusive<u64>> {
        let cursor = self.cursor;
        let passed = self.taken.iter().take_while(|taken| taken.place <= cursor).last();
        let passed = passed.map_or(0, |taken| taken.last);
        if passed <= self.mark {
            self.again = None;
            self.since = None;
            self.pause = self.grace;
            self.events_max = AGAIN_EVENTS_MIN;
            return None;
        }
        if let Some(again) = self.again {
            if self.mark >= again.last {
                // They were missing, and so are the next.
                self.events_max = (self.events_max * 2).min(AGAIN_EVENTS_MAX);
                self.pause = self.grace;
                return Some(self.first_of(passed));
            }
            if self.cursor < again.place {
                return None;
            }
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.pause {
            return None;
        }
        if self.again.is_some() {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        Some(self.first_of(passed))
    }

    fn first_of(&self, passed: u64) -> RangeInclusive<u64> {
        self.mark + 1..=passed.min(self.mark.saturating_add(self.events_max))
    }

    /// Events up to `last` were published again and are at places up to `place`.
    pub(super) fn published_again(&mut self, last: u64, place: u64) {
        self.again = Some(Taken { last, place });
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn what_the_ledger_passed_without_a_mark_is_overdue_after_the_grace_and_then_ever_more_rarely() {
        let start = Instant::now();
        let mut unmarked = Unmarked::new(GRACE, 0);
        unmarked.took(10, 10);
        unmarked.took(20, 25);

        assert_eq!(unmarked.overdue(start), None, "the ledger has read nothing");
        unmarked.read_up_to(24);
        assert_eq!(unmarked.overdue(start), None);
        assert_eq!(unmarked.overdue(after(start, 4)), None);
        assert_eq!(unmarked.overdue(after(start, 5)), Some(1..=10));

        unmarked.published_again(10, 40);
        assert_eq!(
            unmarked.overdue(after(start, 100)),
            None,
            "the ledger is not there yet"
        );
        unmarked.read_up_to(40);
        assert_eq!(unmarked.overdue(after(start, 100)), None);
        assert_eq!(unmarked.overdue(after(start, 105)), Some(1..=20));
        unmarked.published_again(20, 60);
        unmarked.read_up_to(60);
        assert_eq!(unmarked.overdue(after(start, 110)), None);
        assert_eq!(unmarked.overdue(after(start, 119)), None, "twice the pause");
        assert_eq!(unmarked.overdue(after(start, 120)), Some(1..=20));
        unmarked.marked(20);
        assert_eq!(unmarked.overdue(after(start, 200)), None);
        assert!(!unmarked.any());
    }

    #[test]
    fn a_mark_that_moves_is_given_its_time() {
        let start = Instant::now();
        let mut unmarked = Unmarked::new(GRACE, 0);
        unmarked.took(10, 10);
        unmarked.read_up_to(10);
        for second in 0..9 {
            assert_eq!(unmarked.overdue(after(start, second * 4)), None);
            unmarked.marked(second + 1);
        }
        unmarked.marked(10);
        assert_eq!(unmarked.overdue(after(start, 60)), None);
    }

    #[test]
    fn a_long_row_of_missing_events_goes_out_in_growing_parts_without_further_waiting() {
        let start = Instant::now();
        let mut unmarked = Unmarked::new(GRACE, 0);
        unmarked.took(5_000, 5_000);
        unmarked.read_up_to(5_000);
        assert_eq!(unmarked.overdue(start), None);
        assert_eq!(unmarked.overdue(after(start, 5)), Some(1..=256));

        unmarked.published_again(256, 5_256);
        unmarked.read_up_to(5_256);
        unmarked.marked(256);
        assert_eq!(unmarked.overdue(after(start, 6)), Some(257..=768));
        unmarked.published_again(768, 5_768);
        unmarked.marked(768);
        assert_eq!(unmarked.overdue(after(start, 7)), Some(769..=1_792));
    }

    #[test]
    fn however_much_is_unmarked_few_places_are_remembered() {
        let start = Instant::now();
        let mut unmarked = Unmarked::new(GRACE, 0);
        for sequence in 1..=100_000 {
            unmarked.took(sequence, sequence);
        }
        assert!(unmarked.taken.len() <= BATCHES_MAX);
        unmarked.read_up_to(100_000);
        unmarked.overdue(start);
        assert_eq!(unmarked.overdue(after(start, 5)), Some(1..=256));
        unmarked.marked(100_000);
        assert!(!unmarked.any());
    }
}
