//! The record of one backend's circuit that the whole fleet shares, and what nodes find out about it. Folding
//! a finding into a record is pure, so that a node can tell what the record will say before it is written.
//!
//! A finding names the opening it is about: one that comes late, about an opening that is over, changes
//! nothing. No time in a record is ever compared with a clock: what is open is counted by openings, and every
//! node measures cooldown and lease by itself, from first seeing them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CircuitState, Parameters};
use crate::id::{BackendId, EndpointId, NodeId};
use crate::time::Timestamp;

/// Writers whose place in their own findings a record remembers, the latest first.
const WRITERS_MAX: usize = 16;
/// Longest lease that is believed, in milliseconds: what a record says must not lock a backend out for ever.
const LEASE_MS_MAX: u64 = 3_600_000;
/// An availability of 1, in thousandths.
pub const AVAILABLE: u16 = 1_000;

/// The circuit of one backend, as the fleet agreed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The backend.
    pub backend: BackendId,
    /// Its endpoint.
    pub endpoint_id: EndpointId,
    /// Half-open from the first probe after an opening on.
    pub state: CircuitState,
    /// Failures in a row, over all nodes.
    pub consecutive_failures: u32,
    /// The last opening.
    pub opening: Opening,
    /// Grows with every probe.
    pub claims: u64,
    /// Who may probe, while somebody does.
    pub probe: Option<Probe>,
    /// The status of the last failure that had one.
    pub last_error_status: Option<u16>,
    /// The moving availability that its last writer measured, in thousandths.
    pub availability_permille: u16,
    /// How far it holds what its latest writers found out.
    #[serde(default)]
    pub heard: Vec<Heard>,
    /// The node that wrote it. For readers only.
    pub changed_by: NodeId,
    /// When, on that node's clock. For readers only.
    pub changed_at: Timestamp,
}

/// One opening of a circuit. Its number grows; two nodes that open it apart from each other mean different ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Grows with every opening.
    pub number: u64,
    /// The boot of the process that found the circuit open.
    pub by: Arc<str>,
}

/// The claim of one process to be the only one that probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The boot of the process.
    pub owner: Arc<str>,
    /// The number of the claim.
    pub number: u64,
    /// Milliseconds after which whoever has seen nothing but this claim need not heed it.
    pub lease_ms: u64,
}

/// How far a record holds what one process found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The boot of the process.
    pub boot: Arc<str>,
    /// The last of its findings that was folded in or dropped.
    pub sequence: u64,
}

/// Something a node found out about a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// Requests failed.
    Failed { times: u32, status: Option<u16> },
    /// A request succeeded after failures.
    Succeeded,
    /// The moving availability fell below its floor.
    Tripped,
    /// The node probes without the fleet's leave, because it cannot ask.
    Probing { opening: Opening },
    /// The backend works again.
    Closed { opening: Opening },
    /// The probe failed; `claim` where the fleet knows it by a number.
    Reopened {
        opening: Opening,
        claim: Option<u64>,
        status: Option<u16>,
    },
    /// The probe told nothing.
    Released { claim: u64 },
    /// The moving availability is whole again.
    Recovered,
    /// All of the above in short: what a node that was away holds, having known the record at opening `base`.
    Found { base: u64, open: bool, failures: u32 },
}

impl Finding {
    /// True for what tells how available the backend is.
    pub(super) const fn measures(&self) -> bool {
        !matches!(
            self,
            Self::Released { .. } | Self::Probing { .. } | Self::Recovered
        )
    }
}

impl Record {
    /// A closed circuit that nobody wrote anything about.
    pub fn new(endpoint_id: EndpointId, backend: BackendId) -> Self {
        Self {
            backend,
            endpoint_id,
            state: CircuitState::Closed,
            consecutive_failures: 0,
            opening: Opening {
                number: 0,
                by: "".into(),
            },
            claims: 0,
            probe: None,
            last_error_status: None,
            availability_permille: AVAILABLE,
            heard: Vec::new(),
            changed_by: NodeId::from(""),
            changed_at: Timestamp::default(),
        }
    }

