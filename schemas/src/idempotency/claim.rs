//! How one request gets its key, or learns why it does not. One operation at a time: each step says what to do, and its
//! result gives the next one.

use super::answer::{Answer, Disposition, Ending};
use super::hold::Hold;
use super::record::{Done, Record, Running};
use super::release::Release;
use super::{Planted, Read, Refusal, Terms, Write, Written};
use crate::event::request::RequestSettled;
use crate::outcome::Outcome;

/// Writes of one claim. More are needed only where a key changes hands all the time.
const WRITES_MAX: usize = 8;

/// One request on its way to its key. It is over once it runs, is replayed or refused: results that come later than
/// that are dropped by whoever drives it.
#[derive(Debug, Clone)]
pub struct Claim {
    mine: Running,
    terms: Terms,
    /// What claims of this request that nobody answered expected to replace: they may still be done.
    doubts: Vec<Option<u64>>,
    /// When the first and the last of them were sent.
    doubted_ms: Option<(u64, u64)>,
    writes: usize,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The lock is written.
    Claiming { expected: Option<u64>, sent_ms: u64 },
    /// The record is read.
    Reading,
    /// The books are asked how the holder's request ended.
    Asking { held: Running, revision: u64 },
    /// The end of the holder's request is written, after which this one is refused.
    Closing { refusal: Refusal },
    /// The request has its answer.
    Over,
}

/// How a request ended, as the books know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nobody knows yet, or what is known may change: a reaper's word is provisional.
    Open,
    /// It is charged nothing and never will be, and no upstream took its work but for a process that died: the key is
    /// free. Also the end of a request that the books do not know although its spool was read to its end by a later
    /// boot, and of one whose source was declared gone and cannot charge any more.
    Void,
    /// It ended, and its answer is not there.
    Settled {
        /// The status it was answered with.
        status: u16,
    },
}

impl End {
    /// What the waybill from the spool of the admitting gateway says.
    pub fn of(settled: &RequestSettled) -> Self {
        let ending = Ending {
            outcome: settled.outcome,
            attempts: &settled.attempts,
            heard_out: false,
        };
        if settled.outcome == Outcome::Lost || ending.disposition() == Disposition::Free {
            Self::Void
        } else {
            Self::Settled {
                status: settled.status,
            }
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone)]
pub enum Step {
    /// Read the record, from wherever the newest is.
    Read,
    /// Write.
    Write(Box<Write>),
    /// Ask how this request ended.
    Ask(Running),
    /// The request has its key and may run.
    Run(Box<Hold>),
    /// It is given this answer. The envelope beside it is published again.
    Replay(Box<Done>),
    /// It is refused. What it may have left behind is to be cleared, though its caller need not wait for that.
    Refuse(Refusal, Option<Box<Release>>),
}

impl Claim {
    /// A request claims its key under `mine`.
    pub fn start(mine: Running, terms: Terms, now_ms: u64) -> (Self, Step) {
        let mut claim = Self {
            mine,
            terms,
            doubts: Vec::new(),
            doubted_ms: None,
            writes: 0,
            phase: Phase::Over,
        };
        let step = claim.claim(None, now_ms);
        (claim, step)
    }

    /// The write is answered, or given up.
    pub fn wrote(&mut self, written: Written, now_ms: u64) -> Step {
        let (expected, sent_ms) = match (&self.phase, written) {
            (Phase::Claiming { expected, sent_ms }, _) => (*expected, *sent_ms),
            (Phase::Closing { refusal }, Written::At(_) | Written::Refused) => return self.refuse(*refusal),
            _ => return self.read_back(),
        };
        match written {
            Written::At(revision) => self.hold(revision, sent_ms, now_ms),
            Written::Conflict if self.terms.makes(Planted::LostIsWon) => self.run(0, sent_ms),
            Written::Conflict => self.read_back(),
            Written::Refused => self.refuse(Refusal::StoreUnavailable),
            Written::Unknown if self.terms.makes(Planted::UnknownIsLost) => {
                self.phase = Phase::Over;
                Step::Refuse(Refusal::InProgress, None)
            }
            Written::Unknown => {
                self.doubt(expected, sent_ms);
                self.read_back()
            }
        }
    }

