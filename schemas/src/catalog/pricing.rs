//! Prices as operators write them (decimal strings of USD per million tokens) to exact integers.

use std::collections::BTreeMap;

use crate::money::{NANO_PER_USD, NanoUsd, ParseError, Price};
use serde_json::Value;

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
pub fn read(pricing: &BTreeMap<String, Value>) -> Result<Option<Price>, Error> {
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
