//! What is said of an endpoint that was made through the management API, beside what every endpoint has.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Catalog, Endpoint, Origin, ProviderKind, ResponsesUse, Stored};
use crate::balance::Algorithm;
use crate::id::{DEFAULT_TENANT, EndpointId, TenantId};
use crate::time::Timestamp;

/// How the health of an endpoint's replicas is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// The path that is asked.
    #[serde(default = "health_path")]
    pub path: Arc<str>,
    /// Seconds from one question to the next.
    #[serde(default = "interval_seconds")]
    pub interval_seconds: u32,
    /// Failures in a row after which a replica is left out.
    #[serde(default = "threshold")]
    pub threshold: u32,
    /// Seconds after a start in which failures do not count.
    #[serde(default)]
    pub start_period_seconds: u32,
}

/// Longest path that is asked, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// Most of what is counted, and most seconds.
const COUNT_MAX: u32 = 86_400;

impl HealthCheck {
    /// Refuses what cannot be asked: the member at fault, and what is expected of it.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let is_path = self.path.starts_with('/') && self.path.len() <= PATH_BYTES_MAX;
        if !is_path || !self.path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(("path", "expected a path such as /health"));
        }
        let bounds = [
            ("interval_seconds", self.interval_seconds, 1),
            ("threshold", self.threshold, 1),
            ("start_period_seconds", self.start_period_seconds, 0),
        ];
        let odd = bounds
            .into_iter()
            .find(|(_, value, min)| !(*min..=COUNT_MAX).contains(value));
        match odd {
            Some((name, ..)) => Err((name, "the value is out of range")),
            None => Ok(()),
        }
    }
}

/// What a file says of the health of an endpoint's replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The hosts that they run on, by their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Option<Arc<str>>>,
    /// How their health is to be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

fn health_path() -> Arc<str> {
    "/health".into()
}

const fn interval_seconds() -> u32 {
    10
}

const fn threshold() -> u32 {
    3
}

/// How replicas are chosen where nobody said it.
pub const fn algorithm() -> Algorithm {
    Algorithm::RoundRobin
}

/// Beside what every endpoint has: what people said when they made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The name people read.
    pub name: Arc<str>,
    /// The word for its kind, as it was given or assumed.
    pub kind: Arc<str>,
    /// The hosts of its backends, by their place.
    #[serde(default)]
    pub hosts: Vec<Option<Arc<str>>>,
    /// How replicas are chosen.
    #[serde(default = "algorithm")]
    pub algorithm: Algorithm,
    /// How their health is to be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Endpoint {
    /// The endpoint of a file that says no more than this: without backends and credentials, a bearer token being what
    /// would prove who calls.
    pub fn of_file(id: EndpointId, kind: ProviderKind, provider: Arc<str>) -> Self {
        Self {
            id,
            kind,
            provider,
            backends: Vec::new(),
            chat_path: "/v1/chat/completions".to_owned(),
            embeddings_path: String::new(),
            responses: ResponsesUse::Never,
            profile: String::new(),
            processor: String::new(),
            drop_params: false,
            query: String::new(),
            auth_header: "authorization".to_owned(),
            auth_format: "Bearer {api_key}".to_owned(),
            extra_headers: Vec::new(),
            extra_body: String::new(),
            credentials: Vec::new(),
            credential_roles: Vec::new(),
            session_affinity: false,
            priority_scheduling: false,
            single_backend_rescue: false,
            http2: false,
            disabled: false,
            tenant: TenantId::from(DEFAULT_TENANT),
            origin: Origin::File,
            sealed: Vec::new(),
            registered: None,
            wake: None,
            algorithm: Algorithm::Weighted,
            watched: None,
        }
    }

    /// How its backends are chosen: as people said when they made it, or as its file says.
    pub fn balancing(&self) -> Algorithm {
        let said = self.registered.as_ref();
        said.map_or(self.algorithm, |said| said.algorithm)
    }

    /// May the routes of a tenant lead here? Those of its own tenant may, and those that operators made to their own
    /// endpoints for another.
    pub fn serves(&self, tenant: &TenantId) -> bool {
        self.tenant == *tenant || self.tenant.as_str() == DEFAULT_TENANT
    }
}

impl Catalog {
    /// An endpoint that the routes of a tenant's model may lead to. No other is ever asked for them, whatever a record
    /// says.
    pub fn endpoint_for(&self, owner: &TenantId, id: &EndpointId) -> Option<&Arc<Endpoint>> {
        self.endpoint(id).filter(|endpoint| endpoint.serves(owner))
    }

    /// An endpoint with its revision.
    pub fn stored_endpoint(&self, id: &EndpointId) -> Option<&Stored<Endpoint>> {
        self.endpoints.get(id)
    }

    /// Every endpoint that comes after `after`, by id.
    pub fn endpoints_after(&self, after: Option<&EndpointId>) -> Vec<&Stored<Endpoint>> {
        let later = |stored: &&Stored<Endpoint>| after.is_none_or(|after| stored.record.id > *after);
        let mut endpoints: Vec<_> = self.endpoints.values().filter(later).collect();
        endpoints.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        endpoints
    }
}
