//! Prices as operators write them (decimal strings of USD per million tokens) to exact integers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rates::{Schedule, WINDOWS_MAX, Window, listed};
use crate::money::{NANO_PER_USD, NanoUsd, ParseError, Price};
use crate::time::Timestamp;

/// A `pricing` block as it is written: decimal strings of USD, per million tokens or each.
pub type Block = BTreeMap<String, Value>;

/// Keys that a `pricing` block may have.
const KEYS: [&str; 6] = [
    "prompt",
    "completion",
    "input_cache_reads",
    "input_cache_writes",
    "request",
    "image",
];

/// Highest price: far above any there is, and low enough that the cost of a request and its sums always fit.
const PRICE_MAX: NanoUsd = NanoUsd(10_000 * NANO_PER_USD);

/// Why a price cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key that is not a price.
    #[error(
        "`{0}` is not a price; use prompt, completion, input_cache_reads, input_cache_writes, request, image"
    )]
    UnknownKey(String),
    /// A value that is not an amount.
    #[error("`{key}`: {reason}")]
    Amount {
        /// The key.
        key: String,
        /// Why.
        reason: ParseError,
    },
}

/// Reads a `pricing` block; `None` when it prices nothing. Cached input that has no price of its own costs as
/// much as fresh input: a missing entry must not make tokens free.
pub fn read(pricing: &Block) -> Result<Option<Price>, Error> {
    if let Some(unknown) = pricing.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(Error::UnknownKey(unknown.clone()));
    }
    let amount = |key: &str| -> Result<Option<i64>, Error> {
        let text = match pricing.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(other) => other.to_string(),
        };
        let amount = NanoUsd::parse_usd(&text);
        let amount = amount.and_then(|nano| {
            Some(nano)
                .filter(|nano| *nano <= PRICE_MAX)
                .ok_or(ParseError::TooLarge)
        });
        amount.map(|nano| Some(nano.0)).map_err(|reason| Error::Amount {
            key: key.to_owned(),
            reason,
        })
    };
    let (prompt, completion) = (amount("prompt")?, amount("completion")?);
    let (reads, writes) = (amount("input_cache_reads")?, amount("input_cache_writes")?);
    let (request, image) = (amount("request")?, amount("image")?);
    if [prompt, completion, reads, writes, request, image]
        .iter()
        .all(Option::is_none)
    {
        return Ok(None);
    }
    let input = prompt.unwrap_or(0);
    Ok(Some(Price {
        input,
        cached: reads.unwrap_or(input),
        cache_write: writes.unwrap_or(input),
        output: completion.unwrap_or(0),
        request: request.unwrap_or(0),
        image: image.unwrap_or(0),
    }))
}

/// Prices by the time of the day, as they are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PricingSchedule")]
pub struct ScheduleText {
    /// From when on it holds; from the beginning where it is left out.
    #[serde(default)]
    pub effective_at: Option<Timestamp>,
    /// Parts of each day; the first that holds counts.
    pub windows: Vec<WindowText>,
    /// Outside of all of them; what holds without a schedule where it is left out.
    #[serde(default)]
    pub default: Option<Block>,
}

/// A part of each day, UTC, from its start to before its end; over midnight where the end is the earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PricingWindow")]
pub struct WindowText {
    /// Such as `16:30`.
    pub start: String,
    /// Such as `00:30`; `24:00` is the end of the day.
    pub end: String,
    /// What holds in it.
    pub pricing: Block,
}

/// Why a schedule cannot be used: the field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {reason}")]
pub struct ScheduleError {
    /// The field within the schedule.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

/// Reads a schedule. `base` is what holds without one.
pub fn schedule(text: &ScheduleText, base: &Price) -> Result<Schedule, ScheduleError> {
    let refused = |field: String, reason: String| ScheduleError { field, reason };
    if text.windows.is_empty() || text.windows.len() > WINDOWS_MAX {
        return Err(refused(
            "windows".into(),
            format!("expected 1 to {WINDOWS_MAX} of them"),
        ));
    }
    let block = |field: &str, block: &Block| {
        let price = read(block).map_err(|problem| refused(field.to_owned(), problem.to_string()))?;
        price.ok_or_else(|| refused(field.to_owned(), "it prices nothing".into()))
    };
    let minutes = |field: String, text: &str| {
        minute(text).ok_or_else(|| refused(field, "expected a time of the day such as 16:30".into()))
    };
    let mut windows = Vec::with_capacity(text.windows.len());
    for (n, window) in text.windows.iter().enumerate() {
        let at = |name: &str| format!("windows[{n}].{name}");
        let (start, end) = (
            minutes(at("start"), &window.start)?,
            minutes(at("end"), &window.end)?,
        );
        if start == end {
            return Err(refused(at("end"), "the window ends where it starts".into()));
        }
        windows.push(Window {
            start,
            end,
            price: block(&at("pricing"), &window.pricing)?,
        });
    }
    let default = text.default.as_ref().map(|default| block("default", default));
    Ok(Schedule {
        effective_at: text.effective_at.unwrap_or_default(),
        windows,
        default: default.transpose()?.unwrap_or(*base),
    })
}

/// Minutes after midnight of a time of the day.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |part: &str| {
        let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total <= 24 * 60).then_some(total)
}

