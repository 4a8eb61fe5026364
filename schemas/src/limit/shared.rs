//! One node's copy of a record that the fleet changes by compare-and-set: what it says, how fresh that is, the one
//! question or write that is under way, and the writes whose answers are missing. Of these the node cannot tell
//! whether they were applied, or will be later; only a record of another revision settles it, because a write is
//! applied on the revision that it names and on no other.

use super::Now;
use super::planted::{Bug, Planted};

/// Writes in doubt that are told apart; with so many, the last one is tried again instead of another.
const DOUBTS_MAX: usize = 8;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is the record of this revision.
    Won(u64),
    /// It was not applied and will not be.
    Lost,
    /// It may have been applied, or may be later.
    Unknown,
}

/// What is to be done about a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<R> {
    /// It is to be read.
    Read,
    /// It is to be written.
    Write(Write<R>),
}

/// A record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write<R> {
    /// What is to be written.
    pub record: R,
    /// The revision that it replaces; `None` where there must be no record.
    pub expected: Option<u64>,
}

/// What is under way; one thing at a time.
#[derive(Debug, Clone)]
enum Busy<R> {
    Reading,
    Writing(Write<R>),
}

/// A node's copy of a record.
#[derive(Debug, Clone)]
pub(super) struct Shared<R> {
    record: R,
    /// Its revision; `None` where there is no record.
    revision: Option<u64>,
    known: bool,
    /// When it was last known to be the newest.
    fresh_ms: u64,
    /// It is known to have been replaced.
    replaced: bool,
    /// It has to be read before it is written again.
    doubted: bool,
    busy: Option<Busy<R>>,
    doubts: Vec<Write<R>>,
    planted: Planted,
}

impl<R: Clone + Default + PartialEq> Shared<R> {
    pub(super) fn new(planted: Planted) -> Self {
        Self {
            record: R::default(),
            revision: None,
            known: false,
            fresh_ms: 0,
            replaced: false,
            doubted: false,
            busy: None,
            doubts: Vec::new(),
            planted,
        }
    }

    /// What it says, as far as the node knows.
    pub(super) const fn record(&self) -> &R {
        &self.record
    }

    /// Whether it was ever read.
    pub(super) const fn is_known(&self) -> bool {
        self.known
    }

    /// Its revision; `None` where there is no record.
    pub(super) const fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Whether something is under way.
    pub(super) const fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Whether nothing is under way and nothing in doubt.
    pub(super) fn is_settled(&self) -> bool {
        self.known && self.busy.is_none() && self.doubts.is_empty() && !self.replaced
    }

