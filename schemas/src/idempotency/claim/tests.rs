//! Every answer that a claim can get, at every stage.

use proptest::prelude::*;

use super::super::answer::Body;
use super::super::hold::Standing;
use super::super::tests::{digest, done, found, record_done, request, running};
use super::*;
use chrono::NaiveDate;

use crate::event::request::{Attempt, Payer, RequestAccepted, RequestLost, Surface};
use crate::id::{BackendId, EndpointId, KeyId, ModelName, NodeId, TenantId};
use crate::idempotency::LEASE_MS;
use crate::idempotency::release;
use crate::limit::Reservation;
use crate::money::PriceVersion;
use crate::time::Timestamp;

/// The request that claims, for the body 1.
fn start(now_ms: u64) -> (Claim, Step) {
    Claim::start(running(1, 1), Terms::default(), now_ms)
}

/// A claim whose creation met with something.
fn beaten() -> Claim {
    let (mut claim, _) = start(1_000);
    assert!(matches!(claim.wrote(Written::Conflict, 1_010), Step::Read));
    claim
}

/// The lock that a step writes, and what it expects to replace.
fn lock(step: &Step) -> Option<u64> {
    let Step::Write(write) = step else {
        panic!("a write: {step:?}");
    };
    assert_eq!(write.record, Record::Running(running(1, 1)));
    assert_eq!(write.life_ms, 86_400_000);
    write.expected
}

fn refused(step: &Step) -> (Refusal, bool) {
    match step {
        Step::Refuse(refusal, release) => (*refusal, release.is_some()),
        other => panic!("a refusal: {other:?}"),
    }
}

fn runs(step: Step) -> Hold {
    match step {
        Step::Run(hold) => *hold,
        other => panic!("a hold: {other:?}"),
    }
}

#[test]
fn who_creates_the_record_runs() {
    let (mut claim, first) = start(1_000);

    assert_eq!(lock(&first), None);
    let hold = runs(claim.wrote(Written::At(7), 1_010));
    assert_eq!(hold.running(), &running(1, 1));
    assert_eq!(hold.sending(1_010), Standing::Held);
}

#[test]
fn a_freed_key_is_claimed_over_its_mark_whatever_its_body_was() {
    let mut claim = beaten();

    let step = claim.read(found(Record::Freed(request(9)), 4, 0), 1_020);

    assert_eq!(lock(&step), Some(4));
    runs(claim.wrote(Written::At(5), 1_030));
}

#[test]
fn a_record_that_went_meanwhile_is_created_again() {
    let mut claim = beaten();

    let step = claim.read(Read::Nothing, 1_020);

    assert_eq!(lock(&step), None);
}

#[test]
fn a_lock_within_its_lease_is_in_progress() {
    for seen_ms in [100_000, 100_001 - LEASE_MS] {
        let mut claim = beaten();

        let step = claim.read(found(Record::Running(running(2, 1)), 4, seen_ms), 100_000);

        assert_eq!(refused(&step), (Refusal::InProgress, false));
    }
}

#[test]
fn a_lock_of_an_earlier_run_on_ones_own_spool_is_asked_about_at_once() {
    let mine = running(1, 1);
    for (held, is_asked) in [
        // An earlier run of the same node.
        (
            Running {
                spool: mine.spool.clone(),
                ..running(2, 1)
            },
            true,
        ),
        // Another request of this run.
        (
            Running {
                spool: mine.spool.clone(),
                boot: mine.boot.clone(),
                ..running(2, 1)
            },
            false,
        ),
        // A node whose boots are called the same.
        (
            Running {
                boot: mine.boot.clone(),
                ..running(2, 1)
            },
            false,
        ),
    ] {
        let mut claim = beaten();

        let step = claim.read(found(Record::Running(held.clone()), 4, 100_000), 100_000);

        assert_eq!(matches!(step, Step::Ask(_)), is_asked, "{held:?}");
    }
}

#[test]
fn another_body_is_a_mismatch_in_every_state() {
    for record in [
        Record::Running(running(2, 9)),
        record_done(done(2, 9, Body::Kept(b"x".to_vec()))),
        record_done(done(2, 9, Body::Gone)),
    ] {
        let mut claim = beaten();

        let step = claim.read(found(record, 4, 890_000), 900_000);

        assert_eq!(refused(&step), (Refusal::Mismatch, false));
    }
}

#[test]
fn an_answer_that_was_kept_is_replayed_as_it_is() {
    let mut claim = beaten();
    let first = done(2, 1, Body::Kept(b"{\"a\":1}".to_vec()));

    let step = claim.read(found(record_done(first.clone()), 4, 0), 1_020);

    let Step::Replay(replayed) = step else {
        panic!("a replay: {step:?}");
    };
    assert_eq!(*replayed, first);
}

