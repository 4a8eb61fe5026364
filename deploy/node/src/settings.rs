//! `waybill.yaml`: the node's own settings, every key of it. What a version does not offer yet is refused
//! with a message, or named at the start when it has no effect; it is never ignored in silence.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::yaml::{number, switch, text, words};

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
    /// Private addresses that endpoints registered over the API may reach.
    pub egress: EgressSettings,
    /// Authentication.
    pub auth: AuthSettings,
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
    pub role_limits: BTreeMap<String, Limits>,
    /// Temperature above which a graphics processor gets no new work.
    #[serde(deserialize_with = "number")]
    pub gpu_temperature_threshold: Option<f64>,
    /// IANA time zone of billing days.
    pub billing_tz: Option<String>,
    /// Tenants.
    pub tenants: Vec<TenantSettings>,
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
    pub limits: Limits,
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
    pub limits: Limits,
    /// Output tokens reserved for calls that name no maximum.
    #[serde(default, deserialize_with = "number")]
    pub output_default_max: Option<u64>,
    /// Refused from then on: RFC 3339.
    pub expires_at: Option<String>,
}

/// Limits of a subject, by the keys that operators write.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    #[serde(deserialize_with = "text")]
    qps: Option<String>,
    #[serde(deserialize_with = "text")]
    rpm: Option<String>,
    #[serde(deserialize_with = "text")]
    tpm: Option<String>,
    #[serde(deserialize_with = "text")]
    concurrency: Option<String>,
    #[serde(deserialize_with = "text")]
    daily_calls: Option<String>,
    #[serde(deserialize_with = "text")]
    monthly_calls: Option<String>,
    #[serde(deserialize_with = "text")]
    daily_tokens: Option<String>,
    #[serde(deserialize_with = "text")]
    monthly_tokens: Option<String>,
    #[serde(deserialize_with = "text")]
    daily_usd: Option<String>,
    #[serde(deserialize_with = "text")]
    monthly_usd: Option<String>,
    #[serde(deserialize_with = "text")]
    total_usd: Option<String>,
    per_model: BTreeMap<String, Limits>,
}

/// Why limits cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitProblem {
    /// Not a non-negative number.
    Malformed(String),
    /// A limit that this version cannot enforce.
    Unenforced(String),
}

impl Limits {
    /// The first limit that is malformed, or set to something other than 0: this version enforces none, and
    /// a limit that is not enforced must not look as if it were.
    pub fn problem(&self) -> Option<LimitProblem> {
        let named = [
            ("qps", &self.qps),
            ("rpm", &self.rpm),
            ("tpm", &self.tpm),
            ("concurrency", &self.concurrency),
            ("daily_calls", &self.daily_calls),
            ("monthly_calls", &self.monthly_calls),
            ("daily_tokens", &self.daily_tokens),
            ("monthly_tokens", &self.monthly_tokens),
            ("daily_usd", &self.daily_usd),
            ("monthly_usd", &self.monthly_usd),
            ("total_usd", &self.total_usd),
        ];
        let own = named
            .iter()
            .find_map(|(name, value)| problem_of(name, value.as_deref()?));
        own.or_else(|| {
            self.per_model.iter().find_map(|(model, limits)| {
                limits.problem().map(|problem| match problem {
                    LimitProblem::Malformed(path) => {
                        LimitProblem::Malformed(format!("per_model.{model}.{path}"))
                    }
                    LimitProblem::Unenforced(path) => {
                        LimitProblem::Unenforced(format!("per_model.{model}.{path}"))
                    }
                })
            })
        })
    }
}

fn problem_of(name: &str, value: &str) -> Option<LimitProblem> {
    match schemas::money::NanoUsd::parse_usd(value.trim()) {
        Ok(amount) if amount.0 == 0 => None,
        Ok(_) => Some(LimitProblem::Unenforced(name.to_owned())),
        Err(_) => Some(LimitProblem::Malformed(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_not_enforced_is_named() {
        let limits: Limits = serde_json::from_str(r#"{"qps": 0, "daily_usd": "1.00"}"#).expect("read");
        assert_eq!(
            limits.problem(),
            Some(LimitProblem::Unenforced("daily_usd".into()))
        );
        let nested: Limits = serde_json::from_str(r#"{"per_model": {"m": {"rpm": -1}}}"#).expect("read");
        assert_eq!(
            nested.problem(),
            Some(LimitProblem::Malformed("per_model.m.rpm".into()))
        );
        assert_eq!(Limits::default().problem(), None);
    }
}
