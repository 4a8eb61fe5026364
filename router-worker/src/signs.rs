//! What others found out about backends, as this router sees it: what engines say of their queues, whom probes left out,
//! how hot hosts are, and whose circuit need not be waited for. It is followed in memory; nobody waits for it, and without
//! it a router goes by its own calls.
//!
//! Guarantees: nobody's clock is compared with another's, so that everything is as old as this router has known it; what
//! is too old counts as not there; a call that succeeds at a backend that is left out brings it back for all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::clock::Clock;
use bus::follow::CatalogView;
use bus::watching::{Told, watch_for_good};
use bus::{Entry, Expected, Kv};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use schemas::balance::profile::Profile;
use schemas::catalog::Catalog;
use schemas::engine::{SAMPLE_AGE_MS_MAX, Sample};
use schemas::event::health::{Cause, EndpointChanged};
use schemas::health::{
    HOST_AGE_MS_MAX, Host, PROFILE_AGE_MS_MAX, Probed, Recovered, Spared, decode, encode, name_of_key,
    probed_key,
};
use schemas::id::{BackendId, ModelName, NodeId};
use schemas::query::EngineHealth;
use schemas::subject::{HEALTH_BUCKET, health};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::circuit::Circuits;

/// Backends that wait to be told of as healed.
const HEALED_MAX: usize = 1_024;
/// How long a write may take.
const WRITE_WITHIN: Duration = Duration::from_millis(500);

/// Takes the facts about backends that are back.
pub(crate) type Healed = Box<dyn Fn(&EndpointChanged) + Send + Sync>;

/// Whose view it is, and of what.
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) catalog: CatalogView,
    /// Degrees Celsius from which a host is spared, unless something else is set at run time.
    pub(crate) hot_c: Option<u32>,
}

/// What is known.
pub(crate) struct Signs {
    clock: Arc<dyn Clock>,
    place: Place,
    healed: Healed,
    state: RwLock<State>,
    placed: RwLock<Placed>,
    /// Nobody is left out and no host tells how hot it is: there is nothing to look up.
    is_quiet: AtomicBool,
    queue: mpsc::Sender<BackendId>,
    queued: Mutex<Option<mpsc::Receiver<BackendId>>>,
}

#[derive(Default)]
struct State {
    samples: HashMap<BackendId, Seen<Sample>>,
    /// Those that are left out.
    out: HashMap<BackendId, Seen<Probed>>,
    hosts: HashMap<Arc<str>, Seen<Host>>,
    /// What is learned of models.
    profiles: HashMap<ModelName, Seen<Arc<Profile>>>,
    /// Those that were told since a watch began, until all were.
    told: Option<HashSet<String>>,
}

/// Where the backends of a catalogue run, as far as that was said.
#[derive(Default)]
struct Placed {
    /// The catalogue's.
    revision: Option<u64>,
    hosts: HashMap<BackendId, Arc<str>>,
}

impl Placed {
    fn of(catalog: &Catalog) -> Self {
        let endpoints = catalog.endpoints().into_iter();
        let backends = endpoints.flat_map(|endpoint| {
            let placed = endpoint.backends.iter().enumerate();
            placed.filter_map(|(place, backend)| {
                let host = endpoint.host(place)?;
                Some((backend.id.clone(), Arc::clone(host)))
            })
        });
        Self {
            revision: Some(catalog.revision),
            hosts: backends.collect(),
        }
    }
}

/// A record, and since when this router has known it.
struct Seen<T> {
    record: T,
    revision: u64,
    at_ms: u64,
}

impl<T> Seen<T> {
    const fn is_within(&self, age_ms_max: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) <= age_ms_max
    }
}

impl Signs {
    pub(crate) fn new(place: Place, clock: Arc<dyn Clock>, healed: Healed) -> Self {
        let (queue, queued) = mpsc::channel(HEALED_MAX);
        Self {
            clock,
            place,
            healed,
            state: RwLock::default(),
            placed: RwLock::default(),
            is_quiet: AtomicBool::new(true),
            queue,
            queued: Mutex::new(Some(queued)),
        }
    }

    /// What a backend's engine says of itself, as long as that counts. Its moment is that of this router's clock at which
    /// it was first seen.
    pub(crate) fn sample(&self, backend: &BackendId) -> Option<Sample> {
        let sample = self.state.read().samples.get(backend)?.record;
        sample.is_fresh(self.clock.monotonic_ms()).then_some(sample)
    }

