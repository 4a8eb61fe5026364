//! What is configured: tenants, keys, models, routes, endpoints. Records of bucket `wb_catalog`, and the
//! immutable snapshot that is folded from them: every role holds one in memory and reads nothing else.
//! No secret is here that anybody but a router could read: credentials are references, or sealed.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::balance::Algorithm;
use crate::id::{
    BackendId, DEFAULT_TENANT, EndpointId, KeyId, ModelName, NodeId, PoolName, TenantId, UserId,
};
use crate::limit::limits::Limits;
use crate::money::Price;
use crate::parameter::Takes;
use crate::seal::Sealed;
use crate::subject;
use crate::time::Timestamp;
use crate::wake::Wake;

pub mod change;
pub mod grant;
mod learned;
pub mod limited;
pub mod modality;
pub mod policy;
pub mod pricing;
pub mod rates;
pub mod registered;
pub mod replica;
pub mod router;
pub mod served;
pub mod setting;
pub mod tenant;
pub mod user;

use grant::{Kind, Reach};
use modality::Modalities;
use policy::{KeyRouting, Policies};
use rates::Rates;
use registered::{Registered, Watched};
use router::Router;
use served::Served;
use setting::Settings;
use tenant::Tenant;
use user::User;

/// What a caller may do, in rising order. `Operator` is of the platform, the others of a tenant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The lowest.
    #[default]
    Free,
    /// Above free.
    Pro,
    /// Staff.
    Internal,
    /// Administers a tenant.
    Admin,
    /// Operates the platform.
    Operator,
}

/// Where a record came from: files are re-read at each start, run-time records stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A configuration file.
    #[default]
    File,
    /// The first run, the command line or the management API.
    Runtime,
}

/// A record as it stands in the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    /// With which revision it was written.
    pub revision: u64,
    /// What was written.
    pub record: Arc<T>,
}

/// A virtual key. The key itself is nowhere: the record's place in the bucket is its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The id that may be shown.
    pub id: KeyId,
    /// Its name.
    pub name: Arc<str>,
    /// Who pays.
    pub tenant: TenantId,
    /// The member it belongs to.
    pub user: Option<UserId>,
    /// What it may do.
    pub role: Role,
    /// Only these models.
    pub models: Option<Vec<ModelName>>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// Most tokens of an answer to a call that names no maximum; `None` for the model's own.
    #[serde(default)]
    pub output_default_max: Option<u64>,
    /// Refused from then on.
    pub expires_at: Option<Timestamp>,
    /// Refused; a revoked record is kept, never deleted.
    pub revoked: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it came from.
    pub origin: Origin,
    /// The first characters of the key, for recognition only.
    pub prefix: Arc<str>,
    /// What it reaches.
    #[serde(default, skip_serializing_if = "Reach::is_member")]
    pub reach: Reach,
    /// None of these models, whatever else says so: what its maker may not use either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<ModelName>,
    /// When it took the place of another secret of the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// What it says of calls that leave the choice of a model to us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<KeyRouting>,
    /// The most that operators granted it; `None` where a tenant's administrator alone did. See [`Key::counts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Role>,
    /// With whose credential it was made, of a key that is no member's: it may do no more than he.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<user::Maker>,
    /// What counted of whoever was shown the secret, where he was not its member: no more ever counts of it. `None` where
    /// nobody was who could do less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_by: Option<Role>,
}

/// A model as callers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The name callers ask for.
    pub id: ModelName,
    /// The name people read.
    pub name: Arc<str>,
    /// Other names of it.
    pub aliases: Vec<ModelName>,
    /// Place in the listing.
    pub position: u32,
    /// What it takes.
    pub input_modalities: Modalities,
    /// What it gives.
    pub output_modalities: Modalities,
    /// Numeric format of the weights, for the listing.
    pub quantization: Arc<str>,
    /// Tokens of prompt and answer together, the smallest over its routes.
    pub context_length: u64,
    /// Tokens of an answer, the smallest over its routes.
    pub max_output_length: u64,
    /// Takes `tools`.
    pub supports_tools: bool,
    /// Takes `response_format`.
    pub supports_structured_output: bool,
    /// Gives embeddings instead of answers.
    #[serde(default)]
    pub embeds: bool,
    /// Sampling parameters, for the listing.
    pub supported_params: Vec<String>,
    /// The lowest role that may see and call it.
    pub required_role: Role,
    /// Only these tenants; `None` for all.
    pub tenants: Option<Vec<TenantId>>,
    /// Prices as written in the file, for the listing: USD per million tokens.
    pub pricing: Vec<(String, String)>,
    /// When it entered the catalogue.
    pub created_at: Timestamp,
    /// Ways to serve it, in the order of the file.
    pub routes: Vec<Route>,
    /// Where it came from.
    pub origin: Origin,
    /// Whose it is; those of files are the operators'.
    #[serde(default = "operators")]
    pub owner: TenantId,
    /// How its legs are chosen; `None` where nobody said: by their weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Arc<Router>>,
}

