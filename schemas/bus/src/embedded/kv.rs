//! KV buckets in one process: a map in memory, and on disk one file that begins with a snapshot and goes on
//! as a journal. When the journal has outgrown what it holds, the file is written anew. The bucket of responses has a
//! bound: when it is full, the oldest of whoever holds most go. So has that of idempotency keys: a full one refuses.
//!
//! A lifetime is counted on the monotonic clock. Over a restart the wall clock tells how much of it is left, and no
//! more than all of it.
//!
//! ```text
//! entry   revision u64 · bucket length u16 · bucket · key length u16 · key · 1 · value, or 0 for a deletion
//! living  as entry, but after the revision: end i64 (microseconds, wall time) · lifetime u64 (milliseconds)
//! bucket  newest revision u64 · bucket length u16 · bucket       (in snapshots, where deletions are left out)
//! ```

mod journal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::subject::{IDEMPOTENCY_BUCKET, RESPONSE_BUCKET, SLOT_BUCKET};
use tokio::sync::mpsc;
use tracing::{error, warn};

use self::journal::{Journal, Lifetime, Record};
use crate::clock::Clock;
use crate::segment::files::Unsynced;
use crate::share::{self, Held};
use crate::sync::{Flusher, Target};
use crate::{BusError, Change, Entry, Expected, Revision};

/// Changes that may wait for one watcher. A watcher that falls behind further is ended: it watches anew.
const WATCH_LAG_MAX: usize = 4_096;

/// A bucket that is too full is emptied to so many eighths of its bound, so that not every write has to look for room.
const EIGHTHS_KEPT: u64 = 7;
/// The last eighth of the bucket of idempotency keys is for values that are no larger, in bytes: locks, not answers.
const LOCK_BYTES_MAX: usize = 1024;
/// The shortest lifetime.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// How large some buckets may grow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) responses_bytes_max: u64,
    pub(super) idempotency_bytes_max: u64,
}

/// What is written.
#[derive(Debug, Clone)]
pub(super) struct Written {
    value: Bytes,
    life: Option<Duration>,
}

impl Written {
    pub(super) const fn for_good(value: Bytes) -> Self {
        Self { value, life: None }
    }

    pub(super) fn living(value: Bytes, life: Duration) -> Self {
        Self {
            value,
            life: Some(life.max(LIFE_MIN)),
        }
    }
}

/// All buckets. Dropping them syncs what was written.
pub(super) struct Buckets {
    // Before `shared`: the thread ends first.
    flusher: Flusher,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    buckets: HashMap<String, Bucket>,
    journal: Journal,
    /// Writes so far: the position that syncing counts.
    writes: u64,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
}

/// One bucket.
#[derive(Default)]
struct Bucket {
    /// The newest revision given away.
    revision: Revision,
    entries: BTreeMap<String, Slot>,
    /// Bytes of keys and values.
    bytes: u64,
    /// When the keys end whose values have lifetimes.
    ends: BTreeSet<(u64, String)>,
    watchers: Vec<mpsc::Sender<Change>>,
}

/// The newest value of a key; `None` marks a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    revision: Revision,
    value: Option<Bytes>,
    life: Option<Life>,
}

/// A lifetime under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    /// Its end on the monotonic clock.
    until_ms: u64,
    /// All of it.
    whole_ms: u64,
}

impl Life {
    fn begin(whole: Duration, clock: &dyn Clock) -> Self {
        let whole_ms = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
        Self {
            until_ms: clock.monotonic_ms().saturating_add(whole_ms),
            whole_ms,
        }
    }