    /// The same, as readers of health see it.
    pub(crate) fn engine(&self, backend: &BackendId) -> Option<EngineHealth> {
        let sample = self.sample(backend)?;
        let percent = |milli: u64| f64::from(u32::try_from(milli).unwrap_or(u32::MAX)) / 1_000.0;
        Some(EngineHealth {
            kind: sample.kind,
            running: sample.running,
            waiting: sample.waiting,
            kv_cache_percent: sample.kv_percent_milli.map(percent),
            age_seconds: sample.age_ms(self.clock.monotonic_ms()) / 1_000,
        })
    }

    /// What is learned of the legs of a model, as long as that counts.
    pub(crate) fn profile(&self, model: &ModelName) -> Option<Arc<Profile>> {
        let state = self.state.read();
        let seen = state.profiles.get(model)?;
        let counts = seen.is_within(PROFILE_AGE_MS_MAX, self.clock.monotonic_ms());
        counts.then(|| Arc::clone(&seen.record))
    }

    /// Why a backend is not asked whatever its circuit says: probes left it out, or an accelerator of its host is too hot.
    pub(crate) fn spared(&self, backend: &BackendId) -> Option<Spared> {
        if self.is_quiet.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.state.read();
        if state.out.contains_key(backend) {
            return Some(Spared::Unhealthy);
        }
        if state.hosts.is_empty() {
            return None;
        }
        let catalog = self.place.catalog.peek();
        let set = catalog.inference();
        let set = set.and_then(|stored| stored.record.gpu_temperature_threshold);
        let hot_c = set.or(self.place.hot_c)?;
        let seen = state.hosts.get(&self.host_of(&catalog, backend)?)?;
        let counts = seen.is_within(HOST_AGE_MS_MAX, self.clock.monotonic_ms());
        (counts && seen.record.is_hot(hot_c)).then_some(Spared::HotGpu)
    }

    /// The host that a backend runs on, where that was said.
    fn host_of(&self, catalog: &Catalog, backend: &BackendId) -> Option<Arc<str>> {
        let placed = self.placed.read();
        if placed.revision == Some(catalog.revision) {
            return placed.hosts.get(backend).cloned();
        }
        drop(placed);
        let mut placed = self.placed.write();
        *placed = Placed::of(catalog);
        placed.hosts.get(backend).cloned()
    }

    /// A call succeeded at a backend.
    pub(crate) fn succeeded(&self, backend: &BackendId) {
        if !self.is_quiet.load(Ordering::Relaxed) && self.state.read().out.contains_key(backend) {
            // Beyond a bound the next success tells.
            let _ = self.queue.try_send(backend.clone());
        }
    }

