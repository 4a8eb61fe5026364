//! Who of several equals serves a call. The legs of a model that have the same priority share its calls by their
//! weights; which backend of the leg that was drawn is asked is up to the leg's [`Algorithm`]. A session that is known to
//! be at one of them goes there first.
//!
//! A choice is a pure function of a [`snapshot`]: what is in it is kept in the waybill, so that the choice can be made
//! again from the event alone ([`decision`]) and told in words ([`explain`]).

pub mod choice;
pub mod decision;
pub mod draws;
pub mod explain;
pub mod latency;
mod pick;
pub mod profile;
pub mod routewise;
pub mod snapshot;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the backends of an endpoint are chosen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Drawn, every one as likely. Of two that are drawn the one with less to read, once that is much.
    #[default]
    #[serde(alias = "random")]
    Weighted,
    /// One after the other, counted by every router for itself.
    RoundRobin,
    /// The one with the fewest calls of the fleet.
    LeastConnections,
    /// By what engines say of their queues and caches.
    EngineAware,
    /// Of two that are drawn the one that is expected to answer first.
    PowerOfTwo,
    /// The one that has read prompts that begin alike, unless it has too much to do.
    PrefixAware,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Weighted,
        Self::RoundRobin,
        Self::LeastConnections,
        Self::EngineAware,
        Self::PowerOfTwo,
        Self::PrefixAware,
    ];

    /// Its word in files, bodies and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::RoundRobin => "round_robin",
            Self::LeastConnections => "least_connections",
            Self::EngineAware => "engine_aware",
            Self::PowerOfTwo => "power_of_two",
            Self::PrefixAware => "prefix_aware",
        }
    }

    /// The one of this word; `random` is another word for `weighted`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "random" => Some(Self::Weighted),
            _ => Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == word),
        }
    }

    /// All words, for those who gave another one.
    pub fn words() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// True for what files and events need not say.
    pub const fn is_weighted(&self) -> bool {
        matches!(self, Self::Weighted)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// True for what an event need not say.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
