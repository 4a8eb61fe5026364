//! Renewing, ending, and everything that can come between.

use proptest::prelude::*;

use super::super::answer::{Answer, Body};
use super::super::tests::{done, found, record_done, request, running};
use super::*;

/// The lock at revision 4, sent at 1,000.
fn hold() -> Hold {
    Hold::new(running(1, 1), Terms::default(), 4, 1_000)
}

fn mine() -> Record {
    Record::Running(running(1, 1))
}

fn answer() -> Done {
    done(1, 1, Body::Kept(b"{\"a\":1}".to_vec()))
}

/// The record that a step writes, and what it expects to replace.
fn written(step: Step) -> (Record, Option<u64>, u64) {
    match step {
        Step::Write(write) => (write.record, write.expected, write.life_ms),
        other => panic!("a write: {other:?}"),
    }
}

const LIFE_MS: u64 = 86_400_000;

#[test]
fn a_lock_is_renewed_each_third_of_its_lease() {
    let mut hold = hold();

    assert_eq!(hold.tick(20_999), Step::Rest { until_ms: 21_000 });
    assert_eq!(written(hold.tick(21_000)), (mine(), Some(4), LIFE_MS));
    assert_eq!(hold.tick(99_000), Step::Rest { until_ms: u64::MAX }, "under way");
    let renewed = hold.wrote(Written::At(5), 21_500);
    assert_eq!(renewed, Step::Rest { until_ms: 41_000 });
    assert_eq!(written(hold.tick(41_000)), (mine(), Some(5), LIFE_MS));
}

#[test]
fn a_lease_counts_from_before_its_write_and_ends_at_nine_tenths() {
    let mut hold = hold();
    assert_eq!(hold.sending(54_999), Standing::Held);
    assert_eq!(hold.sending(55_000), Standing::Uncertain);

    hold.tick(30_000);
    hold.wrote(Written::At(5), 60_000);

    assert_eq!(hold.sending(83_999), Standing::Held);
    assert_eq!(hold.sending(84_000), Standing::Uncertain);
}

#[test]
fn what_came_back_is_charged_as_long_as_the_lock_is_certain_to_lie_there() {
    let hold = hold();

    assert_eq!(hold.charging(1_000 + LIFE_MS / 10 * 9 - 1), Standing::Held);
    assert_eq!(hold.charging(1_000 + LIFE_MS / 10 * 9), Standing::Uncertain);
}

#[test]
fn an_answer_takes_the_place_of_its_lock() {
    let mut hold = hold();

    let step = hold.finish(answer(), 5_000);

    assert_eq!(written(step), (record_done(answer()), Some(4), 600_000));
    assert_eq!(hold.wrote(Written::At(5), 5_010), Step::Ended);
    assert_eq!(hold.tick(90_000), Step::Ended);
}

#[test]
fn a_freed_key_leaves_a_mark_for_a_while() {
    let mut hold = hold();

    let step = hold.free(5_000);

    assert_eq!(written(step), (Record::Freed(request(1)), Some(4), 60_000));
    assert_eq!(hold.wrote(Written::At(5), 5_010), Step::Ended);
}

#[test]
fn an_end_waits_for_the_renewal_that_is_under_way() {
    let mut hold = hold();
    hold.tick(21_000);

    assert_eq!(hold.finish(answer(), 21_100), Step::Rest { until_ms: u64::MAX });
    let step = hold.wrote(Written::At(5), 21_200);

    assert_eq!(written(step), (record_done(answer()), Some(5), 600_000));
}

#[test]
fn the_first_end_counts() {
    let mut hold = hold();
    hold.tick(21_000);
    hold.finish(answer(), 21_100);
    hold.free(21_150);

    let step = hold.wrote(Written::At(5), 21_200);

    assert_eq!(written(step).0, record_done(answer()));
}

#[test]
fn a_renewal_without_an_answer_is_read_back_and_adopted() {
    let mut hold = hold();
    hold.tick(21_000);

    assert_eq!(hold.wrote(Written::Unknown, 23_000), Step::Read);
    let step = hold.read(found(mine(), 5, 0), 23_010);

    // It is not known when what lies there was sent, so it is written again, after a while.
    assert_eq!(step, Step::Rest { until_ms: 24_000 });
    assert_eq!(written(hold.tick(24_000)), (mine(), Some(5), LIFE_MS));
}

#[test]
fn a_renewal_that_was_done_later_makes_the_next_write_look_again() {
    let mut hold = hold();

    hold.finish(answer(), 5_000);
    assert_eq!(hold.wrote(Written::Conflict, 5_010), Step::Read);
    let step = hold.read(found(mine(), 5, 0), 5_020);

    assert_eq!(written(step), (record_done(answer()), Some(5), 600_000));
}

