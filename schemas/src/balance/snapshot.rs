//! What is known when a choice is made: all of it, so that nothing else decides. Written into events, where what is 0,
//! absent or the default is left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::routewise::Market;
use super::{Algorithm, is_zero};
use crate::affinity::Level;
use crate::affinity::choice::Margins;
use crate::engine::Sample;
use crate::id::{BackendId, EndpointId};

/// What a choice among backends of one priority is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// What holds for all choices.
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    pub terms: Terms,
    /// The legs, in the order in which they are declared.
    pub legs: Vec<Leg>,
    /// Their backends that can be asked, those of one leg side by side.
    pub candidates: Vec<Candidate>,
    /// Where the session is; absent where none is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Sought>,
    /// How the prompt begins; absent where that is not looked at, or nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// What the legs cost and how soon they answer; absent where their weights decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub market: Option<Market>,
    /// The luck of it.
    pub draw: u64,
}

/// A leg of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionLeg")]
pub struct Leg {
    /// Where it leads.
    pub endpoint: EndpointId,
    /// How its backends are chosen.
    #[serde(default, skip_serializing_if = "Algorithm::is_weighted")]
    pub algorithm: Algorithm,
    /// Its share among the legs, in millionths; 0 for one that is a way out only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight_micro: u64,
    /// Choices that its router made before, where they are made in turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u64,
}

/// A backend that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// It.
    pub backend: BackendId,
    /// The place of its leg.
    pub leg: usize,
    /// Calls that the fleet runs there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// What its engine says; absent where it says nothing, or said it too long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// How long it takes to the first token, in microseconds, as its router has seen it lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// Tokens of prompts that its router sent there, and that it has not read yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread_tokens: u64,
    /// True when this prompt is among the longest, and it reads as many of those as it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crowded: bool,
}

/// What an engine says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Engine {
    /// Requests in its queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// Requests that were sent there since it said so: they count as waiting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent: u64,
    /// How full its cache of keys and values is, in thousandths of a percent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kv_percent_milli: u64,
}

impl Engine {
    /// What a sample says that is fresh and tells of a queue. `now_ms` is unix time, `sent` what was sent since.
    pub fn of(sample: &Sample, now_ms: u64, sent: u64) -> Option<Self> {
        let waiting = sample.waiting.filter(|_| sample.is_fresh(now_ms))?;
        Some(Self {
            waiting,
            sent,
            kv_percent_milli: sample.kv_percent_milli.unwrap_or(0),
        })
    }

    /// Requests in its queue, those among them that it has not told of yet.
    pub const fn queue(&self) -> u64 {
        self.waiting.saturating_add(self.sent)
    }
}

/// A session that was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sought {
    /// Where it is, and by which of its names that is known; absent where nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// By which of its names that is known.
    pub level: Level,
    /// The backend.
    pub backend: BackendId,
}

/// How a prompt begins, as numbers that are equal for prompts that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prefix {
    /// Its instructions, which many conversations have in common; the conversation's own number where it has none.
    pub instructions: u64,
    /// The same with the first thing the user says.
    pub conversation: u64,
}

/// What holds for all choices of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Terms {
    /// What a request in an engine's queue weighs.
    pub waiting_weight: u64,
    /// What a percent of an engine's cache weighs that is in use.
    pub kv_weight: u64,
    /// Tokens in flight at a backend below which weights alone decide; absent where prompts never do.
    pub intervene_tokens: Option<u64>,
    /// When a session is moved although its backend works.
    pub margins: Margins,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            waiting_weight: 100,
            kv_weight: 1,
            intervene_tokens: Some(crate::affinity::prefill::Terms::default().intervene_tokens),
            margins: Margins::default(),
        }
    }
}

impl Terms {
    /// True for what an event need not say.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
