//! Days and months of the bill: in the billing time zone, whatever its clocks do. A day ends where the date changes,
//! not after 24 hours: midnight may be skipped or come twice, and whole days have been left out.

use std::fmt;

use chrono::{Datelike as _, NaiveDate, TimeZone};

use super::limits::Span;
use crate::time::Timestamp;

/// Longer than any day, in microseconds, also beside a day that was left out.
const DAY_MICROS_MAX: i64 = 75 * 3_600 * 1_000_000;
/// Longer than any month.
const MONTH_MICROS_MAX: i64 = 35 * 24 * 3_600 * 1_000_000;

/// One period of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// This day.
    Day(NaiveDate),
    /// The month that begins on this day.
    Month(NaiveDate),
    /// All of time.
    Total,
}

impl fmt::Display for Period {
    /// As it stands in the names of records: `2026-11-30`, `2026-11`, `total`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "{:04}-{:02}-{:02}", day.year(), day.month(), day.day()),
            Self::Month(day) => write!(f, "{:04}-{:02}", day.year(), day.month()),
            Self::Total => f.write_str("total"),
        }
    }
}

/// The day and month of an instant, and when they end. One of these does for every request until the day ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calendar {
    from: Timestamp,
    day: NaiveDate,
    day_ends: Timestamp,
    month_ends: Timestamp,
}

impl Calendar {
    /// The day and month of `now` in a time zone.
    pub fn at<Z: TimeZone>(zone: &Z, now: Timestamp) -> Self {
        let day = date(zone, now);
        let month = |date: NaiveDate| (date.year(), date.month());
        Self {
            from: now,
            day,
            day_ends: change(now, DAY_MICROS_MAX, |at| date(zone, at) > day),
            month_ends: change(now, MONTH_MICROS_MAX, |at| month(date(zone, at)) > month(day)),
        }
    }

    /// Whether `now` is still known to be in this day: if not, make another.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.day_ends
    }

    /// The day.
    pub const fn day(&self) -> NaiveDate {
        self.day
    }

    /// The first day of the month.
    pub fn month(&self) -> NaiveDate {
        self.day.with_day(1).unwrap_or(self.day)
    }

    /// The period of a span.
    pub fn period(&self, span: Span) -> Period {
        match span {
            Span::Day => Period::Day(self.day),
            Span::Month => Period::Month(self.month()),
            Span::Total => Period::Total,
        }
    }

    /// When a quota of this span is whole again; `None` for what is never.
    pub const fn resets_at(&self, span: Span) -> Option<Timestamp> {
        match span {
            Span::Day => Some(self.day_ends),
            Span::Month => Some(self.month_ends),
            Span::Total => None,
        }
    }
}

/// When a day of a time zone began: that of `now`, or one of the month before it.
pub fn begun<Z: TimeZone>(zone: &Z, now: Timestamp, day: NaiveDate) -> Timestamp {
    let long_ago = now.plus_micros(-MONTH_MICROS_MAX);
    change(long_ago, MONTH_MICROS_MAX, |at| date(zone, at) >= day)
}

fn date<Z: TimeZone>(zone: &Z, at: Timestamp) -> NaiveDate {
    zone.from_utc_datetime(&at.to_utc().naive_utc()).date_naive()
}

