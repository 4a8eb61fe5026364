//! Slots of one node and of several before one record.

use super::*;
use crate::limit::shared::Write;
use crate::time::Timestamp;

fn at(mono_ms: u64) -> Now {
    of(mono_ms, 2)
}

fn of(mono_ms: u64, nodes: u64) -> Now {
    Now {
        wall: Timestamp::default(),
        mono_ms,
        nodes,
    }
}

fn slots(boot: &str, limit: u64) -> Slots {
    Slots::new(boot.into(), limit, Planted::default())
}

/// The record of one limit.
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

    /// Answers everything that a node asks now.
    fn serve(&mut self, slots: &mut Slots, now: Now) {
        for _ in 0..10 {
            match slots.next(now) {
                Some(Step::Read) => slots.observe(self.found(), false, now),
                Some(Step::Write(write)) => {
                    let outcome = self.write(write);
                    slots.wrote(outcome, now);
                }
                None => return,
            }
        }
    }

    /// Takes a slot, asking as often as it needs.
    fn take(&mut self, slots: &mut Slots, wish: u64, now: Now) -> Take {
        for _ in 0..5 {
            let take = slots.take(wish, now);
            if take != Take::Waiting {
                return take;
            }
            self.serve(slots, now);
        }
        Take::Waiting
    }

    fn held(&self, boot: &str) -> u64 {
        self.record.as_ref().map_or(0, |record| record.holder(boot).count)
    }
}

const FULL: Take = Take::Refused(Shortage::Used);

#[test]
fn what_nodes_have_in_hand_is_not_handed_out_beyond_a_lower_limit() {
    let mut bucket = Bucket::default();
    let mut nodes = [slots("a", 16), slots("b", 16)];
    for (node, slots) in nodes.iter_mut().enumerate() {
        assert_eq!(bucket.take(slots, node as u64, at(1_000)), Take::Granted);
        slots.give_back(at(1_010));
    }
    for slots in &mut nodes {
        slots.observe(bucket.found(), false, at(1_100));
    }
    assert!(bucket.held("a") > 1 && bucket.held("b") > 1, "their shares");

    let mut in_use = 0;
    for round in 0..30 {
        let now = at(1_200 + 100 * round);
        for slots in &mut nodes {
            slots.limit_to(1);
            slots.observe(bucket.found(), false, now);
            in_use += u64::from(bucket.take(slots, 10 + round, now) == Take::Granted);
            assert!(in_use <= 1, "{in_use} of 1 in round {round}");
            bucket.serve(slots, now);
        }
    }
    assert_eq!(in_use, 1, "what is left of it is had");
}

#[test]
fn small_limits_are_taken_one_by_one_and_never_exceeded() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 3), slots("b", 3));

    assert_eq!(bucket.take(&mut a, 1, at(0)), Take::Granted);
    assert_eq!(bucket.take(&mut b, 1, at(0)), Take::Granted);
    assert_eq!(bucket.take(&mut a, 2, at(0)), Take::Granted);
    assert_eq!(bucket.take(&mut b, 2, at(0)), FULL);
    assert_eq!((bucket.held("a"), bucket.held("b")), (2, 1));
    assert_eq!(b.standing(at(0)), Standing::left(3, 0));
}

#[test]
fn a_slot_that_is_used_again_at_once_costs_no_message() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 2);
    bucket.take(&mut a, 1, at(0));

    for round in 0..20_u64 {
        a.give_back(at(round * 50));
        bucket.serve(&mut a, at(round * 50 + 10));
        assert_eq!(a.take(round + 2, at(round * 50 + 20)), Take::Granted);
    }
    assert_eq!(bucket.writes, 1);
    a.give_back(at(1_000));
    bucket.serve(&mut a, at(1_059));
    assert_eq!(bucket.held("a"), 1);
    bucket.serve(&mut a, at(1_060));
    assert_eq!(bucket.held("a"), 0, "idle for 60 ms");
    assert!(a.is_idle());
}

#[test]
fn of_a_large_limit_a_share_is_kept_in_hand() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 80);

    assert_eq!(bucket.take(&mut a, 1, at(0)), Take::Granted);

    assert_eq!(
        bucket.held("a"),
        11,
        "one in use, and 80 over four times two nodes"
    );
    for wish in 2..=11 {
        assert_eq!(a.take(wish, at(1)), Take::Granted, "without asking");
    }
    assert_eq!(a.take(12, at(1)), Take::Waiting);
    assert_eq!(bucket.take(&mut a, 12, at(1)), Take::Granted);
    assert_eq!(bucket.held("a"), 22);
}

