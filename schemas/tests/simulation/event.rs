//! What can happen in a run.

use schemas::limit::holdings::steps::{Answer, Ask};
use schemas::limit::quota::record::Record;
use schemas::limit::shared::Outcome;

use crate::random::mix;

/// What happens.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Tick(usize),
    Arrive(usize),
    /// What was asked arrives at the bus, on its way back after so many milliseconds, or never.
    Asked(usize, u64, Ask, Option<u64>),
    Answered(usize, u64, Answer),
    /// The answer is not waited for any longer.
    Overdue(usize, u64),
    Told(usize, Answer),
    End(usize, u64, u64),
    Settle(usize, u64, u64),
    Partition(usize),
    Cut(usize),
    Heal(usize),
    Kill(usize),
    Start(usize),
    Forget(usize),
    Jump(usize),
    /// All counters begin again at 0.
    CountersAnew,
    /// A node's watch of the records begins again.
    Survey(usize),
}

impl Event {
    /// What tells it from others: its kind, whom it is about, and what was answered.
    pub(crate) fn numbers(&self) -> (u64, [u64; 3]) {
        let of = |index: usize| index as u64;
        match self {
            Self::Tick(index) => (0, [of(*index), 0, 0]),
            Self::Arrive(index) => (1, [of(*index), 0, 0]),
            Self::Asked(index, flight, ask, back_ms) => {
                let amount = if let Ask::Add(_, add) = ask { add.amount } else { 0 };
                (
                    2 + amount * 100,
                    [of(*index), *flight, back_ms.unwrap_or(u64::MAX)],
                )
            }
            Self::Answered(index, flight, answer) => (3, [of(*index), *flight, told(answer)]),
            Self::Overdue(index, flight) => (4, [of(*index), *flight, 0]),
            Self::Told(index, answer) => (5, [of(*index), told(answer), 0]),
            Self::End(index, boots, grant) => (6, [of(*index), *boots, *grant]),
            Self::Settle(index, boots, grant) => (7, [of(*index), *boots, *grant]),
            Self::Partition(index) => (8, [of(*index), 0, 0]),
            Self::Cut(index) => (9, [of(*index), 0, 0]),
            Self::Heal(index) => (10, [of(*index), 0, 0]),
            Self::Kill(index) => (11, [of(*index), 0, 0]),
            Self::Start(index) => (12, [of(*index), 0, 0]),
            Self::Forget(index) => (13, [of(*index), 0, 0]),
            Self::Jump(index) => (14, [of(*index), 0, 0]),
            Self::Survey(index) => (15, [of(*index), 0, 0]),
            Self::CountersAnew => (16, [0; 3]),
        }
    }
}

/// What an answer says, in one number.
fn told(answer: &Answer) -> u64 {
    let quota = |record: &Record| u64::try_from(record.total() + record.spent());
    match answer {
        Answer::Added(_, value) => *value,
        Answer::SlotsAre(_, Some((revision, record))) => mix(*revision) ^ record.total(),
        Answer::QuotaIs(_, Some((revision, record))) => mix(*revision) ^ quota(record).unwrap_or(u64::MAX),
        Answer::Wrote(_, Outcome::Won(revision)) => *revision,
        Answer::Wrote(_, Outcome::Lost) => u64::MAX,
        _ => 0,
    }
}
