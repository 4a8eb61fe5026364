//! What of a quota is taken, and by whom: the record of one limit and one period that the fleet shares. All numbers are
//! absolute, so that a write can be repeated, and a node that reads it knows without a history what is left.
//!
//! `base` is what sources spent that are gone; a holder's `taken` is all that it ever took and did not give back, what
//! it spent included. The promise of the record is `base + Σ taken ≤ limit`: who raises `taken` keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::SpoolId;
use crate::limit::layers::Name;

/// Holders, and sources that are gone, that a record may have; a longer one is not believed.
pub const HOLDERS_MAX: usize = 1_024;
/// Sources that are gone whose places are remembered.
const GONE_MAX: usize = 64;

/// How long the record of a day, and of a month, is kept after it was written last: longer than a node may be away
/// before it counts as gone.
const DAY_LIFE: Duration = Duration::from_hours(4 * 24);
const MONTH_LIFE: Duration = Duration::from_hours(66 * 24);

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

    /// The sources that may have spent more than this says: who has something in hand. Of all others it says all that
    /// they ever spent, since nobody spends what the record did not say before that he took.
    pub fn untold(&self) -> impl Iterator<Item = &SpoolId> {
        let holders = self.holders.iter();
        let in_hand = holders.filter(|(_, holder)| holder.taken > holder.spent);
        in_hand.map(|(source, _)| source)
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

    /// Declares a source gone as [`Self::forget`] does, by what the books have of it: `later` are the charges of this
    /// quota by their places, in any order and also such that the record counts already, and the books have every
    /// place up to `seq`. `None` where the record knows nothing of the source.
    pub fn forget_by(
        &mut self,
        source: &SpoolId,
        later: impl IntoIterator<Item = (u64, u64)>,
        seq: u64,
    ) -> Result<Option<bool>, ForgetError> {
        let (known, holder) = (self.gone.get(source).copied(), self.holders.get(source));
        if known.is_none() && holder.is_none() {
            return Ok(None);
        }
        let known = known.unwrap_or_default();
        let (told, place) = holder.map_or((0, 0), |holder| (holder.spent, holder.seq));
        let place = place.max(known.seq);
        let later = later.into_iter().filter(|(at, _)| place < *at && *at <= seq);
        let spent = later.fold(known.spent.saturating_add(told), |sum, (_, amount)| {
            sum.saturating_add(amount)
        });
        self.forget(source, spent, seq).map(Some)
    }
}

/// How long the record of a quota is kept after it was written last: by its period, which its name ends with. `None`
/// for what is kept for ever.
pub fn life(name: &Name) -> Option<Duration> {
    let period = name.as_str().rsplit('.').next()?;
    match period.matches('-').count() {
        2 => Some(DAY_LIFE),
        1 => Some(MONTH_LIFE),
        _ => None,
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
    fn only_who_has_something_in_hand_may_have_spent_more_than_the_record_says() {
        let mut record = record();
        record.holders.insert(SpoolId::from("s3"), holder(7, 7, 3));

        let untold: Vec<&str> = record.untold().map(SpoolId::as_str).collect();

        assert_eq!(untold, ["s1", "s2"]);
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
    fn a_source_is_gone_by_what_the_books_have_beyond_its_last_word() {
        let source = SpoolId::from("s1");
        let mut record = record();
        record.holders.remove(&SpoolId::from("s2"));

        let books = [(9, 7), (10, 5), (12, 1)];
        assert_eq!(record.forget_by(&source, books, 8), Err(ForgetError::BooksBehind));
        assert_eq!(record.forget_by(&source, books, 11), Ok(Some(true)));
        assert_eq!((record.total(), record.spent()), (50, 50), "5, 40 told, 5 since");
        assert_eq!(record.forget_by(&source, books, 11), Ok(Some(false)));
        assert_eq!(
            record.forget_by(&source, books, 12),
            Ok(Some(true)),
            "a spool was rescued"
        );
        assert_eq!((record.total(), record.spent()), (51, 51));

        // It came back, and is declared gone again.
        record.holders.insert(source.clone(), holder(30, 20, 20));
        assert_eq!(record.forget_by(&source, [(21, 2)], 21), Ok(Some(true)));
        assert_eq!((record.total(), record.spent()), (73, 73));
        assert_eq!(record.forget_by(&SpoolId::from("s3"), books, 12), Ok(None));
    }

    #[test]
    fn records_of_days_and_months_end_and_those_of_totals_stay() {
        for (name, kept) in [
            ("acme.k.a-b-c.daily_usd.2026-11-30", Some(DAY_LIFE)),
            ("acme.k.a-b-c.monthly_usd.2026-11", Some(MONTH_LIFE)),
            ("a-c-m-e.t.total_usd.total", None),
        ] {
            assert_eq!(life(&Name::from(name)), kept, "{name}");
        }
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
