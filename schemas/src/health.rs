//! What is found out about backends beside what calls tell: by probes, and by the temperatures of the hosts they run on.
//! Whoever looks after health writes it into bucket [`subject::HEALTH_BUCKET`], a host's temperatures also whoever is told
//! them; routers watch it and leave out whom it speaks against.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::catalog::registered::HealthCheck;
use crate::catalog::{Endpoint, from_hex, hex};
use crate::circuit::record::Opening;
use crate::id::{BackendId, EndpointId, ModelName, NodeId};
use crate::subject;
use crate::time::Timestamp;

pub mod lead;

/// How long what a host says of its accelerators counts, in milliseconds: who reports is asked to do so each 30 s.
pub const HOST_AGE_MS_MAX: u64 = 60_000;
/// How long news of a recovery counts, in milliseconds: it is about the opening it names, and tells nothing of the next.
pub const RECOVERED_AGE_MS_MAX: u64 = 60_000;
/// How long what is learned of a model counts when nobody learns any more, in milliseconds.
pub const PROFILE_AGE_MS_MAX: u64 = 900_000;
/// Most accelerators of one host.
pub const ACCELERATORS_MAX: usize = 64;
/// Longest name of a host, in bytes.
pub const HOST_BYTES_MAX: usize = 128;

/// What probes say of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The backend.
    pub backend: BackendId,
    /// Its endpoint.
    pub endpoint_id: EndpointId,
    /// It is left out.
    pub out: bool,
    /// Probes that failed in a row when it was taken out; 0 for one that is back.
    pub failures: u32,
    /// Who changed it.
    pub changed_by: NodeId,
    /// When.
    pub changed_at: Timestamp,
}

/// A backend whose circuit is open answers probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The backend.
    pub backend: BackendId,
    /// Its endpoint.
    pub endpoint_id: EndpointId,
    /// The opening that need not be waited out.
    pub opening: Opening,
}

/// What a host says of its accelerators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, as the backends of endpoints have it.
    pub host: Arc<str>,
    /// Its accelerators.
    pub gpus: Vec<Accelerator>,
}

/// One accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Its place in the host.
    pub index: u32,
    /// Degrees Celsius.
    pub temperature_c: f64,
    /// How busy it is, in percent; null where that is not known.
    #[serde(default)]
    pub utilization: Option<f64>,
}

impl Host {
    /// Degrees Celsius of the hottest accelerator; `None` without any.
    pub fn hottest_c(&self) -> Option<f64> {
        self.gpus.iter().map(|gpu| gpu.temperature_c).reduce(f64::max)
    }

    /// True when its hottest accelerator is at or above `threshold_c`.
    pub fn is_hot(&self, threshold_c: u32) -> bool {
        self.hottest_c()
            .is_some_and(|hottest| hottest >= f64::from(threshold_c))
    }
}

/// Why a backend that calls say nothing against is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spared {
    /// Its health is asked for, and it failed too often.
    Unhealthy,
    /// An accelerator of its host is too hot.
    HotGpu,
}

impl Spared {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::HotGpu => "hot_gpu",
        }
    }
}

/// True for what can be the name of a host.
pub fn is_host(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= HOST_BYTES_MAX && !text.chars().any(char::is_control)
}

impl Endpoint {
    /// How the health of its backends is asked for; `None` where nobody asks.
    pub fn health_check(&self) -> Option<&HealthCheck> {
        match (&self.registered, &self.watched) {
            (Some(said), _) => said.health_check.as_ref(),
            (None, watched) => watched.as_ref()?.health_check.as_ref(),
        }
    }

    /// The host that a backend runs on, where that was said; `place` is its place among the endpoint's.
    pub fn host(&self, place: usize) -> Option<&Arc<str>> {
        let hosts = match (&self.registered, &self.watched) {
            (Some(said), _) => &said.hosts,
            (None, watched) => &watched.as_ref()?.hosts,
        };
        hosts.get(place)?.as_ref()
    }
}

/// Reads a record of the bucket; `None` for anything else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// A record as bytes.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(record)
}

/// Where what probes say of a backend is.
pub fn probed_key(backend: &BackendId) -> String {
    format!("{}{}", subject::health::PROBED, hex(backend.as_str().as_bytes()))
}

/// Where what is learned of the legs of a model is.
pub fn profile_key(model: &ModelName) -> String {
    format!("{}{}", subject::health::PROFILE, hex(model.as_str().as_bytes()))
}

/// Where it is told that a backend recovered.
pub fn recovered_key(backend: &BackendId) -> String {
    format!(
        "{}{}",
        subject::health::RECOVERED,
        hex(backend.as_str().as_bytes())
    )
}

/// Where what a host says of itself is.
pub fn host_key(host: &str) -> String {
    format!("{}{}", subject::health::HOST, hex(host.as_bytes()))
}

/// The id or name that a key of the bucket stands for, behind `prefix`; `None` for another key.
pub fn name_of_key(key: &str, prefix: &str) -> Option<String> {
    String::from_utf8(from_hex(key.strip_prefix(prefix)?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(temperatures: &[f64]) -> Host {
        let gpus = temperatures
            .iter()
            .zip(0..)
            .map(|(temperature_c, index)| Accelerator {
                index,
                temperature_c: *temperature_c,
                utilization: None,
            });
        Host {
            host: "gpu-1".into(),
            gpus: gpus.collect(),
        }
    }

    #[test]
    fn a_host_is_as_hot_as_its_hottest_accelerator() {
        assert!(host(&[40.0, 85.0]).is_hot(85));
        assert!(!host(&[40.0, 84.9]).is_hot(85));
        assert!(!host(&[]).is_hot(0));
    }

    #[test]
    fn keys_name_whom_they_are_about() {
        let backend = BackendId::from("m:a#0");
        let key = probed_key(&backend);
        assert_eq!(key, "probed.6d3a612330");
        assert_eq!(
            name_of_key(&key, subject::health::PROBED).as_deref(),
            Some("m:a#0")
        );
        assert_eq!(name_of_key(&key, subject::health::HOST), None);
        assert_eq!(name_of_key("host.zz", subject::health::HOST), None);
        assert_eq!(recovered_key(&backend), "recovered.6d3a612330");
        assert_eq!(host_key("a"), "host.61");
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let recovered = Recovered {
            backend: BackendId::from("b"),
            endpoint_id: EndpointId::from("e"),
            opening: Opening {
                number: 3,
                by: "boot".into(),
            },
        };
        let bytes = encode(&recovered).expect("plain data");
        assert_eq!(decode(&bytes), Some(recovered));
        assert_eq!(decode::<Recovered>(b"{"), None);
    }
}
