//! Who may call now, who waits, and what moves the limit.

use std::time::Duration;

use futures_util::FutureExt as _;

use crate::testing::endpoint;

use super::*;

const SETTINGS: Concurrency = Concurrency {
    initial: 2,
    max: 4,
    raise_after: 3,
    wait: Duration::from_secs(30),
    local: false,
};

fn limiter() -> Limiter {
    Limiter::new(Some(SETTINGS), Metrics::default())
}

fn door(limiter: &Limiter, name: &str, secret: &str) -> Door {
    let reference = CredentialRef(name.to_owned());
    let secret = Secret::new(secret.to_owned());
    limiter.door(
        &endpoint("e", &["https://api.example.com"]),
        "https://api.example.com",
        Some((&reference, &secret)),
    )
}

fn enter(limiter: &Limiter) -> Option<Slot> {
    door(limiter, "e#0", "s").enter()
}

fn queue(limiter: &Limiter) -> Waiter {
    door(limiter, "e#0", "s").queue().expect("a place")
}

/// The slot, if it is the waiter's turn now.
fn called(waiter: &mut Waiter) -> Option<Slot> {
    std::future::poll_fn(|context| waiter.poll(context)).now_or_never()
}

/// Slots that can be had at once.
fn room(limiter: &Limiter) -> usize {
    std::iter::from_fn(|| enter(limiter)).collect::<Vec<_>>().len()
}

#[test]
fn no_more_calls_run_than_the_limit_and_a_slot_comes_back_when_it_is_dropped() {
    let limiter = limiter();
    let (first, second) = (enter(&limiter), enter(&limiter));

    assert!(first.is_some() && second.is_some());
    assert!(enter(&limiter).is_none());
    drop(first);
    assert!(enter(&limiter).is_some());
}

#[test]
fn who_waits_is_called_in_order_and_is_not_passed_by() {
    let limiter = limiter();
    let (first, second) = (enter(&limiter), enter(&limiter));
    let (mut early, mut late) = (queue(&limiter), queue(&limiter));
    assert!(called(&mut early).is_none());

    drop(first);

    assert!(enter(&limiter).is_none(), "the room is for those who wait");
    assert!(called(&mut late).is_none());
    let early = called(&mut early).expect("his turn");
    drop(second);
    drop(early);
    assert!(called(&mut late).is_some());
    assert_eq!(room(&limiter), 2);
}

#[test]
fn who_leaves_the_queue_takes_nothing_with_him() {
    let limiter = limiter();
    let running = [enter(&limiter), enter(&limiter)];
    let (unheard, left, mut stays) = (queue(&limiter), queue(&limiter), queue(&limiter));

    drop(unheard);
    drop(running);

    // Both were called; one leaves before he hears of it.
    drop(left);
    assert!(called(&mut stays).is_some());
    assert_eq!(room(&limiter), 2);
}

#[test]
fn a_429_lowers_the_limit_and_a_row_of_successes_raises_it() {
    let limiter = limiter();
    let slot = enter(&limiter).expect("room");
    slot.answered(Some(429));
    drop(slot);
    assert_eq!(room(&limiter), 1);

    for (status, after) in [
        (429, 1),
        (200, 1),
        (200, 1),
        (429, 1),
        (200, 1),
        (200, 1),
        (200, 2),
    ] {
        enter(&limiter).expect("room").answered(Some(status));
        assert_eq!(room(&limiter), after, "{status}");
    }
    for _ in 0..20 {
        enter(&limiter).expect("room").answered(Some(200));
    }
    assert_eq!(room(&limiter), 4, "the most");
}

#[test]
fn other_answers_and_none_say_nothing() {
    let limiter = limiter();
    for status in [None, Some(500), Some(503), Some(401), Some(400)] {
        enter(&limiter).expect("room").answered(status);
    }

    assert_eq!(room(&limiter), 2);
}

#[test]
fn a_limit_that_was_lowered_lets_nobody_in_until_the_calls_are_fewer() {
    let limiter = limiter();
    let (first, second) = (enter(&limiter).expect("room"), enter(&limiter));
    let mut waiter = queue(&limiter);

    first.answered(Some(429));
    drop(first);
    assert!(called(&mut waiter).is_none(), "one runs, and one may");

    drop(second);
    assert!(called(&mut waiter).is_some());
}

#[test]
fn a_limit_that_was_raised_lets_in_who_waits() {
    let limiter = limiter();
    let (first, _second) = (enter(&limiter).expect("room"), enter(&limiter));
    let mut waiter = queue(&limiter);

    for _ in 0..3 {
        first.answered(Some(200));
    }

    assert!(called(&mut waiter).is_some());
}

#[test]
fn one_secret_of_a_provider_is_one_limit_by_whatever_name() {
    let limiter = limiter();
    let _running = [
        door(&limiter, "e#0", "s").enter().expect("room"),
        door(&limiter, "f#3", "s").enter().expect("room"),
    ];

    assert!(door(&limiter, "g#1", "s").enter().is_none());
    assert!(door(&limiter, "e#1", "t").enter().is_some());
}

#[test]
fn engines_of_ones_own_and_a_limiter_that_is_off_have_no_limit() {
    let own = |limiter: &Limiter| limiter.door(&endpoint("e", &[]), "http://127.0.0.1:8000", None);
    let of = |settings| Limiter::new(settings, Metrics::default());

    assert!(own(&of(Some(SETTINGS))).0.is_none());
    assert!(door(&of(None), "e#0", "s").0.is_none());
    let all = Concurrency {
        local: true,
        ..SETTINGS
    };
    assert!(own(&of(Some(all))).0.is_some());
}
