//! What a request does with a key that it has: renews the lock, and in the end puts the answer in its place or frees
//! the key. One operation at a time; an end that comes while a renewal is under way waits for its answer.

use super::answer::Body;
use super::record::{Done, Record, Running};
use super::{Planted, Read, Terms, Write, Written};

/// How long to wait before something is tried again that the bus did not answer, in milliseconds.
const AGAIN_MS: u64 = 1_000;
/// Reads from before this request's own writes that are put down to a reader who is behind. Where there are more, the
/// bucket was made anew.
const STALE_READS_MAX: u8 = 10;

/// A key that a request holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    mine: Running,
    terms: Terms,
    revision: u64,
    /// When the last write was sent that is known to be done.
    confirmed_ms: u64,
    flight: Flight,
    /// What is to take the lock's place.
    goal: Option<Record>,
    /// Nothing is tried before.
    not_before_ms: u64,
    stale_reads: u8,
    over: Option<Over>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    None,
    /// The lock is written again.
    Renewing {
        sent_ms: u64,
    },
    /// The end is written.
    Ending,
    /// The record is read.
    Reading,
}

/// How it ended between the request and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Ended,
    Lost,
}

/// How a request stands to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is this request's.
    Held,
    /// The time is up in which that is certain: [`Hold::renew`] before anything else.
    Uncertain,
    /// It is somebody else's: nothing may be sent, and nothing charged.
    Lost,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then.
    Rest {
        /// When to call [`Hold::tick`], on the same clock; never, while a result is waited for.
        until_ms: u64,
    },
    /// Write.
    Write(Box<Write>),
    /// Read the record, from wherever the newest is.
    Read,
    /// What the request left is in place: the end of its answer may leave.
    Ended,
    /// The key is somebody else's.
    Lost,
}

impl Hold {
    pub(super) const fn new(mine: Running, terms: Terms, revision: u64, sent_ms: u64) -> Self {
        Self {
            mine,
            terms,
            revision,
            confirmed_ms: sent_ms,
            flight: Flight::None,
            goal: None,
            not_before_ms: 0,
            stale_reads: 0,
            over: None,
        }
    }

    /// The lock.
    pub const fn running(&self) -> &Running {
        &self.mine
    }

    /// Whether a generation may be sent upstream: within nine tenths of the lease since it was renewed.
    pub fn sending(&self, now_ms: u64) -> Standing {
        self.standing(now_ms < self.terms.lease_end_ms(self.confirmed_ms))
    }

    /// Whether what came back may be charged: within nine tenths of the time that the lock lies in its bucket. A
    /// shorter lease would break off answers whenever the bus is away; nobody takes a lock over without being told
    /// that its request is charged nothing.
    pub fn charging(&self, now_ms: u64) -> Standing {
        self.standing(now_ms < self.terms.life_end_ms(self.confirmed_ms))
    }

