//! The format of models.yaml, key by key. Unknown keys are refused with their line.

use std::collections::BTreeMap;

use schemas::named;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::Value;

use crate::yaml::{number, switch, text};

/// The file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsFile {
    /// Entries, in the order of the listing.
    #[serde(default)]
    pub models: Vec<Entry>,
}

/// A model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Entry {
    /// The name callers ask for.
    pub id: String,
    /// The name people read.
    pub name: Option<String>,
    /// Default kind of its legs.
    pub provider: Option<String>,
    /// Inherited by legs.
    pub base_url: Option<String>,
    /// Inherited by legs.
    pub api_key: Option<String>,
    /// Inherited by legs.
    pub api_keys: Option<Vec<ApiKey>>,
    /// Inherited by legs of kind `claude`: a file with the key of a service account.
    pub credentials_file: Option<String>,
    /// Inherited by legs of kind `claude`: Google's project.
    pub project: Option<String>,
    /// Inherited by legs of kind `claude`: where in Google's cloud, `global` unless it is said.
    pub location: Option<String>,
    /// The upstream's name of it.
    pub provider_model_id: Option<String>,
    /// `chat` or `embedding`.
    #[serde(alias = "type")]
    pub model_type: Option<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// For the listing.
    pub quantization: Option<String>,
    /// What it takes.
    pub input_modalities: Option<Vec<String>>,
    /// What it gives.
    pub output_modalities: Option<Vec<String>>,
    /// Tokens of prompt and answer together.
    #[serde(deserialize_with = "number")]
    pub context_length: Option<u64>,
    /// Tokens of an answer.
    #[serde(deserialize_with = "number")]
    pub max_output_length: Option<u64>,
    /// Takes tools.
    #[serde(deserialize_with = "switch")]
    pub supports_tools: Option<bool>,
    /// Takes `response_format`.
    #[serde(deserialize_with = "switch")]
    pub supports_structured_output: Option<bool>,
    /// Parameters that it takes; others are refused. Absent: none is.
    pub supported_params: Option<Vec<String>>,
    /// Words of effort that it takes.
    pub reasoning_efforts: Vec<String>,
    /// An effort that it does not take is refused instead of dropped.
    #[serde(deserialize_with = "switch")]
    pub effort_binding: Option<bool>,
    /// Started on demand.
    #[serde(deserialize_with = "switch")]
    pub on_demand: Option<bool>,
    /// What the model writes as text and means otherwise: `glm`, `qwen_coder`, `think_block`, `default` for nothing.
    pub processor: Option<String>,
    /// Drop parameters that a leg's server does not take, and report them, instead of refusing them.
    #[serde(deserialize_with = "switch")]
    pub drop_params: Option<bool>,
    /// `native`: callers of Responses are served in it; `only`: all callers.
    pub responses: Option<String>,
    /// Members put under every request body.
    pub extra_body: serde_json::Map<String, Value>,
    /// An SGLang server with priority scheduling.
    #[serde(deserialize_with = "switch")]
    pub priority_scheduling: Option<bool>,
    /// Free form.
    pub route_metadata: serde_json::Map<String, Value>,
    /// How absent cache details are read.
    #[serde(deserialize_with = "switch")]
    pub null_cache_details_means_miss: Option<bool>,
    /// Prices in USD per million tokens.
    pub pricing: Option<BTreeMap<String, Value>>,
    /// Prices by time of day.
    pub pricing_schedule: Option<Value>,
    /// `fixed` or `routewise`.
    pub router: Option<String>,
    /// Its parameters.
    pub router_params: serde_json::Map<String, Value>,
    /// The lowest role that may see and call it.
    pub required_role: Option<String>,
    /// The older spelling of `required_role: admin`.
    #[serde(deserialize_with = "switch")]
    pub admin_only: Option<bool>,
    /// Only these tenants.
    pub tenants: Option<Vec<String>>,
    /// Ways to serve it.
    pub route: Option<Vec<Leg>>,
    /// Adapter options, inherited by legs.
    pub chat_path: Option<String>,
    /// Header that carries the credential.
    pub auth_header_name: Option<String>,
    /// Its value, `{api_key}` being replaced.
    pub auth_format: Option<String>,
    /// False sends the credential in `x-api-key` instead.
    #[serde(deserialize_with = "switch")]
    pub use_bearer_auth: Option<bool>,
    /// Further headers.
    pub extra_headers: BTreeMap<String, String>,
    /// Further query.
    pub extra_query: BTreeMap<String, String>,
    /// Ask for usage on streams (always done).
    #[serde(deserialize_with = "switch")]
    pub include_usage_in_stream: Option<bool>,
    /// OpenRouter's order.
    pub openrouter_sort: Option<String>,
    /// OpenRouter's provider.
    pub openrouter_pinned_provider: Option<String>,
    /// What its server tolerates, by name.
    #[serde(alias = "profile")]
    pub provider_profile: Option<String>,
}

