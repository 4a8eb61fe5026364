//! Who waits for a part of a limit, in the order they came.

use std::collections::BTreeMap;

/// Wishes that wait for one limit of one node; more are refused.
pub(super) const WISHES_MAX: usize = 1_000;

/// Waiting wishes: the number of a wish and how much it is for. Numbers grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes(BTreeMap<u64, u64>);

impl Wishes {
    /// Notes a wish; false when there are too many.
    pub(super) fn put(&mut self, wish: u64, amount: u64) -> bool {
        if self.0.len() >= WISHES_MAX && !self.0.contains_key(&wish) {
            return false;
        }
        self.0.insert(wish, amount);
        true
    }

    /// Forgets a wish.
    pub(super) fn remove(&mut self, wish: u64) {
        self.0.remove(&wish);
    }

    /// What those want who came before.
    pub(super) fn before(&self, wish: u64) -> u64 {
        let earlier = self.0.range(..wish);
        earlier.fold(0, |sum: u64, (_, amount)| sum.saturating_add(*amount))
    }

    /// What is wanted, in the order of coming.
    pub(super) fn amounts(&self) -> impl Iterator<Item = u64> {
        self.0.values().copied()
    }

    /// How many wait.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// True when nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
