//! Which events of each source are kept: a source numbers its events densely from 1, so what is missing is
//! known. The highest sequence without a hole below it is the source's mark: its spool may forget up to there.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What is kept of every source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    sources: BTreeMap<Arc<str>, Covered>,
}

/// What is kept of one source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Covered {
    /// Everything from 1 to here.
    mark: u64,
    /// Ranges beyond the first hole: first to last, neither touching nor overlapping.
    ahead: BTreeMap<u64, u64>,
}

/// Sequences of a source that are missing although later ones are kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hole {
    /// The source.
    pub source: Arc<str>,
    /// First missing sequence.
    pub from: u64,
    /// Last missing sequence.
    pub to: u64,
}

impl Coverage {
    /// Notes that `from` to `to` of a source are kept (or can never be). Nothing for an empty range.
    pub fn cover(&mut self, source: &str, from: u64, to: u64) {
        if let Some(covered) = self.sources.get_mut(source) {
            covered.cover(from, to);
        } else {
            let mut covered = Covered::default();
            covered.cover(from, to);
            self.sources.insert(source.into(), covered);
        }
    }

    /// True when this sequence of a source is kept (or can never be).
    pub fn covers(&self, source: &str, sequence: u64) -> bool {
        self.sources
            .get(source)
            .is_some_and(|covered| covered.covers(sequence))
    }

    /// The mark of a source, 0 for one that is not known.
    pub fn mark(&self, source: &str) -> u64 {
        self.sources.get(source).map_or(0, |covered| covered.mark)
    }

    /// The highest sequence of a source that is kept (or can never be), 0 for one that is not known.
    pub fn newest(&self, source: &str) -> u64 {
        self.sources.get(source).map_or(0, |covered| {
            let ahead = covered.ahead.last_key_value();
            ahead.map_or(covered.mark, |(_, &last)| last)
        })
    }

    /// The mark of every source.
    pub fn marks(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.sources
            .iter()
            .map(|(source, covered)| (source, covered.mark))
    }

    /// Every hole, by source and sequence.
    pub fn holes(&self) -> impl Iterator<Item = Hole> {
        self.sources.iter().flat_map(|(source, covered)| {
            covered.holes().map(|(from, to)| Hole {
                source: Arc::clone(source),
                from,
                to,
            })
        })
    }

    /// How many sequences are missing.
    pub fn missing(&self) -> u64 {
        let holes = self.sources.values().flat_map(Covered::holes);
        holes.fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from + 1))
    }
}

impl Covered {
    fn cover(&mut self, from: u64, to: u64) {
        if from > to || to <= self.mark {
            return;
        }
        let (mut first, mut last) = (from.max(self.mark + 1), to);
        // Ranges that overlap or touch the new one begin at or before `last + 1`; the newest of them first.
        while let Some((&begin, &end)) = self.ahead.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            first = first.min(begin);
            last = last.max(end);
            self.ahead.remove(&begin);
        }
        if first == self.mark + 1 {
            self.mark = last;
        } else {
            self.ahead.insert(first, last);
        }
    }

    fn covers(&self, sequence: u64) -> bool {
        let ahead = self.ahead.range(..=sequence).next_back();
        sequence <= self.mark || ahead.is_some_and(|(_, &end)| sequence <= end)
    }

    fn holes(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = std::iter::once(self.mark).chain(self.ahead.values().copied());
        ends.zip(self.ahead.keys())
            .map(|(end, &begin)| (end + 1, begin - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mark_stops_before_the_first_hole_and_jumps_when_it_is_filled() {
        let mut coverage = Coverage::default();
        for sequence in [1, 2, 5, 6, 9] {
            coverage.cover("a", sequence, sequence);
        }

        assert_eq!((coverage.mark("a"), coverage.newest("a")), (2, 9));
        assert_eq!((coverage.newest("b"), coverage.missing()), (0, 4));
        let holes: Vec<_> = coverage.holes().map(|hole| (hole.from, hole.to)).collect();
        assert_eq!(holes, [(3, 4), (7, 8)]);

        coverage.cover("a", 3, 4);
        assert_eq!(coverage.mark("a"), 6);
        assert_eq!(coverage.missing(), 2);
    }

    #[test]
    fn sources_are_kept_apart() {
        let mut coverage = Coverage::default();
        coverage.cover("a", 1, 3);
        coverage.cover("b", 2, 2);

        let marks: Vec<_> = coverage
            .marks()
            .map(|(source, mark)| (source.to_string(), mark))
            .collect();
        assert_eq!(marks, [("a".to_owned(), 3), ("b".to_owned(), 0)]);
    }

    #[test]
    fn the_end_of_the_number_range_is_no_special_case() {
        let mut coverage = Coverage::default();
        coverage.cover("a", u64::MAX, u64::MAX);
        coverage.cover("a", 5, 4);
        assert_eq!(coverage.missing(), u64::MAX - 1);

        coverage.cover("a", 1, u64::MAX - 1);
        assert_eq!(coverage.mark("a"), u64::MAX);

        coverage.cover("a", u64::MAX, u64::MAX);
        assert_eq!(coverage.missing(), 0);
    }

    proptest! {
        #[test]
        fn coverage_equals_a_set_of_sequences(ranges in prop::collection::vec((1u64..60, 0u64..6), 0..40)) {
            let mut coverage = Coverage::default();
            let mut set = std::collections::BTreeSet::new();
            for (from, length) in ranges {
                coverage.cover("a", from, from + length);
                set.extend(from..=from + length);
            }

            let mark = (1..=100).find(|sequence| !set.contains(sequence)).unwrap_or(1) - 1;
            let missing: Vec<u64> =
                (1..=set.last().copied().unwrap_or(0)).filter(|sequence| !set.contains(sequence)).collect();
            let holes: Vec<u64> = coverage.holes().flat_map(|hole| hole.from..=hole.to).collect();
            prop_assert_eq!(coverage.mark("a"), mark);
            prop_assert_eq!(holes, missing);
            prop_assert!((1..80).all(|sequence| coverage.covers("a", sequence) == set.contains(&sequence)));
        }
    }
}
