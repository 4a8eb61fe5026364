//! The bucket as a server keeps it: compare-and-set over revisions, records with a lifetime, and readers that may be
//! behind.

use std::collections::BTreeMap;

use schemas::idempotency::record::Record;
use schemas::idempotency::{Write, Written};

#[derive(Debug, Clone)]
struct Version {
    revision: u64,
    bytes: Vec<u8>,
    written_ms: u64,
    until_ms: u64,
}

/// How far a reader may be behind.
const BEHIND_MS_MAX: u64 = 5_000;

/// All that was ever written, by key.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    history: BTreeMap<usize, Vec<Version>>,
    revisions: u64,
}

impl Bucket {
    /// Does a write, if what is there is what it expects.
    pub(crate) fn apply(&mut self, key: usize, write: &Write, now_ms: u64) -> Written {
        let current = self.version(key, now_ms, 0).map(|version| version.revision);
        if current != write.expected {
            return Written::Conflict;
        }
        self.revisions += 1;
        let version = Version {
            revision: self.revisions,
            bytes: write.record.encode().expect("encode"),
            written_ms: now_ms,
            until_ms: now_ms + write.life_ms,
        };
        self.history.entry(key).or_default().push(version);
        Written::At(self.revisions)
    }

    /// What a reader finds who is so many versions behind.
    pub(crate) fn read(&self, key: usize, now_ms: u64, behind: usize) -> Option<(Record, u64)> {
        let version = self.version(key, now_ms, behind)?;
        let record = Record::decode(&version.bytes).expect("a record");
        Some((record, version.revision))
    }

    /// What was written last, whether it still lies there or not.
    pub(crate) fn last(&self, key: usize) -> Option<Record> {
        let version = self.history.get(&key)?.last()?;
        Record::decode(&version.bytes)
    }

    /// True when a lock of this request fell out of the bucket.
    pub(crate) fn has_lost(&self, key: usize, request: u128, now_ms: u64) -> bool {
        let mut versions = self.history.get(&key).into_iter().flatten();
        versions.any(|version| {
            let record = Record::decode(&version.bytes);
            version.until_ms <= now_ms
                && matches!(record, Some(Record::Running(held)) if held.request_id.0.as_u128() == request)
        })
    }

    fn version(&self, key: usize, now_ms: u64, behind: usize) -> Option<&Version> {
        let mut versions = self.history.get(&key)?.iter().rev();
        let newest = versions.next()?;
        let mut found = (newest.until_ms > now_ms).then_some(newest);
        let mut next = newest;
        for version in versions.take(behind) {
            if next.written_ms + BEHIND_MS_MAX < now_ms {
                break;
            }
            found = Some(version);
            next = version;
        }
        found
    }
}
