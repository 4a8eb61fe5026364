//! What a router keeps of an answer: the frames that are not known to have arrived, and how far it may send. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use super::KEPT_FRAMES_MAX;
use super::code::Order;

/// The frames of one lane on their way.
#[derive(Debug, Default)]
pub(super) struct Keep {
    next: u32,
    granted: u32,
    /// The frames before `next`, the oldest first.
    frames: VecDeque<Bytes>,
}

impl Keep {
    /// The number of the next frame.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Frames that are kept.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The reader has room for one more frame.
    pub(super) fn granted(&self) -> bool {
        self.next < self.granted && self.has_room()
    }

    /// One more frame can be kept, whatever the reader says.
    pub(super) fn has_room(&self) -> bool {
        self.frames.len() < KEPT_FRAMES_MAX
    }

    /// Keeps the frame with the number [`Keep::next`].
    pub(super) fn push(&mut self, frame: Bytes) {
        self.frames.push_back(frame);
        self.next = self.next.saturating_add(1);
    }

    /// Takes an order's word for what has arrived and what may be sent. Older orders change nothing.
    pub(super) fn take(&mut self, order: &Order) {
        while self.oldest() < order.received && self.frames.pop_front().is_some() {}
        self.granted = self.granted.max(order.granted);
    }

    /// The frames from `sequence` on. Those that are not kept any more have arrived: an order that asks for them was
    /// overtaken.
    pub(super) fn again(&self, sequence: u32) -> Vec<Bytes> {
        let skipped = sequence.saturating_sub(self.oldest());
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        self.frames.iter().skip(skipped).cloned().collect()
    }

    fn oldest(&self) -> u32 {
        let kept = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.next.saturating_sub(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::code::Wish;

    fn order(received: u32, granted: u32) -> Order {
        Order {
            lane: 1,
            received,
            granted,
            wish: Wish::Run,
            resume: false,
        }
    }

    fn kept(count: u32) -> Keep {
        let mut keep = Keep::default();
        keep.take(&order(0, 64));
        for number in 0..count {
            keep.push(Bytes::from(number.to_string()));
        }
        keep
    }

    #[test]
    fn frames_are_kept_until_they_have_arrived_and_sent_again_from_any_place_of_them() {
        let mut keep = kept(5);

        keep.take(&order(2, 64));

        assert_eq!((keep.next(), keep.len()), (5, 3));
        assert_eq!(keep.again(3), [Bytes::from("3"), Bytes::from("4")]);
        assert!(keep.again(5).is_empty() && keep.again(99).is_empty());
        assert_eq!(keep.again(0), keep.again(2));
    }

    #[test]
    fn an_order_that_was_overtaken_takes_nothing_back() {
        let mut keep = kept(4);
        keep.take(&order(3, 80));

        keep.take(&order(1, 70));

        assert_eq!(keep.len(), 1);
        assert!(keep.granted());
    }

    #[test]
    fn no_more_is_kept_than_the_limit_however_much_is_granted() {
        let mut keep = Keep::default();
        keep.take(&order(0, 10_000));
        while keep.granted() {
            keep.push(Bytes::new());
        }

        assert_eq!(keep.len(), KEPT_FRAMES_MAX);
    }

    #[test]
    fn an_order_that_says_more_arrived_than_was_sent_empties_what_is_kept() {
        let mut keep = kept(3);

        keep.take(&order(99, 0));

        assert_eq!((keep.len(), keep.next()), (0, 3));
    }
}
