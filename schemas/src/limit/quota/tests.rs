//! A quota of one node and of several before one record.

use proptest::prelude::*;

use super::*;
use crate::limit::shared::Write;
use crate::time::Timestamp;

fn at(mono_ms: u64) -> Now {
    Now {
        wall: Timestamp::default(),
        mono_ms,
        nodes: 2,
    }
}

fn quota(source: &str, limit: u64) -> Quota {
    replayed(source, "1", limit, &[])
}

fn replayed(source: &str, by: &str, limit: u64, replay: &[(u64, u64)]) -> Quota {
    let replay = replay.iter().map(|(sequence, amount)| Replayed {
        sequence: *sequence,
        amount: *amount,
    });
    let by = format!("{source}.{by}").as_str().into();
    Quota::new(
        (SpoolId::from(source), by),
        limit,
        replay.collect(),
        Planted::default(),
    )
}

/// The record of one quota.
#[derive(Default)]
struct Bucket {
    revision: u64,
    record: Option<Record>,
    writes: usize,
}

impl Bucket {
    fn found(&self) -> Option<(u64, Record)> {
        self.record.clone().map(|record| (self.revision, record))
    }

    fn write(&mut self, write: Write<Record>) -> Outcome {
        let known = self.record.is_some().then_some(self.revision);
        if write.expected != known {
            return Outcome::Lost;
        }
        self.revision += 1;
        self.writes += 1;
        self.record = Some(write.record);
        Outcome::Won(self.revision)
    }

    fn serve(&mut self, quota: &mut Quota, now: Now) {
        for _ in 0..10 {
            match quota.next(now) {
                Some(Step::Read) => quota.observe(self.found(), false, now),
                Some(Step::Write(write)) => {
                    let outcome = self.write(write);
                    quota.wrote(outcome, now);
                }
                None => return,
            }
        }
    }

    fn reserve(&mut self, quota: &mut Quota, (wish, amount): (u64, u64), now: Now) -> Take {
        for _ in 0..5 {
            let take = quota.reserve(wish, amount, now);
            if take != Take::Waiting {
                return take;
            }
            self.serve(quota, now);
        }
        Take::Waiting
    }

    /// What a source has taken and spent.
    fn holder(&self, source: &str) -> (u64, u64) {
        let record = self.record.as_ref();
        let holder = record.and_then(|record| record.holders.get(&SpoolId::from(source)));
        holder.map_or((0, 0), |holder| (holder.taken, holder.spent))
    }

    fn total(&self) -> u128 {
        self.record.as_ref().map_or(0, Record::total)
    }
}

const USED: Take = Take::Refused(Shortage::Used);

fn settle(quota: &mut Quota, (reserved, charge): (u64, u64), sequence: u64) {
    let charge = quota.fix(reserved, charge);
    quota.settle(charge, sequence);
}

#[test]
fn what_is_missing_is_taken_and_no_more() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (quota("a", 100), quota("b", 100));

    assert_eq!(bucket.reserve(&mut a, (1, 60), at(0)), Take::Granted);
    assert_eq!(bucket.reserve(&mut b, (1, 41), at(0)), USED);
    assert_eq!(bucket.reserve(&mut b, (2, 40), at(0)), Take::Granted);

    assert_eq!((bucket.holder("a"), bucket.holder("b")), ((60, 0), (40, 0)));
    assert_eq!(bucket.reserve(&mut a, (2, 1), at(5_000)), USED);
    assert_eq!(a.standing(), Standing::left(100, 0));
    assert_eq!(
        bucket.reserve(&mut a, (3, 101), at(5_000)),
        USED,
        "more than there ever is"
    );
}

#[test]
fn recent_use_is_taken_ahead_up_to_a_quarter_of_ones_part_of_what_remains() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 1_000);
    bucket.reserve(&mut a, (1, 20), at(0));
    assert_eq!(bucket.holder("a"), (20, 0), "nothing was used before");

    bucket.reserve(&mut a, (2, 10), at(100));
    assert_eq!(bucket.holder("a"), (50, 0), "30 reserved, 20 used of late");
    settle(&mut a, (20, 20), 1);
    settle(&mut a, (10, 10), 2);
    for (wish, at_ms) in [(3, 200), (4, 300), (5, 400)] {
        assert_eq!(bucket.reserve(&mut a, (wish, 5), at(at_ms)), Take::Granted);
    }
    assert_eq!(bucket.writes, 2, "out of what is in hand");

    let mut near = quota("b", 100);
    let mut bucket = Bucket::default();
    bucket.reserve(&mut near, (1, 40), at(0));
    bucket.reserve(&mut near, (2, 10), at(100));
    assert_eq!(bucket.holder("b"), (56, 0), "an eighth of the 50 that remain");
    bucket.reserve(&mut near, (3, 10), at(200));
    assert_eq!(
        bucket.holder("b"),
        (60, 0),
        "what remains would not last half a minute"
    );
}

