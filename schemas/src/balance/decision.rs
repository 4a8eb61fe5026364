//! What a router decided about a call, as its waybill keeps it: who was to be asked in which order, what that was
//! decided from, and who was left out for which reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::{Choice, decide};
use super::snapshot::Snapshot;
use crate::id::{BackendId, EndpointId};

/// A decision. Calls with one way and nothing left out have none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The backends in the order in which they were to be asked; none where nobody could be.
    pub order: Vec<BackendId>,
    /// What the first of them was chosen from, among those of its priority; absent where it was the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Who was left out, or asked last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
}

/// Somebody who was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its backend; absent where it is so of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendId>,
    /// Why.
    #[serde(flatten)]
    pub reason: Exclusion,
}

/// Why somebody is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Exclusion {
    /// The endpoint is not in the catalogue.
    UnknownEndpoint,
    /// The endpoint is switched off.
    EndpointDisabled,
    /// Its provider is switched off.
    ProviderDisabled,
    /// Its weight is 0 in a file: it is never used.
    ConfiguredZero,
    /// It does not take a kind of input of the prompt.
    Modality,
    /// The call is for another one alone.
    NotPinned,
    /// Its circuit is open.
    CircuitOpen {
        /// Milliseconds until a call may try it; 0 when one is trying it.
        retry_in_ms: u64,
    },
    /// It could not be connected to a moment ago: it is asked last.
    SoftBan {
        /// Milliseconds until it is asked like others again.
        for_ms: u64,
    },
    /// Its health was looked at and found wanting.
    Unhealthy,
    /// A GPU of its node is too hot.
    HotGpu,
    /// It takes no longer prompts than one that refused this one as too long.
    ContextLength,
    /// It cannot be told what was asked for.
    Untranslatable,
    /// Its service sleeps, and is being woken.
    Asleep,
    /// It is in a pool of which no router took the call.
    PoolAway,
    /// It is kept for calls that wait too long at others: it is asked last, or when one does.
    KeptForWaiting,
    /// The call waited for its turn there, and went to who is kept for such calls.
    QueueWait {
        /// After so many milliseconds.
        after_ms: u64,
    },
    /// The same with its first token.
    EngineWait {
        /// After so many milliseconds; 0 where its engine had too much to do to be waited for.
        after_ms: u64,
    },
}

impl Exclusion {
    /// Its word in events.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownEndpoint => "unknown_endpoint",
            Self::EndpointDisabled => "endpoint_disabled",
            Self::ProviderDisabled => "provider_disabled",
            Self::ConfiguredZero => "configured_zero",
            Self::Modality => "modality",
            Self::NotPinned => "not_pinned",
            Self::CircuitOpen { .. } => "circuit_open",
            Self::SoftBan { .. } => "soft_ban",
            Self::Unhealthy => "unhealthy",
            Self::HotGpu => "hot_gpu",
            Self::ContextLength => "context_length",
            Self::Untranslatable => "untranslatable",
            Self::Asleep => "asleep",
            Self::PoolAway => "pool_away",
            Self::KeptForWaiting => "kept_for_waiting",
            Self::QueueWait { .. } => "queue_wait",
            Self::EngineWait { .. } => "engine_wait",
        }
    }
}

impl Decision {
    /// Decides again, from nothing but what is in here: the choice, and the backend that is asked first by it. The same
    /// as [`Decision::order`] begins with.
    pub fn replay(&self) -> (Choice, Option<&BackendId>) {
        let Some(snapshot) = &self.snapshot else {
            return (Choice::default(), self.order.first());
        };
        let choice = decide(snapshot);
        let chosen = snapshot.candidates.get(choice.chosen.unwrap_or(0));
        (choice, chosen.map(|chosen| &chosen.backend))
    }
}

#[cfg(test)]
mod tests;
