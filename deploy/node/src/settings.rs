//! `waybill.yaml`: the node's own settings, every key of it. What a version does not offer yet is refused
//! with a message, or named at the start when it has no effect; it is never ignored in silence.

use std::collections::BTreeMap;

use schemas::secret::Secret;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::yaml::{number, switch, words};

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Address to bind; port 0 picks a free one.
    pub listen: Option<String>,
    /// A second address for the management API, metrics and health.
    pub admin_listen: Option<String>,
    /// Where everything lives.
    pub data_dir: Option<String>,
    /// Roles of this process: `all`, or a list.
    #[serde(deserialize_with = "words")]
    pub roles: Option<Vec<String>>,
    /// Pool of its router.
    pub pool: Option<String>,
    /// What gateways must know of named pools, by name.
    pub pools: BTreeMap<String, PoolSettings>,
    /// Name of the cluster, part of every event's source.
    pub cluster: Option<String>,
    /// The bus.
    pub bus: Option<BusSettings>,
    /// The store.
    pub store: Option<StoreSettings>,
    /// The spool.
    pub spool: SpoolSettings,
    /// Name of the node.
    pub node_id: Option<String>,
    /// Idempotency keys.
    pub idempotency: IdempotencySettings,
    /// Sessions that stay on a backend.
    pub affinity: AffinitySettings,
    /// What decides among backends.
    pub balance: BalanceSettings,
    /// Private addresses that endpoints registered over the API may reach.
    pub egress: EgressSettings,
    /// The directory whose files those endpoints may name as their credentials; `credentials` in the data directory.
    pub credentials_dir: Option<String>,
    /// Authentication.
    pub auth: AuthSettings,
    /// How people sign in.
    pub sign_in: SignInSettings,
    /// What takes mail to members.
    pub smtp: Option<SmtpSettings>,
    /// By what else members sign in.
    pub oidc: Option<OidcSettings>,
    /// How long to wait for a store that cannot be asked, in seconds.
    #[serde(deserialize_with = "number")]
    pub admit_wait_seconds: Option<u64>,
    /// Most attempts of one request.
    #[serde(deserialize_with = "number")]
    pub attempts_max: Option<u32>,
    /// Cross-origin access.
    pub cors: CorsSettings,
    /// Networks of proxies whose forwarding headers count.
    pub trusted_proxies: Vec<String>,
    /// Opens `/routing` to everybody.
    #[serde(deserialize_with = "switch")]
    pub public_routing: Option<bool>,
    /// Limits of roles.
    pub role_limits: BTreeMap<String, LimitSettings>,
    /// What whoever looks after the health of upstreams asks.
    pub health: HealthSettings,
    /// Temperature in degrees Celsius from which a graphics processor gets no new work, unless another is set at run time.
    #[serde(deserialize_with = "number")]
    pub gpu_temperature_threshold: Option<f64>,
    /// IANA time zone of billing days.
    pub billing_tz: Option<String>,
    /// Tenants.
    pub tenants: Vec<TenantSettings>,
    /// Members of tenants, as far as they have limits.
    pub users: Vec<UserSettings>,
    /// Virtual keys.
    pub keys: Vec<KeySettings>,
    /// Path of models.yaml.
    pub models_path: Option<String>,
    /// Path of routing.yaml.
    pub routing_path: Option<String>,
    /// Path of alerts.yaml.
    pub alerts_path: Option<String>,
    /// Serve the demo model although a models file is given.
    #[serde(deserialize_with = "switch")]
    pub demo: Option<bool>,
    /// Look for engines although a models file is given.
    #[serde(deserialize_with = "switch")]
    pub discover: Option<bool>,
    /// How long running requests may take after SIGTERM, in seconds.
    #[serde(deserialize_with = "number")]
    pub drain_seconds: Option<u64>,
    /// How long a request body may be on its way, in seconds.
    #[serde(deserialize_with = "number")]
    pub body_seconds_max: Option<u64>,
    /// How long a client may take no byte, in seconds.
    #[serde(deserialize_with = "number")]
    pub client_stall_seconds: Option<u64>,
    /// Silence after which a stream gets a comment, in seconds.
    #[serde(deserialize_with = "number")]
    pub keepalive_seconds: Option<u64>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: Option<String>,
}

/// A named pool, as gateways must know it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSettings {
    /// What its credentials are sealed to: the output of `waybill keys public` where its master key is.
    pub public_key: Option<String>,
}

