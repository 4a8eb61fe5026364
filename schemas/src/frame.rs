//! What a router-worker says back: a head, chunks, and at the end a report. Chunks are in the caller's
//! dialect and never hold the end mark or the last body byte: those travel with the report, and the
//! gateway sends them after the waybill is in the spool.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::balance::decision::Decision;
use crate::event::request::Attempt;
use crate::failure::Failure;
use crate::id::{BackendId, EndpointId};
use crate::money::NanoUsd;
use crate::outcome::Outcome;
use crate::usage::{Usage, UsageFlag};

/// The head of an answer, sent once the first content is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The HTTP status.
    pub status: u16,
    /// Allow-listed headers: lower-case names.
    pub headers: Vec<(String, String)>,
}

/// Who served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The endpoint.
    pub endpoint_id: EndpointId,
    /// The backend.
    pub backend: BackendId,
    /// The provider label.
    pub provider: Arc<str>,
    /// The upstream's name of the model.
    pub model: Arc<str>,
}

/// What of an answer was handed to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivered {
    /// Content was handed over.
    pub content: bool,
    /// UTF-8 bytes of generated text that were handed over, reasoning and tool arguments included.
    pub output_bytes: u64,
    /// Milliseconds from admission to the first content.
    pub ttft_ms: Option<u64>,
}

/// The router's last word on a request. Routers report; only the gateway settles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How it ended, as the router sees it: never `lost`, and `rejected` where no endpoint could be told what was asked.
    pub outcome: Outcome,
    /// Why it failed: what the caller is told when nothing was sent, and what ends a started stream.
    pub failure: Option<Failure>,
    /// Every try, in order.
    pub attempts: Vec<Attempt>,
    /// Who served the answer, or the part of it that was delivered.
    pub served: Option<Served>,
    /// What the upstream reported.
    pub usage: Option<Usage>,
    /// What to know about it.
    pub usage_flags: Vec<UsageFlag>,
    /// What upstreams charge us for all attempts, as far as they tell: never shown to callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_cost_nano_usd: Option<NanoUsd>,
    /// Attempts that may have cost us something without anybody having told what: they are not in that sum.
    #[serde(default)]
    pub attempts_of_unknown_cost: u64,
    /// What was handed over.
    pub delivered: Delivered,
    /// The status of an answer that passes as its upstream gave it, failures too: then the caller is told nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<u16>,
    /// The session, as its caller is told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// How affinity decided, as headers and rows say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Arc<str>>,
    /// What was decided about whom to ask; nothing where there was one way and nobody was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<Decision>>,
}
