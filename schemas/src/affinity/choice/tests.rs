//! Margins, verdicts and what is written afterwards.

use proptest::prelude::*;

use super::super::hint::Facts;
use super::super::opening::{Opening, Speaker, Text};
use super::super::session::{Names, Scope, names};
use super::*;
use crate::digest::Digest;
use crate::id::TenantId;

const MINUTE: i64 = 60_000_000;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_micros(1_795_000_000_000_000 + minutes * MINUTE)
}

fn backend(name: &str) -> BackendId {
    BackendId::from(name)
}

fn record(name: &str, written: i64) -> Record {
    Record {
        created_at: at(0),
        ..Record::new(EndpointId::from("e"), backend(name), at(written))
    }
}

/// What is decided about a session on the first of backends with these loads.
fn decide(loads: &[u64]) -> Verdict {
    let backends: Vec<BackendId> = (0..loads.len())
        .map(|place| backend(&format!("e#{place}")))
        .collect();
    let candidates: Vec<Candidate<'_>> = backends
        .iter()
        .zip(loads)
        .map(|(backend, load)| Candidate {
            backend,
            load: *load,
            backlog_tokens: 0,
        })
        .collect();
    choose(
        Some((Level::L2, &backend("e#0"))),
        &candidates,
        &Margins::default(),
    )
}

const HIT: Verdict = Verdict::Hit {
    level: Level::L2,
    candidate: 0,
};
const OVERLOAD: Verdict = Verdict::Overload {
    level: Level::L2,
    candidate: 0,
};

#[test]
fn a_session_is_moved_only_by_both_margins() {
    for (loads, verdict) in [
        (&[3, 0][..], HIT),
        (&[4, 0], OVERLOAD),
        (&[40, 30], HIT),
        (&[44, 30], HIT),
        (&[45, 30], OVERLOAD),
        (&[11, 8], HIT),
        (&[12, 8], OVERLOAD),
        (&[11, 7], OVERLOAD),
        (&[10, 7], HIT),
        (&[0, 9], HIT),
        (&[9, 20, 5], OVERLOAD),
        (&[9, 20, 6], HIT),
        (&[1_000], HIT),
    ] {
        assert_eq!(decide(loads), verdict, "{loads:?}");
    }
}

#[test]
fn margins_are_exact_at_any_size() {
    let margins = Margins::default();

    assert!(margins.exceeds(u64::MAX, u64::MAX / 3 * 2));
    assert!(!margins.exceeds(u64::MAX - 1, u64::MAX / 3 * 2));
    assert!(!margins.exceeds(u64::MAX, u64::MAX));
    assert!(!margins.exceeds(0, u64::MAX));
}

#[test]
fn without_margins_a_session_is_moved_for_any_difference() {
    let none = Margins {
        absolute: 0,
        relative_permille: 0,
        ..Margins::default()
    };

    assert!(none.exceeds(1, 0));
    assert!(!none.exceeds(0, 0));
    assert!(!none.exceeds(5, 5));
}

proptest! {
    #[test]
    fn a_session_is_moved_exactly_where_the_margins_say_so(
        sticky in 0..200_u64,
        others in prop::collection::vec(0..200_u64, 1..6),
        absolute in 1..9_u64,
        percent in 100..400_u64,
    ) {
        let margins = Margins { absolute, relative_permille: percent * 10, ..Margins::default() };
        let names: Vec<BackendId> = (0..=others.len()).map(|place| backend(&place.to_string())).collect();
        let loads = [&[sticky][..], &others].concat();
        let candidates: Vec<_> = names.iter().zip(&loads).map(|(backend, load)| Candidate { backend, load: *load, backlog_tokens: 0 }).collect();
        let least = loads.iter().min().copied().unwrap_or_default();
        let expected = sticky >= least + absolute && sticky * 100 >= least * percent;

        let verdict = choose(Some((Level::Header, &backend("0"))), &candidates, &margins);

        prop_assert_eq!(verdict.outcome(), if expected { "overload" } else { "hit" });
    }
}

#[test]
fn a_backend_with_too_long_a_prompt_queue_is_left_whatever_its_load() {
    let (one, other) = (backend("e#0"), backend("e#1"));
    let of = |backlog_tokens, backlog_tokens_max, alone: bool| {
        let sticky = Candidate {
            backend: &one,
            load: 0,
            backlog_tokens,
        };
        let idle = Candidate {
            backend: &other,
            load: 9,
            backlog_tokens: 0,
        };
        let margins = Margins {
            backlog_tokens_max,
            ..Margins::default()
        };
        let candidates = [sticky, idle];
        let candidates = if alone { &candidates[..1] } else { &candidates[..] };
        choose(Some((Level::L2, &backend("e#0"))), candidates, &margins)
    };

    assert_eq!(of(150_000, 150_000, false), HIT);
    assert_eq!(of(150_001, 150_000, false), OVERLOAD);
    assert_eq!(of(150_001, 0, false), HIT);
    assert_eq!(of(150_001, 150_000, true), HIT, "there is no other");
}

