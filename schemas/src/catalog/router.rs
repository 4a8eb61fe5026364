//! How the legs of a model share its calls: by fixed weights, or by what they cost and how soon they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::EndpointId;

/// A whole, in millionths.
pub const ONE_MICRO: u64 = 1_000_000;

/// How the legs of a model are chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Router {
    /// By their weights.
    Fixed(Fixed),
    /// By what they cost and how soon they answer.
    Routewise(RouteWise),
}

/// What there is to say of fixed weights.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fixed {
    /// Legs in one's own network and legs elsewhere are two pools: a call stays in the one that was drawn, and leaves it
    /// when nobody there serves.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hybrid_composition: bool,
    /// Where calls go that have waited too long in a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
}

/// A leg that takes no ordinary calls: it is for those that wait too long for another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Where the leg leads.
    pub endpoint: EndpointId,
    /// How long another leg may keep a call waiting, in milliseconds: for its turn, and streams for their first token.
    pub wait_ms: u64,
    /// Longer prompts, by their estimated tokens, wait as ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens_max: Option<u64>,
    /// An engine that tells of so many requests in its queue is not waited for at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_queue_max: Option<u64>,
}

/// What makes RouteWise choose: the least mean time to the first token within a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteWise {
    /// The budget of a call lies so far between the cheapest and the dearest leg, in millionths.
    pub budget_alpha_micro: u64,
    /// Tokens that an answer is taken to have of which nothing is known.
    pub output_default_tokens: u64,
    /// Answers to prompts of a size, of the model, and of all models, from which on their mean counts.
    pub output_samples_min: [u64; 3],
    /// How far back calls count, in milliseconds.
    pub latency_window_ms: u64,
    /// The most calls of a leg that count.
    pub latency_samples_max: u64,
    /// From so many on a leg is known.
    pub latency_samples_min: u64,
    /// What a leg is taken to need to the first token that is not, in microseconds.
    pub latency_unprofiled_us: u64,
    /// Legs that cost nothing for as many calls as may run there at once.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<EndpointId, u64>,
}

impl Default for RouteWise {
    fn default() -> Self {
        Self {
            budget_alpha_micro: 750_000,
            output_default_tokens: 512,
            output_samples_min: [3, 3, 3],
            latency_window_ms: 900_000,
            latency_samples_max: 5_000,
            latency_samples_min: 10,
            latency_unprofiled_us: 5_000_000,
            slots: BTreeMap::new(),
        }
    }
}

impl Router {
    /// What makes RouteWise choose; `None` for fixed weights.
    pub const fn routewise(&self) -> Option<&RouteWise> {
        match self {
            Self::Routewise(terms) => Some(terms),
            Self::Fixed(_) => None,
        }
    }

    /// What there is to say of fixed weights.
    pub const fn fixed(&self) -> Option<&Fixed> {
        match self {
            Self::Fixed(fixed) => Some(fixed),
            Self::Routewise(_) => None,
        }
    }
}