/// The bus.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSettings {
    /// `embedded` or `nats`.
    pub kind: Option<String>,
    /// Server addresses.
    pub url: Option<String>,
    /// Replicas of streams and buckets.
    #[serde(deserialize_with = "number")]
    pub replicas: Option<u64>,
    /// Credentials file.
    pub creds: Option<String>,
    /// Prefix of the subjects on which the node gets answers.
    pub inbox_prefix: Option<String>,
    /// TLS files.
    pub tls: Option<TlsSettings>,
    /// Largest log of events, in bytes.
    #[serde(deserialize_with = "number")]
    pub log_bytes_max: Option<u64>,
}

/// TLS towards the servers of the bus.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// Certificates that are trusted, a PEM file.
    pub ca: Option<String>,
    /// This node's certificate, a PEM file.
    pub cert: Option<String>,
    /// Its key, a PEM file.
    pub key: Option<String>,
}

/// The store.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `sqlite` or `postgres`.
    pub kind: Option<String>,
    /// Address of the server.
    pub url: Option<String>,
    /// Bring the tables up to date at the start of a ledger.
    #[serde(deserialize_with = "switch")]
    pub migrate: Option<bool>,
}

/// The spool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpoolSettings {
    /// Its directory.
    pub dir: Option<String>,
    /// Its largest size, in bytes.
    #[serde(deserialize_with = "number")]
    pub bytes_max: Option<u64>,
    /// `process` or `machine`.
    pub durability: Option<String>,
}

/// Idempotency keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdempotencySettings {
    /// How long an answer can be given again, in minutes.
    #[serde(deserialize_with = "number")]
    pub ttl_minutes: Option<u64>,
    /// After how many seconds without a sign of its node the end of a running request is asked for.
    #[serde(deserialize_with = "number")]
    pub lease_seconds: Option<u64>,
    /// Most bytes of the keys' bucket, over all tenants.
    #[serde(deserialize_with = "number")]
    pub bytes_max: Option<u64>,
}

/// What decides among backends. What each key means is said in `docs/routing.md`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceSettings {
    /// How long a backend is asked last that could not be connected to, in seconds; 0 for not at all.
    #[serde(deserialize_with = "number")]
    pub soft_ban_seconds: Option<u64>,
    /// What a request in an engine's queue weighs.
    #[serde(deserialize_with = "number")]
    pub engine_waiting_weight: Option<u64>,
    /// What a percent of an engine's cache weighs that is in use.
    #[serde(deserialize_with = "number")]
    pub engine_cache_weight: Option<u64>,
}

/// Sessions that stay on a backend. What each key means is said in `docs/affinity.md`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AffinitySettings {
    /// Whether callers of models from files stay where they were.
    #[serde(deserialize_with = "switch")]
    pub callers: Option<bool>,
    /// How long a session stays after its last call, in seconds.
    #[serde(deserialize_with = "number")]
    pub session_seconds: Option<u64>,
    /// How long a caller stays after his last call, in seconds.
    #[serde(deserialize_with = "number")]
    pub caller_seconds: Option<u64>,
    /// How long anything may stay at all, in seconds; 0 for ever.
    #[serde(deserialize_with = "number")]
    pub age_seconds_max: Option<u64>,
    /// By how many calls the backend of a session exceeds the least before the session is moved.
    #[serde(deserialize_with = "number")]
    pub overload_calls: Option<u64>,
    /// How many times the least its calls are then.
    #[serde(deserialize_with = "number")]
    pub overload_factor: Option<f64>,
    /// How long a call waits to hear where its session is, and for others to hear it, in milliseconds.
    #[serde(deserialize_with = "number")]
    pub wait_ms: Option<u64>,
    /// Prompts that are being read.
    pub prefill: PrefillSettings,
}

/// Prompts that backends are reading.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrefillSettings {
    /// Whether they decide.
    #[serde(deserialize_with = "switch")]
    pub enabled: Option<bool>,
    /// Unread tokens from which on the lighter of two backends is taken.
    #[serde(deserialize_with = "number")]
    pub intervene_tokens: Option<u64>,
    /// Unread tokens of an elephant.
    #[serde(deserialize_with = "number")]
    pub elephant_tokens: Option<u64>,
    /// Elephants that a backend reads at a time.
    #[serde(deserialize_with = "number")]
    pub elephants_max: Option<u64>,
    /// Unread tokens of a backend above which no session stays there; 0 for never.
    #[serde(deserialize_with = "number")]
    pub backlog_tokens_max: Option<u64>,
    /// How long what a backend has read counts as cached, in seconds.
    #[serde(deserialize_with = "number")]
    pub memory_seconds: Option<u64>,
}