#[test]
fn an_answer_that_was_not_kept_is_told_as_such() {
    for body in [Body::TooLarge { bytes: 300_000 }, Body::Gone] {
        let mut claim = beaten();

        let step = claim.read(found(record_done(done(2, 1, body)), 4, 0), 1_020);

        assert_eq!(refused(&step), (Refusal::NotReplayable, false));
    }
}

#[test]
fn what_cannot_be_read_is_nobodys_to_take() {
    let unreadable = Read::Found {
        record: None,
        revision: 4,
        seen_ms: 0,
    };
    for read in [unreadable, Read::Failed] {
        let mut claim = beaten();

        let step = claim.read(read, 900_000);

        assert_eq!(refused(&step), (Refusal::StoreUnavailable, false));
    }
}

#[test]
fn the_bus_away_before_anything_was_written_leaves_a_doubt() {
    let (mut claim, _) = start(1_000);

    assert!(matches!(claim.wrote(Written::Unknown, 9_000), Step::Read));
    let step = claim.read(Read::Failed, 9_010);

    assert_eq!(refused(&step), (Refusal::StoreUnavailable, true));
}

#[test]
fn a_claim_whose_answer_was_lost_is_found_and_counts_from_when_it_was_sent() {
    let (mut claim, _) = start(1_000);
    claim.wrote(Written::Unknown, 9_000);

    let hold = runs(claim.read(found(Record::Running(running(1, 1)), 4, 9_010), 9_010));

    assert_eq!(hold.sending(1_000 + 53_999), Standing::Held);
    assert_eq!(hold.sending(1_000 + 54_000), Standing::Uncertain);
}

#[test]
fn a_claim_that_was_found_too_late_is_confirmed_first() {
    let (mut claim, _) = start(1_000);
    claim.wrote(Written::Unknown, 55_000);

    let step = claim.read(found(Record::Running(running(1, 1)), 4, 55_000), 55_000);

    assert_eq!(lock(&step), Some(4));
    let hold = runs(claim.wrote(Written::At(5), 55_010));
    assert_eq!(hold.sending(100_000), Standing::Held);
}

#[test]
fn an_answer_that_comes_after_the_lease_is_not_relied_on() {
    let (mut claim, _) = start(1_000);

    let step = claim.wrote(Written::At(4), 1_000 + 54_000);

    assert_eq!(lock(&step), Some(4));
}

#[test]
fn a_claim_that_was_not_done_is_sent_again() {
    let (mut claim, _) = start(1_000);
    claim.wrote(Written::Unknown, 9_000);

    let step = claim.read(Read::Nothing, 9_010);

    assert_eq!(lock(&step), None);
    // The first one was done in the meantime.
    assert!(matches!(claim.wrote(Written::Conflict, 9_020), Step::Read));
    runs(claim.read(found(Record::Running(running(1, 1)), 4, 9_030), 9_030));
}

#[test]
fn whoever_is_refused_in_doubt_leaves_something_to_clear() {
    let (mut claim, _) = start(1_000);
    claim.wrote(Written::Unknown, 9_000);

    let step = claim.read(found(Record::Running(running(2, 1)), 4, 9_010), 9_010);

    assert_eq!(refused(&step), (Refusal::InProgress, true));
}

#[test]
fn a_caller_who_cannot_wait_is_refused_and_his_write_cleared() {
    let (mut claim, _) = start(1_000);

    let Step::Refuse(Refusal::StoreUnavailable, Some(mut release)) = claim.give_up() else {
        panic!("refused, with something to clear");
    };

    assert_eq!(release.tick(), release::Step::Read);
    let mine = found(Record::Running(running(1, 1)), 4, 0);
    let release::Step::Write(write) = release.read(mine, 2_000) else {
        panic!("freed");
    };
    assert_eq!(
        (write.record, write.expected),
        (Record::Freed(request(1)), Some(4))
    );
}

#[test]
fn a_caller_who_cannot_wait_for_a_read_leaves_nothing() {
    let mut claim = beaten();

    assert_eq!(refused(&claim.give_up()), (Refusal::StoreUnavailable, false));
}

#[test]
fn a_claim_for_which_there_is_no_room_is_refused() {
    let (mut claim, _) = start(1_000);

    let step = claim.wrote(Written::Refused, 1_010);

    assert_eq!(refused(&step), (Refusal::StoreUnavailable, false));
}

/// A claim that found the lock of request 2 past its lease, and asks how that ended.
fn asking() -> Claim {
    asking_for(1)
}

/// The same, where that request had this body.
fn asking_for(body: u8) -> Claim {
    let mut claim = beaten();
    let now_ms = 900_000;
    let lock = found(Record::Running(running(2, body)), 4, now_ms - LEASE_MS);
    match claim.read(lock, now_ms) {
        Step::Ask(held) => assert_eq!(held, running(2, body)),
        other => panic!("a question: {other:?}"),
    }
    claim
}