#[test]
fn a_refused_wish_writes_no_more_than_a_want_each_second() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 2), slots("b", 2));
    bucket.take(&mut a, 1, at(0));
    bucket.take(&mut a, 2, at(0));
    let before = bucket.writes;

    for wish in 0..1_000 {
        assert_eq!(bucket.take(&mut b, wish, at(wish)), FULL);
    }

    assert!(bucket.writes - before <= 2, "{} writes", bucket.writes - before);
    assert!(
        bucket
            .record
            .as_ref()
            .is_some_and(|record| record.holder("b").wants)
    );
}

#[test]
fn who_has_more_than_his_part_gives_one_back_at_his_next_release() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 4), slots("b", 4));
    for wish in 1..=4 {
        assert_eq!(bucket.take(&mut a, wish, at(0)), Take::Granted);
    }
    assert_eq!(bucket.take(&mut b, 1, at(10)), FULL);
    bucket.serve(&mut b, at(10));

    a.observe(bucket.found(), false, at(20));
    a.give_back(at(20));
    bucket.serve(&mut a, at(20));
    assert_eq!(bucket.held("a"), 3, "at once, not after 60 ms");
    assert_eq!(bucket.take(&mut a, 5, at(30)), FULL, "b comes first");
    assert_eq!(bucket.take(&mut b, 2, at(200)), Take::Granted);
    assert_eq!((bucket.held("a"), bucket.held("b")), (3, 1));
}

#[test]
fn a_want_ends_with_the_wish_for_it() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 1), slots("b", 1));
    bucket.take(&mut a, 1, at(0));
    assert_eq!(bucket.take(&mut b, 1, at(10)), FULL);
    bucket.serve(&mut b, at(10));
    assert!(
        bucket
            .record
            .as_ref()
            .is_some_and(|record| record.holder("b").wants)
    );

    bucket.serve(&mut b, at(1_100));

    assert!(
        bucket
            .record
            .as_ref()
            .is_some_and(|record| !record.holders.contains_key("b"))
    );
}

#[test]
fn a_lease_is_renewed_each_third_and_not_used_after_nine_tenths() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 2);
    bucket.take(&mut a, 1, at(1_000));
    let first = bucket.writes;

    bucket.serve(&mut a, at(5_999));
    assert_eq!(bucket.writes, first);
    bucket.serve(&mut a, at(6_000));
    assert_eq!(bucket.writes, first + 1);
    assert_eq!(a.usable(at(19_499)), 1);
    assert_eq!(a.usable(at(19_500)), 0, "13.5 s after it was sent");
    assert_eq!(a.in_use(), 1, "the request goes on");
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 1);
    bucket.take(&mut a, 1, at(0));
    let Some(Step::Write(write)) = a.next(at(5_000)) else {
        panic!("no renewal");
    };
    a.wrote(Outcome::Unknown, at(7_000));

    assert_eq!(a.usable(at(13_500)), 0);
    bucket.write(write);
    a.observe(bucket.found(), false, at(14_000));
    assert_eq!(a.usable(at(18_499)), 1);
    assert_eq!(a.usable(at(18_500)), 0);
}

#[test]
fn a_slot_of_ones_own_whose_lease_ran_out_is_renewed_and_not_refused() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 1);
    bucket.take(&mut a, 1, at(0));
    a.give_back(at(13_990));

    a.observe(bucket.found(), false, at(14_000));
    assert_eq!(a.take(2, at(14_000)), Take::Waiting);
    bucket.serve(&mut a, at(14_000));
    assert_eq!(a.take(2, at(14_000)), Take::Granted);
}

#[test]
fn the_slots_of_a_silent_node_are_free_after_a_lease_on_the_observers_clock() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 1), slots("b", 1));
    bucket.take(&mut a, 1, at(500_000));
    assert_eq!(bucket.take(&mut b, 1, at(1_000)), FULL);

    assert_eq!(bucket.take(&mut b, 2, at(15_999)), FULL);
    assert_eq!(bucket.take(&mut b, 3, at(16_000)), Take::Granted);
    assert_eq!((bucket.held("a"), bucket.held("b")), (0, 1));
    assert_eq!(
        a.next(at(505_000)).map(|_| a.wrote(Outcome::Lost, at(505_000))),
        Some(())
    );
    a.observe(bucket.found(), false, at(505_001));
    assert_eq!(a.usable(at(505_001)), 0);
}

#[test]
fn what_the_dead_left_is_cleared_away_by_whoever_watches() {
    let mut bucket = Bucket::default();
    let (mut a, mut watcher) = (slots("a", 5), slots("b", 0));
    bucket.take(&mut a, 1, at(0));
    watcher.observe(bucket.found(), false, at(1_000));
    assert_eq!(watcher.next(at(15_999)), None);
    assert!(!watcher.is_idle(), "it counts the lease");

    bucket.serve(&mut watcher, at(16_000));

    assert_eq!(bucket.record, Some(Record::default()));
    assert!(watcher.is_idle());
}

