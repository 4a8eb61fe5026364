//! What the fleet shares of waking a service: who does it, and how it went. One record per backend, which lives so long
//! and is then as if it had never been: that of whoever wakes is written again while he lives, so that another one may
//! take his place when he does not.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::hex;
use crate::failure::{Failure, FailureCode};
use crate::id::{BackendId, EndpointId, NodeId};

/// How long a claim lives that is not written again.
pub const CLAIM_LIFE: Duration = Duration::from_secs(6);
/// How often it is.
pub const CLAIM_EVERY: Duration = Duration::from_secs(2);
/// How long is remembered that a service is up: as long as those take who wait for it to hear so.
const AWAKE_LIFE: Duration = Duration::from_secs(5);
/// How long nobody is told again to wake a service that did not come in time.
const LATE_LIFE: Duration = Duration::from_secs(10);
/// The same of one that cannot come before something else has.
const BLOCKED_LIFE: Duration = Duration::from_secs(30);
/// When a caller may try again while a service is being woken, in seconds.
const WAKING_SECONDS: u64 = 30;
/// The same where something else has to come first.
const BLOCKED_SECONDS: u64 = 60;

/// How waking a service went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is up.
    Awake,
    /// It was told to wake, and is not up yet.
    Late,
    /// Its graphics processors are lent to another one.
    Queued,
    /// Its machine is off, or nobody could wake it.
    Offline,
}

impl Outcome {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Late => "late",
            Self::Queued => "queued",
            Self::Offline => "offline",
        }
    }

    /// How long it holds for those who come later.
    pub const fn life(self) -> Duration {
        match self {
            Self::Awake => AWAKE_LIFE,
            Self::Late => LATE_LIFE,
            Self::Queued | Self::Offline => BLOCKED_LIFE,
        }
    }

    /// What a caller is told who waited for it; `None` where it may be called.
    pub fn failure(self) -> Option<Failure> {
        let (code, text, seconds) = match self {
            Self::Awake => return None,
            Self::Late => (
                FailureCode::ServiceWaking,
                "the model was asleep and is being woken: try again",
                WAKING_SECONDS,
            ),
            Self::Queued => (
                FailureCode::WakeQueuedGpuBorrowed,
                "the model is asleep, and waits for graphics processors that are in use elsewhere",
                BLOCKED_SECONDS,
            ),
            Self::Offline => (
                FailureCode::WakeFailedNodeOffline,
                "the model is asleep, and its machine cannot be reached at the moment",
                BLOCKED_SECONDS,
            ),
        };
        Some(Failure::new(code, text).retry_after(seconds))
    }
}

/// The record of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The backend.
    pub backend: BackendId,
    /// Its endpoint.
    pub endpoint_id: EndpointId,
    /// How it went; `None` while it goes on.
    pub outcome: Option<Outcome>,
    /// The node that wrote it. For readers only.
    pub node: NodeId,
}

impl Record {
    /// Reads a record; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// How long it lives.
    pub fn life(&self) -> Duration {
        self.outcome.map_or(CLAIM_LIFE, Outcome::life)
    }
}

/// Where the record of a backend is, in bucket [`crate::subject::WAKE_BUCKET`].
pub fn record_key(backend: &BackendId) -> String {
    hex(backend.as_str().as_bytes())
}
