//! How many calls run at each backend, over the whole fleet: every router tells its own counts, and adds up what the
//! others tell. A router that has been silent for a while counts as gone, and its calls with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::BackendId;
use crate::node::SILENCE_SECONDS_MAX;
use crate::subject;

/// What one router tells: the calls that it runs, by backend; backends without any are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls(pub BTreeMap<BackendId, u64>);

impl Calls {
    /// Reads what a router tells; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The counts as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

/// Where a run of a router tells its counts, in bucket [`subject::ENGINE_BUCKET`].
pub fn record_key(boot: &str) -> String {
    format!("{}{boot}", subject::engine::CALLS)
}

#[derive(Debug)]
struct Seen {
    calls: Calls,
    revision: u64,
    /// When this revision was first seen.
    at_ms: u64,
}

/// What the other routers told last. Times are milliseconds on the observer's monotonic clock.
#[derive(Debug, Default)]
pub struct Others {
    /// By the keys of their records.
    routers: BTreeMap<Arc<str>, Seen>,
    sums: HashMap<BackendId, u64>,
}

impl Others {
    /// Notes a record as it stands; `None` for one that was deleted.
    pub fn apply(&mut self, (key, revision): (&str, u64), value: Option<&[u8]>, now_ms: u64) {
        if !key.starts_with(subject::engine::CALLS) {
            return;
        }
        match value.and_then(Calls::decode) {
            None => {
                self.routers.remove(key);
            }
            Some(calls) => {
                let known = self.routers.get(key).map(|seen| seen.revision);
                if known == Some(revision) {
                    // Told again by another watch: no sign of life.
                    return;
                }
                let seen = Seen {
                    calls,
                    revision,
                    at_ms: now_ms,
                };
                self.routers.insert(Arc::from(key), seen);
            }
        }
        self.add_up();
    }

    /// Lets those go who have been silent for too long, and gives their records' keys and revisions.
    pub fn sweep(&mut self, now_ms: u64) -> Vec<(Arc<str>, u64)> {
        let silent = |seen: &Seen| now_ms.saturating_sub(seen.at_ms) > SILENCE_SECONDS_MAX * 1_000;
        let gone: Vec<(Arc<str>, u64)> = self
            .routers
            .iter()
            .filter(|(_, seen)| silent(seen))
            .map(|(key, seen)| (Arc::clone(key), seen.revision))
            .collect();
        if !gone.is_empty() {
            self.routers.retain(|_, seen| !silent(seen));
            self.add_up();
        }
        gone
    }

    /// Nobody is heard any more.
    pub fn clear(&mut self) {
        self.routers.clear();
        self.sums.clear();
    }

    /// Calls that the others run at a backend.
    pub fn calls(&self, backend: &BackendId) -> u64 {
        self.sums.get(backend).copied().unwrap_or_default()
    }

    fn add_up(&mut self) {
        self.sums.clear();
        for seen in self.routers.values() {
            for (backend, calls) in &seen.calls.0 {
                let sum = self.sums.entry(backend.clone()).or_default();
                *sum = sum.saturating_add(*calls);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(counts: &[(&str, u64)]) -> Vec<u8> {
        let counts = counts
            .iter()
            .map(|(backend, calls)| (BackendId::from(*backend), *calls));
        Calls(counts.collect()).encode().expect("plain data")
    }

    fn at(others: &Others, backend: &str) -> u64 {
        others.calls(&BackendId::from(backend))
    }

    #[test]
    fn the_counts_of_others_add_up_and_change_with_what_they_tell() {
        let mut others = Others::default();
        others.apply(("calls.x", 1), Some(&calls(&[("a", 3), ("b", 1)])), 0);
        others.apply(("calls.y", 2), Some(&calls(&[("a", 4)])), 0);
        assert_eq!((at(&others, "a"), at(&others, "b"), at(&others, "c")), (7, 1, 0));

        others.apply(("calls.x", 3), Some(&calls(&[("a", 1)])), 10);
        assert_eq!((at(&others, "a"), at(&others, "b")), (5, 0));

        others.apply(("calls.y", 4), None, 20);
        assert_eq!(at(&others, "a"), 1);
        others.apply(("calls.x", 5), Some(b"{"), 30);
        assert_eq!(at(&others, "a"), 0);
    }

    #[test]
    fn whoever_is_silent_for_too_long_runs_no_calls() {
        let mut others = Others::default();
        others.apply(("calls.x", 1), Some(&calls(&[("a", 3)])), 0);
        others.apply(("calls.y", 2), Some(&calls(&[("a", 1)])), 5_000);

        assert_eq!(others.sweep(10_000), []);
        // The same record told again says nothing about whoever wrote it.
        others.apply(("calls.x", 1), Some(&calls(&[("a", 3)])), 10_000);
        assert_eq!(others.sweep(10_001), [(Arc::from("calls.x"), 1)]);
        assert_eq!(at(&others, "a"), 1);

        others.clear();
        assert_eq!(at(&others, "a"), 0);
        assert_eq!(others.sweep(90_000), []);
    }

    #[test]
    fn other_records_of_the_bucket_are_passed_over() {
        let mut others = Others::default();
        others.apply(("metrics.x", 1), Some(&calls(&[("a", 3)])), 0);

        assert_eq!(at(&others, "a"), 0);
        assert_eq!(record_key("node.1"), "calls.node.1");
    }
}
