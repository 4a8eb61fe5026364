//! What is said of endpoints, and how they are shown. Credentials go in and never come out.

use std::sync::Arc;

use dialects::provider::{self, Kind};
use schemars::JsonSchema;
use schemas::balance::Algorithm;
use schemas::catalog::registered::{self, HealthCheck, Registered};
use schemas::catalog::served::RouteRecord;
use schemas::catalog::{CredentialRef, Endpoint, Origin, ProviderKind, ResponsesUse, Role};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{EndpointId, TenantId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use schemas::wake::Wake;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::address::{ADDRESS_BYTES_MAX, Address, replicas};
use super::wake;
use crate::caller::Caller;
use crate::manage::description::Edit;
use crate::manage::model_routes::{Ability, Named};
use crate::manage::{description, invalid, model_routes, rights};

/// The kind of which nothing is known but that it speaks OpenAI's API.
const KIND_DEFAULT: &str = "openai_compat";
/// Variables that hold what is a node's own, never an upstream's.
const OWN_VARIABLES: [&str; 9] = [
    "ADMIN_TOKEN",
    "API_KEY_SECRET",
    "DATABASE_URL",
    "GATEWAY_GRANT_DISPATCH_TOKEN",
    "JWT_SECRET_KEY",
    "NATS_CREDS",
    "OIDC_CLIENT_SECRET",
    "SMTP_PASSWORD",
    "WAYBILL_MASTER_KEY",
];

/// In which API an endpoint is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "UpstreamProtocol")]
pub(super) enum Protocol {
    /// OpenAI's.
    Openai,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
}

impl Protocol {
    const fn of(api: ProviderKind) -> Self {
        match api {
            ProviderKind::OpenaiCompat | ProviderKind::Openrouter | ProviderKind::Echo => Self::Openai,
            ProviderKind::Anthropic | ProviderKind::Vertex => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Openai => KIND_DEFAULT,
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }
}

/// What proves to an upstream who calls: exactly one of the three.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CredentialWanted")]
pub(super) struct Credential {
    /// Itself: sealed as it comes in, for routers alone, and never shown.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(super) value: Option<Secret<String>>,
    /// The variable of the routers' environment that holds it; for operators.
    #[serde(default)]
    env: Option<String>,
    /// The file on the routers' machines that holds it; for operators.
    #[serde(default)]
    file: Option<String>,
}

impl Credential {
    /// The reference that it is; `None` for one that is to be sealed.
    fn reference(&self, caller: &Caller) -> Result<Option<CredentialRef>, Failure> {
        let told = [self.value.is_some(), self.env.is_some(), self.file.is_some()];
        if told.iter().filter(|told| **told).count() != 1 {
            return Err(invalid("credential", "expected exactly one of value, env, file"));
        }
        if self.value.is_some() {
            return Ok(None);
        }
        if rights::operates(caller).is_err() {
            return Err(
                super::super::scope("only an operator may refer to what routers have").param("credential"),
            );
        }
        match (&self.env, &self.file) {
            (Some(name), _) => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                let fits = !name.is_empty() && name.len() <= 128 && name.bytes().all(plain);
                if !fits || OWN_VARIABLES.contains(&name.as_str()) {
                    return Err(invalid(
                        "credential.env",
                        "expected the name of a variable that is an upstream's",
                    ));
                }
                Ok(Some(CredentialRef(format!("env:{name}"))))
            }
            (None, Some(path)) => {
                let fits = path.starts_with('/') && path.len() <= ADDRESS_BYTES_MAX;
                if !fits || path.chars().any(char::is_control) {
                    return Err(invalid("credential.file", "expected the whole path of a file"));
                }
                Ok(Some(CredentialRef(format!("file:{path}"))))
            }
            (None, None) => Ok(None),
        }
    }
}

/// An endpoint that is to be made, and the route to it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndpointWanted")]
pub(crate) struct Wanted {
    /// The name people read, and the model's where `model` is left out.
    name: String,
    /// Whose it is; the caller's tenant where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// The kind of server, such as `vllm`, `openai` or `anthropic`.
    #[serde(default)]
    kind: Option<String>,
    /// In which API it is spoken to; that of its kind where it is left out.
    #[serde(default)]
    upstream_protocol: Option<Protocol>,
    /// Its replicas.
    backends: Vec<Address>,
    /// What proves to it who calls.
    #[serde(default)]
    pub(super) credential: Option<Credential>,
    /// How replicas are chosen; one after the other where it is left out.
    #[serde(default)]
    #[schemars(with = "Algorithm")]
    algorithm: Option<String>,
    /// Sessions stay on their replica.
    #[serde(default)]
    session_affinity: bool,
    /// How the health of its replicas is asked for.
    #[serde(default)]
    health_check: Option<HealthCheck>,
    /// How a sleeping service is woken. Of kind `exec` in files alone.
    #[serde(default)]
    #[schemars(with = "Option<Wake>")]
    wake: Option<Map<String, Value>>,
    /// With one replica left and its circuit open, try it anyway; true where it is left out.
    #[serde(default)]
    single_backend_rescue: Option<bool>,
    /// The name that callers ask for.
    #[serde(default)]
    model: Option<String>,
    /// The upstream's name of it.
    #[serde(default)]
    upstream_model: Option<String>,
    /// Tokens of prompt and answer together.
    #[serde(default)]
    context_length: Option<u64>,
    /// Tokens of an answer.
    #[serde(default)]
    max_output_length: Option<u64>,
    /// `text`, `image`, `audio`, `video`.
    #[serde(default)]
    input_modalities: Option<Vec<String>>,
    /// Takes tools.
    #[serde(default)]
    supports_tools: bool,
    /// Takes a form of its answers.
    #[serde(default)]
    supports_structured_output: bool,
    /// `chat` or `embedding`.
    #[serde(default)]
    model_type: Option<String>,
    /// The pool of routers that alone can call it, and for whom its credential is sealed; for operators.
    #[serde(default)]
    pool: Option<String>,
}

pub(super) const WANTED: &str = "the body is not an endpoint's description: expected name, backends and, optionally, tenant, kind, \
     upstream_protocol, credential, algorithm, session_affinity, health_check, wake, single_backend_rescue, model, \
     upstream_model, context_length, max_output_length, input_modalities, supports_tools, \
     supports_structured_output, model_type, pool";

impl Wanted {
    /// The endpoint, without a credential that is to be sealed.
    pub(super) fn endpoint(
        &self,
        caller: &Caller,
        (tenant, id): (&TenantId, &Arc<str>),
        now: Timestamp,
    ) -> Result<Endpoint, Failure> {
        let id = EndpointId::new(format!("ep-{id}"));
        let word = self
            .kind
            .as_deref()
            .or(self.upstream_protocol.map(Protocol::kind))
            .unwrap_or(KIND_DEFAULT);
        let kind = Kind::named(word).filter(|kind| {
            // One answers in this process, the other is named by a project.
            !matches!(kind.api, ProviderKind::Echo | ProviderKind::Vertex)
        });
        let kind = kind.ok_or_else(|| invalid("kind", "the value is not one of the known ones"))?;
        let said = self.upstream_protocol;
        if said.is_some_and(|protocol| protocol != Protocol::of(kind.api)) {
            return Err(invalid("upstream_protocol", "servers of this kind speak another"));
        }
        let (backends, hosts) = replicas(&id, &self.backends)?;
        let first = backends.first().map_or("", |backend| backend.base_url.as_str());
        let proof = provider::proof(kind.api, None, false);
        let reference = self.credential.as_ref().map(|held| held.reference(caller));
        let reference = reference.transpose()?.flatten();
        Ok(Endpoint {
            wake: self
                .wake
                .clone()
                .map(|told| wake::read(told, &backends))
                .transpose()?,
            kind: kind.api,
            provider: kind.label().into(),
            chat_path: provider::path(kind.api, kind.profile, first),
            backends,
            embeddings_path: String::new(),
            responses: ResponsesUse::Never,
            profile: kind
                .profile
                .map_or_else(String::new, |known| known.name.to_owned()),
            processor: String::new(),
            drop_params: false,
            query: String::new(),
            auth_header: proof.header.to_owned(),
            auth_format: proof.format.to_owned(),
            extra_headers: Vec::new(),
            extra_body: extra_body(kind),
            credentials: reference.into_iter().collect(),
            credential_roles: Vec::<Role>::new(),
            session_affinity: self.session_affinity,
            priority_scheduling: false,
            single_backend_rescue: self.single_backend_rescue.unwrap_or(true),
            http2: false,
            disabled: false,
            tenant: tenant.clone(),
            origin: Origin::Runtime,
            sealed: Vec::new(),
            algorithm: Algorithm::Weighted,
            watched: None,
            registered: Some(Arc::new(Registered {
                name: description::name(self.name.clone())?,
                kind: word.into(),
                hosts,
                algorithm: algorithm(self.algorithm.as_deref())?.unwrap_or(registered::algorithm()),
                health_check: self.health_check.clone().map(health_check).transpose()?,
                created_at: now,
            })),
            id,
        })
    }

    /// The route to it.
    pub(super) fn route(
        &self,
        caller: &Caller,
        endpoint: &Endpoint,
        (id, now): (&str, Timestamp),
    ) -> Result<RouteRecord, Failure> {
        let model = self.model.as_deref().unwrap_or(&self.name);
        let named = Named {
            id: &format!("rt-{id}"),
            tenant: &endpoint.tenant,
            model,
            upstream_model: self.upstream_model.as_deref(),
        };
        let ability = Ability {
            context_length: self.context_length,
            max_output_length: self.max_output_length,
            input_modalities: self.input_modalities.clone(),
            supports_tools: self.supports_tools,
            supports_structured_output: self.supports_structured_output,
            model_type: self.model_type.clone(),
        };
        let mut route = named.route(endpoint, &ability, now)?;
        if let Some(told) = &self.pool {
            route.pool = model_routes::pool(caller, told)?;
        }
        Ok(route)
    }
}

/// Members that a kind presets.
fn extra_body(kind: Kind<'_>) -> String {
    let members = provider::openrouter_body(None, provider::pinned(kind.word));
    let text = Value::Object(members).to_string();
    text.trim_start_matches('{').trim_end_matches('}').to_owned()
}

/// What of an endpoint is to be different.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndpointPatch")]
pub(crate) struct Patch {
    /// The name people read.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "String")]
    name: Option<String>,
    /// All replicas; another address voids the credential.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Vec<Address>")]
    backends: Option<Vec<Address>>,
    /// Another credential; null for none.
    #[serde(default)]
    credential: Edit<Credential>,
    /// How replicas are chosen.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Algorithm")]
    algorithm: Option<String>,
    /// Sessions stay on their replica.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    session_affinity: Option<bool>,
    /// How health is to be looked at; null for not at all.
    #[serde(default)]
    health_check: Edit<HealthCheck>,
    /// How a sleeping service is woken; null for not at all.
    #[serde(default)]
    #[schemars(with = "Option<Wake>")]
    wake: Edit<Map<String, Value>>,
    /// With one replica left and its circuit open, try it anyway.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    single_backend_rescue: Option<bool>,
    /// True: nothing is sent there.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    disabled: Option<bool>,
}

pub(super) const PATCH: &str = "the body is not a change of an endpoint: expected any of name, backends, credential, algorithm, \
     session_affinity, health_check, wake, single_backend_rescue, disabled";

impl Patch {
    /// The credential that is to be sealed.
    pub(super) fn value(&self) -> Option<&Secret<String>> {
        self.credential.value()?.value.as_ref()
    }

    /// An endpoint after a change, without a credential that is to be sealed.
    pub(super) fn patched(&self, caller: &Caller, endpoint: &Endpoint) -> Result<Endpoint, Failure> {
        let mut after = endpoint.clone();
        let held = endpoint.registered.as_deref();
        let mut said = held.cloned().ok_or_else(crate::manage::internal)?;
        if let Some(name) = &self.name {
            said.name = description::name(name.clone())?;
        }
        if let Some(backends) = &self.backends {
            (after.backends, said.hosts) = replicas(&endpoint.id, backends)?;
            let first = after
                .backends
                .first()
                .map_or("", |backend| backend.base_url.as_str());
            let profile = dialects::profile::named(&endpoint.profile);
            after.chat_path = provider::path(endpoint.kind, profile, first);
            if after.backends != endpoint.backends {
                // Whoever may lead it elsewhere is not told what was meant for where it led.
                after.sealed = Vec::new();
                after.credentials = Vec::new();
            }
        }
        if !self.credential.stays() {
            after.sealed = Vec::new();
            let reference = self.credential.value().map(|held| held.reference(caller));
            after.credentials = reference.transpose()?.flatten().into_iter().collect();
        }
        self.health_check.apply(&mut said.health_check, health_check)?;
        self.wake
            .apply(&mut after.wake, |told| wake::read(told, &after.backends))?;
        if let Some(kept) = after.wake.as_deref().filter(|_| self.wake.stays()) {
            wake::check(kept, &after.backends)?;
        }
        said.algorithm = algorithm(self.algorithm.as_deref())?.unwrap_or(said.algorithm);
        after.session_affinity = self.session_affinity.unwrap_or(after.session_affinity);
        after.single_backend_rescue = self.single_backend_rescue.unwrap_or(after.single_backend_rescue);
        after.disabled = self.disabled.unwrap_or(after.disabled);
        after.registered = Some(Arc::new(said));
        Ok(after)
    }
}

fn algorithm(word: Option<&str>) -> Result<Option<Algorithm>, Failure> {
    let unknown = || {
        let text = format!("expected one of {}", Algorithm::words());
        Failure::new(FailureCode::InvalidRequest, text).param("algorithm")
    };
    let known = |word| Algorithm::parse(word).ok_or_else(unknown);
    word.map(known).transpose()
}

fn health_check(check: HealthCheck) -> Result<HealthCheck, Failure> {
    match check.check() {
        Ok(()) => Ok(check),
        Err((member, text)) => Err(invalid(format!("health_check.{member}"), text)),
    }
}

/// What kind of credential an endpoint has. It is never shown itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CredentialKind")]
enum CredentialKind {
    /// One that was given and sealed.
    Value,
    /// A variable of the routers' environment.
    Env,
    /// A file on the routers' machines.
    File,
    /// One of models.yaml.
    Config,
}

/// That an endpoint has a credential.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Credential")]
pub(super) struct HeldCredential {
    kind: CredentialKind,
    set: bool,
}

/// An endpoint as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Endpoint")]
pub(super) struct Shown {
    id: EndpointId,
    tenant: TenantId,
    name: Arc<str>,
    /// The kind of server.
    kind: Arc<str>,
    upstream_protocol: Protocol,
    backends: Vec<Address>,
    /// Null where it has none.
    credential: Option<HeldCredential>,
    algorithm: Algorithm,
    session_affinity: bool,
    health_check: Option<HealthCheck>,
    /// Null for one that nobody wakes.
    wake: Option<Arc<Wake>>,
    single_backend_rescue: bool,
    disabled: bool,
    /// Null for one of a file.
    created_at: Option<Timestamp>,
    origin: Origin,
    /// The number in its `ETag`.
    revision: u64,
}

/// An endpoint that was made, as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EndpointMade")]
pub(super) struct Made {
    #[serde(flatten)]
    pub(super) endpoint: Shown,
    /// False while no price holds for the route that was made with it: calls by it cost nothing, and are flagged
    /// `unpriced`.
    pub(super) priced: bool,
}

fn held(endpoint: &Endpoint) -> Option<HeldCredential> {
    let kind = match endpoint.credentials.first() {
        _ if !endpoint.sealed.is_empty() => CredentialKind::Value,
        None => return None,
        Some(_) if endpoint.origin == Origin::File => CredentialKind::Config,
        Some(one) if one.0.starts_with("env:") => CredentialKind::Env,
        Some(_) => CredentialKind::File,
    };
    Some(HeldCredential { kind, set: true })
}

pub(super) fn shown(endpoint: &Endpoint, revision: u64) -> Shown {
    let said = endpoint.registered.as_deref();
    let backends = endpoint.backends.iter().enumerate();
    Shown {
        id: endpoint.id.clone(),
        tenant: endpoint.tenant.clone(),
        name: said.map_or_else(|| Arc::clone(&endpoint.id.0), |said| Arc::clone(&said.name)),
        kind: said.map_or_else(|| Arc::clone(&endpoint.provider), |said| Arc::clone(&said.kind)),
        upstream_protocol: Protocol::of(endpoint.kind),
        backends: backends
            .map(|(place, backend)| Address {
                url: backend.base_url.clone(),
                node: endpoint.host(place).map(ToString::to_string),
            })
            .collect(),
        credential: held(endpoint),
        algorithm: endpoint.balancing(),
        session_affinity: endpoint.session_affinity,
        health_check: endpoint.health_check().cloned(),
        wake: endpoint.wake.clone(),
        single_backend_rescue: endpoint.single_backend_rescue,
        disabled: endpoint.disabled,
        created_at: said.map(|said| said.created_at),
        origin: endpoint.origin,
        revision,
    }
}
