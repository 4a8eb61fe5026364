//! Measured tokens, in disjoint classes, and where the figures came from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Charge;

/// Largest count that is believed; anything above is estimated instead.
pub const TOKENS_MAX: u64 = 10_000_000;

/// Tokens of one request. Input classes are disjoint: total input = fresh + cached + cache write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tokens")]
pub struct Usage {
    /// Fresh input.
    pub input_tokens: u64,
    /// Input read from a cache.
    pub cached_tokens: u64,
    /// Input written to a cache.
    pub cache_write_tokens: u64,
    /// Output, reasoning included.
    pub output_tokens: u64,
    /// Part of the output that was reasoning.
    pub reasoning_tokens: u64,
}

/// The figures of a request that did not end well, or whose upstream told no usage: what was told, what was counted here,
/// what the caller got, and by which of them he pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metering {
    /// What the upstream told; `None` where it told nothing, or nothing that could be believed.
    pub reported: Option<Usage>,
    /// Tokens of the prompt as they are counted here.
    pub counted_input_tokens: u64,
    /// Tokens of what was delivered, as they are counted here.
    pub counted_output_tokens: u64,
    /// UTF-8 bytes of generated text that were handed to the caller, reasoning and tool arguments included.
    pub delivered_bytes: u64,
    /// Who pays: the caller for the figures reported, else for those counted; or nobody.
    pub charge: Charge,
}

/// Where a usage came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The upstream told it.
    Upstream,
    /// We counted what was sent and delivered.
    Estimated,
    /// There is none: nothing was delivered, or the request never reached an upstream.
    #[default]
    None,
}

impl UsageSource {
    /// The word used in rows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }
}

/// What a reader of a row should know about its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageFlag {
    /// The model has no price; cost 0 is not a statement about its worth.
    Unpriced,
    /// A count was fractional or written as text, and was made a whole number.
    Clamped,
    /// A count was no number, negative or beyond [`TOKENS_MAX`], and was estimated instead.
    Malformed,
    /// Cached plus written exceeded the prompt; fresh input was set to 0.
    CacheExceedsPrompt,
    /// Reasoning exceeded the output and was cut to it.
    ReasoningExceedsOutput,
    /// The cost does not fit 64 bits of nano-dollars and was not charged.
    CostOverflow,
    /// The upstream's total was not the sum of its parts; the parts were kept.
    TotalMismatch,
    /// The upstream told only a part, as one does whose answer ends early, or counted nothing for a prompt or a text that
    /// was there; the rest was estimated.
    Partial,
    /// Some attempts may have cost us something and nobody told what: the upstream cost of the row is without them.
    UpstreamCostPartial,
}

impl UsageFlag {
    /// The word used in rows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unpriced => "unpriced",
            Self::Clamped => "clamped",
            Self::Malformed => "malformed",
            Self::CacheExceedsPrompt => "cache_exceeds_prompt",
            Self::ReasoningExceedsOutput => "reasoning_exceeds_output",
            Self::CostOverflow => "cost_overflow",
            Self::TotalMismatch => "total_mismatch",
            Self::Partial => "partial",
            Self::UpstreamCostPartial => "upstream_cost_partial",
        }
    }
}
