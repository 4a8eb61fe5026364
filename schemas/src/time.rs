//! Points in time as the books keep them: microseconds, UTC, written as RFC 3339 text with six
//! decimals and `Z`, so that text order is time order. Nothing here reads a clock (`bus::clock` does).

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Datelike as _, NaiveDate, SecondsFormat, Timelike as _, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digits;

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole milliseconds from `earlier` to `self`, 0 when the clock stepped back.
    pub fn millis_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1_000).unwrap_or(0)
    }

    /// This time moved by whole microseconds.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The same as a chrono value; times outside chrono's range give the epoch.
    pub fn to_utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }

    /// The UTC day.
    pub fn day(self) -> NaiveDate {
        self.to_utc().date_naive()
    }

    /// The text of a time of the years 0 to 9999.
    fn text(self) -> Option<[u8; 27]> {
        let time = self.to_utc();
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        text[..10].copy_from_slice(&day_text(time.date_naive())?);
        digits::put(&mut text[11..13], time.hour().into());
        digits::put(&mut text[14..16], time.minute().into());
        digits::put(&mut text[17..19], time.second().into());
        digits::put(&mut text[20..26], time.timestamp_subsec_micros().into());
        Some(text)
    }

    /// Reads the one form that is written here; `None` for every other, and for a leap second.
    fn parse_own(text: &[u8]) -> Option<Self> {
        let text: &[u8; 27] = text.try_into().ok()?;
        let marks = [(10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (26, b'Z')];
        if marks.iter().any(|(place, mark)| text[*place] != *mark) {
            return None;
        }
        let day = day_of(&text[..10])?;
        let (hour, minute, second) = (
            digits::read(&text[11..13])?,
            digits::read(&text[14..16])?,
            digits::read(&text[17..19])?,
        );
        let micros = digits::read(&text[20..26])?;
        let time = day.and_hms_micro_opt(hour, minute, second, micros)?;
        Some(Self(time.and_utc().timestamp_micros()))
    }

    /// Reads RFC 3339 text of any offset and precision.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(time) = Self::parse_own(text.as_bytes()) {
            return Some(time);
        }
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        Some(Self(time.timestamp_micros()))
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.timestamp_micros())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(ascii(&text)),
            None => f.write_str(&self.to_utc().to_rfc3339_opts(SecondsFormat::Micros, true)),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => serializer.serialize_str(ascii(&text)),
            None => serializer.collect_str(self),
        }
    }
}

/// Writes a day as chrono does, only faster; for `serialize_with`.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that `serialize_with` calls"
)]
pub(crate) fn serialize_day<S: Serializer>(day: &NaiveDate, serializer: S) -> Result<S::Ok, S::Error> {
    match day_text(*day) {
        Some(text) => serializer.serialize_str(ascii(&text)),
        None => day.serialize(serializer),
    }
}

/// The text of a day of the years 0 to 9999.
fn day_text(day: NaiveDate) -> Option<[u8; 10]> {
    let year = u64::try_from(day.year()).ok().filter(|year| *year <= 9_999)?;
    let mut text = *b"0000-00-00";
    digits::put(&mut text[..4], year);
    digits::put(&mut text[5..7], day.month().into());
    digits::put(&mut text[8..], day.day().into());
    Some(text)
}

/// The day of `YYYY-MM-DD`; `None` for every other form.
fn day_of(text: &[u8]) -> Option<NaiveDate> {
    let text: &[u8; 10] = text.try_into().ok()?;
    if text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let year = i32::try_from(digits::read(&text[..4])?).ok()?;
    NaiveDate::from_ymd_opt(year, digits::read(&text[5..7])?, digits::read(&text[8..])?)
}

/// Reads a day as chrono does, only faster; for `deserialize_with`.
pub(crate) fn deserialize_day<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NaiveDate, D::Error> {
    let read = |text: &str| day_of(text.as_bytes()).or_else(|| text.parse().ok());
    deserializer.deserialize_str(Words { what: "a day", read })
}

/// Reads a value from its text without keeping the text.
struct Words<F> {
    what: &'static str,
    read: F,
}

impl<T, F: Fn(&str) -> Option<T>> Visitor<'_> for Words<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

/// What was written here is ASCII.
fn ascii(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "an RFC 3339 time";
        deserializer.deserialize_str(Words {
            what,
            read: Self::parse,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_six_decimals_and_read_back() {
        let time = Timestamp::from_micros(1_796_000_000_000_001);

        let text = time.to_string();

        assert_eq!(text, "2026-11-30T00:53:20.000001Z");
        assert_eq!(Timestamp::parse(&text), Some(time));
    }

    #[test]
    fn times_and_days_are_written_as_chrono_writes_them() {
        let times = [
            0,
            -1,
            1,
            951_782_400_123_456,
            1_796_000_000_000_001,
            253_402_300_799_999_999,
            253_402_300_800_000_000,
            -62_167_219_200_000_000,
            -62_167_219_200_000_001,
            i64::MAX,
            i64::MIN,
        ];
        for time in times.map(Timestamp::from_micros) {
            let chrono = time.to_utc().to_rfc3339_opts(SecondsFormat::Micros, true);
            assert_eq!(time.to_string(), chrono);
            assert_eq!(serde_json::to_string(&time).ok(), Some(format!("\"{chrono}\"")));

            let mut day = Vec::new();
            serialize_day(&time.day(), &mut serde_json::Serializer::new(&mut day)).expect("a day");
            assert_eq!(Some(day), serde_json::to_vec(&time.day()).ok());
        }
    }

    #[test]
    fn times_and_days_are_read_as_chrono_reads_them() {
        for text in [
            "2026-11-30T00:53:20.000001Z",
            "2024-02-29T23:59:59.999999Z",
            "2023-02-29T00:00:00.000000Z",
            "2026-11-30T24:00:00.000000Z",
            "2026-11-30T00:60:00.000000Z",
            "2026-11-30T00:00:00.000000+",
            "2026-11-30T02:53:20+02:00",
            "2026-11-30",
            "",
        ] {
            let chrono = DateTime::parse_from_rfc3339(text).ok();
            assert_eq!(
                Timestamp::parse(text),
                chrono.map(|time| Timestamp(time.timestamp_micros())),
                "{text}"
            );
            assert_eq!(day_of(text.as_bytes()), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_refused_with_what_was_expected() {
        let error = serde_json::from_str::<Timestamp>("\"noon\"").expect_err("no time");
        assert!(error.to_string().contains("an RFC 3339 time"), "{error}");
    }
}
