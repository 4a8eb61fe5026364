//! Since when a node has been seeing the locks of others: a lease is counted by whoever observes it, from first seeing
//! its revision. What is forgotten is counted anew, which only makes an observer wait longer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Locks whose first sight is remembered.
const SIGHTINGS_MAX: usize = 10_000;

/// First sights, the longest known forgotten first.
#[derive(Debug, Clone, Default)]
pub struct Sightings {
    by_key: BTreeMap<Arc<str>, Sight>,
    /// In the order in which they were noted; those that were noted again later are passed over.
    order: VecDeque<(Arc<str>, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Sight {
    revision: u64,
    seen_ms: u64,
}

impl Sightings {
    /// Notes that `revision` lies under `key`, and says when that was first seen.
    pub fn see(&mut self, key: &str, revision: u64, now_ms: u64) -> u64 {
        if let Some(sight) = self.by_key.get(key)
            && sight.revision == revision
        {
            return sight.seen_ms;
        }
        let key: Arc<str> = key.into();
        let sight = Sight {
            revision,
            seen_ms: now_ms,
        };
        self.by_key.insert(Arc::clone(&key), sight);
        self.order.push_back((key, revision));
        self.forget();
        now_ms
    }

    /// Forgets a key: its lock is gone.
    pub fn drop_key(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True when none is.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    fn forget(&mut self) {
        while self.order.len() > SIGHTINGS_MAX {
            let Some((key, revision)) = self.order.pop_front() else {
                return;
            };
            if self
                .by_key
                .get(&key)
                .is_some_and(|sight| sight.revision == revision)
            {
                self.by_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_counted_from_its_first_sight() {
        let mut sightings = Sightings::default();

        assert_eq!(sightings.see("a", 3, 10), 10);
        assert_eq!(sightings.see("a", 3, 99), 10);
        assert_eq!(sightings.see("b", 3, 100), 100);
        assert_eq!(sightings.see("a", 4, 200), 200, "renewed");
        assert_eq!(sightings.see("a", 4, 300), 200);
    }

    #[test]
    fn a_stale_read_or_a_bucket_made_anew_only_starts_the_count_again() {
        let mut sightings = Sightings::default();
        sightings.see("a", 4, 20);

        assert_eq!(sightings.see("a", 3, 500), 500);
        assert_eq!(sightings.see("a", 4, 600), 600);
    }

    #[test]
    fn the_oldest_are_forgotten_and_counted_anew() {
        let mut sightings = Sightings::default();
        for number in 0..=SIGHTINGS_MAX {
            sightings.see(&number.to_string(), 1, 5);
        }

        assert_eq!(sightings.len(), SIGHTINGS_MAX);
        assert_eq!(sightings.see("0", 1, 900), 900);
        assert_eq!(sightings.see("2", 1, 900), 5);
        sightings.drop_key("2");
        assert_eq!(sightings.see("2", 1, 901), 901);
        assert!(!sightings.is_empty());
    }

    #[test]
    fn renewals_of_one_lock_take_no_room_from_others() {
        let mut sightings = Sightings::default();
        sightings.see("other", 1, 1);
        for revision in 0..(SIGHTINGS_MAX as u64) / 2 {
            sightings.see("busy", revision, 2);
        }

        assert_eq!(sightings.len(), 2);
        assert_eq!(sightings.see("other", 1, 3), 1);
    }
}
