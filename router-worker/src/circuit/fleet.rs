//! What keeps the circuits of a fleet the same: one write at a time per backend into its shared record, the
//! watch that tells what others wrote, and the removal of records that no backend belongs to.
//!
//! Guarantees: a write whose answer was lost is read back before anything else is done; while the bus is away
//! every node decides for itself, nobody waits for it, and what was found out is written once it is back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::follow::CatalogView;
use bus::{BusError, Change, Expected, Kv};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use schemas::catalog::Catalog;
use schemas::circuit::record::Record;
use schemas::circuit::record_key;
use schemas::circuit::view::writing::{Outcome, Write};
use schemas::id::BackendId;
use schemas::subject::CIRCUIT_BUCKET;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Circuits, Entry};

/// How long a write or a read may take before the bus counts as silent.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// Races for the same record that a request waits for.
const RACES_MAX: u32 = 4;
/// Between two tries while the bus is away: doubled from the first to the second.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Between two tries after a lost race, times the races lost.
const RACE_PAUSE: Duration = Duration::from_millis(3);
/// How often the catalogue is compared with what is remembered.
const PRUNE_INTERVAL: Duration = Duration::from_mins(1);
/// How long a record outlives its backend, in milliseconds.
const GONE_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// The way to the fleet.
pub(super) struct Fleet {
    /// Circuits that have something to write, each at most once: as many as there are backends.
    queue: mpsc::UnboundedSender<Arc<Entry>>,
    queued: Mutex<Option<mpsc::UnboundedReceiver<Arc<Entry>>>>,
    /// The bus does not answer, or nobody asks it (yet).
    is_away: AtomicBool,
}

impl Fleet {
    pub(super) fn new() -> Self {
        let (queue, queued) = mpsc::unbounded_channel();
        Self {
            queue,
            queued: Mutex::new(Some(queued)),
            is_away: AtomicBool::new(true),
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Has a circuit's findings written; false when nobody will.
    pub(super) fn queue(&self, entry: &Arc<Entry>) -> bool {
        self.queue.send(Arc::clone(entry)).is_ok()
    }
}

/// Keeps circuits and fleet in agreement until `shutdown`.
pub(crate) async fn run(
    circuits: &Circuits,
    kv: Arc<dyn Kv>,
    catalog: &CatalogView,
    shutdown: CancellationToken,
) {
    let Some(fleet) = &circuits.fleet else {
        return shutdown.cancelled().await;
    };
    let Some(mut queued) = fleet.queued.lock().take() else {
        return shutdown.cancelled().await;
    };
    let member = Member { circuits, fleet, kv };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = member.follow() => {}
        () = member.write(&mut queued) => {}
        () = member.prune(catalog) => {}
    }
    fleet.is_away.store(true, Ordering::Relaxed);
    for entry in member.entries() {
        circuits.change(&entry, |inner, now_ms| inner.circuit.decide_alone(now_ms));
    }
}

/// This router as one of its fleet.
struct Member<'a> {
    circuits: &'a Circuits,
    fleet: &'a Fleet,
    kv: Arc<dyn Kv>,
}

/// Why a write is not done.
enum Unwritten {
    /// Another record is there.
    Outrun,
    /// It was refused for good.
    Refused(BusError),
    /// Nobody knows.
    Unknown(Option<BusError>),
}