#[test]
fn a_lost_request_with_another_body_stands_in_nobodys_way() {
    let open = asking_for(9).told(End::Open, 900_010);
    assert_eq!(refused(&open), (Refusal::Mismatch, false));

    let void = asking_for(9).told(End::Void, 900_010);
    assert_eq!(lock(&void), Some(4));

    let mut settled = asking_for(9);
    assert!(matches!(
        settled.told(End::Settled { status: 200 }, 900_010),
        Step::Write(_)
    ));
    let closed = settled.wrote(Written::At(5), 900_020);
    assert_eq!(refused(&closed), (Refusal::Mismatch, false));
}

#[test]
fn a_lease_that_ran_out_allows_a_question_and_nothing_else() {
    let mut claim = asking();

    let step = claim.told(End::Open, 900_010);

    assert_eq!(refused(&step), (Refusal::InProgress, false));
}

#[test]
fn a_request_that_was_lost_is_taken_over_by_one() {
    let mut claim = asking();

    let step = claim.told(End::Void, 900_010);

    assert_eq!(lock(&step), Some(4));
    runs(claim.wrote(Written::At(5), 900_020));

    let mut loser = asking();
    loser.told(End::Void, 900_010);
    assert!(matches!(loser.wrote(Written::Conflict, 900_020), Step::Read));
    let winner = found(Record::Running(running(3, 1)), 5, 900_030);
    assert_eq!(
        refused(&loser.read(winner, 900_030)),
        (Refusal::InProgress, false)
    );
}

#[test]
fn a_request_that_settled_closes_its_key_although_its_answer_is_lost() {
    let mut claim = asking();

    let step = claim.told(End::Settled { status: 200 }, 900_010);

    let Step::Write(write) = step else {
        panic!("a write: {step:?}");
    };
    let mut closed = done(2, 1, Body::Gone);
    closed.answer = Answer::gone(200);
    closed.envelope = Vec::new();
    assert_eq!(write.record, record_done(closed));
    assert_eq!((write.expected, write.life_ms), (Some(4), 600_000));
    assert_eq!(
        refused(&claim.wrote(Written::At(5), 900_020)),
        (Refusal::NotReplayable, false)
    );
}

#[test]
fn a_key_that_somebody_else_ended_meanwhile_gives_what_is_there() {
    for written in [Written::Conflict, Written::Unknown] {
        let mut claim = asking();
        claim.told(End::Settled { status: 200 }, 900_010);

        assert!(matches!(claim.wrote(written, 900_020), Step::Read));
        let kept = record_done(done(2, 1, Body::Kept(b"late".to_vec())));
        let step = claim.read(found(kept, 5, 900_030), 900_030);

        assert!(matches!(step, Step::Replay(_)), "{step:?}");
    }
}

#[test]
fn a_key_that_changes_hands_all_the_time_is_given_up() {
    let mut claim = beaten();
    let mut writes = 1;
    let step = loop {
        match claim.read(Read::Nothing, 2_000) {
            Step::Write(_) => writes += 1,
            other => break other,
        }
        claim.wrote(Written::Conflict, 2_010);
    };

    assert_eq!(writes, WRITES_MAX);
    assert_eq!(refused(&step), (Refusal::StoreUnavailable, false));
}

/// A waybill of so many attempts, each with its status and outcome.
fn waybill(outcome: Outcome, attempts: &[(Option<u16>, Outcome)]) -> RequestSettled {
    let accepted = RequestAccepted {
        request_id: request(2),
        payer: Payer {
            tenant: TenantId::from("acme"),
            user: None,
            key_id: KeyId::from("k"),
            key_name: "k".into(),
            job_id: None,
        },
        surface: Surface::Chat,
        model: ModelName::from("m"),
        reservation: Reservation::default(),
        price_version: PriceVersion("1".into()),
        started_at: Timestamp::default(),
        node: NodeId::from("n"),
    };
    let day = NaiveDate::from_ymd_opt(2026, 11, 30).expect("a day");
    let lost = RequestLost {
        accepted,
        declared_at: Timestamp::default(),
        waybill_day: day,
        billing_day: day,
        billing_month: day,
    };
    let attempt = |(status, outcome): &(Option<u16>, Outcome)| Attempt {
        endpoint_id: EndpointId::from("e"),
        backend: BackendId::from("e"),
        provider: "p".into(),
        status: *status,
        outcome: *outcome,
        error_code: None,
        started_at: Timestamp::default(),
        first_byte_ms: None,
        latency_ms: 1,
    };
    RequestSettled {
        outcome,
        status: 502,
        attempts: attempts.iter().map(attempt).collect(),
        ..lost.into_row()
    }
}