#[test]
fn a_session_whose_backend_cannot_be_used_is_stale() {
    let other = backend("e#1");
    let candidates = [Candidate {
        backend: &other,
        load: 0,
        backlog_tokens: 0,
    }];
    let margins = Margins::default();

    let gone = backend("e#0");
    let stale = Verdict::Stale { level: Level::L1 };
    assert_eq!(choose(Some((Level::L1, &gone)), &candidates, &margins), stale);
    assert_eq!(choose(Some((Level::L1, &gone)), &[], &margins), stale);
    assert_eq!(choose(None, &candidates, &margins), Verdict::Miss);
}

#[test]
fn verdicts_have_the_words_that_headers_and_metrics_have() {
    let candidate = 0;
    for (verdict, header, outcome, level) in [
        (HIT, "hit:l2", "hit", "l2"),
        (
            Verdict::Overload {
                level: Level::Header,
                candidate,
            },
            "overload:header",
            "overload",
            "header",
        ),
        (Verdict::Stale { level: Level::L1 }, "stale:l1", "stale", "l1"),
        (
            Verdict::Hit {
                level: Level::CacheKey,
                candidate,
            },
            "hit:cache_key",
            "hit",
            "cache_key",
        ),
        (Verdict::Miss, "miss", "miss", "none"),
    ] {
        assert_eq!(verdict.to_string(), header);
        assert_eq!((verdict.outcome(), verdict.level()), (outcome, level));
    }
}

/// The names of a session with a header, a user and a beginning.
fn session() -> Vec<Name> {
    let policy = policy();
    let tenant = TenantId::from("acme");
    let scope = Scope {
        tenant: &tenant,
        group: "g",
    };
    let mut said = Text::default();
    said.add("hi");
    let mut opening = Opening::default();
    opening.message(Speaker::User, said);
    let facts = Facts {
        user: Some("u"),
        opening,
        ..Facts::default()
    };
    let told = Names {
        session: Some("s"),
        hint: None,
        facts: &facts,
        caller: "k",
    };
    let all = names(scope, &told, &policy, |_| Digest([1; 32]));
    assert_eq!(
        all.iter().map(|name| name.level).collect::<Vec<_>>(),
        [Level::Header, Level::User, Level::L1]
    );
    all
}

fn policy() -> Policy {
    Policy {
        sessions: true,
        caller: true,
        ..Policy::default()
    }
}

/// What is written when a call that was found under a name goes to a backend, at 20 minutes.
fn changes(found: Option<(usize, &Record)>, by: &str) -> Vec<Written> {
    let place = (&EndpointId::from("e"), &backend(by));
    let found = found.map(|(name, record)| Found { name, record });
    placed(&session(), found, place, &policy(), at(20))
}

fn write(name: usize, record: Record) -> Written {
    Written { name, record }
}

#[test]
fn a_new_session_is_written_under_its_plainest_name() {
    let new = Record::new(EndpointId::from("e"), backend("e#1"), at(20));

    assert_eq!(changes(None, "e#1"), [write(0, new)]);
}

#[test]
fn a_session_that_stays_is_written_only_when_it_is_due() {
    assert_eq!(changes(Some((0, &record("e#1", 16))), "e#1"), []);
    assert_eq!(
        changes(Some((0, &record("e#1", 15))), "e#1"),
        [write(0, record("e#1", 20))]
    );
}

#[test]
fn a_session_found_by_a_vaguer_name_gets_its_plainest_and_its_age_goes_with_it() {
    assert_eq!(
        changes(Some((1, &record("e#1", 16))), "e#1"),
        [write(0, record("e#1", 20))]
    );
    assert_eq!(
        changes(Some((1, &record("e#1", 3))), "e#1"),
        [write(0, record("e#1", 20)), write(1, record("e#1", 20))]
    );
}

#[test]
fn a_session_that_moved_begins_anew_where_it_is() {
    let moved = Record::new(EndpointId::from("e"), backend("e#2"), at(20));

    assert_eq!(
        changes(Some((0, &record("e#1", 19))), "e#2"),
        [write(0, moved.clone())]
    );
    assert_eq!(
        changes(Some((2, &record("e#1", 19))), "e#2"),
        [write(0, moved.clone()), write(2, moved)]
    );
}

#[test]
fn a_session_whose_backend_failed_is_forgotten_under_every_name_that_leads_there() {
    let (there, elsewhere) = (record("e#1", 19), record("e#2", 19));
    let known = [(0, &there), (2, &elsewhere), (3, &there)];

    assert_eq!(forgotten(known, &[backend("e#9"), backend("e#1")]), vec![0, 3]);
    assert!(forgotten(known, &[backend("e#9")]).is_empty());
    assert!(forgotten([], &[backend("e#1")]).is_empty());
}

#[test]
fn a_call_without_a_name_writes_nothing() {
    let place = (&EndpointId::from("e"), &backend("e#1"));

    assert_eq!(placed(&[], None, place, &policy(), at(20)), []);
}
