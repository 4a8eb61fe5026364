//! Who is there: every node tells of itself in bucket `wb_node` each two seconds, and every node follows what the
//! others tell. Nobody compares two machines' clocks: a node is gone when its record has shown no new revision for
//! [`SILENCE_SECONDS_MAX`] of the observer's own time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use schemas::id::SpoolId;
use schemas::node::{BEAT_SECONDS, NodeRecord, NodeRole, SILENCE_SECONDS_MAX};
use schemas::subject::{NODE_BUCKET, node};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::Clock;
use crate::{BusError, Change, Entry, Expected, Kv};

/// The longest silence that is told apart from none, in milliseconds.
const SILENCE_MS_MAX: u64 = SILENCE_SECONDS_MAX * 1_000;
/// A silent node's record is taken away by whoever sees it, after so long.
const FORGET_MS: u64 = 24 * 3_600 * 1_000;
/// How long one write may take.
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// Pause before the bucket is watched again.
const PAUSE: Duration = Duration::from_millis(250);

/// What is known of the nodes; pure, fed with entries and the observer's time.
#[derive(Debug, Default)]
pub struct Roster {
    /// By the key of the record.
    nodes: BTreeMap<String, Seen>,
    /// Sources that an operator declared gone.
    forgotten: BTreeMap<SpoolId, u64>,
}

#[derive(Debug)]
struct Seen {
    record: NodeRecord,
    revision: u64,
    /// When this revision was first seen.
    at_ms: u64,
}

impl Roster {
    /// Notes an entry of the bucket, seen at `now_ms`.
    pub fn apply(&mut self, entry: &Entry, now_ms: u64) {
        if let Some(spool) = entry.key.strip_prefix(node::GONE) {
            let spool = SpoolId::from(spool);
            match &entry.value {
                Some(_) => self.forgotten.insert(spool, entry.revision),
                None => self.forgotten.remove(&spool),
            };
            return;
        }
        let Some(value) = &entry.value else {
            self.nodes.remove(&entry.key);
            return;
        };
        let known = self.nodes.get(&entry.key).map(|seen| seen.revision);
        if known == Some(entry.revision) {
            // Told again by another watch: no sign of life.
            return;
        }
        match serde_json::from_slice(value) {
            Ok(record) => {
                let seen = Seen {
                    record,
                    revision: entry.revision,
                    at_ms: now_ms,
                };
                self.nodes.insert(entry.key.clone(), seen);
            }
            Err(problem) => warn!(
                record.revision = entry.revision,
                error = &problem as &dyn std::error::Error,
                "a node's record cannot be read"
            ),
        }
    }

    /// The nodes that are there, in the order of their boot ids.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = &NodeRecord> {
        let there = move |seen: &&Seen| now_ms.saturating_sub(seen.at_ms) <= SILENCE_MS_MAX;
        self.nodes.values().filter(there).map(|seen| &seen.record)
    }

    /// Every node of which there is a record, with the milliseconds since its last beat.
    pub fn all(&self, now_ms: u64) -> impl Iterator<Item = (&NodeRecord, u64)> {
        self.nodes
            .values()
            .map(move |seen| (&seen.record, now_ms.saturating_sub(seen.at_ms)))
    }

    /// True while some node that is there publishes from this spool.
    pub fn publishes(&self, spool: &SpoolId, now_ms: u64) -> bool {
        self.live(now_ms).any(|record| record.spool == *spool)
    }

    /// True when an operator declared the source gone and it has not come back.
    pub fn forgotten(&self, spool: &SpoolId, now_ms: u64) -> bool {
        self.forgotten.contains_key(spool) && !self.publishes(spool, now_ms)
    }

    /// A node that is there, is called as `own` and is another one.
    fn namesake(&self, own: &NodeRecord, now_ms: u64) -> Option<&NodeRecord> {
        self.live(now_ms)
            .find(|record| record.node == own.node && record.spool != own.spool)
    }

    /// Keys of records that have been silent for a day.
    fn outdated(&self, now_ms: u64) -> Vec<(String, u64)> {
        let old = |seen: &Seen| now_ms.saturating_sub(seen.at_ms) > FORGET_MS;
        let outdated = self.nodes.iter().filter(|(_, seen)| old(seen));
        outdated.map(|(key, seen)| (key.clone(), seen.revision)).collect()
    }
}