/// What is asked of upstreams beside calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSettings {
    /// Ask servers that may be engines for their figures, and whether they live while their circuits are open.
    #[serde(deserialize_with = "switch")]
    pub engines: Option<bool>,
    /// Exporters that tell how hot hosts are.
    pub thermometers: Vec<ThermometerSettings>,
}

/// An exporter of temperatures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThermometerSettings {
    /// The host, as backends name it.
    pub host: String,
    /// Where its figures are.
    pub url: String,
}

/// Reachable private networks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressSettings {
    /// Networks.
    pub allow: Vec<String>,
}

/// Authentication.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSettings {
    /// Age from which a view of the catalogue is not served from any more, in seconds.
    #[serde(deserialize_with = "number")]
    pub stale_seconds_max: Option<u64>,
}

/// How people sign in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignInSettings {
    /// Accounts of one's own.
    pub sign_up: SignUpSettings,
}

/// Accounts that people make themselves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignUpSettings {
    /// Anybody may.
    #[serde(deserialize_with = "switch")]
    pub enabled: Option<bool>,
    /// Whoever is of no domain of the list waits for an administrator; false refuses him.
    #[serde(deserialize_with = "switch")]
    pub approval: Option<bool>,
    /// Domains whose addresses need no approval: `example.com`, or `*.example.com` for all below it.
    pub domains: Vec<String>,
    /// The tenant that new members are of.
    pub tenant: Option<String>,
}

/// The server that takes mail.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpSettings {
    /// Its name.
    pub host: Option<String>,
    /// Its port.
    #[serde(deserialize_with = "number")]
    pub port: Option<u16>,
    /// `starttls`, `tls` or `none`.
    pub tls: Option<String>,
    /// As whom one comes.
    pub user: Option<String>,
    /// With which password.
    pub password: Option<Secret<String>>,
    /// The file with that password.
    pub password_file: Option<String>,
    /// From whom letters are.
    pub from: Option<String>,
}

/// A provider of identities.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSettings {
    /// Its address.
    pub issuer: String,
    /// What it knows this deployment by.
    pub client_id: String,
    /// With what this deployment shows that it is that.
    #[serde(default)]
    pub client_secret: Option<Secret<String>>,
    /// The file with that.
    #[serde(default)]
    pub client_secret_file: Option<String>,
    /// What is asked of it beyond `openid` and `email`.
    #[serde(default, deserialize_with = "words")]
    pub scopes: Option<Vec<String>>,
    /// Domains whose addresses may sign in by it; with none, all.
    #[serde(default)]
    pub allowed_domains: Vec<String>,
    /// The tenant whose members sign in by it.
    #[serde(default)]
    pub tenant: Option<String>,
    /// What new members may do.
    #[serde(default)]
    pub role: Option<String>,
    /// Whoever is no member is made one; as people may sign up where nothing is said.
    #[serde(default, deserialize_with = "switch")]
    pub create_members: Option<bool>,
}

/// Cross-origin access.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorsSettings {
    /// Allowed origins.
    pub origins: Vec<String>,
}

/// A tenant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSettings {
    /// Its id.
    pub id: String,
    /// Its limits.
    #[serde(default)]
    pub limits: LimitSettings,
}

/// A member of a tenant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSettings {
    /// Whose member.
    pub tenant: Option<String>,
    /// The member, as keys name it.
    pub id: String,
    /// What all his keys together may use.
    #[serde(default)]
    pub limits: LimitSettings,
}

/// A virtual key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    /// Its name.
    pub name: String,
    /// Who pays.
    pub tenant: Option<String>,
    /// The member it belongs to.
    pub user: Option<String>,
    /// The key itself: 16 to 256 printable characters.
    pub key: String,
    /// What it may do.
    pub role: Option<String>,
    /// Only these models.
    pub models: Option<Vec<String>>,
    /// Its limits.
    #[serde(default)]
    pub limits: LimitSettings,
    /// Most output tokens of a call that names no maximum; 0 leaves it to the model.
    #[serde(default, deserialize_with = "number")]
    pub output_default_max: Option<u64>,
    /// Refused from then on: RFC 3339.
    pub expires_at: Option<String>,
}

/// Limits of a subject, as they are written: read by [`crate::config::limits`].
pub type LimitSettings = Map<String, Value>;
