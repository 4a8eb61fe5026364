//! Who may still put what under idempotency keys, pure. The bucket is bounded, and a full one would refuse the keys of
//! everybody: so each owner may take only a multiple of what is left. One alone can use most of the bucket, many share
//! it, and whoever comes new always finds room. A node counts what it wrote itself and takes the other gateways to have
//! written as much.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// How many times what is left an owner may hold.
const OF_LEFT: u64 = 3;
/// Of the bucket so many eighths are for answers; the rest is for what says only that a key was used.
const EIGHTHS_FOR_ANSWERS: u64 = 7;

/// What a node wrote under keys, by owner, until it goes.
#[derive(Debug)]
pub struct Room {
    answers: Part,
    bare: Part,
}

/// What a record is to the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An answer that can be given again.
    Answer,
    /// Only that the key was used, or is.
    Bare,
}

impl Room {
    /// Nothing is written yet; `bytes_max` is the bound of the whole bucket.
    pub fn new(bytes_max: u64) -> Self {
        let for_answers = bytes_max / 8 * EIGHTHS_FOR_ANSWERS;
        Self {
            answers: Part::new(for_answers),
            bare: Part::new(bytes_max.saturating_sub(for_answers)),
        }
    }

    /// Whether an owner may write so many bytes more, on one of `gateways` gateways. A key without its answer may turn
    /// out to be all that is left of a call: who has no room for that may begin none.
    pub fn admits(&mut self, kind: Kind, (owner, bytes): (&str, u64), gateways: u64, now_ms: u64) -> bool {
        self.part(kind).admits(owner, bytes, gateways, now_ms)
    }

    /// So many bytes were written for an owner and go after `life_ms`.
    pub fn took(&mut self, kind: Kind, (owner, bytes): (&str, u64), life_ms: u64, now_ms: u64) {
        self.part(kind).took(owner, bytes, now_ms.saturating_add(life_ms));
    }

    fn part(&mut self, kind: Kind) -> &mut Part {
        match kind {
            Kind::Answer => &mut self.answers,
            Kind::Bare => &mut self.bare,
        }
    }
}

/// A part of the bucket.
#[derive(Debug)]
struct Part {
    bytes_max: u64,
    bytes: u64,
    owners: HashMap<Arc<str>, u64>,
    /// When what goes: milliseconds, owner, bytes.
    ends: BinaryHeap<Reverse<(u64, Arc<str>, u64)>>,
}

impl Part {
    fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            owners: HashMap::new(),
            ends: BinaryHeap::new(),
        }
    }

    fn admits(&mut self, owner: &str, bytes: u64, gateways: u64, now_ms: u64) -> bool {
        self.expire(now_ms);
        let held = self.owners.get(owner).copied().unwrap_or_default();
        let held = held.saturating_add(bytes).saturating_mul(gateways);
        let left = self.bytes_max.saturating_sub(self.bytes.saturating_mul(gateways));
        held <= left.saturating_mul(OF_LEFT)
    }

    fn took(&mut self, owner: &str, bytes: u64, until_ms: u64) {
        let owner = match self.owners.get_key_value(owner) {
            Some((owner, _)) => Arc::clone(owner),
            None => Arc::from(owner),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        let held = self.owners.entry(Arc::clone(&owner)).or_default();
        *held = held.saturating_add(bytes);
        self.ends.push(Reverse((until_ms, owner, bytes)));
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some(Reverse((until_ms, _, _))) = self.ends.peek()
            && *until_ms <= now_ms
            && let Some(Reverse((_, owner, bytes))) = self.ends.pop()
        {
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some(held) = self.owners.get_mut(&owner) {
                *held = held.saturating_sub(bytes);
                if *held == 0 {
                    self.owners.remove(&owner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 8_000;

    /// Fills the room for `owner` with records of 10 bytes until it is refused: bytes with answers, and without.
    fn fill(room: &mut Room, owner: &str, gateways: u64) -> (u64, u64) {
        let (mut answers, mut bare) = (0, 0);
        while room.admits(Kind::Bare, (owner, 10), gateways, 0) {
            let kept = room.admits(Kind::Answer, (owner, 10), gateways, 0);
            let (kind, sum) = if kept {
                (Kind::Answer, &mut answers)
            } else {
                (Kind::Bare, &mut bare)
            };
            *sum += 10;
            room.took(kind, (owner, 10), 100, 0);
        }
        (answers, bare)
    }

    #[test]
    fn one_alone_may_use_three_quarters_of_either_part() {
        let mut room = Room::new(MAX);

        assert_eq!(fill(&mut room, "a", 1), (5_250, 750));
    }

    #[test]
    fn whoever_comes_new_finds_room_for_answers_beside_full_ones() {
        let mut room = Room::new(MAX);
        for owner in ["a", "b", "c"] {
            fill(&mut room, owner, 1);

            assert!(!room.admits(Kind::Bare, (owner, 10), 1, 0));
        }
        assert!(room.answers.bytes < 7_000 && room.bare.bytes < 1_000);
        assert!(room.admits(Kind::Bare, ("new", 10), 1, 0));
        assert!(room.admits(Kind::Answer, ("new", 10), 1, 0));
    }

    #[test]
    fn what_the_other_gateways_wrote_is_taken_to_be_as_much() {
        let mut room = Room::new(MAX);

        let (answers, bare) = fill(&mut room, "a", 4);

        assert_eq!((answers, bare), (1_320, 190));
        assert!(room.admits(Kind::Bare, ("a", 10), 1, 0));
    }

    #[test]
    fn what_is_over_its_life_is_room_again() {
        let mut room = Room::new(MAX);
        fill(&mut room, "a", 1);

        assert!(!room.admits(Kind::Bare, ("a", 10), 1, 99));
        assert!(room.admits(Kind::Bare, ("a", 10), 1, 100));
        assert!(room.admits(Kind::Answer, ("a", 10), 1, 100));
        for part in [&room.answers, &room.bare] {
            assert_eq!((part.bytes, part.owners.len(), part.ends.len()), (0, 0, 0));
        }
    }
}