/// What a node knows of the others; cheap to clone.
#[derive(Clone)]
pub struct Nodes {
    roster: Arc<RwLock<Roster>>,
    clock: Arc<dyn Clock>,
}

impl Nodes {
    /// Knows nobody yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            roster: Arc::default(),
            clock,
        }
    }

    /// Notes a beat of a node that tells of itself nowhere else.
    fn note(&self, record: NodeRecord) {
        let at_ms = self.clock.monotonic_ms();
        let seen = Seen {
            record,
            revision: 0,
            at_ms,
        };
        let key = format!("{}{}", node::NODE, seen.record.boot);
        self.roster.write().nodes.insert(key, seen);
    }

    /// The nodes that are there.
    pub fn live(&self) -> Vec<NodeRecord> {
        let now_ms = self.clock.monotonic_ms();
        self.roster.read().live(now_ms).cloned().collect()
    }

    /// Every node of which there is a record, with the milliseconds since its last beat.
    pub fn all(&self) -> Vec<(NodeRecord, u64)> {
        let now_ms = self.clock.monotonic_ms();
        let roster = self.roster.read();
        roster
            .all(now_ms)
            .map(|(record, silent_ms)| (record.clone(), silent_ms))
            .collect()
    }

    /// How many gateways are there, itself included; 1 where nobody is known yet.
    pub fn gateways(&self) -> u64 {
        let now_ms = self.clock.monotonic_ms();
        let roster = self.roster.read();
        let gateways = roster
            .live(now_ms)
            .filter(|record| record.roles.contains(&NodeRole::Gateway));
        u64::try_from(gateways.count()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether some ledger that is there has a database that answers; `None` when there is no ledger.
    pub fn database_connected(&self) -> Option<bool> {
        let now_ms = self.clock.monotonic_ms();
        let roster = self.roster.read();
        let ledgers = roster
            .live(now_ms)
            .filter(|record| record.roles.contains(&NodeRole::Ledger));
        ledgers
            .map(|record| record.database_connected == Some(true))
            .reduce(|one, other| one || other)
    }

    /// True while some node that is there publishes from this spool.
    pub fn publishes(&self, spool: &SpoolId) -> bool {
        self.roster.read().publishes(spool, self.clock.monotonic_ms())
    }

    /// Every source that an operator declared gone and that has not come back, in order.
    pub fn all_forgotten(&self) -> Vec<SpoolId> {
        let now_ms = self.clock.monotonic_ms();
        let roster = self.roster.read();
        let forgotten = roster.forgotten.keys();
        forgotten
            .filter(|spool| !roster.publishes(spool, now_ms))
            .cloned()
            .collect()
    }

    /// True when an operator declared the source gone and it has not come back.
    pub fn forgotten(&self, spool: &SpoolId) -> bool {
        self.roster.read().forgotten(spool, self.clock.monotonic_ms())
    }
}

/// What this node says of itself, asked at each beat.
pub type Telling = Box<dyn Fn() -> NodeRecord + Send + Sync>;

/// Tells of this node and follows the others until `shutdown`, then takes the node's record away. A bus that is away
/// is tried again without end.
pub async fn run(
    kv: Arc<dyn Kv>,
    nodes: Nodes,
    telling: Telling,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let registry = Registry { kv, nodes, telling };
    let key = registry.key();
    let _ = shutdown
        .run_until_cancelled(async { tokio::join!(registry.beat(&key), registry.follow()) })
        .await;
    registry.farewell(&key).await
}

/// Tells of this node until `shutdown`, and follows nobody: for one that may not know who else is there.
pub async fn tell(
    kv: Arc<dyn Kv>,
    nodes: Nodes,
    telling: Telling,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let registry = Registry { kv, nodes, telling };
    let key = registry.key();
    let _ = shutdown.run_until_cancelled(registry.beat(&key)).await;
    registry.farewell(&key).await
}

/// Notes this node's own beats until `shutdown`, for one that is alone: nobody else reads them, and nothing is written.
pub async fn alone(nodes: Nodes, telling: Telling, shutdown: CancellationToken) -> Result<(), BusError> {
    let mut ticks = ticks();
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        nodes.note(telling());
    }
    Ok(())
}