    /// Follows what is found out until `shutdown`.
    pub(crate) async fn run(&self, kv: Arc<dyn Kv>, circuits: &Circuits, shutdown: CancellationToken) {
        let Some(mut queued) = self.queued.lock().take() else {
            return shutdown.cancelled().await;
        };
        let follow = watch_for_good(&kv, HEALTH_BUCKET, |told| self.take(told, circuits));
        let tell = async {
            while let Some(backend) = queued.recv().await {
                self.heal(&kv, backend).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = follow => {}
            () = tell => {}
        }
    }

    fn take(&self, told: Told, circuits: &Circuits) {
        let now_ms = self.clock.monotonic_ms();
        let mut state = self.state.write();
        match told {
            Told::Begin => {
                // The bucket may be another one, whose revisions say nothing about the one before.
                state.samples.clear();
                state.told = Some(HashSet::new());
            }
            Told::Entry(entry) => {
                if let Some(told) = &mut state.told {
                    told.insert(entry.key.clone());
                }
                if let Some(recovered) = state.apply(&entry, now_ms) {
                    circuits.recovered(recovered);
                }
            }
            Told::Current => state.forget_untold(),
        }
        let is_quiet = state.out.is_empty() && state.hosts.is_empty();
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Tells all that a backend which was left out serves calls.
    async fn heal(&self, kv: &Arc<dyn Kv>, backend: BackendId) {
        let found = {
            let state = self.state.read();
            let seen = state.out.get(&backend);
            seen.map(|seen| (seen.revision, seen.record.clone()))
        };
        let Some((revision, out)) = found else {
            return;
        };
        let now = self.clock.now();
        let probed = Probed {
            out: false,
            failures: 0,
            changed_by: self.place.node.clone(),
            changed_at: now,
            ..out
        };
        // Plain data has no way to fail.
        let Ok(bytes) = encode(&probed) else {
            return;
        };
        let (key, expected) = (probed_key(&backend), Expected::Revision(revision));
        let put = kv.put(HEALTH_BUCKET, &key, Bytes::from(bytes), expected);
        if let Ok(Ok(_)) = timeout(WRITE_WITHIN, put).await {
            self.state.write().out.remove(&backend);
            (self.healed)(&EndpointChanged {
                endpoint_id: probed.endpoint_id,
                backend,
                healthy: true,
                cause: Cause::Call,
                failures: 0,
                at: now,
                node: self.place.node.clone(),
            });
        }
    }
}

impl State {
    /// Notes an entry; returns news of a recovery.
    fn apply(&mut self, entry: &Entry, now_ms: u64) -> Option<Recovered> {
        let value = entry.value.as_deref();
        let backend = |prefix| name_of_key(&entry.key, prefix).map(BackendId::new);
        if let Some(backend) = backend(health::SAMPLE) {
            let sample = value.and_then(Sample::decode).map(|sample| Sample {
                at_ms: now_ms,
                ..sample
            });
            // No watch tells of the end of a lifetime: what is too old goes when another comes.
            if !self.samples.contains_key(&backend) {
                self.samples
                    .retain(|_, seen| seen.is_within(SAMPLE_AGE_MS_MAX, now_ms));
            }
            note(&mut self.samples, backend, sample, (entry.revision, now_ms));
        } else if let Some(backend) = backend(health::PROBED) {
            let probed: Option<Probed> = value.and_then(decode);
            let out = probed.filter(|probed| probed.out && probed.backend == backend);
            note(&mut self.out, backend, out, (entry.revision, now_ms));
        } else if let Some(host) = name_of_key(&entry.key, health::HOST) {
            let host: Arc<str> = host.into();
            let said = value.and_then(decode);
            if !self.hosts.contains_key(&host) {
                self.hosts
                    .retain(|_, seen| seen.is_within(HOST_AGE_MS_MAX, now_ms));
            }
            note(&mut self.hosts, host, said, (entry.revision, now_ms));
        } else if let Some(model) = name_of_key(&entry.key, health::PROFILE) {
            let model = ModelName::new(model);
            let known: Option<Profile> = value.and_then(decode);
            let known = known.filter(|known| known.model == model).map(Arc::new);
            if !self.profiles.contains_key(&model) {
                self.profiles
                    .retain(|_, seen| seen.is_within(PROFILE_AGE_MS_MAX, now_ms));
            }
            note(&mut self.profiles, model, known, (entry.revision, now_ms));
        } else if let Some(backend) = backend(health::RECOVERED) {
            let recovered: Option<Recovered> = value.and_then(decode);
            return recovered.filter(|recovered| recovered.backend == backend);
        }
        None
    }

    /// What a watch that began anew did not tell is there no more.
    fn forget_untold(&mut self) {
        let Some(told) = self.told.take() else {
            return;
        };
        let is_told = |key: String| told.contains(&key);
        self.samples
            .retain(|backend, _| is_told(schemas::engine::record_key(backend)));
        self.out.retain(|backend, _| is_told(probed_key(backend)));
        self.hosts
            .retain(|host, _| is_told(schemas::health::host_key(host)));
        self.profiles
            .retain(|model, _| is_told(schemas::health::profile_key(model)));
    }
}

/// Notes a record, or that there is none. One that is told again by another watch is as old as it was.
fn note<K: std::hash::Hash + Eq, T: PartialEq>(
    map: &mut HashMap<K, Seen<T>>,
    key: K,
    record: Option<T>,
    (revision, at_ms): (u64, u64),
) {
    let Some(record) = record else {
        map.remove(&key);
        return;
    };
    let is_known = |seen: &Seen<T>| seen.revision == revision && seen.record == record;
    if !map.get(&key).is_some_and(is_known) {
        let seen = Seen {
            record,
            revision,
            at_ms,
        };
        map.insert(key, seen);
    }
}

#[cfg(test)]
mod tests;
