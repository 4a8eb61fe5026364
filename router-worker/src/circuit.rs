//! The circuits of all backends this router knows. The transitions are pure (`schemas::circuit`); here they
//! meet the clock, and every change is told: to the log, the metrics and the event log.
//!
//! Guarantees: a claim is given back on every way out, because [`Claim`] does so when it is dropped.

use std::sync::Arc;

use bus::clock::Clock;
use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::circuit::{Circuit, CircuitState, Parameters, Pass, Verdict};
use schemas::event::health::CircuitChanged;
use schemas::id::{BackendId, EndpointId, NodeId};
use schemas::query::BackendHealth;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::plan::Admission;

/// Takes the facts about circuits.
pub(crate) type Witness = Box<dyn Fn(&CircuitChanged) + Send + Sync>;

/// The circuits by backend.
pub(crate) struct Circuits {
    entries: DashMap<BackendId, Arc<Entry>>,
    parameters: Parameters,
    node: NodeId,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    witness: Witness,
}

struct Entry {
    endpoint: EndpointId,
    backend: BackendId,
    inner: Mutex<Inner>,
}

struct Inner {
    circuit: Circuit,
    /// The state that was last told.
    told: CircuitState,
}

/// What circuits need beside their parameters.
pub(crate) struct Surroundings {
    pub(crate) node: NodeId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) witness: Witness,
}

impl Circuits {
    pub(crate) fn new(parameters: Parameters, surroundings: Surroundings) -> Self {
        Self {
            entries: DashMap::new(),
            parameters,
            node: surroundings.node,
            clock: surroundings.clock,
            metrics: surroundings.metrics,
            witness: surroundings.witness,
        }
    }

    /// Takes leave to send one request to a backend; `None` when its circuit does not let it pass.
    /// `bypass`: whatever it says, and without its probe slot.
    pub(crate) fn begin(
        &self,
        endpoint: &EndpointId,
        backend: &BackendId,
        bypass: bool,
    ) -> Option<Claim<'_>> {
        let entry = self.entry(endpoint, backend);
        let pass = if bypass {
            Pass::Plain
        } else {
            self.change(&entry, Circuit::begin)?
        };
        Some(Claim {
            circuits: self,
            entry,
            pass: Some(pass),
        })
    }

    /// What a reader of health sees of a backend; `None` while it was never attempted.
    pub(crate) fn health(&self, backend: &BackendId) -> Option<(f64, BackendHealth)> {
        let entry = Arc::clone(self.entries.get(backend)?.value());
        let inner = entry.inner.lock();
        let health = BackendHealth {
            circuit_state: inner.circuit.state(self.clock.monotonic_ms()),
            consecutive_failures: inner.circuit.consecutive_failures(),
            last_error_status: inner.circuit.last_error_status(),
            engine: None,
        };
        Some((inner.circuit.availability(), health))
    }

    fn entry(&self, endpoint: &EndpointId, backend: &BackendId) -> Arc<Entry> {
        if let Some(entry) = self.entries.get(backend) {
            return Arc::clone(entry.value());
        }
        let entry = self.entries.entry(backend.clone()).or_insert_with(|| {
            self.metrics.circuit(backend, CircuitState::Closed);
            Arc::new(Entry {
                endpoint: endpoint.clone(),
                backend: backend.clone(),
                inner: Mutex::new(Inner {
                    circuit: Circuit::new(self.parameters),
                    told: CircuitState::Closed,
                }),
            })
        });
        Arc::clone(entry.value())
    }

    /// Applies a transition, and tells when the state is another one than was told last.
    fn change<T>(&self, entry: &Entry, transition: impl FnOnce(&mut Circuit, u64) -> T) -> T {
        let now_ms = self.clock.monotonic_ms();
        let (result, changed) = {
            let mut inner = entry.inner.lock();
            let result = transition(&mut inner.circuit, now_ms);
            let state = inner.circuit.state(now_ms);
            let from = std::mem::replace(&mut inner.told, state);
            let changed = (from != state).then(|| self.fact(entry, &inner.circuit, (from, state)));
            (result, changed)
        };
        if let Some(changed) = changed {
            self.tell(&changed);
        }
        result
    }

    fn fact(
        &self,
        entry: &Entry,
        circuit: &Circuit,
        (from, to): (CircuitState, CircuitState),
    ) -> CircuitChanged {
        CircuitChanged {
            endpoint_id: entry.endpoint.clone(),
            backend: entry.backend.clone(),
            from,
            to,
            consecutive_failures: circuit.consecutive_failures(),
            last_error_status: circuit.last_error_status(),
            at: self.clock.now(),
            node: self.node.clone(),
        }
    }

    fn tell(&self, changed: &CircuitChanged) {
        self.metrics.circuit(&changed.backend, changed.to);
        let backend = &changed.backend;
        if changed.to == CircuitState::Open {
            warn!(
                backend.id = %backend,
                consecutive_failures = changed.consecutive_failures,
                last_error_status = changed.last_error_status,
                "the circuit of {backend} opened"
            );
        } else {
            info!(backend.id = %backend, "the circuit of {backend} changed to {:?}", changed.to);
        }
        (self.witness)(changed);
    }
}

impl Admission for Circuits {
    fn admits(&self, backend: &BackendId) -> Result<(), u64> {
        let Some(entry) = self.entries.get(backend) else {
            return Ok(());
        };
        let now_ms = self.clock.monotonic_ms();
        let inner = entry.inner.lock();
        if inner.circuit.admits(now_ms) {
            Ok(())
        } else {
            Err(inner.circuit.retry_in_ms(now_ms))
        }
    }
}

/// Leave to send one request to a backend. Dropped without a verdict, it says nothing about the backend.
pub(crate) struct Claim<'a> {
    circuits: &'a Circuits,
    entry: Arc<Entry>,
    pass: Option<Pass>,
}

impl Claim<'_> {
    /// Says how the request ended: `status` is the upstream's, `None` for failures without one.
    pub(crate) fn settle(mut self, verdict: Verdict, status: Option<u16>) {
        let Some(pass) = self.pass.take() else {
            return;
        };
        self.circuits
            .change(&self.entry, |circuit, now_ms| match verdict {
                Verdict::Healthy => circuit.succeed(pass, now_ms),
                Verdict::Faulty => circuit.fail(pass, status, now_ms),
                Verdict::Neutral => circuit.release(pass),
            });
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.entry.inner.lock().circuit.release(pass);
        }
    }
}

#[cfg(test)]
mod tests;