struct Registry {
    kv: Arc<dyn Kv>,
    nodes: Nodes,
    telling: Telling,
}

impl Registry {
    /// Where the node's record is.
    fn key(&self) -> String {
        format!("{}{}", node::NODE, (self.telling)().boot)
    }

    /// Takes the node's record away.
    async fn farewell(&self, key: &str) -> Result<(), BusError> {
        let gone = self.kv.delete(NODE_BUCKET, key, Expected::Any);
        if timeout(WRITE_WITHIN, gone).await.is_err() {
            warn!("the node's record stays until it counts as silent");
        }
        Ok(())
    }

    /// Writes the node's record each two seconds. Never returns.
    async fn beat(&self, key: &str) {
        let mut ticks = ticks();
        let mut warned = false;
        loop {
            ticks.tick().await;
            warned = warned || self.warn_of_namesake();
            let Ok(value) = serde_json::to_vec(&(self.telling)()) else {
                continue;
            };
            let put = self.kv.put(NODE_BUCKET, key, Bytes::from(value), Expected::Any);
            // A beat that is missed is what others notice; the next one follows.
            let _ = timeout(WRITE_WITHIN, put).await;
            self.sweep().await;
        }
    }

    /// Says that another node has this one's name, if so: rows of both would name one node.
    fn warn_of_namesake(&self) -> bool {
        let (own, now_ms) = ((self.telling)(), self.nodes.clock.monotonic_ms());
        let roster = self.nodes.roster.read();
        let namesake = roster.namesake(&own, now_ms);
        if let Some(other) = namesake {
            warn!(
                node = own.node.as_str(),
                spool = own.spool.as_str(),
                other_spool = other.spool.as_str(),
                "another node has this one's name: their rows cannot be told apart; give each a node_id of its own"
            );
        }
        namesake.is_some()
    }

    /// Takes away records that nobody has renewed for a day.
    async fn sweep(&self) {
        let now_ms = self.nodes.clock.monotonic_ms();
        let outdated = self.nodes.roster.read().outdated(now_ms);
        for (key, revision) in outdated {
            let gone = self.kv.delete(NODE_BUCKET, &key, Expected::Revision(revision));
            let _ = timeout(WRITE_WITHIN, gone).await;
        }
    }

    /// Follows the bucket. Never returns.
    async fn follow(&self) {
        loop {
            if let Ok(changes) = self.kv.watch(NODE_BUCKET).await {
                self.listen(changes).await;
            }
            sleep(PAUSE).await;
        }
    }

    async fn listen(&self, mut changes: mpsc::Receiver<Change>) {
        let mut told = Some(BTreeSet::new());
        while let Some(change) = changes.recv().await {
            let now_ms = self.nodes.clock.monotonic_ms();
            let mut roster = self.nodes.roster.write();
            match change {
                Change::Entry(entry) => {
                    roster.apply(&entry, now_ms);
                    if let Some(told) = &mut told {
                        told.insert(entry.key);
                    }
                }
                Change::Current => {
                    // What was taken away while nobody watched is not told.
                    if let Some(told) = told.take() {
                        roster.nodes.retain(|key, _| told.contains(key));
                    }
                }
            }
        }
    }
}

fn ticks() -> Interval {
    let mut ticks = interval(Duration::from_secs(BEAT_SECONDS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests;
