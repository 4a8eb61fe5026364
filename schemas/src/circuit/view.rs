//! The circuit of one backend as one node sees it: the shared record as far as the node knows it, and on top
//! of it what the node found out and the record does not hold yet. Decisions come from both, so that a failure
//! counts at once and the bus is never waited for; what is to be written follows from both, too.
//!
//! Guarantees: a probe that the fleet granted is the only live one; every finding is counted once, however
//! often its write had to be repeated, because the record says how far it has heard of whom. A node that is
//! not shared (no bus), or asked to decide alone (bus away), behaves as if it were the fleet.
//!
//! When a node comes back, its findings are folded in like any that come late: a circuit that either side
//! found open is open, and a probe settles the matter.

mod finding;
pub mod writing;

use std::sync::Arc;

use super::planted::Planted;
use super::record::{AVAILABLE, Finding, Opening, Record};
use super::{CircuitState, Parameters, Verdict};

use finding::Pending;
use writing::Flight;

/// Successes in a row after which a record that tells of a worn availability is corrected.
const RECOVERED_SUCCESSES: u32 = 32;

/// Leave to send one request to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The circuit was closed.
    Plain,
    /// This request is the probe.
    Probe {
        /// Which probe of this node.
        id: u64,
        /// The opening that it probes.
        opening: u64,
    },
}

/// What a request that wants to be sent is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It may be sent.
    Pass(Pass),
    /// The fleet is asked for leave to probe: see [`Circuit::claim`].
    Asking {
        /// Names the question.
        id: u64,
    },
    /// It may not.
    Refused,
}

/// How a question for the probe stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Not decided.
    Waiting,
    /// Granted.
    Granted(Pass),
    /// Somebody else probes, or nobody may.
    Refused,
}

/// A change of the state that the fleet agreed on, to be told by the node that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: CircuitState,
    /// The state after.
    pub to: CircuitState,
    /// Failures in a row at that moment.
    pub consecutive_failures: u32,
    /// The last status seen.
    pub last_error_status: Option<u16>,
}

/// The circuit of one backend.
#[derive(Debug, Clone)]
pub struct Circuit {
    parameters: Parameters,
    boot: Arc<str>,
    /// Whether there is a fleet to agree with.
    shared: bool,
    availability: f64,
    /// The record as the node last knew it, and its revision; none where there is no record.
    record: Record,
    revision: Option<u64>,
    /// The record with all that is pending folded in.
    view: Record,
    pending: Vec<Pending>,
    /// The last finding, and the last one that some write held.
    sequence: u64,
    sent: u64,
    /// The opening of the view, and when it was first seen.
    opening_seen: Option<(u64, u64)>,
    /// The opening that need not be waited out: its backend answers probes.
    recovered: Option<Opening>,
    /// The claim of the view, and when it was first seen.
    probe_seen: Option<(Arc<str>, u64, u64)>,
    slot: Slot,
    slots: u64,
    in_flight: Option<Flight>,
    doubts: Vec<Flight>,
    successes: u32,
    transitions: Vec<Transition>,
    /// The mistake to make: a switch that only builds with debug assertions have.
    #[cfg(debug_assertions)]
    planted: Option<Planted>,
}

/// This node's own probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    /// The fleet is asked for it.
    Asking {
        id: u64,
    },
    Held(Held),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    id: u64,
    opening: u64,
    /// The fleet's number of it; `None` for one without the fleet's leave.
    claim: Option<u64>,
    taken_at_ms: u64,
    /// When its holder stops using it.
    until_ms: u64,
}

/// Whether a request may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Cooling,
    /// Somebody probes.
    Probed,
    /// Half-open, and nobody probes.
    Free,
}

impl Circuit {
    /// The circuit of a record's backend, in the process that `boot` names. `shared`: there is a fleet to agree
    /// with.
    pub fn new(parameters: Parameters, record: Record, boot: Arc<str>, shared: bool) -> Self {
        Self {
            parameters,
            boot,
            shared: shared && parameters.cooldown_ms > 0,
            availability: 1.0,
            view: record.clone(),
            record,
            revision: None,
            pending: Vec::new(),
            sequence: 0,
            sent: 0,
            opening_seen: None,
            recovered: None,
            probe_seen: None,
            slot: Slot::Free,
            slots: 0,
            in_flight: None,
            doubts: Vec::new(),
            successes: 0,
            transitions: Vec::new(),
            #[cfg(debug_assertions)]
            planted: None,
        }
    }

