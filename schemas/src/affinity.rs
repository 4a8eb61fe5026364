//! Calls of one session stay on one backend, so that what its engine has cached of their prompts is used again: what
//! names a [session], how its [record] says where it is, and when it is moved all the same ([choice]). Everything here
//! is pure; whoever acts on it looks up, sends and writes.
//!
//! A session is named by what a caller says of it, from the plainest to the vaguest; the first name under which there
//! is a record decides, and later ones are not looked up:
//!
//! | level | what it is |
//! | --- | --- |
//! | `header` | `X-Session-Id` |
//! | `hint` | what agents send by themselves, see [hint] |
//! | `cache_key` | the body's `prompt_cache_key` |
//! | `user` | the body's `user`, or `metadata.user_id` |
//! | `l2` | how the conversation began, with the first thing the model said, see [opening] |
//! | `l1` | the same without that |
//! | `caller` | the virtual key: not a session, but better than nothing |
//!
//! Records are shared by all nodes and worth nothing by themselves: a lost, late or doubled one costs a cache miss. So
//! they are written without asking what was there, and their ages are told by the clocks of those who wrote them.

pub mod choice;
pub mod hint;
pub mod load;
pub mod opening;
pub mod prefill;
pub mod record;
pub mod session;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The header that says how affinity decided.
pub const VERDICT_HEADER: &str = "x-session-affinity";

/// How a session is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// By the caller, in a header.
    Header,
    /// By the caller's program.
    Hint,
    /// By the key of the prompt's cache.
    CacheKey,
    /// By the caller's own customer.
    User,
    /// By the conversation's beginning and the first answer.
    L2,
    /// By the conversation's beginning.
    L1,
    /// By who calls.
    Caller,
}

impl Level {
    /// Every level, in the order in which they are looked up.
    pub const ALL: [Self; 7] = [
        Self::Header,
        Self::Hint,
        Self::CacheKey,
        Self::User,
        Self::L2,
        Self::L1,
        Self::Caller,
    ];

    /// Its word in headers, rows and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Hint => "hint",
            Self::CacheKey => "cache_key",
            Self::User => "user",
            Self::L2 => "l2",
            Self::L1 => "l1",
            Self::Caller => "caller",
        }
    }
}

/// Which levels count for an endpoint group or a model, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// All levels but [`Level::Caller`].
    pub sessions: bool,
    /// [`Level::Caller`].
    pub caller: bool,
    /// How long a session stays after its last call, in milliseconds.
    pub session_ms: u64,
    /// How long a caller stays after his last call, in milliseconds.
    pub caller_ms: u64,
    /// How long either may stay at all, in milliseconds; 0 for ever. A busy caller would never see a changed weight.
    pub age_ms_max: u64,
}

impl Policy {
    /// How long a record of this level lives after it was written, in milliseconds.
    pub const fn life_ms(&self, level: Level) -> u64 {
        match level {
            Level::Caller => self.caller_ms,
            _ => self.session_ms,
        }
    }

    /// Whether this level is looked up.
    pub const fn uses(&self, level: Level) -> bool {
        match level {
            Level::Caller => self.caller,
            _ => self.sessions,
        }
    }
}

impl Default for Policy {
    /// Nothing stays; where something is made to, sessions do for 30 minutes, callers for 5, both for a day at most.
    fn default() -> Self {
        Self {
            sessions: false,
            caller: false,
            session_ms: 30 * 60_000,
            caller_ms: 5 * 60_000,
            age_ms_max: 24 * 3_600_000,
        }
    }
}

#[cfg(test)]
mod tests;
