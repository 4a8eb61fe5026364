//! What is said of routes, and how they are shown.

use std::sync::Arc;

use schemars::JsonSchema;
use schemas::catalog::Origin;
use schemas::catalog::modality::Modalities;
use schemas::catalog::served::RouteRecord;
use schemas::id::{EndpointId, ModelName, PoolName, TenantId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manage::description;

/// A route that is to be made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelRouteWanted")]
pub(crate) struct Wanted {
    /// The name that callers ask for.
    pub(super) model: String,
    /// The endpoint, by its id or by its name within the tenant.
    pub(super) endpoint: String,
    /// Whose callers it serves; the endpoint's tenant where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// The upstream's name of the model; that of the model where it is left out.
    #[serde(default)]
    pub(super) upstream_model: Option<String>,
    /// 0 is tried first; less than 0 is for operators.
    #[serde(default)]
    pub(super) priority: i32,
    /// Share of the draw within a priority; 0 serves only when nobody else of the priority can.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) weight: Option<u32>,
    /// The pool of routers that may run it; for operators.
    #[serde(default)]
    pub(super) pool: Option<String>,
    /// Tokens of prompt and answer together.
    #[serde(default)]
    pub(super) context_length: Option<u64>,
    /// Tokens of an answer.
    #[serde(default)]
    pub(super) max_output_length: Option<u64>,
    /// `text`, `image`, `audio`, `video`.
    #[serde(default)]
    pub(super) input_modalities: Option<Vec<String>>,
    /// Takes tools; counts for a model that has no file.
    #[serde(default)]
    pub(super) supports_tools: bool,
    /// Takes a form of its answers; counts likewise.
    #[serde(default)]
    pub(super) supports_structured_output: bool,
    /// `chat` or `embedding`; counts likewise.
    #[serde(default)]
    pub(super) model_type: Option<String>,
}

pub(super) const WANTED: &str = "the body is not a route's description: expected model, endpoint and, optionally, tenant, \
                      upstream_model, priority, weight, pool, context_length, max_output_length, input_modalities, \
                      supports_tools, supports_structured_output, model_type";

/// What of a route is to be different. What is not named stays.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelRoutePatch")]
pub(crate) struct Patch {
    /// The endpoint, by its id or by its name within the tenant.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "String")]
    pub(super) endpoint: Option<String>,
    /// The upstream's name of the model.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "String")]
    pub(super) upstream_model: Option<String>,
    /// 0 is tried first; less than 0 is for operators.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "i32")]
    pub(super) priority: Option<i32>,
    /// Share of the draw within a priority.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "u32", range(min = 0, max = 1_000_000))]
    pub(super) weight: Option<u32>,
    /// The pool of routers that may run it; for operators.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "String")]
    pub(super) pool: Option<String>,
    /// Tokens of prompt and answer together.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "u64")]
    pub(super) context_length: Option<u64>,
    /// Tokens of an answer.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "u64")]
    pub(super) max_output_length: Option<u64>,
}

pub(super) const PATCH: &str = "the body is not a change of a route: expected any of endpoint, upstream_model, priority, weight, \
                     pool, context_length, max_output_length";

/// A route as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelRoute")]
pub(super) struct Shown {
    id: Arc<str>,
    tenant: TenantId,
    model: ModelName,
    /// The endpoint's id.
    endpoint: EndpointId,
    upstream_model: Arc<str>,
    priority: i32,
    weight: u32,
    pool: PoolName,
    /// Null for what the model has.
    context_length: Option<u64>,
    /// Null for what the model has.
    max_output_length: Option<u64>,
    /// Null for what the model has.
    input_modalities: Option<Vec<&'static str>>,
    supports_tools: bool,
    supports_structured_output: bool,
    /// `chat` or `embedding`.
    model_type: &'static str,
    /// False while no price holds for it: calls by it cost nothing, and are flagged `unpriced`.
    priced: bool,
    created_at: Timestamp,
    origin: Origin,
    /// The number in its `ETag`.
    revision: u64,
}

pub(super) fn shown(route: &RouteRecord, revision: u64, priced: bool) -> Shown {
    Shown {
        id: Arc::clone(&route.id),
        tenant: route.tenant.clone(),
        model: route.model.clone(),
        endpoint: route.endpoint.clone(),
        upstream_model: Arc::clone(&route.upstream_model),
        priority: route.priority,
        weight: route.weight,
        pool: route.pool.clone(),
        context_length: route.context_length,
        max_output_length: route.max_output_length,
        input_modalities: route.input_modalities.map(Modalities::words),
        supports_tools: route.supports_tools,
        supports_structured_output: route.supports_structured_output,
        model_type: if route.embeds { "embedding" } else { "chat" },
        priced,
        created_at: route.created_at,
        origin: route.origin,
        revision,
    }
}