#[test]
fn what_is_idle_is_given_back() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 1_000);
    bucket.reserve(&mut a, (1, 20), at(0));
    bucket.reserve(&mut a, (2, 20), at(100));
    a.give_back(20);
    a.give_back(20);
    assert_eq!(bucket.holder("a"), (60, 0));

    bucket.serve(&mut a, at(20_000));
    assert_eq!(bucket.holder("a"), (60, 0), "used within half a minute");
    bucket.serve(&mut a, at(61_000));
    assert_eq!(bucket.holder("a"), (0, 0));
    assert!(a.is_idle(at(61_000)));
}

#[test]
fn a_charge_is_what_was_used_as_far_as_it_is_in_hand() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 60), at(0));
    bucket.reserve(&mut a, (2, 35), at(10));
    assert_eq!(a.available(), 0);

    assert_eq!(a.payable(60), 60);
    assert!(a.wish(9, 60, 90, at(20)), "5 are left");
    bucket.serve(&mut a, at(20));
    assert!(!a.wish(9, 60, 90, at(20)));
    assert_eq!(a.payable(60), 65);
    settle(&mut a, (60, 90), 1);
    assert_eq!(a.reserved(), 35);
    settle(&mut a, (35, 0), 2);
    bucket.serve(&mut a, at(70_000));
    assert_eq!(
        bucket.holder("a"),
        (65, 65),
        "fixed at what could be paid, not at 90"
    );
}

#[test]
fn what_is_charged_less_than_reserved_can_be_reserved_again() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 100), at(0));
    settle(&mut a, (100, 30), 1);

    assert_eq!(bucket.reserve(&mut a, (2, 70), at(10)), Take::Granted);
    assert_eq!(bucket.reserve(&mut a, (3, 1), at(10)), USED);
}

#[test]
fn a_raise_in_doubt_gives_nothing_and_a_return_in_doubt_takes_away() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 10), at(0));
    assert_eq!(a.reserve(2, 50, at(10)), Take::Waiting);
    assert!(matches!(a.next(at(10)), Some(Step::Write(_))));
    a.wrote(Outcome::Unknown, at(2_010));
    assert_eq!(a.available(), 0);

    bucket.serve(&mut a, at(2_010));
    assert_eq!(bucket.reserve(&mut a, (2, 50), at(2_020)), Take::Granted);
    a.give_back(50);
    assert!(a.available() >= 50);
    assert!(matches!(a.next(at(90_000)), Some(Step::Write(_))));
    a.wrote(Outcome::Unknown, at(92_000));
    assert_eq!(a.available(), 0, "others may have it");
}

#[test]
fn a_write_that_was_applied_although_it_was_not_answered_is_read_back() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.serve(&mut a, at(0));
    a.reserve(1, 50, at(0));
    bucket.serve(&mut a, at(0));
    a.reserve(1, 50, at(0));
    a.reserve(2, 20, at(0));
    let Some(Step::Write(write)) = a.next(at(0)) else {
        panic!("nothing is written");
    };
    bucket.write(write);
    a.wrote(Outcome::Unknown, at(2_000));

    assert_eq!(a.reserve(2, 20, at(2_000)), Take::Waiting);
    assert_eq!(a.next(at(2_000)), Some(Step::Read));
    a.observe(bucket.found(), false, at(2_001));
    assert_eq!(a.reserve(2, 20, at(2_001)), Take::Granted);
}

#[test]
fn a_refusal_stands_on_a_fresh_record_only() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (quota("a", 10), quota("b", 10));
    bucket.reserve(&mut a, (1, 10), at(0));
    assert_eq!(bucket.reserve(&mut b, (1, 1), at(0)), USED);
    a.give_back(10);
    bucket.serve(&mut a, at(61_000));

    assert_eq!(b.reserve(2, 1, at(61_000)), Take::Waiting);
    assert_eq!(b.next(at(61_000)), Some(Step::Read));
    b.observe(bucket.found(), false, at(61_001));
    assert_eq!(bucket.reserve(&mut b, (2, 1), at(61_001)), Take::Granted);
}

#[test]
fn wishes_are_served_in_the_order_they_came() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    assert_eq!(a.reserve(1, 50, at(0)), Take::Waiting);
    bucket.serve(&mut a, at(0));

    assert_eq!(
        a.reserve(2, 50, at(1)),
        Take::Waiting,
        "what there is belongs to the first"
    );
    assert_eq!(a.reserve(1, 50, at(1)), Take::Granted);
    a.cancel(2);
    assert_eq!(bucket.reserve(&mut a, (3, 50), at(2)), Take::Granted);
}

