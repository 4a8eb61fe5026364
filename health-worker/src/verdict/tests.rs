//! Tests of when a backend is left out, and when it is back.

use super::*;

fn terms(interval_seconds: u32, threshold: u32, start_period_seconds: u32) -> Terms {
    Terms::from(&HealthCheck {
        path: "/health".into(),
        interval_seconds,
        threshold,
        start_period_seconds,
    })
}

/// Asks at each moment that it is due, `works` telling how that goes; returns what changed and when.
fn run(watch: &mut Watch, terms: &Terms, until_ms: u64, works: impl Fn(u64) -> bool) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for now_ms in (0..until_ms).step_by(100) {
        if watch.is_due(now_ms) {
            watch.begin();
            assert!(!watch.is_due(now_ms));
            let change = watch.end(terms, works(now_ms), (now_ms, now_ms));
            changes.extend(change.map(|change| (now_ms, change)));
        }
    }
    changes
}

#[test]
fn a_backend_that_dies_is_out_within_two_intervals_and_back_within_two_seconds() {
    for (interval, threshold) in [(10, 3), (10, 1), (1, 3), (30, 5), (2, 4)] {
        let terms = terms(interval, threshold, 0);
        let interval_ms = u64::from(interval) * 1_000;
        // It dies right after it answered, which is the worst moment.
        let died_ms = interval_ms + 100;
        let works_again_ms = died_ms + 3 * interval_ms + 50;
        let mut watch = Watch::new(&terms, false, 0, 0);

        let works = |now_ms: u64| now_ms < died_ms || now_ms >= works_again_ms;
        let changes = run(&mut watch, &terms, works_again_ms + 3_000, works);

        let [(out_ms, Change::Out { failures }), (back_ms, Change::Back)] = changes[..] else {
            panic!("{interval} {threshold}: {changes:?}");
        };
        assert_eq!(failures, threshold);
        assert!(
            out_ms - died_ms <= 2 * interval_ms,
            "{interval} {threshold}: {out_ms}"
        );
        assert!(
            back_ms - works_again_ms <= 1_000,
            "{interval} {threshold}: {back_ms}"
        );
    }
}

#[test]
fn one_answer_among_failures_begins_the_count_anew() {
    let terms = terms(1, 3, 0);
    let mut watch = Watch::new(&terms, false, 0, 0);
    for passed in [false, false, true, false, false, true] {
        assert_eq!(watch.end(&terms, passed, (0, 0)), None);
    }
    assert!(!watch.is_out());
}

#[test]
fn failures_do_not_count_while_a_server_starts() {
    let terms = terms(1, 2, 60);
    let mut watch = Watch::new(&terms, false, 10_000, 0);
    let changes = run(&mut watch, &terms, 60_000, |_| false);
    let [(out_ms, _)] = changes[..] else {
        panic!("{changes:?}");
    };
    assert!((50_000..51_500).contains(&out_ms), "{out_ms}");

    // Once it has answered it has started.
    let mut watch = Watch::new(&terms, false, 0, 0);
    let changes = run(&mut watch, &terms, 10_000, |now_ms| now_ms == 0);
    assert_eq!(changes.len(), 1);
}

#[test]
fn who_was_left_out_before_stays_out_until_he_answers() {
    let terms = terms(10, 3, 600);
    let mut watch = Watch::new(&terms, true, 0, 0);
    assert!(watch.is_out());
    let changes = run(&mut watch, &terms, 9_000, |now_ms| now_ms >= 5_500);
    assert_eq!(changes, [(6_000, Change::Back)]);
}

#[test]
fn a_call_that_succeeded_brings_a_backend_back_as_a_probe_does() {
    let terms = terms(10, 1, 0);
    let mut watch = Watch::new(&terms, false, 0, 0);
    assert_eq!(
        watch.end(&terms, false, (0, 0)),
        Some(Change::Out { failures: 1 })
    );
    watch.healed(&terms, 500);
    assert!(!watch.is_out() && !watch.is_due(10_499) && watch.is_due(10_500));
}

#[test]
fn a_slow_probe_is_not_followed_by_two_at_once() {
    let terms = terms(1, 3, 0);
    let mut watch = Watch::new(&terms, false, 0, 0);
    watch.begin();
    watch.end(&terms, true, (0, 4_000));
    assert!(watch.is_due(4_000) && !watch.is_due(3_999));
}

#[test]
fn a_recovery_is_told_once_for_each_opening_and_ever_later_while_calls_go_on_failing() {
    let mut recovery = Recovery::default();
    let mut told = Vec::new();
    let mut opening = 1;
    for now_ms in (0..200_000).step_by(1_000) {
        if recovery.passed(opening, now_ms) {
            told.push(now_ms);
            assert!(!recovery.passed(opening, now_ms));
            opening += 1;
        }
    }
    let gaps: Vec<u64> = told.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[..6], [1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
    // A circuit that stayed closed is a new story.
    assert!(recovery.passed(opening, 500_000));
    assert!(recovery.passed(opening + 1, 501_000));
}
