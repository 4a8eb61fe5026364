//! What a request needs, what it is told, what it used, and what it pays.

use std::sync::Arc;

use crate::event::request::QuotaCharge;
use crate::failure::FailureCode;
use crate::id::ModelName;
use crate::limit::Standing;
use crate::limit::layers::{Bound, Name, Scope};
use crate::limit::limits::{LimitKey, Unit};
use crate::limit::window::Calendar;
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// What a request needs of its limits.
#[derive(Debug, Clone)]
pub struct Demand {
    /// All that bounds it, in order: see [`crate::limit::layers::Subjects::bounds`].
    pub bounds: Arc<[Bound]>,
    /// Tokens of prompt and answer that it may use at most.
    pub tokens: u64,
    /// Nano-dollars that it may cost at most.
    pub nano_usd: u64,
    /// The day and month it is admitted in: it is settled in these.
    pub calendar: Calendar,
}

impl Demand {
    pub(super) fn amount(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => 1,
            Unit::Tokens => self.tokens,
            Unit::NanoUsd => self.nano_usd,
        }
    }
}

/// What a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Calls: 1, or 0 for one that does not count.
    pub calls: u64,
    /// Tokens of prompt and answer.
    pub tokens: u64,
    /// Nano-dollars.
    pub nano_usd: u64,
}

impl Used {
    pub(super) const fn amount(self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => self.calls,
            Unit::Tokens => self.tokens,
            Unit::NanoUsd => self.nano_usd,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Every layer grants it. End it with [`super::Holdings::settle`] or [`super::Holdings::give_back`] under this number.
    Granted(u64),
    /// Some layer asks the fleet: [`super::Holdings::resume`] it under this number when [`super::Holdings::ready`] names it, or
    /// [`super::Holdings::abandon`] it.
    Waiting(u64),
    /// Some layer refuses it; nothing is held.
    Refused(Refusal),
}

/// Why a request is refused, with all that a 429 says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: FailureCode,
    /// The limit that refuses.
    pub key: LimitKey,
    /// Of whom.
    pub scope: Scope,
    /// For calls of this model only.
    pub model: Option<ModelName>,
    /// How it stands.
    pub standing: Standing,
    /// When it is whole again, as far as that is known.
    pub reset_at: Option<Timestamp>,
    /// Whole seconds after which a retry makes sense.
    pub retry_after_seconds: u64,
}

/// What a request is charged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Charge {
    /// Nano-dollars that it pays.
    pub nano_usd: u64,
    /// Nano-dollars that no limit allows to charge.
    pub absorbed_nano_usd: u64,
    /// What each quota counts, for the event: after a restart it tells what the records do not hold yet.
    pub quotas: Vec<(Name, u64)>,
}

impl Charge {
    /// What each quota counts, as it stands in the event.
    pub fn of_quotas(&self) -> Vec<QuotaCharge> {
        let quotas = self.quotas.iter().cloned();
        quotas
            .map(|(name, amount)| QuotaCharge { name, amount })
            .collect()
    }
}

/// How a request ended whose charge is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Its waybill is in the spool.
    Settled(Outcome),
    /// The same, after a defect of ours ended it.
    Panicked,
}