#[test]
fn an_end_without_an_answer_is_read_back() {
    let mut ended = hold();
    ended.finish(answer(), 5_000);
    assert_eq!(ended.wrote(Written::Unknown, 6_000), Step::Read);
    assert_eq!(ended.read(found(record_done(answer()), 5, 0), 6_010), Step::Ended);

    let mut freed = hold();
    freed.free(5_000);
    assert_eq!(freed.wrote(Written::Unknown, 6_000), Step::Read);
    assert_eq!(
        freed.read(found(Record::Freed(request(1)), 5, 0), 6_010),
        Step::Ended
    );

    let mut again = hold();
    again.finish(answer(), 5_000);
    again.wrote(Written::Unknown, 6_000);
    assert_eq!(
        again.read(found(mine(), 4, 0), 6_010),
        Step::Rest { until_ms: 7_000 }
    );
    let step = again.tick(7_000);
    assert_eq!(written(step), (record_done(answer()), Some(4), 600_000));
}

#[test]
fn while_the_bus_is_away_the_end_is_tried_again_and_again() {
    let mut hold = hold();
    hold.finish(answer(), 5_000);
    hold.wrote(Written::Unknown, 6_000);

    assert_eq!(hold.read(Read::Failed, 6_500), Step::Rest { until_ms: 7_500 });
    assert_eq!(hold.tick(7_000), Step::Rest { until_ms: 7_500 });
    assert_eq!(
        written(hold.tick(7_500)),
        (record_done(answer()), Some(4), 600_000)
    );
}

#[test]
fn a_lock_that_fell_out_of_its_bucket_is_put_back() {
    let mut running = hold();
    running.tick(21_000);
    running.wrote(Written::Conflict, 21_010);
    assert_eq!(
        written(running.read(Read::Nothing, 21_020)),
        (mine(), None, LIFE_MS)
    );
    assert_eq!(
        running.wrote(Written::At(9), 21_030),
        Step::Rest { until_ms: 41_020 }
    );

    let mut ending = hold();
    ending.finish(answer(), 21_000);
    ending.wrote(Written::Conflict, 21_010);
    let step = ending.read(Read::Nothing, 21_020);
    assert_eq!(written(step), (record_done(answer()), None, 600_000));
}

#[test]
fn a_key_that_is_somebody_elses_is_lost_for_good() {
    for other in [
        Record::Running(running(2, 1)),
        Record::Freed(request(2)),
        record_done(done(2, 1, Body::Gone)),
    ] {
        let mut hold = hold();
        hold.tick(21_000);
        hold.wrote(Written::Conflict, 21_010);

        assert_eq!(hold.read(found(other, 9, 0), 21_020), Step::Lost);

        assert_eq!(hold.sending(21_030), Standing::Lost);
        assert_eq!(hold.charging(21_030), Standing::Lost);
        assert_eq!(hold.tick(90_000), Step::Lost);
        assert_eq!(hold.finish(answer(), 90_000), Step::Lost);
    }
}

#[test]
fn an_end_that_somebody_wrote_for_a_request_that_still_runs_ends_it() {
    let mut hold = hold();
    hold.tick(21_000);
    hold.wrote(Written::Conflict, 21_010);

    assert_eq!(
        hold.read(found(record_done(done(1, 1, Body::Gone)), 9, 0), 21_020),
        Step::Lost
    );
}

#[test]
fn an_answer_replaces_the_note_that_it_was_lost() {
    let mut hold = hold();
    hold.finish(answer(), 5_000);
    hold.wrote(Written::Conflict, 5_010);
    let mut closed = answer();
    closed.answer = Answer::gone(200);

    let step = hold.read(found(record_done(closed.clone()), 9, 0), 5_020);

    assert_eq!(written(step), (record_done(answer()), Some(9), 600_000));

    let mut nothing_better = hold_with(closed.clone());
    assert_eq!(
        nothing_better.read(found(record_done(closed), 9, 0), 5_020),
        Step::Ended
    );
}

/// A hold whose end met with a conflict.
fn hold_with(goal: Done) -> Hold {
    let mut hold = hold();
    hold.finish(goal, 5_000);
    hold.wrote(Written::Conflict, 5_010);
    hold
}

#[test]
fn what_cannot_be_read_is_looked_at_again() {
    let mut hold = hold_with(answer());
    let unreadable = Read::Found {
        record: None,
        revision: 9,
        seen_ms: 0,
    };

    assert_eq!(hold.read(unreadable, 5_020), Step::Rest { until_ms: 6_020 });
}

#[test]
fn a_lock_can_be_renewed_before_it_is_due() {
    let mut hold = hold();

    assert_eq!(written(hold.renew(2_000)), (mine(), Some(4), LIFE_MS));
    assert_eq!(hold.renew(2_010), Step::Rest { until_ms: u64::MAX });
}

#[test]
fn what_lay_there_before_the_lock_does_not_take_it_away() {
    let mut hold = hold_with(answer());
    let before = found(Record::Running(running(2, 1)), 3, 0);
    let own = found(mine(), 2, 0);

    for reads in 0..u64::from(STALE_READS_MAX) {
        let now_ms = 10_000 + 2_000 * reads;
        let until_ms = now_ms + 1_000;
        let read = if reads % 2 == 0 { &before } else { &own };
        assert_eq!(hold.read(read.clone(), now_ms), Step::Rest { until_ms });
        assert_eq!(written(hold.tick(until_ms)).1, Some(4));
        assert_eq!(hold.wrote(Written::Conflict, until_ms), Step::Read);
    }

    // A bucket that was made anew counts from the beginning.
    assert_eq!(hold.read(before, 60_000), Step::Lost);
}

