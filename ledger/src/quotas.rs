//! What nodes that are gone hold of quotas. A source that an operator declared gone, or whose node has been silent for a
//! day, gives back what it took: what it spent is what its record told last and what the books have beyond that. Should
//! its spool be rescued later, the rest is counted when it is in the books.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Change, Expected, Kv};
use bytes::Bytes;
use schemas::id::SpoolId;
use schemas::limit::layers::Name;
use schemas::limit::quota::record::{ForgetError, Record, life};
use schemas::subject::QUOTA_BUCKET;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::reaper::Reaping;
use crate::record::Fact;
use crate::state::State;
use crate::store::Store;
use crate::{Config, Ports};

/// Events read at a time.
const EVENTS_MAX: usize = 500;
/// How often all records are looked through although nobody was declared gone.
const LOOK: Duration = Duration::from_mins(1);

/// Why what a source holds is not given back.
type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Takes from sources that are gone what they hold.
pub(crate) struct Releaser {
    reaping: Reaping,
    kv: Arc<dyn Kv>,
    store: Arc<dyn Store>,
    state: Arc<State>,
    gone_after: Duration,
    pause: Duration,
    /// Since when a source that holds something has had no node.
    absent: BTreeMap<SpoolId, Instant>,
    /// Who was declared gone at the last look, and when that was.
    looked: Option<(Vec<SpoolId>, Instant)>,
    warned: bool,
}

impl Releaser {
    /// `None` for a ledger that declares nothing.
    pub(crate) fn new(config: &Config, ports: &Ports) -> Option<Self> {
        Some(Self {
            reaping: ports.reaping.clone()?,
            kv: Arc::clone(&ports.kv),
            store: Arc::clone(&ports.store),
            state: Arc::clone(&ports.state),
            gone_after: Duration::from_secs(config.holder_gone_seconds),
            pause: Duration::from_millis(config.reap_interval_ms.max(1)),
            absent: BTreeMap::new(),
            looked: None,
            warned: false,
        })
    }