    /// The record was read, or could not be.
    pub fn read(&mut self, read: Read, now_ms: u64) -> Step {
        let (record, revision, seen_ms) = match read {
            Read::Failed | Read::Found { record: None, .. } => {
                return self.refuse(Refusal::StoreUnavailable);
            }
            Read::Nothing if self.terms.makes(Planted::ReadAdmits) => return self.run(0, now_ms),
            Read::Nothing => return self.claim(None, now_ms),
            Read::Found {
                record: Some(record),
                revision,
                seen_ms,
            } => (*record, revision, seen_ms),
        };
        match record {
            Record::Freed(_) if self.terms.makes(Planted::ReadAdmits) => self.run(revision, now_ms),
            Record::Freed(_) => self.claim(Some(revision), now_ms),
            Record::Running(held) if held.request_id == self.mine.request_id => {
                // It is one of the doubtful writes, the first of them for all that is known.
                let sent_ms = self.doubted_ms.map_or(now_ms, |(first_ms, _)| first_ms);
                self.hold(revision, sent_ms, now_ms)
            }
            Record::Running(held)
                if now_ms.saturating_sub(seen_ms) < held.lease_ms && !self.succeeds(&held) =>
            {
                self.refuse(self.unless_mismatch(&held, Refusal::InProgress))
            }
            Record::Running(held) => {
                self.phase = Phase::Asking {
                    held: held.clone(),
                    revision,
                };
                Step::Ask(held)
            }
            Record::Done(done) if done.digest != self.mine.digest => self.refuse(Refusal::Mismatch),
            Record::Done(done) if done.answer.is_replayable() => {
                self.phase = Phase::Over;
                Step::Replay(done)
            }
            Record::Done(_) => self.refuse(Refusal::NotReplayable),
        }
    }

    /// The books have said how the holder's request ended.
    pub fn told(&mut self, end: End, now_ms: u64) -> Step {
        let Phase::Asking { held, revision } = &self.phase else {
            return self.read_back();
        };
        let (held, revision) = (held.clone(), *revision);
        match end {
            End::Open => self.refuse(self.unless_mismatch(&held, Refusal::InProgress)),
            End::Void => self.claim(Some(revision), now_ms),
            End::Settled { status } => {
                self.phase = Phase::Closing {
                    refusal: self.unless_mismatch(&held, Refusal::NotReplayable),
                };
                let done = Done {
                    request_id: held.request_id,
                    digest: held.digest,
                    answer: Answer::gone(status),
                    envelope: Vec::new(),
                };
                Step::Write(Box::new(Write {
                    record: Record::Done(Box::new(done)),
                    expected: Some(revision),
                    life_ms: self.terms.done_life_ms,
                }))
            }
        }
    }

    /// The caller cannot wait any longer, or has left: he is told that the store is away.
    pub fn give_up(&mut self) -> Step {
        if let Phase::Claiming { expected, sent_ms } = self.phase {
            self.doubt(expected, sent_ms);
        }
        self.refuse(Refusal::StoreUnavailable)
    }

    fn claim(&mut self, expected: Option<u64>, now_ms: u64) -> Step {
        if self.writes >= WRITES_MAX {
            return self.refuse(Refusal::StoreUnavailable);
        }
        self.writes += 1;
        self.phase = Phase::Claiming {
            expected,
            sent_ms: now_ms,
        };
        Step::Write(Box::new(Write {
            record: Record::Running(self.mine.clone()),
            expected,
            life_ms: self.terms.running_life_ms,
        }))
    }

    fn doubt(&mut self, expected: Option<u64>, sent_ms: u64) {
        self.doubts.push(expected);
        let (first_ms, _) = self.doubted_ms.unwrap_or((sent_ms, sent_ms));
        self.doubted_ms = Some((first_ms, sent_ms));
    }

    fn read_back(&mut self) -> Step {
        self.phase = Phase::Reading;
        Step::Read
    }

    /// The lock is this request's; an answer that took too long is not relied on.
    fn hold(&mut self, revision: u64, sent_ms: u64, now_ms: u64) -> Step {
        let fresh = now_ms < self.terms.lease_end_ms(sent_ms);
        if fresh || self.terms.makes(Planted::LeaseOutlived) {
            self.run(revision, sent_ms)
        } else {
            self.claim(Some(revision), now_ms)
        }
    }

    fn run(&mut self, revision: u64, sent_ms: u64) -> Step {
        self.phase = Phase::Over;
        let hold = Hold::new(self.mine.clone(), self.terms, revision, sent_ms);
        Step::Run(Box::new(hold))
    }

    /// True for a lock of an earlier run on the same spool: one process at a time has a spool, so that the run is over.
    fn succeeds(&self, held: &Running) -> bool {
        held.spool == self.mine.spool && held.boot != self.mine.boot
    }

    /// Why a request is refused that finds this lock: another body is the better reason.
    fn unless_mismatch(&self, held: &Running, refusal: Refusal) -> Refusal {
        if held.digest == self.mine.digest {
            refusal
        } else {
            Refusal::Mismatch
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Step {
        self.phase = Phase::Over;
        let doubts = std::mem::take(&mut self.doubts);
        let release = self.doubted_ms.take().map(|(_, last_ms)| {
            let release = Release::new(self.mine.request_id, self.terms, doubts, last_ms);
            Box::new(release)
        });
        Step::Refuse(refusal, release)
    }
}

#[cfg(test)]
mod tests;