/// One way to serve a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub endpoint_id: EndpointId,
    /// The upstream's name of the model.
    pub upstream_model: Arc<str>,
    /// 0 is tried first.
    pub priority: i32,
    /// Share of the draw within a priority, in millionths; 0 is never used.
    pub weight_micro: u64,
    /// The pool that may run it.
    pub pool: PoolName,
    /// Tokens of prompt and answer together.
    pub context_length: u64,
    /// What it takes.
    pub input_modalities: Modalities,
    /// Which parameters it takes.
    #[serde(default)]
    pub takes: Arc<Takes>,
    /// What it costs; `None` is unpriced.
    pub price: Option<Price>,
    /// Where it came from.
    #[serde(default)]
    pub origin: Origin,
    /// What it costs from which time on; counts before `price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Arc<Rates>>,
}

/// The kind of API an endpoint speaks, as far as this build serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Any server of the OpenAI chat API.
    OpenaiCompat,
    /// OpenRouter: the same with its own additions.
    Openrouter,
    /// Anthropic's own API.
    Anthropic,
    /// Claude on Google's Vertex.
    Vertex,
    /// Google's Gemini.
    Gemini,
    /// Answers with the last user message, in process.
    Echo,
}

/// For whom a server of OpenAI's family is spoken to in Responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponsesUse {
    /// For nobody: it is spoken to in chat completions.
    #[default]
    Never,
    /// For callers of Responses.
    Native,
    /// For all callers: it has no chat completions.
    Only,
}

/// A named upstream service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one service"
)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// The kind of API.
    pub kind: ProviderKind,
    /// The provider label.
    pub provider: Arc<str>,
    /// Replicas, at least one (none for [`ProviderKind::Echo`]).
    pub backends: Vec<Backend>,
    /// Path of chat completions, appended to a backend's base URL.
    pub chat_path: String,
    /// Path of embeddings; empty for the usual one beside chat completions.
    #[serde(default)]
    pub embeddings_path: String,
    /// Who is served in OpenAI's Responses instead of chat completions.
    #[serde(default)]
    pub responses: ResponsesUse,
    /// Name of what a server of its kind tolerates, in `dialects::profile`; empty for what is assumed of any.
    #[serde(default)]
    pub profile: String,
    /// What turns its text into calls or strips its thoughts: `glm`, `qwen`, `think_block`; empty for nothing.
    #[serde(default)]
    pub processor: String,
    /// Parameters that it cannot take are dropped and reported instead of refused.
    #[serde(default)]
    pub drop_params: bool,
    /// Query appended to it, without `?`.
    pub query: String,
    /// Header that carries the credential, lower case.
    pub auth_header: String,
    /// Its value, `{api_key}` being replaced.
    pub auth_format: String,
    /// Further headers: lower-case names.
    pub extra_headers: Vec<(String, String)>,
    /// Members put into every request body that does not have them, as a JSON object without braces
    /// (`"a":1,"b":2`), empty for none.
    pub extra_body: String,
    /// References to credentials, tried in order; empty for keyless servers.
    pub credentials: Vec<CredentialRef>,
    /// The lowest role that may use the credential of the same place; those beyond the list are for everybody.
    #[serde(default)]
    pub credential_roles: Vec<Role>,
    /// Sessions stay on their backend.
    #[serde(default)]
    pub session_affinity: bool,
    /// Its server schedules by the member `priority`, which is ours to say: SGLang's.
    #[serde(default)]
    pub priority_scheduling: bool,
    /// With one backend left and its circuit open, try it anyway.
    pub single_backend_rescue: bool,
    /// Speaks HTTP/2 without being asked (prior knowledge).
    pub http2: bool,
    /// An administrator switched its provider off.
    pub disabled: bool,
    /// Whose it is; those of files are the operators'.
    #[serde(default = "operators")]
    pub tenant: TenantId,
    /// Where it came from. What was made at run time is trusted with public addresses only.
    #[serde(default)]
    pub origin: Origin,
    /// Credentials that only routers can open, tried after [`Endpoint::credentials`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<Sealed>,
    /// What was said of it when it was made at run time; `None` for those of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Arc<Registered>>,
    /// How its service is woken when it sleeps; `None` for one that nobody wakes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::wake::known"
    )]
    pub wake: Option<Arc<Wake>>,
    /// How its backends are chosen, as its file says; see [`Endpoint::balancing`].
    #[serde(default, skip_serializing_if = "Algorithm::is_weighted")]
    pub algorithm: Algorithm,
    /// What its file says of the health of its backends; see [`Endpoint::health_check`] and [`Endpoint::host`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Arc<Watched>>,
}

