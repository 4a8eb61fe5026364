//! Clears up after a claim that was given up while writes of it may still be done: sees to it that none of them can be,
//! and that the key is not locked by a request that does not run. Its caller has his answer long before.

use super::record::Record;
use super::{Read, Terms, Write, Written};
use crate::id::RequestId;

/// How long to wait before something is tried again that the bus did not answer, in milliseconds.
const AGAIN_MS: u64 = 1_000;

/// The clearing up after one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    request_id: RequestId,
    terms: Terms,
    /// What the doubtful writes expected to replace.
    doubts: Vec<Option<u64>>,
    /// When the last of them was sent.
    sent_ms: u64,
    over: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then, and [`Release::tick`] then.
    Rest {
        /// When, on the same clock.
        until_ms: u64,
    },
    /// Read the record, from wherever the newest is.
    Read,
    /// Write.
    Write(Box<Write>),
    /// Nothing is left.
    Ended,
}

impl Release {
    pub(super) const fn new(
        request_id: RequestId,
        terms: Terms,
        doubts: Vec<Option<u64>>,
        sent_ms: u64,
    ) -> Self {
        Self {
            request_id,
            terms,
            doubts,
            sent_ms,
            over: false,
        }
    }

    /// Begins, or goes on after a rest.
    pub const fn tick(&self) -> Step {
        if self.over { Step::Ended } else { Step::Read }
    }

    /// The record was read, or could not be.
    pub fn read(&mut self, read: Read, now_ms: u64) -> Step {
        let freed = Record::Freed(self.request_id);
        match read {
            Read::Failed => Step::Rest {
                until_ms: now_ms.saturating_add(AGAIN_MS),
            },
            // A mark in the place keeps a late creation out.
            Read::Nothing if self.may_be_created(now_ms) => self.write(freed, None),
            Read::Nothing => self.end(),
            // From before what the request had seen: this reader is behind.
            Read::Found { revision, .. }
                if now_ms < self.under_way_until_ms()
                    && self.doubts.iter().flatten().any(|seen| *seen > revision) =>
            {
                Step::Rest {
                    until_ms: now_ms.saturating_add(AGAIN_MS),
                }
            }
            Read::Found { record, revision, .. } => {
                let at = Some(revision);
                match record.map(|record| *record) {
                    Some(Record::Running(held)) if held.request_id == self.request_id => {
                        self.write(freed, at)
                    }
                    Some(Record::Freed(_)) if self.doubts.contains(&at) => self.write(freed, at),
                    // Somebody else's lock, which this request was about to take over: a new revision of the same
                    // keeps the late write out.
                    Some(held @ Record::Running(_)) if self.doubts.contains(&at) => self.write(held, at),
                    _ => self.look_again(now_ms),
                }
            }
        }
    }

    /// The write is answered, or given up.
    pub fn wrote(&mut self, written: Written, now_ms: u64) -> Step {
        match written {
            Written::At(_) => self.look_again(now_ms),
            Written::Conflict => Step::Read,
            Written::Unknown | Written::Refused => Step::Rest {
                until_ms: now_ms.saturating_add(AGAIN_MS),
            },
        }
    }

    fn write(&self, record: Record, expected: Option<u64>) -> Step {
        let life_ms = match record {
            Record::Running(_) => self.terms.running_life_ms,
            Record::Freed(_) | Record::Done(_) => self.terms.freed_life_ms,
        };
        Step::Write(Box::new(Write {
            record,
            expected,
            life_ms,
        }))
    }

    /// A late creation finds something in its place, but that may come to the end of its life before it: once no
    /// write can be under way any more, there is one last look.
    fn look_again(&mut self, now_ms: u64) -> Step {
        if self.may_be_created(now_ms) {
            return Step::Rest {
                until_ms: self.under_way_until_ms(),
            };
        }
        self.end()
    }

    /// True while a creation may still be done where nothing is.
    fn may_be_created(&self, now_ms: u64) -> bool {
        self.doubts.contains(&None) && now_ms < self.under_way_until_ms()
    }

    const fn under_way_until_ms(&self) -> u64 {
        self.sent_ms.saturating_add(self.terms.freed_life_ms)
    }

    fn end(&mut self) -> Step {
        self.over = true;
        Step::Ended
    }
}

#[cfg(test)]
mod tests;
