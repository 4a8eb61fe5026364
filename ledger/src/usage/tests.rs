//! Buckets of time zones.

use schemas::query::LogFilter;

use super::*;
use crate::fold::BUCKET_MICROS;

/// Adds one request to each 15 minutes from `from` to `to` and returns the start and requests of every bucket.
fn buckets(tz: &str, interval: Interval, from: &str, to: &str) -> Vec<(String, u64)> {
    let query = UsageQuery {
        filter: LogFilter::default(),
        group_by: Vec::new(),
        interval: Some(interval),
        tz: tz.to_owned(),
    };
    let mut tally = Tally::new(&query).expect("a time zone");
    let mut at = Timestamp::parse(from).expect("a time");
    let end = Timestamp::parse(to).expect("a time");
    while at < end {
        let sums = Sums {
            requests: 1,
            ..Sums::default()
        };
        tally.add(at, Vec::new(), sums).expect("few buckets");
        at = at.plus_micros(BUCKET_MICROS);
    }
    tally
        .finish()
        .into_iter()
        .map(|row| (row.from.expect("an interval"), row.requests))
        .collect()
}

fn bucket(from: &str, requests: u64) -> (String, u64) {
    (from.to_owned(), requests)
}

#[test]
fn days_of_a_zone_off_by_half_an_hour_begin_at_its_midnight() {
    let days = buckets(
        "Asia/Kolkata",
        Interval::Day,
        "2026-03-01T18:00:00Z",
        "2026-03-02T19:00:00Z",
    );

    assert_eq!(
        days,
        [
            bucket("2026-03-01T00:00:00+05:30", 2),
            bucket("2026-03-02T00:00:00+05:30", 96),
            bucket("2026-03-03T00:00:00+05:30", 2),
        ]
    );
    let hours = buckets(
        "Asia/Kolkata",
        Interval::Hour,
        "2026-03-01T18:15:00Z",
        "2026-03-01T19:00:00Z",
    );
    assert_eq!(
        hours,
        [
            bucket("2026-03-01T23:00:00+05:30", 1),
            bucket("2026-03-02T00:00:00+05:30", 2)
        ]
    );
}

#[test]
fn days_on_which_clocks_change_have_23_and_25_hours() {
    let days = buckets(
        "America/New_York",
        Interval::Day,
        "2026-03-08T05:00:00Z",
        "2026-03-10T04:00:00Z",
    );
    assert_eq!(
        days,
        [
            bucket("2026-03-08T00:00:00-05:00", 23 * 4),
            bucket("2026-03-09T00:00:00-04:00", 24 * 4)
        ]
    );

    let days = buckets(
        "America/New_York",
        Interval::Day,
        "2026-11-01T04:00:00Z",
        "2026-11-02T05:00:00Z",
    );
    assert_eq!(days, [bucket("2026-11-01T00:00:00-04:00", 25 * 4)]);
}

#[test]
fn the_hour_that_clocks_show_twice_stays_two_hours() {
    let hours = buckets(
        "America/New_York",
        Interval::Hour,
        "2026-11-01T05:00:00Z",
        "2026-11-01T07:00:00Z",
    );

    assert_eq!(
        hours,
        [
            bucket("2026-11-01T01:00:00-04:00", 4),
            bucket("2026-11-01T01:00:00-05:00", 4)
        ]
    );
}

#[test]
fn a_day_without_midnight_begins_when_it_begins() {
    let days = buckets(
        "Africa/Cairo",
        Interval::Day,
        "2026-04-23T22:00:00Z",
        "2026-04-24T21:00:00Z",
    );

    assert_eq!(days, [bucket("2026-04-24T01:00:00+03:00", 23 * 4)]);
}

#[test]
fn utc_is_written_with_z() {
    let hours = buckets(
        "UTC",
        Interval::Hour,
        "2026-01-01T00:45:00Z",
        "2026-01-01T01:15:00Z",
    );

    assert_eq!(
        hours,
        [
            bucket("2026-01-01T00:00:00Z", 1),
            bucket("2026-01-01T01:00:00Z", 1)
        ]
    );
}

#[test]
fn an_answer_has_a_largest_size() {
    let query = UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![GroupBy::Key],
        interval: None,
        tz: "UTC".into(),
    };
    let mut tally = Tally::new(&query).expect("a time zone");
    let mut add = |key: usize| tally.add(Timestamp::default(), vec![key.to_string()], Sums::default());

    assert!((0..USAGE_ROWS_MAX).all(|key| add(key).is_ok()));
    assert!(matches!(add(USAGE_ROWS_MAX), Err(StoreError::TooManySums { .. })));
}

#[test]
fn an_unknown_time_zone_is_refused() {
    let query = UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![],
        interval: None,
        tz: "Mars/Base".into(),
    };

    assert!(matches!(Tally::new(&query), Err(StoreError::TimeZone)));
}

/// The parts of a span: the whole 15 minutes, and the edges.
fn parts(from: Option<&str>, to: Option<&str>) -> (Option<String>, Vec<String>) {
    let time = |text: Option<&str>| {
        text.map(|text| Timestamp::parse(&format!("2026-03-01T{text}Z")).expect("a time"))
    };
    let span = Span {
        from: time(from),
        to: time(to),
    };
    let text = |span: Span| {
        let text =
            |time: Option<Timestamp>| time.map_or(String::new(), |time| time.to_string()[11..19].to_owned());
        format!("{}-{}", text(span.from), text(span.to))
    };
    let parts = span.parts();
    (parts.whole.map(text), parts.edges.into_iter().map(text).collect())
}

#[test]
fn a_span_is_whole_quarters_and_what_is_left_of_others() {
    for (from, to, whole, edges) in [
        (None, None, Some("-"), &[] as &[&str]),
        (Some("10:00:00"), Some("10:30:00"), Some("10:00:00-10:30:00"), &[]),
        (Some("10:00:01"), None, Some("10:15:00-"), &["10:00:01-10:15:00"]),
        (None, Some("10:31:00"), Some("-10:30:00"), &["10:30:00-10:31:00"]),
        (
            Some("10:01:00"),
            Some("10:31:00"),
            Some("10:15:00-10:30:00"),
            &["10:01:00-10:15:00", "10:30:00-10:31:00"],
        ),
        (
            Some("10:01:00"),
            Some("10:16:00"),
            None,
            &["10:01:00-10:15:00", "10:15:00-10:16:00"],
        ),
        (Some("10:01:00"), Some("10:15:00"), None, &["10:01:00-10:15:00"]),
        (Some("10:01:00"), Some("10:02:00"), None, &["10:01:00-10:02:00"]),
        (Some("10:00:00"), Some("10:02:00"), None, &["10:00:00-10:02:00"]),
        (Some("10:02:00"), Some("10:02:00"), None, &[]),
        (Some("10:15:00"), Some("10:15:00"), None, &[]),
        (Some("10:20:00"), Some("10:02:00"), None, &[]),
        (Some("10:02:00"), Some("10:01:00"), None, &[]),
    ] {
        let edges: Vec<String> = edges.iter().map(|edge| (*edge).to_owned()).collect();

        assert_eq!(
            parts(from, to),
            (whole.map(str::to_owned), edges),
            "{from:?} to {to:?}"
        );
    }
}
