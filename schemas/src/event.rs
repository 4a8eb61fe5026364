//! Facts, in the past tense: added to and never changed. Each has a golden file per version.

pub mod audit;
pub mod health;
pub mod ledger;
pub mod limit;
pub mod request;
pub mod spool;

use serde::{Deserialize, Serialize};

use crate::subject;

/// Any fact of the log, by its type name. `data` of the envelope.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A request has been open for more than a second.
    RequestAccepted(Box<request::RequestAccepted>),
    /// A request ended: its waybill.
    RequestSettled(Box<request::RequestSettled>),
    /// Somebody other than the admitting gateway declared a request lost.
    RequestLost(Box<request::RequestLost>),
    /// Refusals beyond the recorded ones, counted.
    LimitRefused(limit::LimitRefused),
    /// A circuit changed.
    HealthCircuit(health::CircuitChanged),
    /// Probes took a backend out, or it is back.
    HealthEndpoint(health::EndpointChanged),
    /// An upstream stopped or began again to accept a credential.
    HealthCredential(health::CredentialChanged),
    /// A service that slept was woken, or was not.
    HealthWake(health::WakeEnded),
    /// A record of the catalogue was changed.
    Audited(Box<audit::Audited>),
    /// What a request costs was corrected.
    RequestAdjusted(Box<ledger::Adjusted>),
    /// Rows of a day were sealed.
    LedgerSealed(Box<ledger::Sealed>),
    /// A spool became nearly full, or is no longer.
    SpoolFilled(spool::SpoolFilled),
    /// A hole in a spool.
    SpoolLost(spool::SpoolLost),
    /// A fact of a later version: kept, not understood.
    Unknown,
}

impl Event {
    /// Reads `data` of an envelope by its type name. Types of later versions give [`Event::Unknown`].
    pub fn read(kind: &str, data: &str) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            subject::REQUEST_ACCEPTED => Self::RequestAccepted(serde_json::from_str(data)?),
            subject::REQUEST_SETTLED => Self::RequestSettled(serde_json::from_str(data)?),
            subject::REQUEST_LOST => Self::RequestLost(serde_json::from_str(data)?),
            subject::LIMIT_REFUSED => Self::LimitRefused(serde_json::from_str(data)?),
            subject::HEALTH_CIRCUIT => Self::HealthCircuit(serde_json::from_str(data)?),
            subject::HEALTH_ENDPOINT => Self::HealthEndpoint(serde_json::from_str(data)?),
            subject::HEALTH_CREDENTIAL => Self::HealthCredential(serde_json::from_str(data)?),
            subject::HEALTH_WAKE => Self::HealthWake(serde_json::from_str(data)?),
            subject::AUDIT => Self::Audited(serde_json::from_str(data)?),
            subject::REQUEST_ADJUSTED => Self::RequestAdjusted(serde_json::from_str(data)?),
            subject::LEDGER_SEALED => Self::LedgerSealed(serde_json::from_str(data)?),
            subject::SPOOL_FILLED => Self::SpoolFilled(serde_json::from_str(data)?),
            subject::SPOOL_LOST => Self::SpoolLost(serde_json::from_str(data)?),
            _ => Self::Unknown,
        })
    }
}

/// A payload that knows its type name.
pub trait Fact: Serialize + for<'de> Deserialize<'de> {
    /// `waybill.<fact>.v<n>`
    const KIND: &'static str;
}

impl Fact for request::RequestAccepted {
    const KIND: &'static str = subject::REQUEST_ACCEPTED;
}
impl Fact for request::RequestSettled {
    const KIND: &'static str = subject::REQUEST_SETTLED;
}
impl Fact for request::RequestLost {
    const KIND: &'static str = subject::REQUEST_LOST;
}
impl Fact for limit::LimitRefused {
    const KIND: &'static str = subject::LIMIT_REFUSED;
}
impl Fact for health::CircuitChanged {
    const KIND: &'static str = subject::HEALTH_CIRCUIT;
}
impl Fact for health::EndpointChanged {
    const KIND: &'static str = subject::HEALTH_ENDPOINT;
}
impl Fact for health::CredentialChanged {
    const KIND: &'static str = subject::HEALTH_CREDENTIAL;
}
impl Fact for health::WakeEnded {
    const KIND: &'static str = subject::HEALTH_WAKE;
}
impl Fact for audit::Audited {
    const KIND: &'static str = subject::AUDIT;
}
impl Fact for ledger::Adjusted {
    const KIND: &'static str = subject::REQUEST_ADJUSTED;
}
impl Fact for ledger::Sealed {
    const KIND: &'static str = subject::LEDGER_SEALED;
}
impl Fact for spool::SpoolFilled {
    const KIND: &'static str = subject::SPOOL_FILLED;
}
impl Fact for spool::SpoolLost {
    const KIND: &'static str = subject::SPOOL_LOST;
}
