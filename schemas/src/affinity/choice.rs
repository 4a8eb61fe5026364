//! Whether a call goes where its session is, and what is written once it does.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::Record;
use super::session::Name;
use super::{Level, Policy};
use crate::id::{BackendId, EndpointId};
use crate::time::Timestamp;

/// When a session is moved although its backend works: both margins must be reached. The first keeps a session from
/// moving for one call more where others are idle, the second where all are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Margins {
    /// By how much its load exceeds the least.
    pub absolute: u64,
    /// How many thousandths of the least it is.
    pub relative_permille: u64,
    /// Tokens of prompts that wait there, above which it is moved whatever the loads are; 0 for never.
    pub backlog_tokens_max: u64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            absolute: 4,
            relative_permille: 1_500,
            backlog_tokens_max: 150_000,
        }
    }
}

impl Margins {
    /// Whether so much load is too much where the least is this.
    pub fn exceeds(&self, load: u64, least: u64) -> bool {
        let relative = u128::from(load) * 1_000 >= u128::from(least) * u128::from(self.relative_permille);
        load > least && load - least >= self.absolute && relative
    }
}

/// A backend to which the call could go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// It.
    pub backend: &'a BackendId,
    /// Its load, of one measure for all: requests in its queue where the algorithm looks at engines, else live
    /// connections of the whole fleet.
    pub load: u64,
    /// Tokens of prompts that it has not read yet.
    pub backlog_tokens: u64,
}

/// How affinity decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call goes where its session is.
    Hit {
        /// How the session was found.
        level: Level,
        /// The place of the backend among the candidates.
        candidate: usize,
    },
    /// Its session is on a backend that has too much to do: the algorithm chooses among the others.
    Overload {
        /// How the session was found.
        level: Level,
        /// The place of the backend among the candidates.
        candidate: usize,
    },
    /// Its session is on a backend that cannot be used: the algorithm chooses.
    Stale {
        /// How the session was found.
        level: Level,
    },
    /// It has no session that anybody knows of: the algorithm chooses.
    Miss,
}

impl Verdict {
    /// The outcome's word in metrics.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Hit { .. } => "hit",
            Self::Overload { .. } => "overload",
            Self::Stale { .. } => "stale",
            Self::Miss => "miss",
        }
    }

    /// The level's word in metrics.
    pub const fn level(&self) -> &'static str {
        match self {
            Self::Hit { level, .. } | Self::Overload { level, .. } | Self::Stale { level } => level.as_str(),
            Self::Miss => "none",
        }
    }
}

/// As headers and rows have it: `hit:l2`, `overload:header`, `stale:l1`, `miss`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Miss => f.write_str(self.outcome()),
            _ => write!(f, "{}:{}", self.outcome(), self.level()),
        }
    }
}

/// Decides about a call. `found` is where the first of the session's names says that it is, of those that have a record
/// alive; `candidates` are the backends that could be used.
pub fn choose(
    found: Option<(Level, &BackendId)>,
    candidates: &[Candidate<'_>],
    margins: &Margins,
) -> Verdict {
    let Some((level, at)) = found else {
        return Verdict::Miss;
    };
    let place = candidates.iter().position(|candidate| candidate.backend == at);
    let Some((place, sticky)) = place.and_then(|place| Some((place, candidates.get(place)?))) else {
        return Verdict::Stale { level };
    };
    let least = candidates.iter().map(|candidate| candidate.load).min();
    let too_much = margins.exceeds(sticky.load, least.unwrap_or(sticky.load));
    let full = margins.backlog_tokens_max > 0 && sticky.backlog_tokens > margins.backlog_tokens_max;
    if candidates.len() > 1 && (too_much || full) {
        return Verdict::Overload {
            level,
            candidate: place,
        };
    }
    Verdict::Hit {
        level,
        candidate: place,
    }
}

/// A record that was found, and under which of the session's names.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The place among the names.
    pub name: usize,
    /// The record.
    pub record: &'a Record,
}

/// A record to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The place among the session's names.
    pub name: usize,
    /// What it says.
    pub record: Record,
}

/// What is written when a call goes to a backend: from now on the session is there, under the plainest of its names and
/// under the one by which it was found. A session that stays where it was is written again only now and then.
pub fn placed(
    names: &[Name],
    found: Option<Found<'_>>,
    (endpoint_id, backend): (&EndpointId, &BackendId),
    policy: &Policy,
    now: Timestamp,
) -> Vec<Written> {
    // Under another name the session is as old as under the first: its age has a limit.
    let stays = found.filter(|found| found.record.backend == *backend);
    let record = stays.map_or_else(
        || Record::new(endpoint_id.clone(), backend.clone(), now),
        |found| found.record.rewritten(now),
    );
    let is_written = |place: usize, name: &Name| match found.filter(|found| found.name == place) {
        Some(found) => stays.is_none() || found.record.is_due(name.level, policy, now),
        None => place == 0,
    };
    let written = names.iter().enumerate();
    written
        .filter(|(place, name)| is_written(*place, name))
        .map(|(name, _)| Written {
            name,
            record: record.clone(),
        })
        .collect()
}

/// The names under which a session is forgotten after a call that nobody answered: those whose record leads to one of
/// the backends that failed it. `known` are the records that there are, by the places of their names.
pub fn forgotten<'a>(
    known: impl IntoIterator<Item = (usize, &'a Record)>,
    failed: &[BackendId],
) -> Vec<usize> {
    let known = known.into_iter();
    known
        .filter(|(_, record)| failed.contains(&record.backend))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests;