/// A leg of a model: a route and its endpoint in one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Leg {
    /// Kind of API.
    pub kind: Option<String>,
    /// Share of the draw.
    #[serde(deserialize_with = "number")]
    pub weight: Option<f64>,
    /// Address.
    pub base_url: Option<String>,
    /// Addresses of replicas.
    pub backends: Option<Vec<BackendText>>,
    /// Credential.
    pub api_key: Option<String>,
    /// Credentials.
    pub api_keys: Option<Vec<ApiKey>>,
    /// Of kind `claude`: a file with the key of a service account.
    pub credentials_file: Option<String>,
    /// Of kind `claude`: Google's project.
    pub project: Option<String>,
    /// Of kind `claude`: where in Google's cloud.
    pub location: Option<String>,
    /// The upstream's name of the model.
    pub provider_model_id: Option<String>,
    /// Path of embeddings behind the address, where it is not the usual one.
    pub embeddings_path: Option<String>,
    /// Skip it quietly when its variables are blank.
    #[serde(deserialize_with = "switch")]
    pub optional: Option<bool>,
    /// Label for rows and metrics.
    pub provider: Option<String>,
    /// Its name for people.
    pub provider_display_name: Option<String>,
    /// RouteWise: kind of resource.
    pub provider_type: Option<String>,
    /// RouteWise.
    pub quota: Option<Value>,
    /// RouteWise.
    pub quota_source: Option<Value>,
    /// RouteWise.
    pub quota_pool: Option<String>,
    /// RouteWise.
    pub concurrency: Option<Value>,
    /// RouteWise.
    pub concurrency_pool: Option<String>,
    /// RouteWise.
    pub routewise_pool: Option<String>,
    /// 0 is tried first.
    #[serde(deserialize_with = "number")]
    pub priority: Option<i32>,
    /// Pool that may run it.
    pub pool: Option<String>,
    /// Name of a shared endpoint.
    pub endpoint: Option<String>,
    /// How backends are ordered.
    pub algorithm: Option<String>,
    /// Keep sessions on their backend.
    #[serde(deserialize_with = "switch")]
    pub session_affinity: Option<bool>,
    /// Active probes.
    pub health_check: Option<Value>,
    /// How a sleeping backend is woken.
    pub wake: Option<Value>,
    /// Drop parameters that its server does not take, and report them, instead of refusing them.
    #[serde(deserialize_with = "switch")]
    pub drop_params: Option<bool>,
    /// `native`: callers of Responses are served in it; `only`: all callers.
    pub responses: Option<String>,
    /// With one backend left and its circuit open, try it anyway.
    #[serde(deserialize_with = "switch")]
    pub single_backend_rescue: Option<bool>,
    /// Speak HTTP/2 without being asked.
    #[serde(deserialize_with = "switch")]
    pub http2: Option<bool>,
    /// Tokens of prompt and answer together.
    #[serde(deserialize_with = "number")]
    pub context_length: Option<u64>,
    /// Tokens of an answer.
    #[serde(deserialize_with = "number")]
    pub max_output_length: Option<u64>,
    /// What it takes.
    pub input_modalities: Option<Vec<String>>,
    /// What it gives.
    pub output_modalities: Option<Vec<String>>,
    /// Takes tools.
    #[serde(deserialize_with = "switch")]
    pub supports_tools: Option<bool>,
    /// Takes `response_format`.
    #[serde(deserialize_with = "switch")]
    pub supports_structured_output: Option<bool>,
    /// Parameters that it takes.
    pub supported_params: Option<Vec<String>>,
    /// Words of effort that it takes.
    pub reasoning_efforts: Option<Vec<String>>,
    /// An effort that it does not take is refused instead of dropped.
    #[serde(deserialize_with = "switch")]
    pub effort_binding: Option<bool>,
    /// For the listing.
    pub quantization: Option<String>,
    /// Output processor.
    pub processor: Option<String>,
    /// Started on demand.
    #[serde(deserialize_with = "switch")]
    pub on_demand: Option<bool>,
    /// Members put under every request body.
    pub extra_body: Option<serde_json::Map<String, Value>>,
    /// An SGLang server with priority scheduling.
    #[serde(deserialize_with = "switch")]
    pub priority_scheduling: Option<bool>,
    /// Free form.
    pub route_metadata: Option<serde_json::Map<String, Value>>,
    /// How absent cache details are read.
    #[serde(deserialize_with = "switch")]
    pub null_cache_details_means_miss: Option<bool>,
    /// Prices in USD per million tokens.
    pub pricing: Option<BTreeMap<String, Value>>,
    /// Prices by time of day.
    pub pricing_schedule: Option<Value>,
    /// Path of chat completions.
    pub chat_path: Option<String>,
    /// Header that carries the credential.
    pub auth_header_name: Option<String>,
    /// Its value.
    pub auth_format: Option<String>,
    /// False sends the credential in `x-api-key` instead.
    #[serde(deserialize_with = "switch")]
    pub use_bearer_auth: Option<bool>,
    /// Further headers.
    pub extra_headers: Option<BTreeMap<String, String>>,
    /// Further query.
    pub extra_query: Option<BTreeMap<String, String>>,
    /// Ask for usage on streams (always done).
    #[serde(deserialize_with = "switch")]
    pub include_usage_in_stream: Option<bool>,
    /// OpenRouter's order.
    pub openrouter_sort: Option<String>,
    /// OpenRouter's provider.
    pub openrouter_pinned_provider: Option<String>,
    /// What its server tolerates, by name.
    #[serde(alias = "profile")]
    pub provider_profile: Option<String>,
}