/// One replica of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Its id.
    pub id: BackendId,
    /// `http(s)://host[:port][/path]`, without a trailing slash.
    pub base_url: String,
}

/// The name of a credential in the router's own book.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CredentialRef(pub String);

/// The digest of a virtual key: HMAC-SHA256 under the deployment's secret.
pub type KeyDigest = [u8; 32];

/// An immutable view of everything configured.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Grows with every change.
    pub revision: u64,
    /// The same as text, for headers and rows.
    pub revision_text: Arc<str>,
    served: Served,
    endpoints: HashMap<EndpointId, Stored<Endpoint>>,
    keys: HashMap<KeyDigest, Stored<Key>>,
    tenants: HashMap<TenantId, Stored<Tenant>>,
    users: HashMap<(TenantId, UserId), Stored<User>>,
    roles: HashMap<Role, Arc<limited::RoleLimits>>,
    settings: Settings,
    policies: Policies,
}

/// Why a record of the bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not one of the prefixes of [`subject::catalog`], or a key that is not a digest.
    #[error("the record's key {0} is of no known kind")]
    Kind(String),
    /// The value does not parse.
    #[error("the record {key} does not parse")]
    Value {
        /// The record's key.
        key: String,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
}

impl Catalog {
    /// Applies one record: `value` is `None` when it was deleted.
    pub fn apply(&mut self, revision: u64, key: &str, value: Option<&[u8]>) -> Result<(), RecordError> {
        self.revision = self.revision.max(revision);
        self.revision_text = self.revision.to_string().into();
        if let Some((kind, digest)) = Kind::of_place(key) {
            let unknown = || RecordError::Kind(key.to_owned());
            let digest = digest_from_hex(digest).ok_or_else(unknown)?;
            let record: Option<Key> = read(key, value)?;
            if record
                .as_ref()
                .is_some_and(|record| Kind::of(&record.reach) != kind)
            {
                return Err(unknown());
            }
            replace_at(&mut self.keys, digest, revision, record);
        } else if key.starts_with(subject::catalog::TENANT) {
            let id = TenantId::from(key.strip_prefix(subject::catalog::TENANT).unwrap_or_default());
            replace_at(&mut self.tenants, id, revision, read(key, value)?);
        } else if let Some(applied) = self.apply_served(revision, key, value) {
            applied?;
        } else if key.starts_with(subject::catalog::ENDPOINT) {
            let id = EndpointId::new(name_of_record(key, subject::catalog::ENDPOINT));
            replace_at(&mut self.endpoints, id.clone(), revision, read(key, value)?);
            self.serve_endpoint(&id);
        } else if key.starts_with(subject::catalog::USER) {
            let place = user::of_key(key).ok_or_else(|| RecordError::Kind(key.to_owned()))?;
            replace_at(&mut self.users, place, revision, read(key, value)?);
        } else if key.starts_with(subject::catalog::ROLE) {
            let role = limited::role_of_key(key).ok_or_else(|| RecordError::Kind(key.to_owned()))?;
            replace(&mut self.roles, role, read(key, value)?);
            self.lay_over_roles();
        } else if let Some(name) = key.strip_prefix(subject::catalog::SETTING) {
            self.note_setting(name, revision, read(key, value)?);
        } else if key.starts_with(subject::catalog::PROVIDER) {
            let label = setting::provider_of_key(key).ok_or_else(|| RecordError::Kind(key.to_owned()))?;
            self.note_provider(&label, revision, read(key, value)?);
        } else if key.starts_with(subject::catalog::POLICY) {
            let model = policy::model_of_key(key).ok_or_else(|| RecordError::Kind(key.to_owned()))?;
            self.policies.note_model(model, revision, read(key, value)?);
        } else if key == subject::catalog::INFERENCE {
            self.policies.note_inference(revision, read(key, value)?);
        } else if !is_beside(key) {
            return Err(RecordError::Kind(key.to_owned()));
        }
        Ok(())
    }