    /// Looks at intervals. Never returns.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(self.pause).await;
            match self.look(Instant::now()).await {
                Ok(()) => self.warned = false,
                Err(problem) if !std::mem::replace(&mut self.warned, true) => warn!(
                    error = &*problem,
                    "what nodes that are gone hold of quotas cannot be given back"
                ),
                Err(_) => {}
            }
        }
    }

    async fn look(&mut self, now: Instant) -> Result<(), Problem> {
        // A ledger that hears nobody, not even its own node, does not see who is gone.
        if self.reaping.nodes.live().is_empty() || !self.state.applying() {
            self.absent.clear();
            return Ok(());
        }
        let forgotten = self.reaping.nodes.all_forgotten();
        let is_news = |(known, at): &(Vec<SpoolId>, Instant)| {
            *known != forgotten || now.saturating_duration_since(*at) >= LOOK
        };
        if !self.looked.as_ref().is_none_or(is_news) {
            return Ok(());
        }
        let records = read_all(&*self.kv).await?;
        let gone = self.gone(&records, &forgotten, now);
        let mut is_whole = true;
        for source in &gone {
            is_whole &= self.release(source, &records).await?;
        }
        if is_whole {
            self.looked = Some((forgotten, now));
        }
        Ok(())
    }

    /// The sources that hold something, or held it once, and are gone.
    fn gone(&mut self, records: &[Held], forgotten: &[SpoolId], now: Instant) -> Vec<SpoolId> {
        let holders: BTreeSet<&SpoolId> = records
            .iter()
            .flat_map(|held| held.record.holders.keys())
            .collect();
        let before = records.iter().flat_map(|held| held.record.gone.keys());
        let mut gone: BTreeSet<SpoolId> = before
            .filter(|source| forgotten.contains(source) && self.is_absent(source))
            .cloned()
            .collect();
        self.absent.retain(|source, _| holders.contains(source));
        for source in holders {
            if !self.is_absent(source) {
                self.absent.remove(source);
                continue;
            }
            let since = *self.absent.entry(source.clone()).or_insert(now);
            if forgotten.contains(source) || now.saturating_duration_since(since) >= self.gone_after {
                gone.insert(source.clone());
            }
        }
        gone.into_iter().collect()
    }

    fn is_absent(&self, source: &SpoolId) -> bool {
        source != self.reaping.spool.id() && !self.reaping.nodes.publishes(source)
    }

    /// Gives back what a source holds, by what the books have of it; false when that has to be tried again.
    async fn release(&self, source: &SpoolId, records: &[Held]) -> Result<bool, Problem> {
        let concerned = records.iter().filter(|held| held.place(source).is_some());
        let Some(first) = concerned.clone().filter_map(|held| held.place(source)).min() else {
            return Ok(true);
        };
        let coverage = self.store.coverage().await?;
        let name = self.name_of(source);
        let (upto, charges) = (coverage.mark(&name), self.charges(&name, first).await?);
        let (mut is_whole, mut released) = (true, 0_u64);
        for held in concerned {
            let mut record = held.record.clone();
            let later = charges.get(&held.name).into_iter().flatten().copied();
            match record.forget_by(source, later, upto) {
                Ok(Some(true)) if self.write(held, &record).await? => released += 1,
                Ok(Some(true)) | Err(ForgetError::BooksBehind) => is_whole = false,
                Ok(Some(false) | None) => {}
            }
        }
        if released > 0 {
            info!(
                spool.id = %source,
                quotas = released,
                "what a node that is gone held of quotas is given back"
            );
        }
        Ok(is_whole)
    }

    /// The source of a spool's events: in the same cluster as this node's.
    fn name_of(&self, source: &SpoolId) -> String {
        let own = self.reaping.spool.source();
        let cluster = own.strip_suffix(self.reaping.spool.id().as_str());
        format!("{}{source}", cluster.unwrap_or(own))
    }

    /// What the books say that a source charged to quotas beyond a place, by quota.
    async fn charges(&self, source: &str, place: u64) -> Result<HashMap<Name, Vec<(u64, u64)>>, Problem> {
        let mut charges: HashMap<Name, Vec<(u64, u64)>> = HashMap::new();
        let mut next = place;
        loop {
            let events = self.store.events_after(source, next, EVENTS_MAX).await?;
            let Some(last) = events.last().map(|event| event.source_sequence) else {
                return Ok(charges);
            };
            next = last;
            for event in &events {
                let Fact::Waybill(waybill) = &event.fact else {
                    continue;
                };
                for charge in &waybill.row.settled.quotas {
                    let of_name = charges.entry(charge.name.clone()).or_default();
                    of_name.push((event.source_sequence, charge.amount));
                }
            }
        }
    }

    /// Writes a record over the one that was read; false when another one is there by now.
    async fn write(&self, held: &Held, record: &Record) -> Result<bool, Problem> {
        let (place, value) = ((QUOTA_BUCKET, held.name.as_str()), Bytes::from(record.encode()?));
        let expected = Expected::Revision(held.revision);
        let put = match life(&held.name) {
            Some(life) => self.kv.put_for(place, value, expected, life),
            None => self.kv.put(place.0, place.1, value, expected),
        };
        match put.await {
            Ok(_) => Ok(true),
            Err(BusError::Conflict) => Ok(false),
            Err(problem) => Err(problem.into()),
        }
    }
}

/// A quota's record as it was read.
struct Held {
    name: Name,
    revision: u64,
    record: Record,
}

impl Held {
    /// The last place that it counts of a source; `None` when it knows nothing of it.
    fn place(&self, source: &SpoolId) -> Option<u64> {
        let holder = self.record.holders.get(source).map(|holder| holder.seq);
        let gone = self.record.gone.get(source).map(|gone| gone.seq);
        holder.max(gone)
    }
}

/// All records of quotas. What cannot be read is left to who holds it.
async fn read_all(kv: &dyn Kv) -> Result<Vec<Held>, BusError> {
    let mut changes = kv.watch(QUOTA_BUCKET).await?;
    let mut records = Vec::new();
    while let Some(Change::Entry(entry)) = changes.recv().await {
        let record = entry.value.as_deref().and_then(Record::decode);
        records.extend(record.map(|record| Held {
            name: Name::from(entry.key.as_str()),
            revision: entry.revision,
            record,
        }));
    }
    Ok(records)
}
