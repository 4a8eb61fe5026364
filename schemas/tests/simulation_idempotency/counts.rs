//! How often what happened, so that a simulation which never tries something is noticed.

use std::collections::BTreeMap;

/// How often what happened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(crate) fn assert_all_happened(&self) {
        for what in [
            "replay",
            "in progress",
            "mismatch",
            "not replayable",
            "store unavailable",
            "asked: open",
            "asked: void",
            "asked: settled",
            "cleared",
            "killed while running",
            "late write done",
            "answer lost",
            "no room",
            "behind",
            "lost the key",
            "left before its record",
            "freed",
            "failure kept",
            "charged",
        ] {
            assert!(self.0.contains_key(what), "never: {what}; {:?}", self.0);
        }
    }
}
