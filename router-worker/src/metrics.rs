//! What a router counts. Labels are names from the catalogue and words from closed lists, never text of a
//! caller.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use schemas::affinity::choice::Verdict;
use schemas::circuit::CircuitState;
use schemas::id::{BackendId, EndpointId};
use schemas::outcome::Outcome;

/// The router's metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    attempts: Family<AttemptLabels, Counter>,
    circuits: Family<BackendLabels, Gauge>,
    dropped: Family<DropLabels, Counter>,
    keys: Family<KeyLabels, Counter>,
    refused_keys: Family<EndpointLabels, Gauge>,
    concurrency: Family<CredentialLabels, Gauge>,
    saturated: Family<EndpointLabels, Counter>,
    sessions: Family<SessionLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    endpoint: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    backend: Arc<str>,
}

impl BackendLabels {
    fn of(backend: &BackendId) -> Self {
        Self {
            backend: Arc::clone(&backend.0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeyLabels {
    endpoint: Arc<str>,
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: Arc<str>,
}

impl EndpointLabels {
    fn of(endpoint: &EndpointId) -> Self {
        Self {
            endpoint: Arc::clone(&endpoint.0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabels {
    outcome: &'static str,
    level: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CredentialLabels {
    credential: Arc<str>,
}

/// What became of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEvent {
    /// Another took its place within a request.
    Rotated,
    /// It is asked last for a while.
    Last,
    /// It is not asked for a while.
    Muted,
    /// A request found all that it might use muted.
    Exhausted,
    /// The upstream does not accept it.
    Refused,
}

impl KeyEvent {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Last => "last",
            Self::Muted => "muted",
            Self::Exhausted => "exhausted",
            Self::Refused => "refused",
        }
    }
}

/// Why an event of an upstream's stream did not reach the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It is not JSON, or of a shape no client understands.
    Malformed,
}

impl Dropped {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
        }
    }
}

impl Metrics {
    /// Registers everything that is counted.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            attempts: listed(registry, "waybill_attempts", "Attempts at upstreams"),
            circuits: listed(
                registry,
                "waybill_circuit_state",
                "Circuit of a backend: 0 closed, 1 half-open, 2 open",
            ),
            dropped: listed(
                registry,
                "waybill_upstream_events_dropped",
                "Events of upstream streams that were not passed on",
            ),
            keys: listed(
                registry,
                "waybill_upstream_credentials",
                "What became of credentials: rotated, asked last, muted, refused, or all of them muted",
            ),
            refused_keys: listed(
                registry,
                "waybill_upstream_credentials_refused",
                "Credentials of an endpoint that its upstream does not accept",
            ),
            concurrency: listed(
                registry,
                "waybill_upstream_concurrency_limit",
                "Calls that may run at once with a credential, as far as its provider bears them",
            ),
            saturated: listed(
                registry,
                "waybill_upstream_saturated",
                "Requests that found no room among the calls of an endpoint's credentials",
            ),
            sessions: listed(
                registry,
                "waybill_session_affinity",
                "Where calls went whose session was looked for, and by which of its names it was found",
            ),
        }
    }

    /// Counts what became of a credential of an endpoint.
    pub(crate) fn key(&self, endpoint: &EndpointId, event: KeyEvent) {
        let labels = KeyLabels {
            endpoint: Arc::clone(&endpoint.0),
            event: event.as_str(),
        };
        self.keys.get_or_create(&labels).inc();
    }

    /// Shows how many credentials of an endpoint are refused.
    pub(crate) fn refused_keys(&self, endpoint: &EndpointId, refused: usize) {
        let labels = EndpointLabels::of(endpoint);
        let refused = i64::try_from(refused).unwrap_or(i64::MAX);
        self.refused_keys.get_or_create(&labels).set(refused);
    }

    /// Shows how many calls may run at once with a credential, by its name.
    pub(crate) fn concurrency(&self, credential: &Arc<str>, limit: u32) {
        let labels = CredentialLabels {
            credential: Arc::clone(credential),
        };
        self.concurrency.get_or_create(&labels).set(i64::from(limit));
    }

    /// Counts a request that found no room at an endpoint.
    pub(crate) fn saturated(&self, endpoint: &EndpointId) {
        let labels = EndpointLabels::of(endpoint);
        self.saturated.get_or_create(&labels).inc();
    }

    /// Counts a call whose session was looked for.
    pub(crate) fn session(&self, verdict: &Verdict) {
        let labels = SessionLabels {
            outcome: verdict.outcome(),
            level: verdict.level(),
        };
        self.sessions.get_or_create(&labels).inc();
    }

    /// Counts an attempt.
    pub(crate) fn attempt(&self, endpoint: &EndpointId, outcome: Outcome) {
        let labels = AttemptLabels {
            endpoint: Arc::clone(&endpoint.0),
            outcome: outcome.as_str(),
        };
        self.attempts.get_or_create(&labels).inc();
    }

    /// Shows a circuit.
    pub(crate) fn circuit(&self, backend: &BackendId, state: CircuitState) {
        let labels = BackendLabels::of(backend);
        let level = match state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen => 1,
            CircuitState::Open => 2,
        };
        self.circuits.get_or_create(&labels).set(level);
    }

    /// Shows a backend no longer.
    pub(crate) fn forget_circuit(&self, backend: &BackendId) {
        let labels = BackendLabels::of(backend);
        self.circuits.remove(&labels);
    }

    /// Counts events that were not passed on.
    pub(crate) fn dropped(&self, reason: Dropped, events: u64) {
        let labels = DropLabels {
            reason: reason.as_str(),
        };
        self.dropped.get_or_create(&labels).inc_by(events);
    }
}

/// A metric that begins at nothing, registered.
fn listed<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