impl Member<'_> {
    fn entries(&self) -> Vec<Arc<Entry>> {
        let entries = self.circuits.entries.iter();
        entries.map(|entry| Arc::clone(entry.value())).collect()
    }

    /// Notes whether the bus answers.
    fn note(&self, away: bool, problem: Option<&BusError>) {
        if self.fleet.is_away.swap(away, Ordering::Relaxed) == away {
            return;
        }
        if away {
            let error = problem.map(|problem| problem as &dyn std::error::Error);
            warn!(
                error,
                "circuits cannot be agreed on with other nodes: each decides for itself"
            );
        } else {
            info!("circuits are agreed on with other nodes");
        }
    }

    /// Watches what is written, and begins anew when a watch ends.
    async fn follow(&self) {
        let mut pause = RETRY_MIN;
        loop {
            match self.kv.watch(CIRCUIT_BUCKET).await {
                Ok(changes) => {
                    pause = RETRY_MIN;
                    self.take(changes).await;
                    warn!("the watch of circuits ended");
                }
                Err(problem) => self.note(true, Some(&problem)),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn take(&self, mut changes: mpsc::Receiver<Change>) {
        // The backends of which there are records, until all that there are were told.
        let mut first = Some(HashSet::new());
        while let Some(change) = changes.recv().await {
            match change {
                Change::Entry(entry) => {
                    let backend = self.learn(&entry, first.is_some());
                    if let (Some(told), Some(backend)) = (&mut first, backend) {
                        told.insert(backend);
                    }
                }
                Change::Current => {
                    self.forget_untold(&first.take().unwrap_or_default());
                    self.note(false, None);
                }
            }
        }
    }

    /// Records that were deleted while nobody watched.
    fn forget_untold(&self, told: &HashSet<BackendId>) {
        for entry in self.entries() {
            if !told.contains(&entry.backend) {
                self.observe(&entry, 0, None, true);
            }
        }
    }

    /// Takes what a watch tells; returns the backend of a record that there is.
    fn learn(&self, told: &bus::Entry, anew: bool) -> Option<BackendId> {
        let record = told.value.as_deref().and_then(Record::decode);
        let record = record.filter(|record| record_key(&record.backend) == told.key);
        if let Some(record) = record {
            let backend = record.backend.clone();
            let entry = self.circuits.entry(&record.endpoint_id, &backend);
            self.observe(&entry, told.revision, Some(record), anew);
            return Some(backend);
        }
        let known = |entry: &Arc<Entry>| record_key(&entry.backend) == told.key;
        let entry = self.entries().into_iter().find(known)?;
        // What cannot be read is as good as nothing, but it has to be replaced.
        let unreadable = told.value.is_some();
        let empty = || Record::new(entry.endpoint.clone(), entry.backend.clone());
        self.observe(&entry, told.revision, unreadable.then(empty), anew);
        unreadable.then(|| entry.backend.clone())
    }

    fn observe(&self, entry: &Arc<Entry>, revision: u64, record: Option<Record>, anew: bool) {
        self.circuits.change(entry, |inner, now_ms| {
            inner.circuit.observe(revision, record, anew, now_ms);
        });
    }

    /// Writes for every circuit that has something to write.
    async fn write(&self, queued: &mut mpsc::UnboundedReceiver<Arc<Entry>>) {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(entry) = queued.recv() => running.push(self.drive(entry)),
                Some(()) = running.next() => {}
                else => return,
            }
        }
    }

    /// Writes one write after the other, until there is nothing left for this circuit.
    async fn drive(&self, entry: Arc<Entry>) {
        let (mut races, mut silences) = (0_u32, 0_u32);
        let mut pause = RETRY_MIN;
        loop {
            let write = self.circuits.change(&entry, |inner, now_ms| {
                let write = inner.circuit.write(now_ms);
                inner.is_driven = write.is_some();
                write
            });
            let Some(write) = write else {
                return;
            };
            match self.put(&entry, write).await {
                Ok(()) => {
                    (races, silences, pause) = (0, 0, RETRY_MIN);
                    self.note(false, None);
                    continue;
                }
                Err(Unwritten::Outrun) => {
                    races += 1;
                    if self.read_back(&entry).await {
                        self.give_up_after(&entry, races >= RACES_MAX);
                        sleep(RACE_PAUSE * races.min(RACES_MAX)).await;
                        continue;
                    }
                    self.alone(&entry, None);
                }
                Err(Unwritten::Refused(problem)) => self.alone(&entry, Some(&problem)),
                Err(Unwritten::Unknown(problem)) => {
                    silences += 1;
                    if self.read_back(&entry).await && silences == 1 {
                        self.give_up_after(&entry, true);
                    } else {
                        self.alone(&entry, problem.as_ref());
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn put(&self, entry: &Arc<Entry>, write: Write) -> Result<(), Unwritten> {
        let expected = write.expected.map_or(Expected::Absent, Expected::Revision);
        let mut record = write.record;
        record.changed_by = self.circuits.node.clone();
        record.changed_at = self.circuits.clock.now();
        // A record is plain data and has no way to fail; were it to, the write would be lost, not in doubt.
        let written = match record.encode() {
            Ok(bytes) => {
                let key = record_key(&entry.backend);
                let put = self.kv.put(CIRCUIT_BUCKET, &key, Bytes::from(bytes), expected);
                timeout(ANSWER_WAIT, put)
                    .await
                    .map_err(|_| Unwritten::Unknown(None))
            }
            Err(_) => Ok(Err(BusError::Conflict)),
        };
        let written = written.and_then(|answer| {
            answer.map_err(|problem| match problem {
                BusError::Conflict => Unwritten::Outrun,
                BusError::Refused { .. } | BusError::Full | BusError::NoResponder { .. } => {
                    Unwritten::Refused(problem)
                }
                _ => Unwritten::Unknown(Some(problem)),
            })
        });
        let outcome = match &written {
            Ok(revision) => Outcome::Won(*revision),
            Err(Unwritten::Unknown(_)) => Outcome::Unknown,
            Err(Unwritten::Outrun | Unwritten::Refused(_)) => Outcome::Lost,
        };
        self.circuits
            .change(entry, |inner, now_ms| inner.circuit.wrote(outcome, now_ms));
        written.map(drop)
    }

    /// Reads what is there; false when the bus does not tell.
    async fn read_back(&self, entry: &Arc<Entry>) -> bool {
        let key = record_key(&entry.backend);
        match timeout(ANSWER_WAIT, self.kv.get(CIRCUIT_BUCKET, &key)).await {
            Ok(Ok(Some(told))) => {
                self.learn(&told, false);
                true
            }
            Ok(Ok(None)) => {
                self.observe(entry, 0, None, true);
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Refuses the request that waits, when it has waited long enough for a bus that is there.
    fn give_up_after(&self, entry: &Arc<Entry>, enough: bool) {
        if enough {
            self.circuits
                .change(entry, |inner, now_ms| inner.circuit.refuse(now_ms));
        }
    }

    /// The bus is away: whoever waits is decided about here.
    fn alone(&self, entry: &Arc<Entry>, problem: Option<&BusError>) {
        self.note(true, problem);
        self.circuits
            .change(entry, |inner, now_ms| inner.circuit.decide_alone(now_ms));
    }

    /// Forgets backends that the catalogue does not name any more, and after a day their records.
    async fn prune(&self, catalog: &CatalogView) {
        loop {
            sleep(PRUNE_INTERVAL).await;
            let named = named(&catalog.load());
            for entry in self.entries() {
                if named.contains(&entry.backend) {
                    entry.inner.lock().gone_since_ms = None;
                } else {
                    self.forget(&entry).await;
                }
            }
        }
    }

    async fn forget(&self, entry: &Arc<Entry>) {
        self.circuits.metrics.forget_circuit(&entry.backend);
        let now_ms = self.circuits.clock.monotonic_ms();
        let (revision, gone_ms, busy) = {
            let mut inner = entry.inner.lock();
            let since_ms = *inner.gone_since_ms.get_or_insert(now_ms);
            let gone_ms = now_ms.saturating_sub(since_ms);
            (inner.circuit.revision(), gone_ms, inner.is_driven)
        };
        if busy {
            return;
        }
        if let Some(revision) = revision {
            let key = record_key(&entry.backend);
            let expected = Expected::Revision(revision);
            let deletion = self.kv.delete(CIRCUIT_BUCKET, &key, expected);
            if gone_ms < GONE_MS_MAX || !matches!(timeout(ANSWER_WAIT, deletion).await, Ok(Ok(_))) {
                return;
            }
        }
        self.circuits.entries.remove(&entry.backend);
    }
}

/// Every backend that the catalogue names; an endpoint without backends is its own.
fn named(catalog: &Catalog) -> HashSet<BackendId> {
    let endpoints = catalog.endpoints();
    let named = endpoints.into_iter().flat_map(|endpoint| {
        let own = BackendId::new(Arc::clone(&endpoint.id.0));
        let backends = endpoint.backends.iter().map(|backend| backend.id.clone());
        backends.chain([own])
    });
    named.collect()
}

#[cfg(test)]
mod tests;