/// A credential: itself, or itself and whom it is kept for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// Itself.
    pub key: String,
    /// The lowest role that may use it.
    #[serde(default)]
    pub min_role: Option<String>,
}

/// An entry of `api_keys`: text, or an object with `key` and `min_role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey(pub Reserved);

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand, because an untagged enum would not say what is wrong with an object.
        match Value::deserialize(deserializer)? {
            Value::String(key) => Ok(Self(Reserved { key, min_role: None })),
            object @ Value::Object(_) => named::from_value(object)
                .map(Self)
                .map_err(|error| de::Error::custom(error.to_string())),
            _ => Err(de::Error::custom(
                "expected a credential, or `key` and `min_role`",
            )),
        }
    }
}

/// A replica: an address, or an address and the host it runs on.
#[derive(Debug, Clone)]
pub enum BackendText {
    /// An address.
    Url(String),
    /// An address and a host.
    Placed(Placed),
}

impl<'de> Deserialize<'de> for BackendText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(url) => Ok(Self::Url(url)),
            object @ Value::Object(_) => named::from_value(object)
                .map(Self::Placed)
                .map_err(|error| de::Error::custom(error.to_string())),
            _ => Err(de::Error::custom("expected an address, or `url` and `node`")),
        }
    }
}

/// A replica on a named host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Address.
    pub url: String,
    /// Host.
    #[serde(default, deserialize_with = "text")]
    pub node: Option<String>,
}

impl BackendText {
    /// The address.
    pub fn url(&self) -> &str {
        match self {
            Self::Url(url) => url,
            Self::Placed(placed) => &placed.url,
        }
    }
}