    fn standing(&self, certain: bool) -> Standing {
        if self.over == Some(Over::Lost) {
            Standing::Lost
        } else if certain || self.terms.makes(Planted::LeaseOutlived) {
            Standing::Held
        } else {
            Standing::Uncertain
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) -> Step {
        if self.flight == Flight::None && self.over.is_none() && now_ms >= self.due_ms() {
            return self.write(Some(self.revision), now_ms);
        }
        self.rest()
    }

    /// Renews the lock now.
    pub fn renew(&mut self, now_ms: u64) -> Step {
        if self.flight == Flight::None && self.over.is_none() {
            return self.write(Some(self.revision), now_ms);
        }
        self.rest()
    }

    /// The request has settled, and this is what it leaves.
    pub fn finish(&mut self, done: Done, now_ms: u64) -> Step {
        self.end(Record::Done(Box::new(done)), now_ms)
    }

    /// No upstream took the request's work: the next one may run.
    pub fn free(&mut self, now_ms: u64) -> Step {
        self.end(Record::Freed(self.mine.request_id), now_ms)
    }

    fn end(&mut self, goal: Record, now_ms: u64) -> Step {
        self.goal.get_or_insert(goal);
        self.renew(now_ms)
    }

    /// The write is answered, or given up.
    pub fn wrote(&mut self, written: Written, now_ms: u64) -> Step {
        let flight = std::mem::replace(&mut self.flight, Flight::None);
        match (written, flight) {
            (Written::At(_), Flight::Ending) => self.over(Over::Ended),
            (Written::At(revision), Flight::Renewing { sent_ms }) => {
                self.revision = revision;
                self.confirmed_ms = sent_ms;
                if self.goal.is_some() {
                    return self.write(Some(revision), now_ms);
                }
                self.rest()
            }
            (Written::Refused, Flight::Ending) if self.leave_out() => self.write(Some(self.revision), now_ms),
            (Written::Refused, _) => self.again(now_ms),
            (Written::Unknown, _) => {
                self.not_before_ms = now_ms.saturating_add(AGAIN_MS);
                self.read_back()
            }
            _ => self.read_back(),
        }
    }

    /// The record was read, or could not be.
    pub fn read(&mut self, read: Read, now_ms: u64) -> Step {
        self.flight = Flight::None;
        let (record, revision) = match read {
            Read::Failed | Read::Found { record: None, .. } => return self.again(now_ms),
            // It fell out of its bucket, and nobody took the place: it is put back.
            Read::Nothing => return self.write(None, now_ms),
            Read::Found {
                record: Some(record),
                revision,
                ..
            } => (*record, revision),
        };
        if revision < self.revision && self.stale_reads < STALE_READS_MAX {
            self.stale_reads += 1;
            return self.again(now_ms);
        }
        if record.request_id() != self.mine.request_id {
            return self.over(Over::Lost);
        }
        match (&record, &self.goal) {
            (Record::Running(_), _) => {
                self.revision = revision;
                self.tick(now_ms)
            }
            (Record::Done(found), Some(Record::Done(goal)))
                if !found.answer.is_replayable() && goal.answer.is_replayable() =>
            {
                // Somebody closed the key for want of the answer.
                self.write(Some(revision), now_ms)
            }
            (Record::Done(_) | Record::Freed(_), Some(_)) => self.over(Over::Ended),
            (Record::Done(_) | Record::Freed(_), None) => self.over(Over::Lost),
        }
    }

    /// When something is to be done without any news.
    fn due_ms(&self) -> u64 {
        let due_ms = match &self.goal {
            Some(_) => 0,
            None => self.confirmed_ms.saturating_add(self.terms.renew_ms),
        };
        due_ms.max(self.not_before_ms)
    }

    fn write(&mut self, expected: Option<u64>, now_ms: u64) -> Step {
        let (record, life_ms) = match &self.goal {
            None => {
                self.flight = Flight::Renewing { sent_ms: now_ms };
                (Record::Running(self.mine.clone()), self.terms.running_life_ms)
            }
            Some(goal) => {
                self.flight = Flight::Ending;
                let life_ms = match goal {
                    Record::Freed(_) => self.terms.freed_life_ms,
                    Record::Running(_) | Record::Done(_) => self.terms.done_life_ms,
                };
                (goal.clone(), life_ms)
            }
        };
        Step::Write(Box::new(Write {
            record,
            expected,
            life_ms,
        }))
    }

    fn read_back(&mut self) -> Step {
        self.flight = Flight::Reading;
        Step::Read
    }

    /// Leaves the answer out of what is to be written, as there is no room for it, and the waybill that goes with a
    /// replay: that the key was used is worth more. True where that changes something.
    fn leave_out(&mut self) -> bool {
        let Some(Record::Done(done)) = &mut self.goal else {
            return false;
        };
        let Body::Kept(body) = &done.answer.body else {
            return false;
        };
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        done.answer.body = Body::TooLarge { bytes };
        done.envelope = Vec::new();
        true
    }

    /// Looks and tries again after a while.
    fn again(&mut self, now_ms: u64) -> Step {
        self.not_before_ms = now_ms.saturating_add(AGAIN_MS);
        self.rest()
    }

    fn over(&mut self, over: Over) -> Step {
        self.over = Some(over);
        self.rest()
    }

    fn rest(&self) -> Step {
        match self.over {
            Some(Over::Ended) => Step::Ended,
            Some(Over::Lost) => Step::Lost,
            None if self.flight != Flight::None => Step::Rest { until_ms: u64::MAX },
            None => Step::Rest {
                until_ms: self.due_ms(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
