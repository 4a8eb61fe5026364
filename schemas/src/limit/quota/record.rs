//! What of a quota is taken, and by whom: the record of one limit and one period that the fleet shares. All numbers are
//! absolute, so that a write can be repeated, and a node that reads it knows without a history what is left.
//!
//! `base` is what sources spent that are gone; a holder's `taken` is all that it ever took and did not give back, what
//! it spent included. The promise of the record is `base + Σ taken ≤ limit`: who raises `taken` keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::SpoolId;

/// Holders, and sources that are gone, that a record may have; a longer one is not believed.
pub const HOLDERS_MAX: usize = 1_024;
/// Sources that are gone whose places are remembered.
const GONE_MAX: usize = 64;

/// A quota's record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// What was spent by whoever holds nothing any more.
    pub base: u64,
    /// By source.
    pub holders: BTreeMap<SpoolId, Holder>,
    /// Sources that were declared gone, as far as `base` holds what they spent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gone: BTreeMap<SpoolId, Gone>,
}

/// What one source has of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holder {
    /// Taken and not given back: what is spent, what is reserved, and what is ready to be.
    pub taken: u64,
    /// Settled, up to the place `seq`.
    pub spent: u64,
    /// The last place in the source's spool that `spent` counts.
    pub seq: u64,
    /// The view that wrote it: of a process, and there of the time since it last forgot this quota. What another one
    /// took is not used before this one has confirmed it.
    pub by: Arc<str>,
}

/// What `base` holds of one source that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gone {
    /// What it spent.
    pub spent: u64,
    /// Up to which place in its spool.
    pub seq: u64,
}

/// Why a source cannot be declared gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// The books do not have all yet that the record counts: try again when they do.
    #[error("the books are behind what the record counts of this source")]
    BooksBehind,
}

impl Record {
    /// A record of a quota of which something was spent before anybody counted.
    pub fn with_base(base: u64) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    /// Reads a record; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record: Self = serde_json::from_slice(bytes).ok()?;
        if record.holders.len() > HOLDERS_MAX || record.gone.len() > HOLDERS_MAX {
            return None;
        }
        for holder in record.holders.values_mut() {
            holder.taken = holder.taken.max(holder.spent);
        }
        Some(record)
    }

    /// The record as bytes.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// What is taken in all.
    pub fn total(&self) -> u128 {
        let taken = self.holders.values().map(|holder| u128::from(holder.taken));
        u128::from(self.base) + taken.sum::<u128>()
    }

    /// What is taken by all but one source.
    pub fn others(&self, source: &SpoolId) -> u128 {
        self.total() - self.holders.get(source).map_or(0, |own| u128::from(own.taken))
    }

    /// What is settled in all, as far as it was told.
    pub fn spent(&self) -> u128 {
        let spent = self.holders.values().map(|holder| u128::from(holder.spent));
        u128::from(self.base) + spent.sum::<u128>()
    }

    /// Declares a source gone: what it holds is free again, and what it spent is what the books say, `spent` in all
    /// up to the place `seq`. Saying so again, also of a later place, counts only the difference. True when it
    /// changed something.
    pub fn forget(&mut self, source: &SpoolId, spent: u64, seq: u64) -> Result<bool, ForgetError> {
        let known = self.gone.get(source).copied().unwrap_or_default();
        let counted = self.holders.get(source).map_or(0, |holder| holder.seq);
        if seq < counted || seq < known.seq {
            return Err(ForgetError::BooksBehind);
        }
        let held = self.holders.remove(source).is_some();
        let more = spent.saturating_sub(known.spent);
        if !held && more == 0 && seq == known.seq {
            return Ok(false);
        }
        self.base = self.base.saturating_add(more);
        if self.gone.len() >= GONE_MAX && !self.gone.contains_key(source) {
            // Should that one come back, what it spent counts twice: rather too much than too little.
            self.gone.pop_first();
        }
        let spent = spent.max(known.spent);
        self.gone.insert(source.clone(), Gone { spent, seq });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(taken: u64, spent: u64, seq: u64) -> Holder {
        Holder {
            taken,
            spent,
            seq,
            by: "b".into(),
        }
    }

    fn record() -> Record {
        let mut record = Record::with_base(5);
        record.holders.insert(SpoolId::from("s1"), holder(100, 40, 9));
        record.holders.insert(SpoolId::from("s2"), holder(u64::MAX, 1, 2));
        record
    }

    #[test]
    fn sums_are_wide() {
        assert_eq!(record().total(), 5 + 100 + u128::from(u64::MAX));
        assert_eq!(record().others(&SpoolId::from("s2")), 105);
        assert_eq!(record().others(&SpoolId::from("nobody")), record().total());
        assert_eq!(record().spent(), 46);
    }

    #[test]
    fn a_source_that_is_gone_leaves_what_the_books_say_it_spent() {
        let source = SpoolId::from("s1");
        let mut record = record();
        record.holders.remove(&SpoolId::from("s2"));

        assert_eq!(record.forget(&source, 30, 8), Err(ForgetError::BooksBehind));
        assert_eq!(record.forget(&source, 45, 10), Ok(true));
        assert_eq!((record.total(), record.spent()), (50, 50));
        assert_eq!(record.forget(&source, 45, 10), Ok(false), "said twice");
        assert_eq!(record.forget(&source, 47, 12), Ok(true), "a spool was rescued");
        assert_eq!(record.total(), 52);
        assert_eq!(record.forget(&source, 47, 11), Err(ForgetError::BooksBehind));
    }

    #[test]
    fn a_record_is_read_back_and_never_says_less_taken_than_spent() {
        let bytes = record().encode().expect("write");
        assert_eq!(Record::decode(&bytes), Some(record()));
        let bytes = br#"{"base":1,"holders":{"s":{"taken":3,"spent":7,"seq":1,"by":"b"}}}"#;
        assert_eq!(Record::decode(bytes).map(|record| record.total()), Some(8));
        for bytes in [&b"[]"[..], b"{\"base\":-1,\"holders\":{}}", b""] {
            assert_eq!(Record::decode(bytes), None);
        }
    }

    #[test]
    fn sources_that_are_gone_are_remembered_within_bounds() {
        let mut record = Record::default();
        for source in 0..200 {
            let source = SpoolId::from(format!("s{source}").as_str());
            assert_eq!(record.forget(&source, 1, 1), Ok(true));
        }
        assert_eq!(record.gone.len(), GONE_MAX);
        assert_eq!(record.total(), 200);
    }
}
