//! Who of several processes does what only one is to do: pure. Whoever leads writes a record again and again; who sees
//! no new revision of it for [`LIFE_MS`] on his own clock takes its place. A leader stops at nine tenths of that after he
//! *sent* what was written last, so that there are never two, whatever the network does to answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// How long a record stands without being written again, in milliseconds.
pub const LIFE_MS: u64 = 3_000;
/// How often a leader writes it, in milliseconds.
pub const RENEW_MS: u64 = 1_000;
/// How often the others look at it, in milliseconds.
pub const LOOK_MS: u64 = 500;

/// The record, under one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// This run of the process.
    pub boot: Arc<str>,
    /// Its node.
    pub node: NodeId,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Look at the record.
    Look,
    /// Write it, over this revision; where there is none with `None`.
    Write(Option<u64>),
}

/// One process's view of who leads. Times are milliseconds on its own monotonic clock.
#[derive(Debug, Clone)]
pub struct Lead {
    boot: Arc<str>,
    /// The newest revision seen, whose it is, and since when it is known; none where there is no record.
    seen: Option<Seen>,
    /// Whether the record has been looked at since there was doubt.
    known: bool,
    /// When this process sent what was written last, while the record is its own.
    sent_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    revision: u64,
    own: bool,
    at_ms: u64,
}

impl Lead {
    /// A process that knows nothing yet.
    pub const fn new(boot: Arc<str>) -> Self {
        Self {
            boot,
            seen: None,
            known: false,
            sent_ms: None,
        }
    }

    /// True while this process may do what only one may.
    pub fn leads(&self, now_ms: u64) -> bool {
        self.until_ms().is_some_and(|until_ms| now_ms < until_ms)
    }

    /// Until when it leads if nothing more is written.
    pub fn until_ms(&self) -> Option<u64> {
        self.sent_ms
            .map(|sent_ms| sent_ms.saturating_add(LIFE_MS - LIFE_MS / 10))
    }

    /// What is to be done now.
    pub fn step(&self, now_ms: u64) -> Step {
        if !self.known {
            return Step::Look;
        }
        let Some(seen) = self.seen else {
            return Step::Write(None);
        };
        if !seen.own {
            let silent = now_ms.saturating_sub(seen.at_ms) >= LIFE_MS;
            return if silent {
                Step::Write(Some(seen.revision))
            } else {
                Step::Look
            };
        }
        let renewed_ms = self.sent_ms.unwrap_or(0);
        if self.sent_ms.is_none() || now_ms.saturating_sub(renewed_ms) >= RENEW_MS {
            Step::Write(Some(seen.revision))
        } else {
            Step::Wait
        }
    }

    /// What was found when the record was looked at.
    pub fn saw(&mut self, found: Option<(u64, &Leader)>, now_ms: u64) {
        self.known = true;
        let Some((revision, leader)) = found else {
            self.seen = None;
            self.sent_ms = None;
            return;
        };
        let own = leader.boot == self.boot;
        if !own {
            self.sent_ms = None;
        }
        if self.seen.is_none_or(|seen| seen.revision != revision) {
            self.seen = Some(Seen {
                revision,
                own,
                at_ms: now_ms,
            });
        }
    }

    /// What was written at `sent_ms` is the record now, under `revision`.
    pub const fn wrote(&mut self, revision: u64, sent_ms: u64) {
        self.known = true;
        self.sent_ms = Some(sent_ms);
        self.seen = Some(Seen {
            revision,
            own: true,
            at_ms: sent_ms,
        });
    }

    /// What was to be written is not the record, or nobody knows: it is looked at before anything else is done. Who led
    /// still does as long as what he wrote last allows.
    pub const fn failed(&mut self) {
        self.known = false;
    }

    /// The revision to take away when this process ends in order; `None` when the record is another's.
    pub fn revision(&self) -> Option<u64> {
        self.seen.filter(|seen| seen.own).map(|seen| seen.revision)
    }
}

#[cfg(test)]
mod tests;
