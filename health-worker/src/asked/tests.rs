//! Tests of what follows from answers, and of what is written meanwhile by others.

use std::sync::Arc;

use schemas::catalog::registered::HealthCheck;
use schemas::id::{BackendId, EndpointId};

use super::*;
use crate::http::Question;
use crate::target::Check;
use crate::verdict::Terms;

const NODE: &str = "n";

fn question() -> Question {
    Question {
        url: "http://u/health".into(),
        guarded: false,
    }
}

fn target(checked: bool) -> Target {
    let check = Check {
        question: question(),
        terms: Terms::from(&HealthCheck {
            path: Arc::from("/health"),
            interval_seconds: 10,
            threshold: 2,
            start_period_seconds: 60,
        }),
        created_at: Some(Timestamp::from_micros(0)),
    };
    Target {
        endpoint_id: EndpointId::from("e"),
        backend: BackendId::from("e#0"),
        check: checked.then_some(check),
        figures: Some(question()),
        is_closed: false,
        alive: Some(question()),
    }
}

/// An hour after the endpoint was made.
fn asked(known: Option<&Known>) -> Asked {
    let now = Timestamp::from_micros(3_600_000_000);
    Asked::new(target(true), known, (0, now, true))
}

fn known(revision: u64, out: bool) -> Known {
    Known {
        revision,
        out,
        endpoint_id: EndpointId::from("e"),
    }
}

fn wanted(asked: &mut Asked, known: Option<&Known>) -> Option<(bool, Option<u64>)> {
    let now = (&NodeId::from(NODE), Timestamp::default(), 0);
    let wanted = asked.wanted(known, now)?;
    Some((wanted.record.out, wanted.expected))
}

fn probe(asked: &mut Asked, passed: bool) {
    asked.begin_probe();
    assert!(!asked.end_probe(passed, None, (0, 0)));
}

fn opening(number: u64) -> Opening {
    Opening {
        number,
        by: "boot".into(),
    }
}

#[test]
fn who_failed_too_often_is_written_once_and_told_once_that_is_sure() {
    let mut asked = asked(None);
    assert_eq!(wanted(&mut asked, None), None);
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, None), None);
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, None), Some((true, None)));
    assert_eq!(wanted(&mut asked, None), None, "it is being written");
    assert_eq!(asked.news(None), None);
    asked.wrote(Some(5));
    let out = known(5, true);
    assert_eq!(asked.news(Some(&out)), Some((true, 2)));
    assert_eq!(asked.news(Some(&out)), None);
    assert_eq!(wanted(&mut asked, Some(&out)), None);

    probe(&mut asked, true);
    assert_eq!(wanted(&mut asked, Some(&out)), Some((false, Some(5))));
    asked.wrote(Some(6));
    assert_eq!(asked.news(Some(&known(6, false))), Some((false, 0)));
}

#[test]
fn of_whom_nobody_knows_when_he_was_made_failures_count_a_while_after_he_is_first_asked() {
    let mut of_file = target(true);
    of_file.check.as_mut().expect("a check").created_at = None;
    let now = Timestamp::from_micros(3_600_000_000);
    let mut asked = Asked::new(of_file, None, (0, now, true));
    probe(&mut asked, false);
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, None), None);
    for _ in 0..2 {
        asked.begin_probe();
        asked.end_probe(false, None, (61_000, 61_000));
    }
    assert_eq!(wanted(&mut asked, None), Some((true, None)));
}

#[test]
fn a_write_that_nobody_knows_of_is_made_again_unless_it_is_seen() {
    let mut asked = asked(None);
    probe(&mut asked, false);
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, None), Some((true, None)));
    asked.wrote(None);
    assert_eq!(wanted(&mut asked, None), Some((true, None)));
    asked.wrote(None);
    // It was written after all.
    assert_eq!(wanted(&mut asked, Some(&known(7, true))), None);
    assert_eq!(asked.news(Some(&known(7, true))), Some((true, 2)));
    // A bucket that lost it has it again, and nobody is told twice.
    assert_eq!(wanted(&mut asked, None), Some((true, None)));
    asked.wrote(Some(1));
    assert_eq!(asked.news(Some(&known(1, true))), None);
}

#[test]
fn a_call_that_succeeded_is_believed_and_told_by_whoever_made_it() {
    let mut asked = asked(Some(&known(5, true)));
    assert_eq!(wanted(&mut asked, Some(&known(5, true))), None);
    assert_eq!(wanted(&mut asked, Some(&known(6, false))), None);
    assert_eq!(asked.news(Some(&known(6, false))), None);
    assert!(!asked.is_probe_due(false, 9_999) && asked.is_probe_due(false, 10_000));
    // It has to fail as often as before.
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, Some(&known(6, false))), None);
    probe(&mut asked, false);
    assert_eq!(wanted(&mut asked, Some(&known(6, false))), Some((true, Some(6))));
}

#[test]
fn who_takes_over_goes_on_from_what_is_written() {
    let mut asked = asked(Some(&known(5, true)));
    assert_eq!(asked.news(Some(&known(5, true))), None, "it was told before");
    assert!(asked.is_probe_due(false, 0));
    probe(&mut asked, true);
    assert_eq!(wanted(&mut asked, Some(&known(5, true))), Some((false, Some(5))));
    asked.wrote(Some(6));
    assert_eq!(asked.news(Some(&known(6, false))), Some((false, 0)));
}

#[test]
fn a_backend_that_appears_has_its_time_to_start() {
    let mut young = Asked::new(
        target(true),
        None,
        (0, Timestamp::from_micros(3_600_000_000), false),
    );
    for _ in 0..5 {
        probe(&mut young, false);
    }
    assert_eq!(wanted(&mut young, None), None);
}

#[test]
fn a_backend_is_asked_each_second_while_its_circuit_is_open_and_its_recovery_told() {
    let mut plain = Asked::new(target(false), None, (0, Timestamp::default(), true));
    assert!(!plain.is_probe_due(false, 0), "nobody wants to know");
    assert!(plain.is_probe_due(true, 0));
    plain.begin_probe();
    assert!(!plain.is_probe_due(true, 0));
    assert!(!plain.end_probe(false, Some(&opening(1)), (0, 10)));
    assert!(!plain.is_probe_due(true, 999) && plain.is_probe_due(true, 1_000));
    plain.begin_probe();
    assert!(plain.end_probe(true, Some(&opening(1)), (1_000, 1_010)));
    plain.begin_probe();
    assert!(!plain.end_probe(true, Some(&opening(1)), (2_000, 2_010)), "once");
    plain.begin_probe();
    assert!(
        !plain.end_probe(true, None, (3_000, 3_010)),
        "it is closed by now"
    );
    assert_eq!(wanted(&mut plain, None), None);
    assert_eq!(plain.news(Some(&known(1, true))), None);
}

#[test]
fn engines_are_asked_each_five_seconds_and_others_each_minute() {
    let mut asked = asked(None);
    assert_eq!(asked.figures_due(0), Some(0));
    asked.begin_figures();
    assert_eq!(asked.figures_due(100_000), None);
    asked.end_figures(Figures::Told, (0, 100));
    assert_eq!(
        (asked.figures_due(4_999), asked.figures_due(5_500)),
        (None, Some(5_000))
    );
    asked.end_figures(Figures::Silent, (5_500, 7_500));
    assert_eq!(asked.figures_due(10_500), Some(10_500));
    asked.end_figures(Figures::Others, (10_500, 10_600));
    assert_eq!(
        (asked.figures_due(70_499), asked.figures_due(70_500)),
        (None, Some(70_500))
    );
}