#[test]
fn the_waybill_says_whether_a_key_is_free() {
    let answered = [(Some(200), Outcome::Ok)];
    let refused = [(Some(503), Outcome::UpstreamError)];
    let settled = End::Settled { status: 502 };

    for (outcome, attempts, end) in [
        (Outcome::Lost, &[][..], End::Void),
        (Outcome::Rejected, &[], End::Void),
        (Outcome::ClientGone, &[], End::Void),
        (Outcome::UpstreamError, &refused, End::Void),
        (Outcome::Ok, &answered, settled),
        (Outcome::ClientGone, &answered, settled),
        (Outcome::Timeout, &[(None, Outcome::Timeout)], settled),
        (Outcome::UpstreamCut, &answered, settled),
    ] {
        assert_eq!(End::of(&waybill(outcome, attempts)), end, "{outcome:?}");
    }
}

#[derive(Debug, Clone)]
enum Word {
    Pass(u64),
    Wrote(Written),
    Read(Read),
    Told(End),
    GiveUp,
}

fn word() -> impl Strategy<Value = Word> {
    let record = prop_oneof![
        2 => Just(Record::Running(running(1, 1))),
        2 => Just(Record::Running(running(2, 1))),
        1 => Just(Record::Running(running(2, 9))),
        2 => Just(Record::Freed(request(3))),
        1 => Just(record_done(done(2, 1, Body::Kept(b"x".to_vec())))),
        1 => Just(record_done(done(2, 9, Body::Gone))),
    ];
    let read = prop_oneof![
        1 => Just(Read::Nothing),
        1 => Just(Read::Failed),
        6 => (record, 1..30_u64, 0..200_000_u64).prop_map(|(record, revision, seen)| found(record, revision, seen)),
    ];
    let written = prop_oneof![
        1 => (1..30_u64).prop_map(Written::At),
        2 => Just(Written::Conflict),
        1 => Just(Written::Refused),
        2 => Just(Written::Unknown),
    ];
    let end = prop_oneof![
        Just(End::Open),
        Just(End::Void),
        Just(End::Settled { status: 200 })
    ];
    prop_oneof![
        2 => (1..40_000_u64).prop_map(Word::Pass),
        6 => written.prop_map(Word::Wrote),
        6 => read.prop_map(Word::Read),
        4 => end.prop_map(Word::Told),
        1 => Just(Word::GiveUp),
    ]
}

/// What a claim is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Write { sent_ms: u64, lock: bool },
    Read,
    Told,
}

proptest! {
    #[test]
    fn whatever_comes_a_claim_runs_only_with_its_lock_in_place(words in prop::collection::vec(word(), 1..80)) {
        let mut now_ms = 1_000;
        let (mut claim, first) = start(now_ms);
        prop_assert_eq!(lock(&first), None);
        let mut awaited = Awaited::Write { sent_ms: now_ms, lock: true };
        let mut doubts = 0;
        for word in words {
            let (step, its_own) = match (&word, awaited) {
                (Word::Pass(ms), _) => {
                    now_ms += ms;
                    continue;
                }
                (Word::Wrote(written), Awaited::Write { sent_ms, lock }) => {
                    doubts += usize::from(lock && *written == Written::Unknown);
                    let fresh = now_ms < sent_ms + 54_000;
                    (claim.wrote(*written, now_ms), lock && fresh && matches!(written, Written::At(_)))
                }
                (Word::Read(read), Awaited::Read) => {
                    let mine = matches!(read, Read::Found { record: Some(record), .. } if record.request_id() == request(1));
                    // It is there only if one of the doubtful writes was done.
                    if mine && doubts == 0 {
                        continue;
                    }
                    (claim.read(read.clone(), now_ms), mine)
                }
                (Word::Told(end), Awaited::Told) => (claim.told(*end, now_ms), false),
                (Word::GiveUp, _) => {
                    doubts += usize::from(matches!(awaited, Awaited::Write { lock: true, .. }));
                    (claim.give_up(), false)
                }
                _ => continue,
            };
            awaited = match step {
                Step::Write(write) => Awaited::Write {
                    sent_ms: now_ms,
                    lock: matches!(write.record, Record::Running(_)),
                },
                Step::Read => Awaited::Read,
                Step::Ask(held) => {
                    prop_assert_ne!(held.request_id, request(1));
                    Awaited::Told
                }
                Step::Run(hold) => {
                    prop_assert!(its_own, "by {word:?}");
                    prop_assert_eq!(hold.sending(now_ms), Standing::Held);
                    break;
                }
                Step::Replay(done) => {
                    prop_assert!(done.digest == digest(1) && done.answer.is_replayable());
                    break;
                }
                Step::Refuse(_, release) => {
                    prop_assert_eq!(release.is_some(), doubts > 0);
                    break;
                }
            };
        }
    }
}
