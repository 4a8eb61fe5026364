//! Whatever a claim may have left, nothing of it is there in the end, nor can be.

use super::super::answer::Body;
use super::super::tests::{done, found, record_done, request, running};
use super::*;

fn release(doubts: &[Option<u64>]) -> Release {
    let release = Release::new(request(1), Terms::default(), doubts.to_vec(), 5);
    assert_eq!(release.tick(), Step::Read);
    release
}

fn written(step: Step) -> (Record, Option<u64>, u64) {
    match step {
        Step::Write(write) => (write.record, write.expected, write.life_ms),
        other => panic!("a write: {other:?}"),
    }
}

#[test]
fn a_lock_of_a_request_that_does_not_run_is_freed() {
    let mut release = release(&[None]);

    let step = release.read(found(Record::Running(running(1, 1)), 4, 0), 10);

    assert_eq!(written(step), (Record::Freed(request(1)), Some(4), 60_000));
    assert_eq!(release.wrote(Written::At(5), 20), Step::Rest { until_ms: 60_005 });
    assert_eq!(release.tick(), Step::Read);
    assert_eq!(release.read(Read::Nothing, 60_005), Step::Ended);
    assert_eq!(release.tick(), Step::Ended);
}

#[test]
fn a_creation_that_may_still_come_finds_a_mark() {
    let mut release = release(&[None]);

    let step = release.read(Read::Nothing, 10);

    assert_eq!(written(step), (Record::Freed(request(1)), None, 60_000));
}

#[test]
fn a_creation_that_came_before_the_mark_is_freed_then() {
    let mut release = release(&[None]);
    release.read(Read::Nothing, 10);

    assert_eq!(release.wrote(Written::Conflict, 20), Step::Read);
    let step = release.read(found(Record::Running(running(1, 1)), 4, 0), 30);

    assert_eq!(written(step).1, Some(4));
}

#[test]
fn a_claim_over_a_mark_is_kept_out_by_a_new_mark() {
    let mut release = release(&[Some(4)]);

    let step = release.read(found(Record::Freed(request(9)), 4, 0), 10);

    assert_eq!(written(step), (Record::Freed(request(1)), Some(4), 60_000));
}

#[test]
fn a_take_over_is_kept_out_by_a_new_revision_of_the_same_lock() {
    let mut release = release(&[Some(4)]);
    let other = Record::Running(running(2, 1));

    let step = release.read(found(other.clone(), 4, 0), 10);

    assert_eq!(written(step), (other, Some(4), 86_400_000));
}

#[test]
fn where_no_doubtful_write_can_be_done_nothing_is_left() {
    for (doubts, read) in [
        (&[Some(4)][..], Read::Nothing),
        (&[Some(4)], found(Record::Running(running(2, 1)), 5, 0)),
        (&[Some(3), Some(4)], found(Record::Freed(request(9)), 5, 0)),
    ] {
        let mut release = release(doubts);

        assert_eq!(release.read(read.clone(), 10), Step::Ended, "{read:?}");
    }
}

#[test]
fn what_keeps_a_late_creation_out_may_go_before_it_comes() {
    for record in [
        Record::Running(running(2, 1)),
        record_done(done(2, 1, Body::Gone)),
        Record::Freed(request(9)),
    ] {
        let mut release = release(&[None]);
        let read = found(record, 4, 0);

        assert_eq!(release.read(read.clone(), 10), Step::Rest { until_ms: 60_005 });
        assert_eq!(release.tick(), Step::Read);
        let mut freed = release.clone();
        assert_eq!(release.read(read, 60_005), Step::Ended);
        let late = freed.read(found(Record::Running(running(1, 1)), 6, 0), 60_005);
        assert_eq!(written(late), (Record::Freed(request(1)), Some(6), 60_000));
        assert_eq!(freed.wrote(Written::At(7), 60_010), Step::Ended);
    }
}

#[test]
fn while_the_bus_is_away_it_is_tried_again() {
    let mut release = release(&[None]);

    assert_eq!(release.read(Read::Failed, 10), Step::Rest { until_ms: 1_010 });
    assert_eq!(release.tick(), Step::Read);
    assert!(matches!(release.read(Read::Nothing, 1_020), Step::Write(_)));
    assert_eq!(
        release.wrote(Written::Unknown, 2_000),
        Step::Rest { until_ms: 3_000 }
    );
    assert_eq!(release.tick(), Step::Read);
    assert_eq!(
        release.read(found(Record::Freed(request(1)), 4, 0), 3_010),
        Step::Rest { until_ms: 60_005 }
    );
}

#[test]
fn a_reader_who_is_behind_is_not_believed_as_long_as_it_matters() {
    let mut release = release(&[Some(8)]);
    let before = found(Record::Running(running(2, 1)), 7, 0);

    assert_eq!(release.read(before.clone(), 10), Step::Rest { until_ms: 1_010 });
    let mine = found(Record::Running(running(1, 1)), 9, 0);
    assert_eq!(written(release.read(mine, 1_020)).1, Some(9));
    assert_eq!(release.read(before, 60_005), Step::Ended);
}
