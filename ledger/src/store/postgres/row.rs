//! Values of rows as PostgreSQL holds them, and the day whose partition a request is in.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, Utc};
use schemas::id::RequestId;
use schemas::time::Timestamp;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::text;
use crate::store::StoreError;
use crate::store::row::{Fields, Sink, unreadable};

/// Microseconds and days from the epoch to the database's own, 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// The database's own beginning of days.
const EPOCH_DAY: NaiveDate = day_of(2000);
/// The first day that times and days are kept of; the database's range begins a little earlier.
const FIRST_DAY: NaiveDate = day_of(-4_712);
/// The day of requests whose id has no time in it.
const NO_DAY: NaiveDate = day_of(1970);

const fn day_of(year: i32) -> NaiveDate {
    match NaiveDate::from_ymd_opt(year, 1, 1) {
        Some(day) => day,
        None => NaiveDate::MIN,
    }
}

/// The day whose partition a request is in: the one inside its id.
pub(super) fn partition_day(id: RequestId) -> NaiveDate {
    id.minted_at().map_or(NO_DAY, Timestamp::day)
}

/// The day under which requests without a day of their own are kept.
pub(super) const fn no_day() -> NaiveDate {
    NO_DAY
}

/// A time within the database's range.
pub(super) fn time(time: Timestamp) -> DateTime<Utc> {
    time.to_utc()
        .max(FIRST_DAY.and_time(chrono::NaiveTime::MIN).and_utc())
}

/// A day within the database's range.
pub(super) fn day(day: NaiveDate) -> NaiveDate {
    day.max(FIRST_DAY)
}

/// A time as the database counts it.
pub(super) fn micros(at: Timestamp) -> i64 {
    time(at).timestamp_micros().saturating_sub(EPOCH_MICROS)
}

/// A day as the database counts it.
pub(super) fn days(at: NaiveDate) -> i32 {
    let days = day(at).signed_duration_since(EPOCH_DAY).num_days();
    i32::try_from(days).unwrap_or(i32::MAX)
}

/// A row as a list of JSON, for statements that take few rows of many columns.
#[derive(Debug, Default)]
pub(super) struct JsonRow(pub(super) Vec<Value>);

impl Sink for JsonRow {
    fn text(&mut self, value: Option<&str>) {
        self.0
            .push(value.map_or(Value::Null, |value| Value::from(text::kept(value))));
    }

    fn json(&mut self, value: Option<String>) {
        self.text(value.as_deref());
    }

    fn integer(&mut self, value: Option<i64>) {
        self.0.push(Value::from(value));
    }

    fn truth(&mut self, value: bool) {
        self.0.push(Value::from(value));
    }

    fn time(&mut self, value: Timestamp) {
        self.0.push(Value::from(written(value).to_string()));
    }

    fn day(&mut self, value: NaiveDate) {
        self.0
            .push(Value::from(value.clamp(WRITTEN_FIRST, WRITTEN_LAST).to_string()));
    }

    fn id(&mut self, value: RequestId) {
        self.0.push(Value::from(value.to_string()));
    }
}

/// The days that every reader of text understands.
const WRITTEN_FIRST: NaiveDate = day_of(1);
const WRITTEN_LAST: NaiveDate = day_of(9999);

/// A time within these days.
fn written(time: Timestamp) -> Timestamp {
    if (WRITTEN_FIRST..=WRITTEN_LAST).contains(&time.day()) {
        return time;
    }
    let day = time.day().clamp(WRITTEN_FIRST, WRITTEN_LAST);
    Timestamp::from(day.and_time(chrono::NaiveTime::MIN).and_utc())
}

impl Fields for PgRow {
    fn optional_text(&self, name: &'static str) -> Result<Option<Cow<'_, str>>, StoreError> {
        // Unchecked: JSON is read as the text that it is.
        let value: Option<&str> = self.try_get_unchecked(name).map_err(|_| unreadable(name))?;
        Ok(value.map(text::meant))
    }

    fn optional_integer(&self, name: &'static str) -> Result<Option<i64>, StoreError> {
        self.try_get(name).map_err(|_| unreadable(name))
    }

    fn truth(&self, name: &'static str) -> Result<bool, StoreError> {
        self.try_get(name).map_err(|_| unreadable(name))
    }

    fn time(&self, name: &'static str) -> Result<Timestamp, StoreError> {
        let value: DateTime<Utc> = self.try_get(name).map_err(|_| unreadable(name))?;
        Ok(Timestamp::from(value))
    }

    fn day(&self, name: &'static str) -> Result<NaiveDate, StoreError> {
        self.try_get(name).map_err(|_| unreadable(name))
    }

    fn id(&self, name: &'static str) -> Result<RequestId, StoreError> {
        let value: Uuid = self.try_get(name).map_err(|_| unreadable(name))?;
        Ok(RequestId(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_the_partition_of_the_day_inside_its_id() {
        let id = |text: &str| RequestId(Uuid::parse_str(text).expect("an id"));

        assert_eq!(
            partition_day(id("01a2b3c4-d5e6-7000-8000-000000000001")).to_string(),
            "2026-12-26"
        );
        assert_eq!(
            partition_day(id("11a2b3c4-d5e6-4000-8000-000000000001")),
            no_day()
        );
    }

    #[test]
    fn times_are_counted_from_the_year_2000_and_never_leave_the_range() {
        let at = |text: &str| Timestamp::parse(text).expect("a time");

        assert_eq!(micros(at("2000-01-01T00:00:01Z")), 1_000_000);
        assert_eq!(days(EPOCH_DAY), 0);
        assert_eq!(days(NaiveDate::MIN), days(FIRST_DAY));
        assert!(
            micros(Timestamp::from_micros(i64::MIN)) >= micros(at("0001-01-01T00:00:00Z")) - i64::MAX / 2
        );
    }
}
