//! The circuits of all backends this router knows. The decisions are pure (`schemas::circuit`); here they meet
//! the clock, and every change is told: to the log and the metrics by every node, to the event log by the node
//! that made it. What the fleet agrees on is written and followed by [`fleet`].
//!
//! Guarantees: a closed circuit costs no wait and no allocation; a claim is given back on every way out,
//! because [`Claim`] does so when it is dropped.

pub(crate) mod fleet;

use std::sync::Arc;

use bus::clock::Clock;
use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::circuit::record::{AVAILABLE, Record};
use schemas::circuit::view::{self, Begin, Circuit, Pass, Transition};
use schemas::circuit::{CircuitState, Parameters, Verdict};
use schemas::event::health::CircuitChanged;
use schemas::health::Recovered;
use schemas::id::{BackendId, EndpointId, NodeId};
use schemas::query::BackendHealth;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::plan::Admission;

use fleet::Fleet;

/// Takes the facts about circuits.
pub(crate) type Witness = Box<dyn Fn(&CircuitChanged) + Send + Sync>;

/// The circuits by backend.
pub(crate) struct Circuits {
    entries: DashMap<BackendId, Arc<Entry>>,
    parameters: Parameters,
    node: NodeId,
    boot: Arc<str>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    witness: Witness,
    /// How the fleet is reached; `None` for a router that is all there is.
    fleet: Option<Fleet>,
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
    /// Somebody writes what there is to write.
    is_driven: bool,
    /// The request that waits for the probe.
    waiting: Option<Waiting>,
    /// Since when the catalogue does not name the backend.
    gone_since_ms: Option<u64>,
}

struct Waiting {
    id: u64,
    grant: oneshot::Sender<Pass>,
}

/// What circuits need beside their parameters.
pub(crate) struct Surroundings {
    pub(crate) node: NodeId,
    /// This run of the router.
    pub(crate) boot: Arc<str>,
    /// Whether there is a bucket to share circuits in.
    pub(crate) shared: bool,
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
            boot: surroundings.boot,
            clock: surroundings.clock,
            metrics: surroundings.metrics,
            witness: surroundings.witness,
            fleet: surroundings.shared.then(Fleet::new),
        }
    }

    /// Takes leave to send one request to a backend; `None` when its circuit does not let it pass.
    /// `bypass`: whatever it says, and without its probe slot. Waits only for the fleet's leave to probe.
    pub(crate) async fn begin(
        &self,
        endpoint: &EndpointId,
        backend: &BackendId,
        bypass: bool,
    ) -> Option<Claim<'_>> {
        let entry = self.entry(endpoint, backend);
        let pass = if bypass {
            Pass::Plain
        } else {
            match self.change(&entry, |inner, now_ms| self.ask(inner, now_ms)) {
                Asked::Pass(pass) => pass,
                Asked::Waiting(grant) => grant.await.ok()?,
                Asked::Refused => return None,
            }
        };
        Some(Claim {
            circuits: self,
            entry,
            pass: Some(pass),
        })
    }

    fn ask(&self, inner: &mut Inner, now_ms: u64) -> Asked {
        let alone = self.fleet.as_ref().is_none_or(Fleet::is_away);
        match inner.circuit.begin(now_ms, alone) {
            Begin::Pass(pass) => Asked::Pass(pass),
            Begin::Refused => Asked::Refused,
            Begin::Asking { id } => {
                let (grant, granted) = oneshot::channel();
                inner.waiting = Some(Waiting { id, grant });
                Asked::Waiting(granted)
            }
        }
    }

    /// What a reader of health sees of a backend; `None` while nobody attempted it.
    pub(crate) fn health(&self, backend: &BackendId) -> Option<(f64, BackendHealth)> {
        let entry = Arc::clone(self.entries.get(backend)?.value());
        let inner = entry.inner.lock();
        let view = inner.circuit.view();
        let health = BackendHealth {
            circuit_state: inner.circuit.state(),
            consecutive_failures: view.consecutive_failures,
            last_error_status: view.last_error_status,
            engine: None,
            exclusion_reasons: Vec::new(),
        };
        let availability = f64::from(view.availability_permille) / f64::from(AVAILABLE);
        Some((availability, health))
    }

    /// A backend whose circuit is open answers probes: a call may try it at once.
    pub(crate) fn recovered(&self, news: Recovered) {
        let entry = self.entry(&news.endpoint_id, &news.backend);
        self.change(&entry, |inner, _| inner.circuit.recover(news.opening));
    }

    fn entry(&self, endpoint: &EndpointId, backend: &BackendId) -> Arc<Entry> {
        if let Some(entry) = self.entries.get(backend) {
            return Arc::clone(entry.value());
        }
        let entry = self.entries.entry(backend.clone()).or_insert_with(|| {
            self.metrics.circuit(backend, CircuitState::Closed);
            let record = Record::new(endpoint.clone(), backend.clone());
            let (boot, shared) = (Arc::clone(&self.boot), self.fleet.is_some());
            Arc::new(Entry {
                endpoint: endpoint.clone(),
                backend: backend.clone(),
                inner: Mutex::new(Inner {
                    circuit: Circuit::new(self.parameters, record, boot, shared),
                    told: CircuitState::Closed,
                    is_driven: false,
                    waiting: None,
                    gone_since_ms: None,
                }),
            })
        });
        Arc::clone(entry.value())
    }

    /// Changes a circuit, and sees to all that follows: whoever waits is answered, what there is to write is
    /// queued, what is another state than before is told.
    fn change<T>(&self, entry: &Arc<Entry>, change: impl FnOnce(&mut Inner, u64) -> T) -> T {
        let now_ms = self.clock.monotonic_ms();
        let mut inner = entry.inner.lock();
        let result = change(&mut inner, now_ms);
        inner.answer(now_ms);
        if let Some(fleet) = &self.fleet
            && !inner.is_driven
            && inner.circuit.is_dirty()
        {
            inner.is_driven = fleet.queue(entry);
        }
        let transitions = inner.circuit.transitions();
        let state = inner.circuit.state();
        if std::mem::replace(&mut inner.told, state) != state {
            self.show(entry, state, inner.circuit.view());
        }
        drop(inner);
        for transition in &transitions {
            (self.witness)(&self.fact(entry, transition));
        }
        result
    }

    fn fact(&self, entry: &Entry, transition: &Transition) -> CircuitChanged {
        CircuitChanged {
            endpoint_id: entry.endpoint.clone(),
            backend: entry.backend.clone(),
            from: transition.from,
            to: transition.to,
            consecutive_failures: transition.consecutive_failures,
            last_error_status: transition.last_error_status,
            at: self.clock.now(),
            node: self.node.clone(),
        }
    }

    /// Shows how this node sees a circuit now.
    fn show(&self, entry: &Entry, state: CircuitState, view: &Record) {
        let backend = &entry.backend;
        self.metrics.circuit(backend, state);
        if state == CircuitState::Open {
            warn!(
                backend.id = %backend,
                consecutive_failures = view.consecutive_failures,
                last_error_status = view.last_error_status,
                "the circuit of {backend} opened"
            );
        } else {
            info!(backend.id = %backend, "the circuit of {backend} changed to {state:?}");
        }
    }
}