#[test]
fn an_answer_for_which_there_is_no_room_is_left_out() {
    let mut hold = hold();
    hold.finish(answer(), 5_000);

    let step = hold.wrote(Written::Refused, 5_010);

    let mut without = answer();
    without.answer.body = Body::TooLarge { bytes: 7 };
    without.envelope = Vec::new();
    assert_eq!(written(step), (record_done(without.clone()), Some(4), 600_000));
    assert_eq!(
        hold.wrote(Written::Refused, 5_020),
        Step::Rest { until_ms: 6_020 }
    );
    assert_eq!(written(hold.tick(6_020)).0, record_done(without));
    assert_eq!(hold.wrote(Written::At(5), 6_030), Step::Ended);
}

#[test]
fn a_renewal_for_which_there_is_no_room_is_tried_again() {
    let mut hold = hold();
    hold.tick(21_000);

    assert_eq!(
        hold.wrote(Written::Refused, 21_010),
        Step::Rest { until_ms: 22_010 }
    );
    assert_eq!(written(hold.tick(22_010)), (mine(), Some(4), LIFE_MS));
}

#[derive(Debug, Clone)]
enum Act {
    Pass(u64),
    Tick,
    Renew,
    Finish,
    Free,
    Wrote(Written),
    Read(Read),
}

fn act() -> impl Strategy<Value = Act> {
    let record = prop_oneof![
        3 => Just(mine()),
        1 => Just(Record::Running(running(2, 1))),
        1 => Just(Record::Freed(request(1))),
        1 => Just(record_done(answer())),
        1 => Just(record_done(done(1, 1, Body::Gone))),
        1 => Just(record_done(done(2, 1, Body::Gone))),
    ];
    let read = prop_oneof![
        1 => Just(Read::Nothing),
        1 => Just(Read::Failed),
        4 => (record, 1..30_u64).prop_map(|(record, revision)| found(record, revision, 0)),
    ];
    let written = prop_oneof![
        (1..30_u64).prop_map(Written::At),
        Just(Written::Conflict),
        Just(Written::Refused),
        Just(Written::Unknown)
    ];
    prop_oneof![
        2 => (1..90_000_u64).prop_map(Act::Pass),
        2 => Just(Act::Tick),
        1 => Just(Act::Renew),
        1 => Just(Act::Finish),
        1 => Just(Act::Free),
        4 => written.prop_map(Act::Wrote),
        4 => read.prop_map(Act::Read),
    ]
}

proptest! {
    #[test]
    fn whatever_comes_a_hold_has_one_end_and_one_operation_at_a_time(acts in prop::collection::vec(act(), 1..60)) {
        let mut hold = hold();
        let mut now_ms = 1_000;
        let (mut goal, mut ended, mut confirmed_ms, mut sent_ms) = (None, None, 1_000, None);
        for act in acts {
            let step = match &act {
                Act::Pass(ms) => {
                    now_ms += ms;
                    continue;
                }
                Act::Tick => hold.tick(now_ms),
                Act::Renew => hold.renew(now_ms),
                Act::Finish => {
                    goal.get_or_insert(record_done(answer()));
                    hold.finish(answer(), now_ms)
                }
                Act::Free => {
                    goal.get_or_insert(Record::Freed(request(1)));
                    hold.free(now_ms)
                }
                Act::Wrote(written) => match sent_ms.take() {
                    Some(sent) => {
                        if matches!(written, Written::At(_)) {
                            confirmed_ms = sent;
                        }
                        hold.wrote(*written, now_ms)
                    }
                    None => continue,
                },
                Act::Read(read) if hold.flight == Flight::Reading => hold.read(read.clone(), now_ms),
                Act::Read(_) => continue,
            };
            match &step {
                Step::Write(write) => {
                    prop_assert_eq!(sent_ms.replace(now_ms), None, "one at a time");
                    let record = goal.clone().unwrap_or_else(mine);
                    let mut without = answer();
                    without.answer.body = Body::TooLarge { bytes: 7 };
                    without.envelope = Vec::new();
                    let left_out = record == record_done(answer()) && write.record == record_done(without);
                    prop_assert!(write.record == record || left_out);
                }
                Step::Ended | Step::Lost => {
                    let first = ended.get_or_insert(step.clone());
                    prop_assert_eq!(&step, first, "for good");
                    prop_assert!(step == Step::Lost || goal.is_some());
                }
                Step::Rest { until_ms } if *until_ms == u64::MAX => prop_assert!(hold.flight != Flight::None),
                Step::Rest { .. } | Step::Read => {}
            }
            let held = hold.sending(now_ms) == Standing::Held;
            prop_assert!(!held || (now_ms < confirmed_ms + 54_000 && ended != Some(Step::Lost)));
        }
    }
}