    /// An endpoint.
    pub fn endpoint(&self, id: &EndpointId) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(id).map(|stored| &stored.record)
    }

    /// Every endpoint, by id.
    pub fn endpoints(&self) -> Vec<&Arc<Endpoint>> {
        let mut endpoints: Vec<_> = self.endpoints.values().map(|stored| &stored.record).collect();
        endpoints.sort_by(|a, b| a.id.cmp(&b.id));
        endpoints
    }

    /// The key of a digest.
    pub fn key(&self, digest: &KeyDigest) -> Option<&Arc<Key>> {
        self.keys.get(digest).map(|stored| &stored.record)
    }

    /// Every key with its digest, by id.
    pub fn keys(&self) -> Vec<(&KeyDigest, &Arc<Key>)> {
        let keys = self.stored_keys();
        let mut keys: Vec<_> = keys.map(|(digest, stored)| (digest, &stored.record)).collect();
        keys.sort_by(|a, b| a.1.id.cmp(&b.1.id));
        keys
    }

    /// Every key with its digest and its revision, in no order.
    pub fn stored_keys(&self) -> impl Iterator<Item = (&KeyDigest, &Stored<Key>)> {
        self.keys.iter()
    }
}

/// True for keys of the bucket that are no part of the snapshot.
fn is_beside(key: &str) -> bool {
    let beside = [subject::catalog::PASSAGE, subject::catalog::SAID];
    key == subject::catalog::CLUSTER || beside.iter().any(|prefix| key.starts_with(prefix))
}

/// The record key of a model.
pub fn model_key(name: &ModelName) -> String {
    format!("{}{}", subject::catalog::MODEL, hex(name.as_str().as_bytes()))
}

/// The key of what a node remembers of its files.
pub fn said_key(node: &NodeId) -> String {
    format!("{}{}", subject::catalog::SAID, hex(node.as_str().as_bytes()))
}

/// The record key of an endpoint.
pub fn endpoint_key(id: &EndpointId) -> String {
    format!("{}{}", subject::catalog::ENDPOINT, hex(id.as_str().as_bytes()))
}

/// The record key of a virtual key.
pub fn key_key(digest: &KeyDigest) -> String {
    format!("{}{}", subject::catalog::KEY, hex(digest))
}

fn name_of_record(key: &str, prefix: &str) -> String {
    let bytes = key.strip_prefix(prefix).and_then(from_hex).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn read<T: for<'de> Deserialize<'de>>(key: &str, value: Option<&[u8]>) -> Result<Option<T>, RecordError> {
    let parse = |bytes| {
        serde_json::from_slice(bytes).map_err(|source| RecordError::Value {
            key: key.to_owned(),
            source,
        })
    };
    value.map(parse).transpose()
}

/// Who owns what files say: the tenant of those who operate the platform.
pub fn operators() -> TenantId {
    TenantId::from(DEFAULT_TENANT)
}

fn replace<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, Arc<V>>, key: K, value: Option<V>) {
    match value {
        Some(value) => {
            map.insert(key, Arc::new(value));
        }
        None => {
            map.remove(&key);
        }
    }
}

fn replace_at<K: std::hash::Hash + Eq, V>(
    map: &mut HashMap<K, Stored<V>>,
    key: K,
    revision: u64,
    value: Option<V>,
) {
    match value.map(Arc::new) {
        Some(record) => {
            map.insert(key, Stored { revision, record });
        }
        None => {
            map.remove(&key);
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? * 16 + digit(pair[1])?))
        .collect()
}

fn digest_from_hex(text: &str) -> Option<KeyDigest> {
    from_hex(text)?.try_into().ok()
}

#[cfg(test)]
pub(crate) mod tests;