/// The first instant after `now` at which `changed` has become true; it is not at `now`, and is after `micros_max`.
fn change(now: Timestamp, micros_max: i64, changed: impl Fn(Timestamp) -> bool) -> Timestamp {
    let (mut before, mut after) = (0, micros_max);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if changed(now.plus_micros(middle)) {
            after = middle;
        } else {
            before = middle;
        }
    }
    now.plus_micros(after)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Duration, Utc};
    use chrono_tz::Tz;
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Timestamp {
        let time: DateTime<Utc> = text.parse().expect("a time");
        Timestamp::from_micros(time.timestamp_micros())
    }

    #[test]
    fn a_day_began_when_the_one_before_it_ended() {
        let begun = |zone: Tz, now: &str, day: (i32, u32, u32)| {
            let day = NaiveDate::from_ymd_opt(day.0, day.1, day.2).expect("a day");
            super::begun(&zone, time(now), day)
        };

        let noon = "2026-03-31T12:00:00Z";
        assert_eq!(begun(Tz::UTC, noon, (2026, 3, 31)), time("2026-03-31T00:00:00Z"));
        assert_eq!(begun(Tz::UTC, noon, (2026, 3, 1)), time("2026-03-01T00:00:00Z"));
        // Clocks went forward in between.
        let berlin = Tz::Europe__Berlin;
        assert_eq!(begun(berlin, noon, (2026, 3, 1)), time("2026-02-28T23:00:00Z"));
        assert_eq!(begun(berlin, noon, (2026, 3, 31)), time("2026-03-30T22:00:00Z"));
        // There is no midnight on that day.
        let now = "2024-09-08T12:00:00Z";
        assert_eq!(
            begun(Tz::America__Santiago, now, (2024, 9, 8)),
            time("2024-09-08T04:00:00Z")
        );
    }

    fn check(zone: Tz, now: &str, day: &str, day_ends: &str, month_ends: &str) {
        let calendar = Calendar::at(&zone, time(now));
        assert_eq!(calendar.period(Span::Day).to_string(), day, "{zone} {now}");
        assert_eq!(
            calendar.resets_at(Span::Day),
            Some(time(day_ends)),
            "{zone} {now}"
        );
        assert_eq!(
            calendar.resets_at(Span::Month),
            Some(time(month_ends)),
            "{zone} {now}"
        );
    }

    #[test]
    fn days_end_at_the_midnight_of_the_billing_time_zone() {
        check(
            Tz::UTC,
            "2026-11-30T23:59:59Z",
            "2026-11-30",
            "2026-12-01T00:00:00Z",
            "2026-12-01T00:00:00Z",
        );
        check(
            Tz::UTC,
            "2026-12-01T00:00:00Z",
            "2026-12-01",
            "2026-12-02T00:00:00Z",
            "2027-01-01T00:00:00Z",
        );
        check(
            Tz::Asia__Shanghai,
            "2026-10-05T15:59:59Z",
            "2026-10-05",
            "2026-10-05T16:00:00Z",
            "2026-10-31T16:00:00Z",
        );
        check(
            Tz::Asia__Kathmandu,
            "2026-10-05T18:15:00Z",
            "2026-10-06",
            "2026-10-06T18:15:00Z",
            "2026-10-31T18:15:00Z",
        );
    }

    #[test]
    fn days_of_23_and_25_hours_end_where_the_date_changes() {
        check(
            Tz::America__New_York,
            "2026-03-08T05:00:00Z",
            "2026-03-08",
            "2026-03-09T04:00:00Z",
            "2026-04-01T04:00:00Z",
        );
        check(
            Tz::America__New_York,
            "2026-11-01T04:00:00Z",
            "2026-11-01",
            "2026-11-02T05:00:00Z",
            "2026-12-01T05:00:00Z",
        );
    }

    #[test]
    fn a_midnight_that_is_skipped_or_comes_twice_ends_one_day() {
        // Beirut goes from 00:00 to 01:00.
        check(
            Tz::Asia__Beirut,
            "2022-03-26T12:00:00Z",
            "2022-03-26",
            "2022-03-26T22:00:00Z",
            "2022-03-31T21:00:00Z",
        );
        // Havana goes from 01:00 back to 00:00: the first midnight begins the day.
        check(
            Tz::America__Havana,
            "2026-10-31T12:00:00Z",
            "2026-10-31",
            "2026-11-01T04:00:00Z",
            "2026-11-01T04:00:00Z",
        );
        // São Paulo went from 00:00 back to 23:00 of the day before.
        check(
            Tz::America__Sao_Paulo,
            "2018-02-18T01:30:00Z",
            "2018-02-17",
            "2018-02-18T03:00:00Z",
            "2018-03-01T03:00:00Z",
        );
    }

    #[test]
    fn a_day_that_was_left_out_is_no_day() {
        check(
            Tz::Pacific__Apia,
            "2011-12-30T09:00:00Z",
            "2011-12-29",
            "2011-12-30T10:00:00Z",
            "2011-12-31T10:00:00Z",
        );
    }

    #[test]
    fn periods_have_names_that_sort_and_never_meet() {
        let calendar = Calendar::at(&Tz::UTC, time("2026-02-03T04:05:06Z"));

        assert_eq!(calendar.period(Span::Day).to_string(), "2026-02-03");
        assert_eq!(calendar.period(Span::Month).to_string(), "2026-02");
        assert_eq!(calendar.period(Span::Total).to_string(), "total");
        assert_eq!(calendar.resets_at(Span::Total), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn a_calendar_holds_exactly_as_long_as_its_day(
            zone in 0..chrono_tz::TZ_VARIANTS.len(),
            seconds in 946_684_800_i64..2_000_000_000,
        ) {
            let zone = chrono_tz::TZ_VARIANTS[zone];
            let now = Timestamp::from_micros(seconds * 1_000_000);
            let calendar = Calendar::at(&zone, now);
            let local = |at: Timestamp| zone.from_utc_datetime(&at.to_utc().naive_utc()).date_naive();

            let ends = calendar.resets_at(Span::Day).expect("a day ends");
            prop_assert!(calendar.holds(now) && !calendar.holds(ends) && !calendar.holds(now.plus_micros(-1)));
            prop_assert_eq!(local(ends.plus_micros(-1)), calendar.day());
            prop_assert!(local(ends) > calendar.day());
            prop_assert!(local(ends) - calendar.day() <= Duration::days(2));
            let month_ends = calendar.resets_at(Span::Month).expect("a month ends");
            prop_assert!(month_ends >= ends);
            prop_assert_eq!(Calendar::at(&zone, month_ends.plus_micros(-1)).month(), calendar.month());
            prop_assert!(Calendar::at(&zone, month_ends).month() > calendar.month());
        }
    }
}