    /// As it stands in a file.
    fn written(self, clock: &dyn Clock) -> Lifetime {
        let left_ms = self.until_ms.saturating_sub(clock.monotonic_ms());
        let left = i64::try_from(left_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        Lifetime {
            until_micros: clock.now().micros().saturating_add(left),
            whole_ms: self.whole_ms,
        }
    }

    /// Read from a file.
    fn read(written: Lifetime, clock: &dyn Clock) -> Self {
        let left = written.until_micros.saturating_sub(clock.now().micros()) / 1_000;
        let left_ms = u64::try_from(left).unwrap_or(0).min(written.whole_ms);
        Self {
            until_ms: clock.monotonic_ms().saturating_add(left_ms),
            whole_ms: written.whole_ms,
        }
    }
}

impl Slot {
    /// Bytes of it and its key; a deletion has none.
    fn bytes(&self, key: &str) -> u64 {
        let value = self.value.as_ref().map(|value| value.len() + key.len());
        value.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Bucket {
    /// The keys to let go, without which no more than `bytes_max` are left.
    fn beyond(&self, bytes_max: u64) -> Vec<String> {
        let held = self.entries.iter().filter(|(_, slot)| slot.value.is_some());
        let held = held.map(|(key, slot)| Held {
            key,
            revision: slot.revision,
            bytes: slot.bytes(key),
        });
        share::beyond(held, bytes_max)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        let slot = self.entries.get(key)?;
        Some(Entry {
            key: key.to_owned(),
            value: slot.value.clone(),
            revision: slot.revision,
        })
    }

    fn is(&self, key: &str, expected: Expected) -> bool {
        match (expected, self.entries.get(key)) {
            (Expected::Any, _) | (Expected::Absent, None) => true,
            (Expected::Absent, Some(slot)) => slot.value.is_none(),
            (Expected::Revision(revision), slot) => slot.is_some_and(|slot| slot.revision == revision),
        }
    }

    fn apply(&mut self, key: &str, slot: Slot) {
        self.revision = self.revision.max(slot.revision);
        self.bytes += slot.bytes(key);
        let life = slot.life;
        if let Some(old) = self.entries.insert(key.to_owned(), slot) {
            self.forget(key, &old);
        }
        if let Some(life) = life {
            self.ends.insert((life.until_ms, key.to_owned()));
        }
    }

    /// Counts a slot no more that is not there any more.
    fn forget(&mut self, key: &str, old: &Slot) {
        self.bytes = self.bytes.saturating_sub(old.bytes(key));
        if let Some(life) = old.life {
            self.ends.remove(&(life.until_ms, key.to_owned()));
        }
    }

    /// Lets go of what has lived its time.
    fn expire(&mut self, now_ms: u64) {
        while self.ends.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            let Some((_, key)) = self.ends.pop_first() else {
                return;
            };
            if let Some(old) = self.entries.remove(&key) {
                self.forget(&key, &old);
            }
        }
    }

    /// Whether a value of `bytes` may take the place of what is under its key.
    fn has_room(&self, key: &str, value: &Bytes, bytes_max: u64) -> bool {
        let bytes_max = if value.len() > LOCK_BYTES_MAX {
            bytes_max / 8 * 7
        } else {
            bytes_max
        };
        let old = self.entries.get(key).map_or(0, |slot| slot.bytes(key));
        let new = u64::try_from(value.len() + key.len()).unwrap_or(u64::MAX);
        self.bytes.saturating_sub(old).saturating_add(new) <= bytes_max
    }

    fn tell(&mut self, bucket: &str, change: &Change) {
        self.watchers
            .retain(|watcher| match watcher.try_send(change.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    error!(bucket, "a watcher fell too far behind and is ended");
                    false
                }
            });
    }
}

impl Buckets {
    pub(super) fn open(dir: &Path, bounds: Bounds, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut buckets: HashMap<String, Bucket> = HashMap::new();
        let journal = Journal::open(dir, &mut |record| match record {
            Record::Entry {
                bucket,
                key,
                revision,
                value,
                life,
            } => {
                let life = life.map(|written| Life::read(written, &*clock));
                let slot = Slot {
                    revision,
                    value,
                    life,
                };
                buckets.entry(bucket.to_owned()).or_default().apply(key, slot);
            }
            Record::Bucket { bucket, revision } => {
                let bucket = buckets.entry(bucket.to_owned()).or_default();
                bucket.revision = bucket.revision.max(revision);
            }
        })?;
        let mut state = State {
            buckets,
            journal,
            writes: 0,
            bounds,
            clock,
        };
        if state.journal.is_spoiled() {
            state.rewrite()?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
        });
        let flusher = Flusher::start("wb-kv-sync", Arc::clone(&shared) as _, 0)?;
        Ok(Self { flusher, shared })
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Option<Entry> {
        let mut state = self.shared.state.lock();
        let now_ms = state.clock.monotonic_ms();
        let bucket = state.buckets.get_mut(bucket)?;
        bucket.expire(now_ms);
        bucket.entry(key).filter(|entry| entry.value.is_some())
    }

    /// Writes a value or a deletion, and returns when it survives the machine; slots need only survive in the process.
    pub(super) async fn write(
        &self,
        (bucket, key): (&str, &str),
        value: Option<Written>,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let (revision, position) = {
            let mut state = self.shared.state.lock();
            let written = state.write((bucket, key), value, expected)?;
            if bucket == RESPONSE_BUCKET {
                state.make_room()?;
            }
            written
        };
        self.flusher.written();
        if bucket == SLOT_BUCKET {
            // Who holds slots dies with the process, so nothing is lost with the machine.
            return Ok(revision);
        }
        if self.flusher.reach(position).await {
            Ok(revision)
        } else {
            Err(BusError::Disk(io::Error::other("a sync of the buckets failed")))
        }
    }