    /// The circuit in which a mistake is made.
    #[cfg(debug_assertions)]
    #[must_use]
    pub fn with(self, planted: Option<Planted>) -> Self {
        Self { planted, ..self }
    }

    /// Whether a mistake is to be made. In a program, none ever is.
    #[cfg_attr(
        not(debug_assertions),
        expect(clippy::unused_self, reason = "there is nothing to ask for a mistake with")
    )]
    fn makes(&self, mistake: Planted) -> bool {
        #[cfg(debug_assertions)]
        return self.planted == Some(mistake);
        #[cfg(not(debug_assertions))]
        {
            let _ = mistake;
            false
        }
    }

    /// The circuit as far as the node can tell: the record with all that it will hold.
    pub const fn view(&self) -> &Record {
        &self.view
    }

    /// The revision of the record that the node knows; `None` where there is none.
    pub const fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// The backend answers probes that are no calls: once its circuit is in this opening, it may be probed by a call at
    /// once. Nothing is said of the openings after it.
    pub fn recover(&mut self, opening: Opening) {
        self.recovered = Some(opening);
    }

    /// What a reader sees: half-open as well where nothing is waited for any more.
    pub fn state(&self) -> CircuitState {
        match self.view.state {
            CircuitState::Open if self.has_recovered() => CircuitState::HalfOpen,
            state => state,
        }
    }

    fn has_recovered(&self) -> bool {
        self.recovered.as_ref() == Some(&self.view.opening)
    }

    /// Milliseconds until the circuit may be probed, 0 when it may be now.
    pub fn retry_in_ms(&self, now_ms: u64) -> u64 {
        match self.opening_seen {
            _ if self.has_recovered() => 0,
            Some((_, seen)) if !self.view.is_closed() => seen
                .saturating_add(self.parameters.cooldown_ms)
                .saturating_sub(now_ms),
            _ => 0,
        }
    }

    /// Whether a request could pass now, or ask for the probe. Asking changes nothing.
    pub fn admits(&self, now_ms: u64) -> bool {
        matches!(self.gate(now_ms), Gate::Closed | Gate::Free)
    }

    /// Takes leave to send one request. `alone`: without asking the fleet for a probe.
    pub fn begin(&mut self, now_ms: u64, alone: bool) -> Begin {
        match self.gate(now_ms) {
            Gate::Closed => Begin::Pass(Pass::Plain),
            Gate::Cooling | Gate::Probed => Begin::Refused,
            Gate::Free => {
                self.slots += 1;
                let id = self.slots;
                if self.shared && !alone {
                    self.slot = Slot::Asking { id };
                    return Begin::Asking { id };
                }
                Begin::Pass(self.take_alone(id, now_ms))
            }
        }
    }

    /// How a question for the probe stands.
    pub fn claim(&self, id: u64) -> Claim {
        match self.slot {
            Slot::Asking { id: asking } if asking == id => Claim::Waiting,
            Slot::Held(held) if held.id == id => Claim::Granted(Pass::Probe {
                id,
                opening: held.opening,
            }),
            _ => Claim::Refused,
        }
    }

    /// Decides a question for the probe without the fleet.
    pub fn decide_alone(&mut self, now_ms: u64) {
        if let Slot::Asking { id } = self.slot {
            self.slot = Slot::Free;
            if self.gate(now_ms) == Gate::Free {
                self.take_alone(id, now_ms);
            }
        }
    }

    /// Takes back a question for the probe.
    pub fn refuse(&mut self, now_ms: u64) {
        if matches!(self.slot, Slot::Asking { .. }) {
            self.slot = Slot::Free;
            self.tidy(now_ms);
        }
    }

    /// True while a request may be sent with this leave: a probe's holder stops using it before others may
    /// take its place.
    pub fn may_send(&self, pass: Pass, now_ms: u64) -> bool {
        let Pass::Probe { id, opening } = pass else {
            return true;
        };
        let Some(held) = self.held(id) else {
            return false;
        };
        let mine = held
            .claim
            .is_none_or(|claim| self.view.is_probed_by(&self.boot, claim));
        let live = now_ms < held.until_ms || self.makes(Planted::LeaseOutlived);
        mine && live && self.view.opening.number == opening
    }

    /// A request ended: `status` is the upstream's, `None` for failures without one.
    pub fn settle(&mut self, pass: Pass, verdict: Verdict, status: Option<u16>, now_ms: u64) {
        match verdict {
            Verdict::Healthy => self.succeed(pass, now_ms),
            Verdict::Faulty => self.fail(pass, status, now_ms),
            Verdict::Neutral => self.release(pass, now_ms),
        }
    }

    /// The changes that this node has made and not told yet.
    pub fn transitions(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.transitions)
    }

    fn succeed(&mut self, pass: Pass, now_ms: u64) {
        self.take(pass);
        if self.view.is_closed() {
            self.availability = self.moved(1.0);
            self.successes = self.successes.saturating_add(1);
            if self.view.consecutive_failures > 0 {
                self.find(Finding::Succeeded, now_ms);
            } else if self.view.availability_permille < AVAILABLE && self.successes >= RECOVERED_SUCCESSES {
                self.find(Finding::Recovered, now_ms);
            }
            return;
        }
        // A probe that outlived its lease still tells that the backend answered within this opening: else
        // answers that take longer than a lease would never close a circuit.
        let probed = matches!(pass, Pass::Probe { opening, .. } if opening == self.view.opening.number);
        if probed || self.gate(now_ms) == Gate::Cooling {
            self.availability = 1.0;
            let opening = self.view.opening.clone();
            self.find(Finding::Closed { opening }, now_ms);
        }
    }

    fn fail(&mut self, pass: Pass, status: Option<u16>, now_ms: u64) {
        self.availability = self.moved(0.0);
        self.successes = 0;
        let held = self.take(pass);
        if self.view.is_closed() {
            self.find(Finding::Failed { times: 1, status }, now_ms);
            if self.view.is_closed() && self.availability < self.parameters.availability_min {
                self.find(Finding::Tripped, now_ms);
            }
        } else if let Some(held) = held
            && held.opening == self.view.opening.number
        {
            let finding = Finding::Reopened {
                opening: self.view.opening.clone(),
                claim: held.claim,
                status,
            };
            self.find(finding, now_ms);
        }
    }

    fn release(&mut self, pass: Pass, now_ms: u64) {
        if let Some(claim) = self.take(pass).and_then(|held| held.claim) {
            self.find(Finding::Released { claim }, now_ms);
        }
    }

    fn held(&self, id: u64) -> Option<Held> {
        match self.slot {
            Slot::Held(held) if held.id == id => Some(held),
            _ => None,
        }
    }

    /// Gives the slot back, if it is this request's.
    fn take(&mut self, pass: Pass) -> Option<Held> {
        let Pass::Probe { id, .. } = pass else {
            return None;
        };
        let held = self.held(id)?;
        self.slot = Slot::Free;
        Some(held)
    }

    fn take_alone(&mut self, id: u64, now_ms: u64) -> Pass {
        let opening = self.view.opening.number;
        self.slot = Slot::Held(Held {
            id,
            opening,
            claim: None,
            taken_at_ms: now_ms,
            until_ms: self.until_ms(now_ms),
        });
        let probed = self.view.opening.clone();
        self.find(Finding::Probing { opening: probed }, now_ms);
        Pass::Probe { id, opening }
    }

    /// When a claim that is sent now is not used any more: at nine tenths of its lease.
    const fn until_ms(&self, now_ms: u64) -> u64 {
        let lease_ms = self.parameters.cooldown_ms;
        if lease_ms == 0 {
            return u64::MAX;
        }
        now_ms.saturating_add(lease_ms - lease_ms / 10)
    }

    fn gate(&self, now_ms: u64) -> Gate {
        if self.view.is_closed() {
            Gate::Closed
        } else if self.retry_in_ms(now_ms) > 0 {
            Gate::Cooling
        } else if self.is_probed(now_ms) || self.is_slot_taken(now_ms) {
            Gate::Probed
        } else {
            Gate::Free
        }
    }

    /// True while a claim that the fleet knows is to be heeded.
    fn is_probed(&self, now_ms: u64) -> bool {
        if self.makes(Planted::ClaimUnheeded) {
            return false;
        }
        let lease_ms = self.view.probe.as_ref().map(|probe| probe.lease_ms);
        match (lease_ms, &self.probe_seen) {
            (Some(lease_ms), Some((.., seen))) => now_ms.saturating_sub(*seen) < lease_ms,
            _ => false,
        }
    }

    fn is_slot_taken(&self, now_ms: u64) -> bool {
        match self.slot {
            Slot::Free => false,
            Slot::Asking { .. } => true,
            Slot::Held(held) => {
                let age_ms = now_ms.saturating_sub(held.taken_at_ms);
                held.opening == self.view.opening.number && age_ms < self.parameters.cooldown_ms
            }
        }
    }

    fn moved(&self, outcome: f64) -> f64 {
        (1.0 - self.parameters.alpha)
            .mul_add(self.availability, self.parameters.alpha * outcome)
            .clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;
