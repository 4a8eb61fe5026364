//! The cache of an engine, in blocks: those that requests use together, those that one has for itself, and those that
//! nobody uses and that are kept as long as there is room.

use std::collections::{BTreeMap, HashMap};

/// A block of a prompt that was read.
#[derive(Debug, Clone, Copy)]
struct Kept {
    users: u32,
    /// Its place among those that nobody uses.
    stamp: u64,
}

/// A cache.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: u64,
    kept: HashMap<u64, Kept>,
    /// Kept blocks that nobody uses, those that go first in front.
    idle: BTreeMap<u64, u64>,
    stamps: u64,
    /// Blocks that requests have for themselves.
    own: u64,
}

impl Cache {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            kept: HashMap::new(),
            idle: BTreeMap::new(),
            stamps: 0,
            own: 0,
        }
    }

    /// How many of the first blocks of a prompt are kept.
    pub(super) fn known(&self, blocks: &[u64]) -> usize {
        blocks
            .iter()
            .take_while(|block| self.kept.contains_key(block))
            .count()
    }

    /// Takes kept blocks into use and makes room for some of a request's own; false, and nothing done, when there is
    /// none.
    pub(super) fn reserve(&mut self, held: &[u64], own: u64) -> bool {
        let was_idle = |block: &&u64| self.kept.get(block).is_some_and(|kept| kept.users == 0);
        let woken = count(held.iter().filter(was_idle).count());
        let used = self.used().saturating_add(woken).saturating_add(own);
        if used > self.capacity {
            return false;
        }
        for block in held {
            if let Some(kept) = self.kept.get_mut(block) {
                if kept.users == 0 {
                    self.idle.remove(&kept.stamp);
                }
                kept.users += 1;
            }
        }
        self.own += own;
        while count(self.kept.len()).saturating_add(self.own) > self.capacity {
            let Some((_, block)) = self.idle.pop_first() else {
                break;
            };
            self.kept.remove(&block);
        }
        true
    }

    /// A block of a request's own becomes one that others may use; false when one such is kept already.
    pub(super) fn keep(&mut self, block: u64) -> bool {
        if self.kept.contains_key(&block) {
            return false;
        }
        self.own = self.own.saturating_sub(1);
        self.kept.insert(block, Kept { users: 1, stamp: 0 });
        true
    }

    /// A request is over: what it used is kept while there is room, what it had for itself is gone.
    pub(super) fn give_back(&mut self, held: &[u64], own: u64) {
        self.own = self.own.saturating_sub(own);
        for block in held.iter().rev() {
            let Some(kept) = self.kept.get_mut(block) else {
                continue;
            };
            kept.users = kept.users.saturating_sub(1);
            if kept.users == 0 {
                self.stamps += 1;
                kept.stamp = self.stamps;
                self.idle.insert(kept.stamp, *block);
            }
        }
    }

    /// How much of it is in use, in thousandths of a percent.
    pub(super) fn used_percent_milli(&self) -> u64 {
        let used = self.used().saturating_mul(100_000);
        used.checked_div(self.capacity).unwrap_or(0)
    }

    /// Blocks in use.
    fn used(&self) -> u64 {
        let used = self.kept.len().saturating_sub(self.idle.len());
        count(used).saturating_add(self.own)
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
