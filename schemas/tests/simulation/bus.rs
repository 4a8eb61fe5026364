//! What all nodes share: buckets with compare-and-set and counters. Asking it is instant; what makes it a bad bus (late,
//! lost, unanswered) is the scheduler's doing.

use std::collections::BTreeMap;

use schemas::limit::holdings::steps::{Answer, Ask};
use schemas::limit::layers::Name;
use schemas::limit::shared::{Outcome, Step};
use schemas::limit::{quota, slots};

/// Versions of a record that a copy that lags may still answer with.
const PAST: usize = 4;

/// The shared state.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    revision: u64,
    pub(crate) slots: BTreeMap<Name, Past<slots::record::Record>>,
    pub(crate) quotas: BTreeMap<Name, Past<quota::record::Record>>,
    counters: BTreeMap<String, u64>,
}

/// The last versions of a record, the newest last.
#[derive(Debug)]
pub(crate) struct Past<R>(Vec<(u64, R)>);

impl<R: Clone> Past<R> {
    pub(crate) fn newest(&self) -> Option<&R> {
        self.0.last().map(|(_, record)| record)
    }

    /// The one before the newest.
    pub(crate) fn previous(&self) -> Option<&R> {
        self.0.iter().rev().nth(1).map(|(_, record)| record)
    }

    fn read(&self, lag: usize) -> Option<(u64, R)> {
        let place = self.0.len().checked_sub(1)?.saturating_sub(lag);
        self.0.get(place).cloned()
    }

    fn write(&mut self, expected: Option<u64>, revision: u64, record: &R) -> Outcome {
        if self.0.last().map(|(revision, _)| *revision) != expected {
            return Outcome::Lost;
        }
        self.0.push((revision, record.clone()));
        if self.0.len() > PAST {
            self.0.remove(0);
        }
        Outcome::Won(revision)
    }
}

impl<R> Default for Past<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Bus {
    /// Does what is asked; `lag` is how many versions old a reading is.
    pub(crate) fn apply(&mut self, ask: &Ask, lag: usize) -> Answer {
        let revision = self.revision + 1;
        let answer = match ask {
            Ask::Add(name, add) => {
                let counter = self.counters.entry(name.slice(add.index)).or_default();
                *counter += add.amount;
                return Answer::Added(name.clone(), *counter);
            }
            Ask::Slots(name, step) => {
                let past = self.slots.entry(name.clone()).or_default();
                match step {
                    Step::Read => Answer::SlotsAre(name.clone(), past.read(lag)),
                    Step::Write(write) => {
                        Answer::Wrote(name.clone(), past.write(write.expected, revision, &write.record))
                    }
                }
            }
            Ask::Quota(name, step) => {
                let past = self.quotas.entry(name.clone()).or_default();
                match step {
                    Step::Read => Answer::QuotaIs(name.clone(), past.read(lag)),
                    Step::Write(write) => {
                        Answer::Wrote(name.clone(), past.write(write.expected, revision, &write.record))
                    }
                }
            }
        };
        if matches!(answer, Answer::Wrote(_, Outcome::Won(_))) {
            self.revision = revision;
        }
        answer
    }

    /// Forgets all counters.
    pub(crate) fn counters_anew(&mut self) {
        self.counters.clear();
    }

    /// Somebody's own change of a quota's record.
    pub(crate) fn change(&mut self, name: &Name, change: impl FnOnce(&mut quota::record::Record)) {
        let past = self.quotas.entry(name.clone()).or_default();
        let (expected, mut record) = past
            .read(0)
            .map_or((None, quota::record::Record::default()), |(revision, record)| {
                (Some(revision), record)
            });
        change(&mut record);
        self.revision += 1;
        past.write(expected, self.revision, &record);
    }
}

/// What is told to a node that has no answer.
pub(crate) fn unanswered(ask: &Ask) -> Answer {
    match ask {
        Ask::Add(name, _) => Answer::NotAdded(name.clone()),
        Ask::Slots(name, Step::Read) | Ask::Quota(name, Step::Read) => Answer::NotRead(name.clone()),
        Ask::Slots(name, Step::Write(_)) | Ask::Quota(name, Step::Write(_)) => {
            Answer::Wrote(name.clone(), Outcome::Unknown)
        }
    }
}
