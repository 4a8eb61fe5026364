//! Room: what a full spool refuses, and how it gets room again.

use super::*;

fn small(dir: &Path) -> Options {
    Options {
        bytes_max: 128 << 10,
        ..options(dir)
    }
}

fn files(dir: &Path) -> usize {
    crate::segment::files::list(dir, ".spool").expect("list").len()
}

#[test]
fn a_full_spool_refuses_new_requests_and_never_running_ones() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(small(dir.path()));
    let mut held = Vec::new();
    while let Ok(reservation) = spool.reserve() {
        held.push(reservation);
    }
    assert_eq!(held.len(), 16);
    assert_eq!(spool.reserve(), Err(Full));
    let gauges = spool.gauges();
    assert_eq!(
        (gauges.reserved_bytes, gauges.reservations_open, gauges.bytes_max),
        (128 << 10, 16, 128 << 10)
    );

    for reservation in held {
        serve(&spool);
        spool.give_back(reservation);
    }

    let gauges = spool.gauges();
    assert_eq!(
        (gauges.reserved_bytes, gauges.reservations_open, gauges.appended),
        (0, 0, 16)
    );
    assert!(gauges.bytes > 0);
    assert!(spool.reserve().is_ok());
}

#[test]
fn a_spool_that_nobody_trims_fills_up_and_is_empty_after_the_mark() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(small(dir.path()));
    let mut served = 0;
    while let Ok(reservation) = spool.reserve() {
        serve(&spool);
        spool.give_back(reservation);
        served += 1;
    }
    assert!(served > 40, "{served}");

    spool.trim(served);

    assert!(spool.reserve().is_ok());
    assert!(spool.gauges().bytes <= 32 << 10);
    assert_eq!((spool.marked(), spool.gauges().oldest_seconds), (served, 0));
    assert!(everything(&spool).iter().all(|(sequence, _)| *sequence <= served));
}

#[test]
fn trimming_drops_only_what_is_marked() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(small(dir.path()));
    for _ in 0..60 {
        serve(&spool);
    }
    let before = files(dir.path());

    spool.trim(30);

    assert!(files(dir.path()) < before);
    assert!(sequences(&spool).contains(&60));
    assert!(
        spool
            .read(31, 1)
            .expect("read")
            .first()
            .is_some_and(|(sequence, _)| *sequence == 31)
    );
    assert!(sequences(&spool).contains(&60));
    assert!(
        spool.gauges().oldest_seconds > 0,
        "the events are of a time long ago"
    );
}

#[test]
fn a_running_request_keeps_its_file_while_there_is_room() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(Options {
        bytes_max: 512 << 10,
        ..options(dir.path())
    });
    let running = accepted(&spool);
    spool.intend(&running).expect("intend");
    for _ in 0..40 {
        serve(&spool);
    }
    let before = files(dir.path());
    assert!(before > 1);

    spool.trim(40);
    assert_eq!(files(dir.path()), before);

    spool.settle(now(), &settled(&running)).expect("settle");
    spool.trim(40);
    assert!(files(dir.path()) < before);
}

#[test]
fn a_request_that_runs_for_long_does_not_fill_the_spool() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(small(dir.path()));
    let running = accepted(&spool);
    spool.intend(&running).expect("intend");
    for served in 1..=1_000 {
        let reservation = spool.reserve().expect("room");
        serve(&spool);
        spool.give_back(reservation);
        spool.trim(served);
    }
    drop(spool);

    let (spool, recovered) = open_with(small(dir.path()));

    assert_eq!(
        recovered.orphans,
        [Orphan {
            accepted: running.clone()
        }]
    );
    spool.settle(now(), &settled(&running)).expect("settle");
    assert_eq!(spool.appended(), 1_001);
    drop(spool);
    assert_eq!(open_with(small(dir.path())).1.orphans, []);
}

#[test]
fn a_mark_beyond_the_spool_is_not_believed() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    serve(&spool);

    spool.trim(100);

    assert_eq!((spool.marked(), spool.appended()), (0, 1));
    serve(&spool);
    assert_eq!(spool.appended(), 2);
}