/// A price as it would be written.
pub fn written(price: &Price) -> Block {
    let parts = listed(price).into_iter();
    parts.map(|(name, text)| (name, Value::from(text))).collect()
}

/// A schedule as it would be written.
pub fn written_schedule(schedule: &Schedule) -> ScheduleText {
    let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
    let windows = schedule.windows.iter().map(|window| WindowText {
        start: time(window.start),
        end: time(window.end),
        pricing: written(&window.price),
    });
    ScheduleText {
        effective_at: Some(schedule.effective_at),
        windows: windows.collect(),
        default: Some(written(&schedule.default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> BTreeMap<String, Value> {
        serde_json::from_str(text).expect("json")
    }

    #[test]
    fn dollars_per_million_become_exact_integers() {
        let price = read(&block(
            r#"{"prompt": "2", "completion": 8, "input_cache_reads": "0.2", "input_cache_writes": "2.5"}"#,
        ));
        let expected = Price {
            input: 2_000_000_000,
            cached: 200_000_000,
            cache_write: 2_500_000_000,
            output: 8_000_000_000,
            request: 0,
            image: 0,
        };
        assert_eq!(price, Ok(Some(expected)));
    }

    #[test]
    fn cached_input_without_a_price_costs_as_much_as_fresh_input() {
        let price = read(&block(r#"{"prompt": "0.15", "completion": "0.6"}"#))
            .expect("read")
            .expect("priced");
        assert_eq!(
            (price.input, price.cached, price.cache_write),
            (150_000_000, 150_000_000, 150_000_000)
        );
    }

    #[test]
    fn a_schedule_is_read_exactly_and_what_is_wrong_in_it_is_named() {
        let text = r#"{"effective_at": "2026-11-01T00:00:00Z", "windows": [{"start": "16:30", "end": "00:30",
                       "pricing": {"prompt": "0.135"}}]}"#;
        let told: ScheduleText = serde_json::from_str(text).expect("json");
        let base = Price {
            input: 270_000_000,
            ..Price::default()
        };
        let read = schedule(&told, &base).expect("a schedule");
        assert_eq!((read.windows[0].start, read.windows[0].end), (990, 30));
        assert_eq!(read.windows[0].price.input, 135_000_000);
        assert_eq!(read.default, base);
        assert_eq!(schedule(&written_schedule(&read), &Price::default()), Ok(read));
        for (field, start, end, pricing) in [
            ("windows[0].start", "24:30", "01:00", r#"{"prompt": "1"}"#),
            ("windows[0].end", "01:00", "1:00", r#"{"prompt": "1"}"#),
            ("windows[0].end", "01:00", "01:00", r#"{"prompt": "1"}"#),
            ("windows[0].pricing", "01:00", "02:00", "{}"),
            ("windows[0].pricing", "01:00", "02:00", r#"{"prompt": "x"}"#),
        ] {
            let wrong = ScheduleText {
                windows: vec![WindowText {
                    start: start.into(),
                    end: end.into(),
                    pricing: block(pricing),
                }],
                ..told.clone()
            };
            assert_eq!(schedule(&wrong, &base).expect_err("wrong").field, field);
        }
    }

    #[test]
    fn nothing_priced_is_unpriced_and_oddities_are_named() {
        assert_eq!(read(&block("{}")), Ok(None));
        assert_eq!(
            read(&block(r#"{"promt": "1"}"#)),
            Err(Error::UnknownKey("promt".into()))
        );
        for odd in ["-1", "10000.000000001"] {
            assert!(matches!(
                read(&block(&format!(r#"{{"prompt": "{odd}"}}"#))),
                Err(Error::Amount { .. })
            ));
        }
        assert!(read(&block(r#"{"prompt": "10000"}"#)).is_ok());
    }
}
