//! How many calls run at once with one credential of a provider: as many as it bears, which is found out by trying. An
//! answer 429 lowers the number by one, a row of calls that went well raises it by one. All routers have one number: each
//! says by how much it would change it, and a record that they share has the sum.
//!
//! Who may run how much of it follows from what routers tell each other every quarter of a second: what the others run is
//! theirs, and as long as somebody waits nobody begins more than his part. A number that several begin to use in the same
//! quarter of a second may be exceeded by then; the provider says so, and the number falls.

use std::sync::Arc;

use crate::catalog::hex;
use crate::id::BackendId;

/// Bytes of a digest that name a credential.
const FINGERPRINT_BYTES: usize = 12;

/// Between which bounds the number moves, and how quickly it rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// At first.
    pub initial: u32,
    /// At most; at least it is one.
    pub max: u32,
    /// Calls that go well until it is one more; at least one.
    pub raise_after: u32,
}

/// What the answer to a call says about the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// It is borne.
    Fine,
    /// It is too high.
    TooMany,
}

/// The number, as one router knows it.
#[derive(Debug, Clone)]
pub struct Ceiling {
    terms: Terms,
    /// What is shared, and with which revision; 0 for what nobody has written.
    agreed: u32,
    revision: u64,
    /// By how much this router would change it beyond that.
    pending: i64,
    /// As much of it is being written.
    writing: Option<i64>,
    /// Calls that went well since this router last changed it.
    fine: u32,
}

impl Ceiling {
    /// A number of which nobody has said anything.
    pub const fn new(terms: Terms) -> Self {
        Self {
            terms,
            agreed: terms.initial,
            revision: 0,
            pending: 0,
            writing: None,
            fine: 0,
        }
    }

    /// The number.
    pub fn most(&self) -> u32 {
        self.with(self.pending)
    }

    fn with(&self, change: i64) -> u32 {
        let most = i64::from(self.agreed).saturating_add(change);
        u32::try_from(most.clamp(1, i64::from(self.terms.max.max(1)))).unwrap_or(1)
    }

    /// Takes a hint; gives the number before, where it is another now.
    pub fn hear(&mut self, hint: Hint) -> Option<u32> {
        let before = self.most();
        let change = match hint {
            Hint::TooMany => {
                self.fine = 0;
                -1
            }
            Hint::Fine => {
                self.fine = self.fine.saturating_add(1);
                if self.fine < self.terms.raise_after {
                    return None;
                }
                self.fine = 0;
                1
            }
        };
        if self.with(self.pending.saturating_add(change)) == before {
            return None;
        }
        self.pending = self.pending.saturating_add(change);
        Some(before)
    }

    /// What is to be written, over which revision; `None` where nothing is, or something is being written.
    pub fn propose(&mut self) -> Option<(u64, u32)> {
        if self.pending == 0 || self.writing.is_some() {
            return None;
        }
        self.writing = Some(self.pending);
        Some((self.revision, self.most()))
    }

    /// What was proposed is written with this revision, or is not.
    pub fn wrote(&mut self, written: Option<(u64, u32)>) {
        let change = self.writing.take().unwrap_or(0);
        if let Some((revision, most)) = written {
            self.pending = self.pending.saturating_sub(change);
            self.agree(revision, most);
        }
    }

    /// Another one wrote it. What is older than what is known says nothing.
    pub fn agree(&mut self, revision: u64, most: u32) {
        if revision > self.revision {
            self.revision = revision;
            self.agreed = most.clamp(1, self.terms.max.max(1));
        }
    }

    /// The record is gone, or may be another one: whatever is told next counts.
    pub const fn begin_anew(&mut self) {
        self.revision = 0;
    }
}

/// What the others do with a credential, as they tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Others {
    /// Calls that they run.
    pub running: u64,
    /// Calls that wait there.
    pub waiting: u64,
    /// Routers that run or have waiting any.
    pub wanting: u64,
}

/// How many calls a router may run of `most`.
pub fn allowance(most: u32, others: &Others) -> u32 {
    let most = u64::from(most);
    let free = most.saturating_sub(others.running);
    let part = most.div_ceil(others.wanting.saturating_add(1));
    let allowed = if others.waiting > 0 { free.min(part) } else { free };
    u32::try_from(allowed).unwrap_or(u32::MAX)
}

/// The name of a credential among routers, from a digest of its secret: as much of it as tells one from the other.
pub fn fingerprint(digest: &[u8; 32]) -> Arc<str> {
    let (begin, _) = digest.split_at(FINGERPRINT_BYTES);
    hex(begin).into()
}

/// What a router tells of a credential: three counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Calls that it runs.
    Running,
    /// Calls that wait.
    Waiting,
    /// One, where there are any.
    Wanting,
}

impl Count {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Running, Self::Waiting, Self::Wanting];

    /// Under which name it is told beside the counts of backends, none of which begins with a blank.
    pub fn name(self, credential: &str) -> BackendId {
        let count = match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Wanting => "wanting",
        };
        BackendId::from(format!(" {credential} {count}").as_str())
    }
}

#[cfg(test)]
mod tests;
