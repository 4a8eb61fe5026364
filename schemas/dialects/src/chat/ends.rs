//! Choices that call tools and say that they just stopped: clients that go by the reason do not look for the calls.

use std::ops::Range;

use bytes::Bytes;

use crate::splice::Edit;

/// What the reason of such a choice should say, as a JSON string.
const TOOL_CALLS: &[u8] = br#""tool_calls""#;

/// Choices by their index; those from 128 on are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Called(u128);

impl Called {
    pub(super) fn add(&mut self, index: u64) {
        self.0 |= bit(index);
    }

    const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Adds those of another set, and tells how many of them were not in this one.
    pub(crate) const fn add_new(&mut self, other: Self) -> usize {
        let new = other.0 & !self.0;
        self.join(other);
        // At most 128.
        new.count_ones() as usize
    }

    pub(crate) fn contains(self, index: u64) -> bool {
        self.0 & bit(index) != 0
    }
}

/// The bit of a choice, none where it has none.
fn bit(index: u64) -> u128 {
    let shift = u32::try_from(index).unwrap_or(u32::MAX);
    1_u128.checked_shl(shift).unwrap_or(0)
}

/// What a chunk or an answer says about the ends of its choices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ends {
    /// Choices in it that ended; those from 127 on are one.
    pub ended: Called,
    /// Choices in it that call tools.
    pub called: Called,
    /// Choices in it that ended at a natural end, and where their reason stands: a JSON string, quotes included.
    pub stopped: Vec<(u64, Range<usize>)>,
}

impl Ends {
    /// What makes reasons say that tools are called, in rising order. `called` are the choices that called tools before;
    /// those in this one are added.
    pub fn edits(&self, called: &mut Called) -> Vec<Edit> {
        called.join(self.called);
        let of_calls = self.stopped.iter().filter(|(index, _)| called.contains(*index));
        let edit = |(_, span): &(u64, Range<usize>)| Edit {
            range: span.clone(),
            with: Bytes::from_static(TOOL_CALLS),
        };
        of_calls.map(edit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(called: &[u64], stopped: &[u64]) -> Ends {
        let mut ends = Ends {
            stopped: stopped.iter().map(|&index| (index, 5..11)).collect(),
            ..Ends::default()
        };
        for &index in called {
            ends.called.add(index);
        }
        ends
    }

    fn edited(ends: &Ends, called: &mut Called) -> usize {
        let edits = ends.edits(called);
        assert!(
            edits
                .iter()
                .all(|edit| edit.range == (5..11) && edit.with == TOOL_CALLS)
        );
        edits.len()
    }

    #[test]
    fn a_choice_that_called_in_this_chunk_or_before_it_did_not_just_stop() {
        let mut called = Called::default();

        assert_eq!(edited(&ends(&[1], &[0]), &mut called), 0);
        assert_eq!(edited(&ends(&[], &[1]), &mut called), 1);
        assert_eq!(edited(&ends(&[127], &[127, 2]), &mut called), 1);
    }

    #[test]
    fn indexes_that_nobody_uses_are_left_as_they_are() {
        for index in [128, 255, 256, u64::MAX] {
            assert_eq!(
                edited(&ends(&[index], &[index, 0]), &mut Called::default()),
                0,
                "{index}"
            );
        }
    }
}
