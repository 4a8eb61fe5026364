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
    pub(super) const fn new(request_id: RequestId, terms: Terms, doubts: Vec<Option<u64>>) -> Self {
        Self {
            request_id,
            terms,
            doubts,
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
            Read::Nothing if self.doubts.contains(&None) => self.write(freed, None),
            Read::Nothing => self.end(),
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
                    _ => self.end(),
                }
            }
        }
    }

    /// The write is answered, or given up.
    pub fn wrote(&mut self, written: Written, now_ms: u64) -> Step {
        match written {
            Written::At(_) => self.end(),
            Written::Conflict => Step::Read,
            Written::Unknown => Step::Rest {
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

    fn end(&mut self) -> Step {
        self.over = true;
        Step::Ended
    }
}

#[cfg(test)]
mod tests;