#[test]
fn a_beat_that_is_new_begins_the_lease_again() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 1), slots("b", 1));
    bucket.take(&mut a, 1, at(0));
    bucket.take(&mut b, 1, at(0));
    bucket.serve(&mut a, at(5_000));

    assert_eq!(bucket.take(&mut b, 2, at(14_000)), FULL, "sees the new beat");
    assert_eq!(bucket.take(&mut b, 3, at(28_999)), FULL);
    assert_eq!(bucket.take(&mut b, 4, at(29_000)), Take::Granted);
}

#[test]
fn who_comes_back_announces_what_is_still_in_use() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 1), slots("b", 1));
    bucket.take(&mut a, 1, at(0));
    bucket.take(&mut b, 1, at(0));
    assert_eq!(bucket.take(&mut b, 2, at(15_000)), Take::Granted, "a was silent");

    a.observe(bucket.found(), false, at(20_000));
    bucket.serve(&mut a, at(20_000));

    assert_eq!(
        (bucket.held("a"), bucket.held("b")),
        (1, 1),
        "more than the limit, and said so"
    );
    assert_eq!(bucket.take(&mut a, 2, at(20_000)), FULL);
    b.give_back(at(20_100));
    bucket.serve(&mut b, at(20_200));
    assert_eq!(bucket.take(&mut b, 3, at(20_400)), FULL, "a has it");
}

#[test]
fn a_write_in_doubt_gives_nothing_and_takes_away_what_it_gave_back() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 5);
    bucket.take(&mut a, 1, at(0));
    a.take(2, at(0));
    a.next(at(0));
    a.wrote(Outcome::Unknown, at(2_000));
    assert_eq!(a.usable(at(2_000)), 1, "a raise that may have been lost");

    a.cancel(2);
    bucket.serve(&mut a, at(3_000));
    a.give_back(at(4_000));
    assert!(matches!(a.next(at(4_100)), Some(Step::Write(_))));
    a.wrote(Outcome::Unknown, at(6_000));
    assert_eq!(a.usable(at(6_000)), 0, "a return that may have been made");
}

#[test]
fn after_the_bucket_was_lost_nothing_is_taken_for_a_lease() {
    let mut bucket = Bucket::default();
    let (mut a, mut b) = (slots("a", 2), slots("b", 2));
    bucket.take(&mut a, 1, at(0));
    let mut bucket = Bucket::default();
    a.observe(None, true, at(1_000));
    b.observe(None, true, at(1_000));

    assert_eq!(bucket.take(&mut b, 1, at(2_000)), Take::Refused(Shortage::Away));
    bucket.serve(&mut a, at(2_000));
    assert_eq!(bucket.held("a"), 1, "announced");
    assert_eq!(bucket.take(&mut b, 2, at(16_000)), Take::Granted);
    assert_eq!(bucket.take(&mut b, 3, at(16_000)), FULL);
}

#[test]
fn a_limit_that_is_lowered_holds_at_once() {
    let mut bucket = Bucket::default();
    let mut a = slots("a", 80);
    bucket.take(&mut a, 1, at(0));
    a.limit_to(1);

    assert_eq!(bucket.take(&mut a, 2, at(10)), FULL);
    bucket.serve(&mut a, at(20));
    bucket.serve(&mut a, at(200));
    assert_eq!(bucket.held("a"), 1);
}

#[test]
fn under_load_every_node_gets_its_part() {
    let mut bucket = Bucket::default();
    let mut nodes: Vec<Slots> = ["a", "b", "c", "d"].map(|boot| slots(boot, 8)).into();
    let mut running: Vec<Vec<u64>> = vec![Vec::new(); 4];
    let mut admitted = [0_u32; 4];
    let mut wish = 0;
    for ms in 0..20_000_u64 {
        for node in 0..4 {
            let now = of(ms, 4);
            let slots = &mut nodes[node];
            if ms % 50 == node as u64 * 7 {
                slots.observe(bucket.found(), false, now);
            }
            running[node].retain(|until| {
                *until > ms || {
                    slots.give_back(now);
                    false
                }
            });
            // The first one always comes first.
            if ms % 5 == 0 && running[node].len() < 8 {
                wish += 1;
                if bucket.take(slots, wish, now) == Take::Granted {
                    running[node].push(ms + 100);
                    admitted[node] += 1;
                } else {
                    slots.cancel(wish);
                }
            }
            bucket.serve(slots, now);
            let in_use: usize = running.iter().map(Vec::len).sum();
            assert!(in_use <= 8, "{in_use} in use");
        }
    }
    let all: u32 = admitted.iter().sum();
    assert!(all > 1_200, "1,600 were possible, {admitted:?}");
    assert!(admitted.iter().all(|count| *count > all / 8), "{admitted:?}");
}
