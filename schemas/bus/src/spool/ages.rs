//! How old the oldest event is that the books do not have: one note a second instead of one an event.

use std::collections::VecDeque;

use schemas::time::Timestamp;

/// Most notes; with more, every other one is given up and the answer is a little too old.
const NOTES_MAX: usize = 4_096;

/// Times of events by sequence.
#[derive(Debug, Default)]
pub(super) struct Ages(VecDeque<(u64, Timestamp)>);

impl Ages {
    /// Notes the time of a new event.
    pub(super) fn note(&mut self, sequence: u64, time: Timestamp) {
        if self
            .0
            .back()
            .is_some_and(|(_, newest)| time.millis_since(*newest) < 1_000)
        {
            return;
        }
        self.0.push_back((sequence, time));
        if self.0.len() > NOTES_MAX {
            self.0 = self.0.iter().copied().step_by(2).collect();
        }
    }

    /// The time of an event, within a second.
    pub(super) fn of(&self, sequence: u64) -> Option<Timestamp> {
        let later = self.0.partition_point(|(noted, _)| *noted <= sequence);
        self.0.get(later.saturating_sub(1)).map(|(_, time)| *time)
    }

    /// Forgets what is only of use for events up to `sequence`.
    pub(super) fn forget(&mut self, sequence: u64) {
        let later = self.0.partition_point(|(noted, _)| *noted <= sequence + 1);
        self.0.drain(..later.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_old_as_the_note_before_it() {
        let second = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let mut ages = Ages::default();
        for sequence in 1..=100 {
            ages.note(sequence, second(i64::try_from(sequence).expect("small") / 10));
        }
        assert_eq!(ages.of(1), Some(second(0)));
        assert_eq!(ages.of(57), Some(second(5)));

        ages.forget(56);

        assert_eq!(ages.of(57), Some(second(5)));
        assert_eq!(ages.0.len(), 6);
    }
}