    pub(super) fn watch(&self, bucket: &str) -> mpsc::Receiver<Change> {
        let mut state = self.shared.state.lock();
        let now_ms = state.clock.monotonic_ms();
        let bucket = state.buckets.entry(bucket.to_owned()).or_default();
        bucket.expire(now_ms);
        let current: Vec<Entry> = bucket
            .entries
            .keys()
            .filter_map(|key| bucket.entry(key))
            .filter(|entry| entry.value.is_some())
            .collect();
        let (watcher, changes) = mpsc::channel(current.len() + 1 + WATCH_LAG_MAX);
        let told = current.into_iter().map(Change::Entry).chain([Change::Current]);
        // There is room for all of it.
        if told.into_iter().all(|change| watcher.try_send(change).is_ok()) {
            bucket.watchers.retain(|watcher| !watcher.is_closed());
            bucket.watchers.push(watcher);
        }
        changes
    }
}

impl State {
    fn write(
        &mut self,
        (name, key): (&str, &str),
        written: Option<Written>,
        expected: Expected,
    ) -> Result<(Revision, u64), BusError> {
        let now_ms = self.clock.monotonic_ms();
        let life = written.as_ref().and_then(|written| written.life);
        let life = life.map(|whole| Life::begin(whole, &*self.clock));
        let value = written.map(|written| written.value);
        if !self.buckets.contains_key(name) {
            self.buckets.insert(name.to_owned(), Bucket::default());
        }
        let Some(bucket) = self.buckets.get_mut(name) else {
            return Err(BusError::Closed);
        };
        bucket.expire(now_ms);
        if !bucket.is(key, expected) {
            return Err(BusError::Conflict);
        }
        if name == IDEMPOTENCY_BUCKET
            && let Some(value) = &value
            && !bucket.has_room(key, value, self.bounds.idempotency_bytes_max)
        {
            return Err(BusError::Full);
        }
        let is_absent = bucket.entries.get(key).is_none_or(|slot| slot.value.is_none());
        if value.is_none() && is_absent {
            return Ok((bucket.revision, self.writes));
        }
        let revision = bucket.revision + 1;
        let record = Record::Entry {
            bucket: name,
            key,
            revision,
            value: value.clone(),
            life: life.map(|life| life.written(&*self.clock)),
        };
        self.journal.append(&record).map_err(BusError::Disk)?;
        bucket.apply(
            key,
            Slot {
                revision,
                value: value.clone(),
                life,
            },
        );
        bucket.tell(
            name,
            &Change::Entry(Entry {
                key: key.to_owned(),
                value,
                revision,
            }),
        );
        self.writes += 1;
        if self.journal.is_outgrown()
            && let Err(problem) = self.rewrite()
        {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the journal of the buckets could not be written anew"
            );
        }
        Ok((revision, self.writes))
    }

    /// Lets responses go while there are too many.
    fn make_room(&mut self) -> Result<(), BusError> {
        let bytes_max = self.bounds.responses_bytes_max;
        let full = |bucket: &&Bucket| bucket.bytes > bytes_max;
        let Some(bucket) = self.buckets.get(RESPONSE_BUCKET).filter(full) else {
            return Ok(());
        };
        for key in bucket.beyond(bytes_max / 8 * EIGHTHS_KEPT) {
            self.write((RESPONSE_BUCKET, &key), None, Expected::Any)?;
        }
        Ok(())
    }

    /// Writes the file anew: one record per entry that has a value.
    fn rewrite(&mut self) -> io::Result<()> {
        let (now_ms, clock) = (self.clock.monotonic_ms(), &*self.clock);
        for bucket in self.buckets.values_mut() {
            bucket.expire(now_ms);
            bucket.entries.retain(|_, slot| slot.value.is_some());
        }
        let buckets = self.buckets.iter();
        let records = buckets.flat_map(|(name, bucket)| {
            let entries = bucket.entries.iter().map(|(key, slot)| Record::Entry {
                bucket: name.as_str(),
                key,
                revision: slot.revision,
                value: slot.value.clone(),
                life: slot.life.map(|life| life.written(clock)),
            });
            std::iter::once(Record::Bucket {
                bucket: name.as_str(),
                revision: bucket.revision,
            })
            .chain(entries)
        });
        self.journal.rewrite(records)
    }
}

impl Target for Shared {
    fn begin(&self) -> (Unsynced, u64) {
        let state = self.state.lock();
        (state.journal.unsynced(), state.writes)
    }
}