#[test]
fn one_write_serves_all_that_wait_and_skips_who_cannot_be_served() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    for (wish, amount) in [(1, 40), (2, 70), (3, 30)] {
        assert_eq!(a.reserve(wish, amount, at(0)), Take::Waiting);
    }
    bucket.serve(&mut a, at(0));

    assert_eq!(bucket.writes, 1);
    assert_eq!(bucket.holder("a"), (70, 0));
    assert_eq!(a.reserve(1, 40, at(0)), Take::Granted);
    assert_eq!(a.reserve(2, 70, at(0)), USED);
    assert_eq!(a.reserve(3, 30, at(0)), Take::Granted);
}

#[test]
fn a_node_that_was_started_again_counts_what_its_spool_holds_beyond_the_record() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 60), at(0));
    settle(&mut a, (60, 10), 5);
    bucket.serve(&mut a, at(5_000));
    assert_eq!(bucket.holder("a"), (21, 10), "and what may be used next");

    let mut again = replayed("a", "2", 100, &[(3, 1), (5, 10), (7, 20), (9, 4)]);
    assert_eq!(
        again.told_up_to(),
        Some(0),
        "nothing is known yet, so nothing of the spool may go"
    );
    again.observe(bucket.found(), false, at(0));
    assert_eq!(again.told_up_to(), Some(5));
    bucket.serve(&mut again, at(0));
    assert_eq!(again.told_up_to(), None);

    assert_eq!(
        bucket.holder("a"),
        (34, 34),
        "10, and 24 after place 5; nothing is reserved"
    );
    assert_eq!(
        bucket
            .record
            .as_ref()
            .map(|record| record.holders[&SpoolId::from("a")].seq),
        Some(9)
    );
    assert_eq!(bucket.reserve(&mut again, (1, 66), at(10)), Take::Granted);
    assert_eq!(bucket.reserve(&mut again, (2, 1), at(10)), USED);
}

#[test]
fn a_spool_that_holds_nothing_new_is_told_all_the_same() {
    let mut bucket = Bucket::default();
    let mut free = replayed("a", "1", 100, &[(4, 0)]);
    bucket.serve(&mut free, at(0));
    assert_eq!((bucket.holder("a"), free.told_up_to()), ((0, 0), None));

    let mut record = Record::default();
    assert_eq!(record.forget(&SpoolId::from("b"), 9, 6), Ok(true));
    let mut bucket = Bucket {
        record: Some(record),
        ..Bucket::default()
    };
    let mut gone = replayed("b", "1", 100, &[(5, 4), (6, 5)]);
    bucket.serve(&mut gone, at(0));
    assert_eq!((bucket.total(), gone.told_up_to()), (9, None));
}

#[test]
fn what_a_predecessor_took_is_not_used_before_a_write_of_ones_own() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 60), at(0));
    bucket.reserve(&mut a, (2, 20), at(0));
    a.give_back(60);
    a.give_back(20);
    let Some(Step::Write(late)) = a.next(at(70_000)) else {
        panic!("nothing is given back");
    };

    let mut again = replayed("a", "2", 100, &[]);
    again.observe(bucket.found(), false, at(0));
    assert_eq!(again.available(), 0);
    assert_eq!(bucket.reserve(&mut again, (1, 50), at(0)), Take::Granted);
    assert_eq!(bucket.write(late), Outcome::Lost, "it comes too late");
    assert!(bucket.holder("a").0 >= 50);
}

#[test]
fn a_late_write_of_a_predecessor_is_seen_and_overwritten() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 60), at(0));
    settle(&mut a, (60, 10), 5);
    let Some(Step::Write(late)) = a.next(at(6_000)) else {
        panic!("nothing is told");
    };
    let mut again = replayed("a", "2", 100, &[(5, 10), (6, 7)]);
    again.observe(bucket.found(), false, at(0));
    assert_eq!(again.spent(), 17);

    bucket.write(late);
    bucket.serve(&mut again, at(1));

    assert_eq!(again.spent(), 17, "the record has place 5, the spool the rest");
    assert_eq!(bucket.holder("a"), (17, 17));
}

