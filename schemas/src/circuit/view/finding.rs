//! What a node found out and the record does not hold yet: how findings are kept short, and the view that the
//! record and they make together.

use std::sync::Arc;

use super::{Circuit, Transition};
use crate::circuit::CircuitState;
use crate::circuit::record::{AVAILABLE, Finding, Record};

/// Findings that wait to be written; more are told in short.
pub(super) const PENDING_MAX: usize = 16;

/// A finding that waits to be written.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) sequence: u64,
    pub(super) finding: Finding,
}

impl Circuit {
    /// Takes a finding into the view, and where there is no fleet into the record.
    pub(super) fn find(&mut self, finding: Finding, now_ms: u64) {
        self.sequence += 1;
        if self.shared {
            self.keep(finding);
            self.refresh(now_ms);
            if self.pending.len() > PENDING_MAX {
                self.shorten();
                self.refresh(now_ms);
            }
            return;
        }
        let from = self.record.state;
        self.record.fold(&finding, &self.boot, &self.parameters);
        if finding.measures() {
            self.record.availability_permille = self.permille();
        }
        self.tell(from, &self.record.clone());
        self.refresh(now_ms);
    }

    /// Adds a finding to those that are pending; one that no write held yet takes the next one in.
    fn keep(&mut self, finding: Finding) {
        let sequence = self.sequence;
        if finding == Finding::Succeeded {
            while self.pending.last().is_some_and(|last| {
                last.sequence > self.sent
                    && matches!(last.finding, Finding::Failed { .. } | Finding::Succeeded)
            }) {
                self.pending.pop();
            }
            if self.pending.is_empty() && self.record.consecutive_failures == 0 {
                return;
            }
        }
        if let (Finding::Failed { status, .. }, Some(last)) = (&finding, self.pending.last_mut())
            && last.sequence > self.sent
            && let Finding::Failed { times, status: known } = &mut last.finding
        {
            *times = times.saturating_add(1);
            *known = status.or(*known);
            last.sequence = sequence;
            return;
        }
        self.pending.push(Pending { sequence, finding });
    }

    /// Puts what is pending into one finding that says how things stand: true whether or not an earlier write
    /// was applied.
    fn shorten(&mut self) {
        self.sequence += 1;
        let finding = Finding::Found {
            base: self.record.opening.number,
            open: !self.view.is_closed(),
            failures: self.view.consecutive_failures,
        };
        self.pending.clear();
        self.pending.push(Pending {
            sequence: self.sequence,
            finding,
        });
    }

    /// Makes the view anew, and notes what is seen in it for the first time.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        let was_closed = self.view.is_closed();
        self.view = self.folded();
        if self.view.is_closed() {
            self.opening_seen = None;
            if !was_closed {
                self.availability = 1.0;
            }
        } else if self
            .opening_seen
            .is_none_or(|(number, _)| number != self.view.opening.number)
        {
            self.opening_seen = Some((self.view.opening.number, now_ms));
        }
        match (&self.view.probe, &self.probe_seen) {
            (None, _) => self.probe_seen = None,
            (Some(probe), Some((owner, number, _))) if *owner == probe.owner && *number == probe.number => {}
            (Some(probe), _) => self.probe_seen = Some((Arc::clone(&probe.owner), probe.number, now_ms)),
        }
    }

    pub(super) fn folded(&self) -> Record {
        let mut record = self.record.clone();
        for pending in &self.pending {
            record.fold(&pending.finding, &self.boot, &self.parameters);
        }
        let measured = self.pending.iter().any(|pending| pending.finding.measures());
        if measured && record != self.record {
            record.availability_permille = self.permille();
        }
        record
    }

    fn permille(&self) -> u16 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the availability is between 0 and 1"
        )]
        let permille = (self.availability * f64::from(AVAILABLE)).round() as u16;
        permille
    }

    /// Notes a change of the record that this node made.
    pub(super) fn tell(&mut self, from: CircuitState, record: &Record) {
        if from != record.state {
            self.transitions.push(Transition {
                from,
                to: record.state,
                consecutive_failures: record.consecutive_failures,
                last_error_status: record.last_error_status,
            });
        }
    }
}
