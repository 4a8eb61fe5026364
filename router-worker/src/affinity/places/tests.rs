//! What counts of a session: what was decided here, or what others wrote.

use schemas::id::{BackendId, EndpointId};
use schemas::time::Timestamp;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

const LIFE_MS: u64 = 1_800_000;

fn record(backend: &str) -> Record {
    Record::new(
        EndpointId::from("e"),
        BackendId::from(backend),
        Timestamp::default(),
    )
}

fn at(places: &Places, key: &str) -> Option<String> {
    match places.known(key) {
        Known::At(record) => Some(record.backend.to_string()),
        Known::Nowhere | Known::Nothing => None,
    }
}

fn put(backend: &str) -> Write {
    Write::Put {
        record: record(backend),
        life_ms: LIFE_MS,
    }
}

#[test]
fn what_was_decided_here_counts_until_it_is_written_and_the_newest_revision_from_then_on() {
    let mut places = Places::default();
    places.learn("s", 5, Some(record("a")));
    assert_eq!(at(&places, "s").as_deref(), Some("a"));

    assert!(places.put("s", record("b"), LIFE_MS));
    places.learn("s", 6, Some(record("c")));
    assert_eq!(at(&places, "s").as_deref(), Some("b"));
    assert_eq!(places.begin("s"), Some(put("b")));
    places.learn("s", 7, Some(record("b")));
    assert!(!places.wrote("s", Some(7)));
    assert_eq!(at(&places, "s").as_deref(), Some("b"));

    places.learn("s", 7, Some(record("old")));
    places.learn("s", 3, Some(record("older")));
    assert_eq!(at(&places, "s").as_deref(), Some("b"));
    places.learn("s", 8, Some(record("d")));
    assert_eq!(at(&places, "s").as_deref(), Some("d"));
    places.learn("s", 9, None);
    assert_eq!(places.known("s"), Known::Nothing);
}

#[test]
fn one_write_at_a_time_runs_for_a_session_and_what_changed_meanwhile_follows() {
    let mut places = Places::default();
    assert!(places.put("s", record("a"), LIFE_MS));
    assert!(!places.put("s", record("b"), LIFE_MS), "it is queued already");
    assert_eq!(places.begin("s"), Some(put("b")));
    assert!(!places.put("s", record("c"), LIFE_MS), "it is being written");

    assert!(places.wrote("s", Some(1)), "there is something newer");
    assert_eq!(places.begin("s"), Some(put("c")));
    assert!(!places.wrote("s", Some(2)));

    assert!(places.put("s", record("d"), LIFE_MS));
}

#[test]
fn a_session_that_was_forgotten_is_nowhere_until_that_is_written_and_then_unknown() {
    let mut places = Places::default();
    places.learn("s", 4, Some(record("a")));

    assert!(places.forget("s"));
    assert_eq!(places.known("s"), Known::Nowhere);
    assert_eq!(places.begin("s"), Some(Write::Delete { revision: 4 }));
    places.learn("s", 5, None);
    assert!(!places.wrote("s", Some(5)));
    assert_eq!(places.known("s"), Known::Nothing);
    assert!(!places.forget("s"), "nothing is known of it");
    assert_eq!(places.begin("s"), None);
}

#[test]
fn a_session_that_moves_while_it_is_being_forgotten_stays_known() {
    let mut places = Places::default();
    places.learn("s", 4, Some(record("a")));
    places.forget("s");
    places.begin("s");

    assert!(!places.put("s", record("b"), LIFE_MS));
    assert!(places.wrote("s", Some(5)));

    assert_eq!(at(&places, "s").as_deref(), Some("b"));
    assert_eq!(places.begin("s"), Some(put("b")));
}

#[test]
fn what_could_not_be_written_is_known_here_and_written_when_its_session_is_touched_again() {
    let mut places = Places::default();
    places.put("s", record("a"), LIFE_MS);
    places.begin("s");
    assert!(!places.wrote("s", None));
    assert_eq!(at(&places, "s").as_deref(), Some("a"));

    assert!(places.is_left_out("s"));
    assert!(!places.is_left_out("s"), "it is queued now");
    assert_eq!(places.begin("s"), Some(put("a")));
    places.wrote("s", Some(1));
    assert!(!places.is_left_out("s"));

    places.put("s", record("b"), LIFE_MS);
    places.leave_out("s");
    assert!(places.is_left_out("s"), "there was no room to write it");
    assert!(!places.is_left_out("unknown"));
}

#[test]
fn whoever_waits_for_a_write_is_let_go_when_it_is_done_or_given_up() {
    let mut places = Places::default();
    assert!(places.wait("s").is_none(), "nothing is known of it");

    for outcome in [Some(1), None] {
        places.put("s", record("a"), LIFE_MS);
        let mut queued = places.wait("s").expect("it is queued");
        places.begin("s");
        let mut writing = places.wait("s").expect("it is being written");
        places.put("s", record("b"), LIFE_MS);
        assert!(places.wrote("s", outcome), "there is something newer");
        assert_eq!(writing.try_recv(), Err(TryRecvError::Empty));

        places.begin("s");
        places.wrote("s", outcome);
        assert_eq!(queued.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(writing.try_recv(), Err(TryRecvError::Closed));
        assert!(places.wait("s").is_none());
    }
    places.put("s", record("a"), LIFE_MS);
    let mut left_out = places.wait("s").expect("it is queued");
    places.leave_out("s");
    assert_eq!(left_out.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn a_bucket_that_was_made_anew_counts_from_one_again() {
    let mut places = Places::default();
    places.learn("s", 900, Some(record("a")));

    places.begin_anew();
    places.learn("s", 1, Some(record("b")));

    assert_eq!(at(&places, "s").as_deref(), Some("b"));
}

#[test]
fn those_that_were_touched_longest_ago_go_when_there_are_too_many() {
    let mut places = Places::default();
    for number in 0..PLACES_MAX {
        places.learn(&number.to_string(), 1, Some(record("a")));
    }
    places.put("0", record("b"), LIFE_MS);

    places.learn("one more", 1, Some(record("a")));

    assert_eq!(places.entries.len(), PLACES_MAX);
    assert_eq!(at(&places, "0").as_deref(), Some("b"));
    assert_eq!(places.known("1"), Known::Nothing);
    assert!(at(&places, "2").is_some());
}

#[test]
fn a_session_that_is_touched_all_the_time_takes_no_more_room() {
    let mut places = Places::default();
    places.learn("other", 1, Some(record("a")));

    for _ in 0..2 * PLACES_MAX + 10 {
        places.put("s", record("b"), LIFE_MS);
    }

    assert!(places.order.len() <= 2 * PLACES_MAX);
    assert_eq!(at(&places, "s").as_deref(), Some("b"));
}
