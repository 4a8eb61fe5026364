//! What the fleet knows of backends, as the buckets tell it: whose circuits are open, and whom probes left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bus::Kv;
use bus::watching::{Told, watch_for_good};
use parking_lot::Mutex;
use schemas::circuit::CircuitState;
use schemas::circuit::record::{Opening, Record};
use schemas::health::{Probed, decode, name_of_key};
use schemas::id::{BackendId, EndpointId};
use schemas::subject::{CIRCUIT_BUCKET, HEALTH_BUCKET, health};

/// A record of what probes say, with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) revision: u64,
    pub(crate) out: bool,
    pub(crate) endpoint_id: EndpointId,
}

/// What was told so far.
#[derive(Debug, Default)]
struct State {
    open: HashMap<BackendId, Opening>,
    probed: HashMap<BackendId, Known>,
    /// All records of probes that there are were told.
    current: bool,
}

/// What the fleet knows.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<State>);

impl Seen {
    /// True once all that there is of probes was told.
    pub(crate) fn is_current(&self) -> bool {
        self.0.lock().current
    }

    /// The opening of a backend's circuit, while it is open.
    pub(crate) fn opening(&self, backend: &BackendId) -> Option<Opening> {
        self.0.lock().open.get(backend).cloned()
    }

    /// What is written of probes of a backend.
    pub(crate) fn probed(&self, backend: &BackendId) -> Option<Known> {
        self.0.lock().probed.get(backend).cloned()
    }

    /// Backends of which something is written that are not among `asked`.
    pub(crate) fn unasked(&self, asked: &dyn Fn(&BackendId) -> bool) -> Vec<(BackendId, Known)> {
        let state = self.0.lock();
        let others = state.probed.iter().filter(|(backend, _)| !asked(backend));
        others
            .map(|(backend, known)| (backend.clone(), known.clone()))
            .collect()
    }

    /// Notes what was written, as long as nothing newer was told.
    pub(crate) fn note(&self, backend: &BackendId, known: Known) {
        let mut state = self.0.lock();
        let newer = state
            .probed
            .get(backend)
            .is_some_and(|told| told.revision > known.revision);
        if !newer {
            state.probed.insert(backend.clone(), known);
        }
    }

    /// Notes that nothing is written of a backend any more.
    pub(crate) fn forget(&self, backend: &BackendId) {
        self.0.lock().probed.remove(backend);
    }

    /// Follows both buckets. Never returns.
    pub(crate) async fn follow(&self, kv: &Arc<dyn Kv>) {
        tokio::join!(self.follow_circuits(kv), self.follow_probes(kv));
    }

    async fn follow_circuits(&self, kv: &Arc<dyn Kv>) {
        let mut told: Option<HashSet<BackendId>> = None;
        watch_for_good(kv, CIRCUIT_BUCKET, |told_now| {
            let mut state = self.0.lock();
            match told_now {
                Told::Begin => told = Some(HashSet::new()),
                Told::Entry(entry) => {
                    let record = entry.value.as_deref().and_then(Record::decode);
                    let Some(record) = record else {
                        // Whose it was does not matter: a record goes a day after its backend.
                        return;
                    };
                    if let Some(told) = &mut told {
                        told.insert(record.backend.clone());
                    }
                    if record.state == CircuitState::Open {
                        state.open.insert(record.backend, record.opening);
                    } else {
                        state.open.remove(&record.backend);
                    }
                }
                Told::Current => {
                    if let Some(told) = told.take() {
                        state.open.retain(|backend, _| told.contains(backend));
                    }
                }
            }
        })
        .await;
    }

    async fn follow_probes(&self, kv: &Arc<dyn Kv>) {
        watch_for_good(kv, HEALTH_BUCKET, |told| {
            let mut state = self.0.lock();
            match told {
                Told::Begin => {
                    state.probed.clear();
                    state.current = false;
                }
                Told::Entry(entry) => {
                    let Some(name) = name_of_key(&entry.key, health::PROBED) else {
                        return;
                    };
                    let backend = BackendId::new(name);
                    let probed: Option<Probed> = entry.value.as_deref().and_then(decode);
                    match probed.filter(|probed| probed.backend == backend) {
                        Some(probed) => {
                            let known = Known {
                                revision: entry.revision,
                                out: probed.out,
                                endpoint_id: probed.endpoint_id,
                            };
                            state.probed.insert(backend, known);
                        }
                        None => {
                            state.probed.remove(&backend);
                        }
                    }
                }
                Told::Current => state.current = true,
            }
        })
        .await;
    }
}