enum Asked {
    Pass(Pass),
    Waiting(oneshot::Receiver<Pass>),
    Refused,
}

impl Inner {
    /// Answers the request that waits for the probe, once that is decided.
    fn answer(&mut self, now_ms: u64) {
        let Some(id) = self.waiting.as_ref().map(|waiting| waiting.id) else {
            return;
        };
        let claim = self.circuit.claim(id);
        if claim == view::Claim::Waiting {
            return;
        }
        let waiting = self.waiting.take();
        if let (view::Claim::Granted(pass), Some(waiting)) = (claim, waiting)
            && waiting.grant.send(pass).is_err()
        {
            // The request was given up meanwhile.
            self.circuit.settle(pass, Verdict::Neutral, None, now_ms);
        }
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
    /// Whether the request may be sent (again): a probe's holder stops before others may take its place.
    pub(crate) fn may_send(&self) -> bool {
        match self.pass {
            Some(pass @ Pass::Probe { .. }) => {
                let now_ms = self.circuits.clock.monotonic_ms();
                self.entry.inner.lock().circuit.may_send(pass, now_ms)
            }
            _ => true,
        }
    }

    /// Says how the request ended: `status` is the upstream's, `None` for failures without one.
    pub(crate) fn settle(mut self, verdict: Verdict, status: Option<u16>) {
        if let Some(pass) = self.pass.take() {
            self.end(pass, verdict, status);
        }
    }

    fn end(&self, pass: Pass, verdict: Verdict, status: Option<u16>) {
        self.circuits.change(&self.entry, |inner, now_ms| {
            inner.circuit.settle(pass, verdict, status, now_ms);
        });
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(pass @ Pass::Probe { .. }) = self.pass.take() {
            self.end(pass, Verdict::Neutral, None);
        }
    }
}

#[cfg(test)]
mod tests;
