//! How a model was chosen, as the waybill has it: by what, in which order, and why others are out. It names only models
//! that the caller may see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::policy::{Purpose, Strategy};
use crate::failure::FailureCode;
use crate::id::ModelName;

/// How a model was chosen for a call that left the choice to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AutoRouting")]
pub struct Routed {
    /// By what.
    pub strategy: Strategy,
    /// For what.
    pub purpose: Purpose,
    /// The model that served, or refused the call; `None` where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The session was with this model before, so it was asked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_model: Option<ModelName>,
    /// Those that could be asked, in the order of asking.
    pub candidates: Vec<Asked>,
    /// Those that could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Left>,
    /// How many more there are of both.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// A model that could be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AutoCandidate")]
pub struct Asked {
    /// Which.
    pub model: ModelName,
    /// What it was ordered by.
    pub scores: Scores,
    /// Nobody said what it is for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlabeled: bool,
    /// Why it did not serve; `None` for the one that did, and for those that were not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailureCode>,
}

/// How good a model is for a call: parts and sum in millionths, more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AutoScores")]
pub struct Scores {
    /// What the strategy makes of the parts.
    pub score_micro: u64,
    /// Its quality.
    pub quality_micro: u64,
    /// How soon it answers, beside the others.
    pub latency_micro: u64,
    /// How little it costs, beside the others.
    pub cost_micro: u64,
    /// What the call is taken to cost, in nano-dollars; `None` where it has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Milliseconds to its first token; `None` where nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
}

/// A model that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AutoExclusion")]
pub struct Left {
    /// Which.
    pub model: ModelName,
    /// Why.
    pub reason: Exclusion,
}

/// Why a model could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its policy takes it out of the choice.
    RoutingDisabled,
    /// It is for something else.
    Purpose,
    /// It does not take tools.
    Tools,
    /// It does not give structured output.
    StructuredOutput,
    /// It does not take a parameter.
    Parameter,
    /// It does not take a kind of input.
    Modality,
    /// Prompt and answer are longer than its context.
    ContextLength,
    /// No endpoint of it is switched on.
    NoEndpoint,
    /// All of its endpoints are those of better ones.
    SameEndpoints,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
