//! What a gateway says to a router-worker: run this request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::affinity::hint::Spoken;
use crate::catalog::modality::Modalities;
use crate::catalog::{Role, Route, operators};
use crate::event::request::Surface;
use crate::id::{EndpointId, KeyId, ModelName, RequestId, TenantId};
use crate::parameter::Parameters;
use crate::time::Timestamp;

/// Where in a request's bytes the members stand that an upstream needs changed. Offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splice {
    /// The JSON string value of `model`, quotes included: start and end.
    pub model: (usize, usize),
    /// The value of `stream_options`: start and end.
    pub stream_options: Option<(usize, usize)>,
    /// Right after the opening brace.
    pub insert_at: usize,
    /// The caller asked for streaming.
    pub stream: bool,
    /// The caller asked for usage on his stream.
    pub include_usage: bool,
}

/// What the plan must know about a request, beside the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Requirements {
    /// Kinds of input in the prompt.
    pub modalities: Modalities,
    /// Estimated prompt tokens.
    pub prompt_tokens: u64,
    /// The caller's own maximum of output tokens.
    pub output_tokens_max: Option<u64>,
    /// Tokens of all its answers after which it is ended, because it holds no more of its limits.
    #[serde(default)]
    pub output_tokens_held: Option<u64>,
    /// What the request asks for that a model may not take.
    #[serde(default)]
    pub parameters: Parameters,
}

/// What a caller said in headers that his upstream, or what reads its answer, must know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// `anthropic-version`, as it was sent.
    pub anthropic_version: Option<Arc<str>>,
    /// `anthropic-beta`: names, as they were sent.
    pub anthropic_beta: Option<Arc<str>>,
    /// `X-Reasoning-Passthrough: false`: thoughts are not shown.
    pub hides_thinking: bool,
}

/// What stands beside the body of a request that passes as it is. Its gateway has judged all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raw {
    /// The method.
    pub method: Arc<str>,
    /// Path and query below the root of a backend; begins with a slash.
    pub target: Arc<str>,
    /// The headers that pass: lower-case names.
    pub headers: Vec<(String, String)>,
    /// What the upstream calls the model that the request counts as one of.
    pub upstream_model: Arc<str>,
}

/// One request, offered to a router. The body travels beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The request.
    pub request_id: RequestId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The path family.
    pub surface: Surface,
    /// The canonical model.
    pub model: ModelName,
    /// Whose model it is: another tenant may have one of the same name.
    #[serde(default = "operators")]
    pub owner: TenantId,
    /// The model name as the caller wrote it: what the answer's `model` must say.
    pub public_model: Arc<str>,
    /// The endpoints the gate admitted, in the order of the file, at one catalogue revision.
    pub candidates: Arc<[EndpointId]>,
    /// That revision.
    pub catalog_revision: u64,
    /// What the plan must know.
    pub requirements: Requirements,
    /// Only the endpoint or provider of this name, without fallback.
    pub pin: Option<Arc<str>>,
    /// Where to edit the body.
    pub splice: Splice,
    /// What headers said.
    #[serde(default)]
    pub told: Told,
    /// What headers said of the session.
    #[serde(default)]
    pub spoken: Spoken,
    /// The virtual key of the caller, by its id.
    #[serde(default = "nobody")]
    pub caller: KeyId,
    /// What the caller may do: some credentials are kept for some.
    #[serde(default)]
    pub role: Role,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// The most attempts that there may be, with those before.
    pub attempts_max: u32,
    /// Attempts that were made at other models, where the choice of one was left to the gateway.
    #[serde(default)]
    pub attempts_before: u32,
    /// Other models may be asked as well: a service that sleeps is told to wake, and not waited for.
    #[serde(default)]
    pub passes_sleepers: bool,
    /// How it passes, where it does so as it is: always so on [`Surface::Proxy`] and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Box<Raw>>,
}

impl Offer {
    /// True for a route by which the request may go, as far as the gateway has a say in it.
    pub fn leads_by(&self, route: &Route) -> bool {
        let is_meant = |raw: &Raw| raw.upstream_model == route.upstream_model;
        self.candidates.contains(&route.endpoint_id) && self.raw.as_deref().is_none_or(is_meant)
    }
}

/// The caller of an offer that names none: older gateways do not.
fn nobody() -> KeyId {
    KeyId::from("")
}