    /// Reads a record; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record: Self = serde_json::from_slice(bytes).ok()?;
        record.heard.truncate(WRITERS_MAX);
        record.availability_permille = record.availability_permille.min(AVAILABLE);
        if let Some(probe) = &mut record.probe {
            probe.lease_ms = probe.lease_ms.min(LEASE_MS_MAX);
        }
        Some(record)
    }

    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// True while requests pass.
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, CircuitState::Closed)
    }

    /// How far it holds the findings of `boot`; 0 where it does not know.
    pub(super) fn heard_of(&self, boot: &str) -> u64 {
        let heard = self.heard.iter().find(|heard| &*heard.boot == boot);
        heard.map_or(0, |heard| heard.sequence)
    }

    /// Notes that it holds the findings of `boot` up to `sequence`.
    pub(super) fn hear(&mut self, boot: &Arc<str>, sequence: u64) {
        self.heard.retain(|heard| heard.boot != *boot);
        self.heard.truncate(WRITERS_MAX - 1);
        let heard = Heard {
            boot: Arc::clone(boot),
            sequence,
        };
        self.heard.insert(0, heard);
    }

    /// True when `owner` holds the probe under `number`.
    pub(super) fn is_probed_by(&self, owner: &str, number: u64) -> bool {
        let probe = self.probe.as_ref();
        probe.is_some_and(|probe| &*probe.owner == owner && probe.number == number)
    }

    /// True when a probe of `boot` may decide: the one that the fleet knows by `claim`, or one without the fleet's leave
    /// while nobody else has it. Who probed alone and comes back takes no living probe's place.
    fn is_due_to(&self, boot: &Arc<str>, claim: Option<u64>) -> bool {
        match claim {
            Some(claim) => self.is_probed_by(boot, claim),
            None => self.probe.as_ref().is_none_or(|probe| probe.owner == *boot),
        }
    }

    /// Gives the next claim to `owner`.
    pub(super) fn claim(&mut self, owner: &Arc<str>, lease_ms: u64) -> u64 {
        self.state = CircuitState::HalfOpen;
        self.claims = self.claims.saturating_add(1);
        self.probe = Some(Probe {
            owner: Arc::clone(owner),
            number: self.claims,
            lease_ms: lease_ms.min(LEASE_MS_MAX),
        });
        self.claims
    }

    /// Folds in what `boot` found out.
    pub(super) fn fold(&mut self, finding: &Finding, boot: &Arc<str>, parameters: &Parameters) {
        match finding {
            Finding::Failed { times, status } => self.count((*times, *status), boot, parameters),
            Finding::Succeeded if self.is_closed() => self.consecutive_failures = 0,
            Finding::Tripped if self.is_closed() => self.open(boot),
            Finding::Probing { opening } if !self.is_closed() && self.opening == *opening => {
                self.state = CircuitState::HalfOpen;
                self.claims = self.claims.saturating_add(1);
            }
            Finding::Closed { opening } if self.is_closed() || self.opening == *opening => self.close(),
            Finding::Reopened { status, .. } if self.is_closed() => {
                self.count((1, *status), boot, parameters);
            }
            Finding::Reopened {
                opening,
                claim,
                status,
            } if self.opening == *opening && self.is_due_to(boot, *claim) => {
                self.last_error_status = status.or(self.last_error_status);
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                self.open(boot);
            }
            Finding::Released { claim } if self.is_probed_by(boot, *claim) => self.probe = None,
            Finding::Recovered if self.is_closed() && self.consecutive_failures == 0 => {
                self.availability_permille = AVAILABLE;
            }
            Finding::Found {
                open: true, failures, ..
            } if self.is_closed() => {
                self.consecutive_failures = *failures;
                self.open(boot);
            }
            Finding::Found {
                base,
                open: false,
                failures,
            } if self.opening.number == *base => {
                self.close();
                self.consecutive_failures = *failures;
            }
            _ => {}
        }
    }

    fn count(&mut self, (times, status): (u32, Option<u16>), boot: &Arc<str>, parameters: &Parameters) {
        if !self.is_closed() {
            return;
        }
        self.last_error_status = status.or(self.last_error_status);
        self.consecutive_failures = self.consecutive_failures.saturating_add(times);
        if self.consecutive_failures >= parameters.failures_max {
            self.open(boot);
        }
    }

    fn open(&mut self, boot: &Arc<str>) {
        self.state = CircuitState::Open;
        self.opening = Opening {
            number: self.opening.number.saturating_add(1),
            by: Arc::clone(boot),
        };
        self.probe = None;
    }

    fn close(&mut self) {
        self.state = CircuitState::Closed;
        self.consecutive_failures = 0;
        self.probe = None;
        self.availability_permille = AVAILABLE;
    }
}