#[test]
fn who_was_declared_gone_and_is_there_counts_only_what_came_after() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 40), at(0));
    bucket.reserve(&mut a, (2, 20), at(0));
    settle(&mut a, (20, 15), 3);
    let record = bucket.record.as_mut().expect("a record");
    assert_eq!(record.forget(&SpoolId::from("a"), 15, 3), Ok(true));
    bucket.revision += 1;
    assert_eq!(bucket.total(), 15);

    a.observe(bucket.found(), false, at(100));
    assert_eq!(a.available(), 0);
    bucket.serve(&mut a, at(100));
    assert_eq!(bucket.total(), 55, "15 in the base, 40 reserved");
    settle(&mut a, (40, 30), 4);
    bucket.serve(&mut a, at(90_000));
    assert_eq!(bucket.total(), 45);
    assert_eq!(bucket.record.as_ref().map(Record::spent), Some(45));
}

#[test]
fn the_record_is_not_written_while_a_charge_has_no_place_in_the_spool() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 100);
    bucket.reserve(&mut a, (1, 10), at(0));
    bucket.reserve(&mut a, (2, 10), at(0));
    assert_eq!(a.fix(10, 10), 10);
    assert_eq!(a.fix(10, 8), 8);
    a.settle(8, 2);

    assert_eq!(a.next(at(60_000)), None, "place 1 is not counted yet");
    assert_eq!(a.told_up_to(), Some(0));
    a.settle(10, 1);
    bucket.serve(&mut a, at(60_001));
    assert_eq!(bucket.holder("a").1, 18);
    assert_eq!(a.told_up_to(), None);
}

#[test]
fn a_bucket_that_was_lost_is_told_again_by_who_remembers() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (quota("a", 100), quota("b", 100));
    bucket.reserve(&mut a, (1, 30), at(0));
    bucket.reserve(&mut b, (1, 50), at(0));
    let mut bucket = Bucket::default();

    b.observe(None, true, at(10));
    assert_eq!(
        bucket.reserve(&mut b, (2, 21), at(20)),
        USED,
        "a's 30 are remembered"
    );
    assert_eq!(bucket.reserve(&mut b, (3, 20), at(20)), Take::Granted);
    assert_eq!(bucket.total(), 100);
}

#[test]
fn a_limit_that_is_lowered_holds_for_what_is_in_hand() {
    let mut bucket = Bucket::default();
    let mut a = quota("a", 1_000);
    bucket.reserve(&mut a, (1, 40), at(0));
    bucket.reserve(&mut a, (2, 40), at(0));
    assert!(a.available() >= 40);

    a.limit_to(90);
    assert_eq!(a.available(), 10);
    assert_eq!(bucket.reserve(&mut a, (3, 11), at(10)), USED);
    a.limit_to(50);
    assert_eq!(a.available(), 0);
    assert_eq!(a.standing(), Standing::left(50, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn nodes_never_take_more_than_the_limit_and_count_what_was_charged(
        limit in 1..2_000_u64,
        acts in prop::collection::vec((0..3_usize, 0..4_u8, 1..200_u64, 0..2_000_u64), 1..120),
    ) {
        let mut bucket = Bucket::default();
        let mut nodes = [quota("a", limit), quota("b", limit), quota("c", limit)];
        let mut open: Vec<(usize, u64)> = Vec::new();
        let (mut now_ms, mut charged, mut sequence) = (0, 0, 0);
        for (node, act, amount, wait_ms) in acts {
            now_ms += wait_ms;
            sequence += 1;
            match act {
                0 | 1 => {
                    if bucket.reserve(&mut nodes[node], (sequence, amount), at(now_ms)) == Take::Granted {
                        open.push((node, amount));
                    }
                }
                2 if !open.is_empty() => {
                    let (node, reserved) = open.remove(0);
                    let charge = amount.min(nodes[node].payable(reserved));
                    charged += charge;
                    settle(&mut nodes[node], (reserved, charge), sequence);
                }
                _ => bucket.serve(&mut nodes[node], at(now_ms)),
            }
            let reserved: u64 = nodes.iter().map(Quota::reserved).sum();
            prop_assert!(bucket.total() <= u128::from(limit));
            prop_assert!(charged + reserved <= limit);
        }
        for (node, reserved) in open {
            sequence += 1;
            charged += reserved;
            settle(&mut nodes[node], (reserved, reserved), sequence);
        }
        for round in 1..6 {
            for node in &mut nodes {
                node.observe(bucket.found(), false, at(now_ms + round * 70_000));
                bucket.serve(node, at(now_ms + round * 70_000));
            }
        }
        prop_assert_eq!(bucket.total(), u128::from(charged));
        prop_assert_eq!(bucket.record.as_ref().map_or(0, Record::spent), u128::from(charged));
        if charged < limit {
            let rest = (sequence + 1, limit - charged);
            let take = bucket.reserve(&mut nodes[0], rest, at(now_ms + 500_000));
            prop_assert_eq!(take, Take::Granted, "what is left can be had");
        }
    }
}