    /// Whether some write may have been applied, or may be yet.
    pub(super) const fn is_in_doubt(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Whether it has to be read before anything else.
    pub(super) const fn is_stale(&self) -> bool {
        !self.known || self.replaced || self.doubted
    }

    /// Whether it was the newest record within so many milliseconds.
    pub(super) const fn is_fresh(&self, now: Now, within_ms: u64) -> bool {
        !self.is_stale() && now.since(self.fresh_ms) <= within_ms
    }

    /// Every record that may be the true one, now or later: what is known, what is written, what is in doubt.
    pub(super) fn versions(&self) -> impl Iterator<Item = &R> {
        let written = match &self.busy {
            Some(Busy::Writing(write)) => Some(&write.record),
            _ => None,
        };
        let doubts = self.doubts.iter().map(|write| &write.record);
        std::iter::once(&self.record).chain(written).chain(doubts)
    }

    /// Asks for the record.
    pub(super) fn read(&mut self) -> Step<R> {
        self.busy = Some(Busy::Reading);
        Step::Read
    }

    /// Writes over the known record.
    pub(super) fn write(&mut self, record: R) -> Step<R> {
        let mut write = Write {
            record,
            expected: self.revision,
        };
        if self.doubts.len() >= DOUBTS_MAX
            && let Some(last) = self.doubts.last()
        {
            write = last.clone();
        }
        self.busy = Some(Busy::Writing(write.clone()));
        Step::Write(write)
    }

    /// A read was not answered.
    pub(super) fn unread(&mut self) {
        if matches!(self.busy, Some(Busy::Reading)) {
            self.busy = None;
        }
    }

    /// Learns of a record, or that there is none. Older ones than the known are passed over, unless `anew`: the
    /// bucket was made anew. True when it is another record than before.
    pub(super) fn observe(&mut self, found: Option<(u64, R)>, anew: bool, now: Now) -> bool {
        self.unread();
        let revision = found.as_ref().map(|(revision, _)| *revision);
        let stale_ok = self.planted.has(Bug::StaleReadAdmitted);
        if self.known && !anew && !stale_ok && (revision < self.revision) {
            return false;
        }
        if self.known && revision == self.revision && !anew {
            // A read that still finds what is known to be replaced is an old one.
            if !self.replaced {
                self.fresh_ms = now.mono_ms;
                self.doubted = false;
            }
            return false;
        }
        self.adopt(revision, found.map_or_else(R::default, |(_, record)| record), now);
        true
    }

    /// Goes on from what is remembered, where there is no record any more.
    pub(super) fn restore(&mut self, record: R) {
        self.record = record;
    }

    fn adopt(&mut self, revision: Option<u64>, record: R, now: Now) {
        self.record = record;
        self.revision = revision;
        self.known = true;
        self.fresh_ms = now.mono_ms;
        self.replaced = false;
        self.doubted = false;
        // A write on another revision than this can never be applied.
        self.doubts.retain(|write| write.expected == revision);
    }

    /// Learns what became of the write under way, and returns it if it is the record now.
    pub(super) fn wrote(&mut self, mut outcome: Outcome, now: Now) -> Option<R> {
        let Some(Busy::Writing(write)) = self.busy.take() else {
            return None;
        };
        if outcome == Outcome::Unknown && self.planted.has(Bug::UnknownTakenForLost) {
            return None;
        }
        if outcome == Outcome::Lost && self.planted.has(Bug::LostTakenForWon) {
            outcome = Outcome::Won(self.revision.map_or(1, |revision| revision + 1));
        }
        match outcome {
            Outcome::Won(revision) => {
                if self.revision.is_none_or(|known| known < revision) {
                    self.adopt(Some(revision), write.record.clone(), now);
                }
                return Some(write.record);
            }
            Outcome::Lost => self.replaced |= self.revision == write.expected,
            Outcome::Unknown => {
                self.doubted = true;
                if self.revision == write.expected && !self.doubts.contains(&write) {
                    self.doubts.push(write);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn now(mono_ms: u64) -> Now {
        Now {
            wall: Timestamp::default(),
            mono_ms,
            nodes: 1,
        }
    }

    fn known(revision: u64, record: u32) -> Shared<u32> {
        let mut shared = Shared::new(Planted::default());
        shared.observe(Some((revision, record)), false, now(0));
        shared
    }

    fn versions(shared: &Shared<u32>) -> Vec<u32> {
        shared.versions().copied().collect()
    }

    #[test]
    fn an_older_record_never_replaces_a_newer_one() {
        let mut shared = known(7, 70);

        assert!(!shared.observe(Some((6, 60)), false, now(1)));
        assert!(!shared.observe(None, false, now(1)));
        assert_eq!(*shared.record(), 70);
        assert!(
            shared.observe(Some((1, 10)), true, now(1)),
            "the bucket was made anew"
        );
        assert_eq!(*shared.record(), 10);
    }

    #[test]
    fn a_write_in_doubt_counts_until_a_record_of_another_revision_is_seen() {
        let mut shared = known(7, 70);

        shared.write(71);
        assert_eq!(shared.wrote(Outcome::Unknown, now(1)), None);
        assert_eq!(versions(&shared), [70, 71]);
        assert!(shared.is_stale());
        shared.observe(Some((7, 70)), false, now(2));
        assert_eq!(versions(&shared), [70, 71], "it may still be applied");
        assert!(!shared.is_stale());
        shared.observe(Some((9, 90)), false, now(3));
        assert_eq!(versions(&shared), [90]);
    }

    #[test]
    fn a_write_that_wins_settles_those_in_doubt() {
        let mut shared = known(7, 70);
        shared.write(71);
        shared.wrote(Outcome::Unknown, now(1));

        let step = shared.write(72);
        assert!(matches!(
            step,
            Step::Write(Write {
                expected: Some(7),
                record: 72
            })
        ));
        assert_eq!(versions(&shared), [70, 72, 71]);
        assert_eq!(shared.wrote(Outcome::Won(8), now(2)), Some(72));
        assert_eq!(versions(&shared), [72]);
    }

    #[test]
    fn after_a_lost_write_an_old_reading_does_not_do() {
        let mut shared = known(7, 70);
        shared.write(71);
        assert_eq!(shared.wrote(Outcome::Lost, now(1)), None);

        assert!(shared.is_stale());
        shared.observe(Some((7, 70)), false, now(2));
        assert!(shared.is_stale(), "a copy that lags");
        shared.observe(Some((8, 80)), false, now(3));
        assert!(!shared.is_stale());
        assert_eq!(versions(&shared), [80]);
    }

    #[test]
    fn a_newer_record_seen_before_the_answer_stays() {
        let mut shared = known(7, 70);
        shared.write(71);
        shared.observe(Some((9, 90)), false, now(1));

        assert_eq!(shared.wrote(Outcome::Won(8), now(2)), Some(71));

        assert_eq!(*shared.record(), 90);
        assert_eq!(
            shared.wrote(Outcome::Won(8), now(2)),
            None,
            "nothing is under way"
        );
    }

    #[test]
    fn doubts_are_bounded_by_trying_the_last_one_again() {
        let mut shared = known(7, 0);
        for record in 1..=20 {
            shared.write(record);
            shared.wrote(Outcome::Unknown, now(1));
        }
        assert_eq!(versions(&shared), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
