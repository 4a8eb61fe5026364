//! What a node writes into the shared record, one write at a time, and what it learns from the bucket. A write
//! whose answer got lost is in doubt until a later record tells whether it was applied.

use super::{Circuit, Gate, Held, Slot};
use crate::circuit::CircuitState;
use crate::circuit::planted::Planted;
use crate::circuit::record::{Finding, Record};

/// Writes in doubt that are remembered: each is a try at the same revision.
const DOUBTS_MAX: usize = 8;

/// A record to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What is to be written; who and when are filled in by the writer.
    pub record: Record,
    /// The revision that it replaces; `None` where there must be no record.
    pub expected: Option<u64>,
}

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

/// A write under way, or in doubt.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    sequence: u64,
    expected: Option<u64>,
    /// The claim that it takes.
    claim: Option<u64>,
    sent_at_ms: u64,
    from: CircuitState,
    record: Record,
}

impl Circuit {
    /// Whether there is something to write.
    pub fn is_dirty(&self) -> bool {
        self.shared && (!self.pending.is_empty() || matches!(self.slot, Slot::Asking { .. }))
    }

    /// What is to be written now; `None` while a write is under way, and when there is nothing. A question for
    /// the probe that the record rules out is refused here.
    pub fn write(&mut self, now_ms: u64) -> Option<Write> {
        if !self.shared || self.in_flight.is_some() {
            return None;
        }
        let mut record = self.folded();
        let claim = self.claimed(&mut record, now_ms);
        if record == self.record {
            // What was found out makes no difference any more.
            self.pending.clear();
            self.refresh(now_ms);
            return None;
        }
        self.sequence += 1;
        self.sent = self.sequence;
        record.hear(&self.boot, self.sequence);
        self.in_flight = Some(Flight {
            sequence: self.sequence,
            expected: self.revision,
            claim,
            sent_at_ms: now_ms,
            from: self.record.state,
            record: record.clone(),
        });
        Some(Write {
            record,
            expected: self.revision,
        })
    }

    /// Takes the probe in `record`, where it is asked for and free.
    fn claimed(&mut self, record: &mut Record, now_ms: u64) -> Option<u64> {
        let Slot::Asking { id } = self.slot else {
            return None;
        };
        self.slot = Slot::Free;
        if self.gate(now_ms) != Gate::Free {
            return None;
        }
        self.slot = Slot::Asking { id };
        Some(record.claim(&self.boot, self.parameters.cooldown_ms))
    }

    /// Learns what became of the write under way.
    pub fn wrote(&mut self, outcome: Outcome, now_ms: u64) {
        let Some(flight) = self.in_flight.take() else {
            return;
        };
        match outcome {
            Outcome::Won(revision) => {
                if self.revision.is_none_or(|known| known < revision) {
                    self.record = flight.record.clone();
                    self.revision = Some(revision);
                    self.successes = 0;
                }
                self.applied(&flight, now_ms);
            }
            Outcome::Lost if self.makes(Planted::LostIsWon) => {
                self.record = flight.record.clone();
                self.applied(&flight, now_ms);
            }
            Outcome::Lost => self.tidy(now_ms),
            Outcome::Unknown => {
                if self.doubts.len() >= DOUBTS_MAX {
                    self.doubts.remove(0);
                }
                self.doubts.push(flight);
                self.resolve(now_ms);
            }
        }
    }

    /// Learns of a record, or that there is none. Older ones than the known are passed over, unless `anew`: the
    /// bucket is read from the start, and may be another one.
    pub fn observe(&mut self, revision: u64, record: Option<Record>, anew: bool, now_ms: u64) {
        let known = self.revision.is_some_and(|known| revision <= known);
        let same = record.is_some() && self.revision == Some(revision);
        if !self.shared || same || (known && !anew) {
            return;
        }
        self.revision = record.is_some().then_some(revision);
        self.record = record.unwrap_or_else(|| self.blank());
        self.successes = 0;
        self.resolve(now_ms);
    }

    /// An empty record of the same backend.
    fn blank(&self) -> Record {
        Record::new(self.record.endpoint_id.clone(), self.record.backend.clone())
    }

    /// Draws from the record what it says about writes in doubt: once it is another one than they were to
    /// replace, they were applied before it or never will be.
    fn resolve(&mut self, now_ms: u64) {
        let heard = self.record.heard_of(&self.boot);
        let known = self.doubts.iter().position(|flight| flight.sequence == heard);
        if let Some(place) = known {
            let flight = self.doubts.swap_remove(place);
            return self.applied(&flight, now_ms);
        }
        let revision = self.revision;
        self.doubts.retain(|flight| flight.expected == revision);
        self.heard(heard, now_ms);
    }

    /// A write is in the record, or was before the record that is known now.
    fn applied(&mut self, flight: &Flight, now_ms: u64) {
        self.doubts.clear();
        self.tell(flight.from, &flight.record);
        if let (Some(claim), Slot::Asking { id }) = (flight.claim, self.slot) {
            self.slot = if self.record.is_probed_by(&self.boot, claim) {
                Slot::Held(Held {
                    id,
                    opening: self.record.opening.number,
                    claim: Some(claim),
                    taken_at_ms: flight.sent_at_ms,
                    until_ms: self.until_ms(flight.sent_at_ms),
                })
            } else {
                Slot::Free
            };
        }
        self.heard(flight.sequence, now_ms);
    }

    /// The record holds this node's findings up to a place.
    fn heard(&mut self, sequence: u64, now_ms: u64) {
        self.pending.retain(|pending| pending.sequence > sequence);
        self.refresh(now_ms);
        self.tidy(now_ms);
    }

    /// A claim in the record that no request of this node uses is given back; one that was in doubt when its
    /// request went ahead alone is taken over.
    pub(super) fn tidy(&mut self, now_ms: u64) {
        let Some(probe) = &self.view.probe else {
            return;
        };
        if probe.owner != self.boot || self.in_flight.is_some() {
            return;
        }
        let claim = probe.number;
        match &mut self.slot {
            Slot::Held(held) if held.claim == Some(claim) => {}
            Slot::Held(held) if held.claim.is_none() && held.opening == self.view.opening.number => {
                held.claim = Some(claim);
            }
            _ => self.find(Finding::Released { claim }, now_ms),
        }
    }
}
