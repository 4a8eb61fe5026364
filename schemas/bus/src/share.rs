//! Who makes room in a bucket that many owners fill, pure: whoever holds most lets his oldest go. So nobody loses
//! anything as long as he holds less than the others' share, and one owner alone may fill the bucket.
//!
//! A key is its owner, a dot, a name, and for the pieces of one thing another dot and a number. A thing goes whole: what
//! has lost a piece is worth nothing to anybody.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::Revision;

/// A record of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    /// Its key.
    pub(crate) key: &'a str,
    /// When it was written, among the others.
    pub(crate) revision: Revision,
    /// Bytes of its key and its value.
    pub(crate) bytes: u64,
}

/// The records of one thing.
#[derive(Debug, Default)]
struct Thing<'a> {
    /// Of its newest record.
    revision: Revision,
    bytes: u64,
    keys: Vec<&'a str>,
}

/// What one owner holds.
#[derive(Debug, Default)]
struct Share<'a> {
    bytes: u64,
    things: BTreeMap<&'a str, Thing<'a>>,
}

/// The keys to let go, in order, so that no more than `bytes_max` are held.
pub(crate) fn beyond<'a>(held: impl IntoIterator<Item = Held<'a>>, bytes_max: u64) -> Vec<&'a str> {
    let mut shares: BTreeMap<&str, Share<'_>> = BTreeMap::new();
    let mut left = 0_u64;
    for record in held {
        let (owner, thing) = places(record.key);
        let share = shares.entry(owner).or_default();
        let thing = share.things.entry(thing).or_default();
        thing.revision = thing.revision.max(record.revision);
        thing.bytes = thing.bytes.saturating_add(record.bytes);
        thing.keys.push(record.key);
        share.bytes = share.bytes.saturating_add(record.bytes);
        left = left.saturating_add(record.bytes);
    }
    // Each owner's newest comes first: his oldest is at the end.
    let mut queues: Vec<(u64, Vec<Thing<'_>>)> = shares
        .into_values()
        .map(|share| {
            let mut things: Vec<_> = share.things.into_values().collect();
            things.sort_by_key(|thing| Reverse(thing.revision));
            (share.bytes, things)
        })
        .collect();
    let mut largest: BinaryHeap<(u64, usize)> = queues
        .iter()
        .enumerate()
        .map(|(number, (bytes, _))| (*bytes, number))
        .collect();
    let mut gone = Vec::new();
    while left > bytes_max
        && let Some((bytes, number)) = largest.pop()
    {
        let Some(thing) = queues.get_mut(number).and_then(|(_, things)| things.pop()) else {
            continue;
        };
        left = left.saturating_sub(thing.bytes);
        largest.push((bytes.saturating_sub(thing.bytes), number));
        gone.extend(thing.keys);
    }
    gone
}

/// The owner of a key, and what stands for the thing that it is a record of.
fn places(key: &str) -> (&str, &str) {
    let Some((owner, rest)) = key.split_once('.') else {
        return (key, key);
    };
    let name = rest.split('.').next().unwrap_or_default();
    let thing = key.get(..owner.len() + 1 + name.len()).unwrap_or(key);
    (owner, thing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held<'a>(keys: &[&'a str]) -> Vec<Held<'a>> {
        let records = keys.iter().zip(1..).map(|(key, revision)| Held {
            key,
            revision,
            bytes: 10,
        });
        records.collect()
    }

    #[test]
    fn whoever_holds_most_lets_his_oldest_go_and_nobody_else_anything() {
        let records = held(&["small.1", "large.1", "large.2", "small.2", "large.3", "large.4"]);

        assert_eq!(beyond(records.clone(), 60), [""; 0]);
        assert_eq!(beyond(records.clone(), 40), ["large.1", "large.2"]);
        let more = beyond(records, 20);
        assert_eq!(more.len(), 4);
        assert!(
            !more.contains(&"small.2") && !more.contains(&"large.4"),
            "{more:?}"
        );
    }

    #[test]
    fn the_pieces_of_a_thing_go_together_and_are_as_old_as_the_newest() {
        let records = held(&["a.x.1", "a.y", "a.x.2", "a.x"]);

        assert_eq!(beyond(records.clone(), 39), ["a.y"]);
        assert_eq!(beyond(records, 29), ["a.y", "a.x.1", "a.x.2", "a.x"]);
    }

    #[test]
    fn an_owner_who_is_alone_may_fill_the_bucket_and_then_his_oldest_go() {
        let records = held(&["a.1", "a.2", "a.3"]);

        assert_eq!(beyond(records.clone(), 30), [""; 0]);
        assert_eq!(beyond(records.clone(), 10), ["a.1", "a.2"]);
        assert_eq!(beyond(records, 0), ["a.1", "a.2", "a.3"]);
        assert_eq!(beyond([], 0), [""; 0]);
    }
}
