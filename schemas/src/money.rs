//! Money is integers. Prices are nano-dollars per million tokens, a cost is computed in wide integers
//! and rounded once, half to even, to whole nano-dollars. No float touches money.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digits;
use crate::time::Timestamp;
use crate::usage::Usage;

/// Nano-dollars in a dollar.
pub const NANO_PER_USD: i64 = 1_000_000_000;
/// Stands between a revision and the time from which its prices are so.
const SINCE: char = '@';
/// Tokens in the unit of a price.
const TOKENS_PER_UNIT: i128 = 1_000_000;

/// An amount of money in nano-dollars (1e-9 USD).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct NanoUsd(pub i64);

/// Longest decimal string of an amount, in bytes.
const USD_BYTES_MAX: usize = 21;

/// Why a decimal string is not an amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not digits with at most one point.
    #[error("expected a decimal number of US dollars such as \"1.25\"")]
    Malformed,
    /// More decimals than nano-dollars can hold.
    #[error("more than nine decimals cannot be kept exactly")]
    TooPrecise,
    /// Beyond the range of 64-bit nano-dollars.
    #[error("the amount is too large")]
    TooLarge,
}

impl NanoUsd {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// Reads a non-negative decimal string of US dollars exactly.
    pub fn parse_usd(text: &str) -> Result<Self, ParseError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
            return Err(ParseError::Malformed);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 9 {
            return Err(ParseError::TooPrecise);
        }
        let whole: i64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| ParseError::TooLarge)?
        };
        let nano: i64 = format!("{fraction:0<9}")
            .parse()
            .map_err(|_| ParseError::TooLarge)?;
        let total = whole
            .checked_mul(NANO_PER_USD)
            .and_then(|nanos| nanos.checked_add(nano));
        total.map(Self).ok_or(ParseError::TooLarge)
    }

    /// The amount as a decimal string of US dollars with nine decimals.
    pub fn usd(self) -> String {
        let mut text = String::with_capacity(USD_BYTES_MAX);
        self.push_usd(&mut text);
        text
    }

    /// The same, behind what `out` has.
    pub fn push_usd(self, out: &mut String) {
        // Sign, ten digits of dollars at most, point, nine decimals.
        let mut text = *b"-0000000000.000000000";
        let magnitude = self.0.unsigned_abs();
        let unit = NANO_PER_USD.unsigned_abs();
        digits::put(&mut text[1..11], magnitude / unit);
        digits::put(&mut text[12..], magnitude % unit);
        let zeros = text[1..10].iter().take_while(|digit| **digit == b'0').count();
        if self.0 < 0 {
            out.push('-');
        }
        out.push_str(std::str::from_utf8(&text[1 + zeros..]).unwrap_or_default());
    }
}

impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.usd())
    }
}

/// What an endpoint charges. Token classes are nano-dollars per million tokens, the rest per unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PricesApplied")]
pub struct Price {
    /// Fresh input, nano-dollars per million tokens.
    pub input: i64,
    /// Input read from a cache, nano-dollars per million tokens.
    pub cached: i64,
    /// Input written to a cache, nano-dollars per million tokens.
    pub cache_write: i64,
    /// Output, nano-dollars per million tokens.
    pub output: i64,
    /// Each request, nano-dollars.
    pub request: i64,
    /// Each image, nano-dollars.
    pub image: i64,
}

/// Which prices applied: the catalogue revision and the endpoint they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PriceVersion(pub Arc<str>);

impl PriceVersion {
    /// The prices of a revision of the catalogue; `since` is from when they are so, where a time changed them later.
    pub fn of(revision: &Arc<str>, since: Option<Timestamp>) -> Self {
        Self(match since {
            None => Arc::clone(revision),
            Some(since) => format!("{revision}{SINCE}{since}").into(),
        })
    }

    /// The revision of the catalogue whose prices they are.
    pub fn revision(&self) -> &str {
        self.0.split(SINCE).next().unwrap_or_default()
    }
}

/// The cost of `usage` and `images` input images at `price`, rounded once to whole nano-dollars, half to even.
/// `None` when the sum does not fit 64 bits (counts and prices are bounded, so only a broken price gets there).
pub fn cost(price: &Price, usage: &Usage, images: u64) -> Option<NanoUsd> {
    let part = |tokens: u64, rate: i64| i128::from(tokens) * i128::from(rate);
    let tokens = part(usage.input_tokens, price.input)
        + part(usage.cached_tokens, price.cached)
        + part(usage.cache_write_tokens, price.cache_write)
        + part(usage.output_tokens, price.output);
    let units = i128::from(price.request) + part(images, price.image);
    let scaled = tokens + units * TOKENS_PER_UNIT;
    i64::try_from(divide_half_even(scaled, TOKENS_PER_UNIT))
        .ok()
        .map(NanoUsd)
}

/// The most that `tokens` of a prompt, `answer` tokens and `images` input images can cost at `price`, whichever classes
/// the prompt is counted in, rounded up to whole nano-dollars; `u64::MAX` where it does not fit.
pub fn cost_most(price: &Price, (tokens, answer): (u64, u64), images: u64) -> u64 {
    let dearest = price.input.max(price.cached).max(price.cache_write);
    let part = |count: u64, rate: i64| i128::from(count) * i128::from(rate.max(0));
    let units = i128::from(price.request.max(0)) + part(images, price.image);
    let scaled = part(tokens, dearest) + part(answer, price.output) + units * TOKENS_PER_UNIT;
    let whole = scaled.div_euclid(TOKENS_PER_UNIT) + i128::from(scaled.rem_euclid(TOKENS_PER_UNIT) > 0);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// `numerator / divisor`, ties to the even quotient. `divisor` is positive.
fn divide_half_even(numerator: i128, divisor: i128) -> i128 {
    let quotient = numerator.div_euclid(divisor);
    let remainder = numerator.rem_euclid(divisor);
    match (remainder * 2).cmp(&divisor) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + (quotient & 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price {
        input: 2_000_000_000,
        cached: 200_000_000,
        cache_write: 2_500_000_000,
        output: 8_000_000_000,
        request: 0,
        image: 0,
    };

    #[test]
    fn a_version_of_prices_is_of_a_revision_and_may_be_so_since_a_time() {
        let revision: Arc<str> = "17".into();
        let since = Timestamp::parse("2026-12-01T08:00:00Z");

        let plain = PriceVersion::of(&revision, None);
        let timed = PriceVersion::of(&revision, since);

        assert_eq!((&*plain.0, plain.revision()), ("17", "17"));
        assert_eq!(
            (&*timed.0, timed.revision()),
            ("17@2026-12-01T08:00:00.000000Z", "17")
        );
    }

    fn usage(input_tokens: u64, cached_tokens: u64, cache_write_tokens: u64, output_tokens: u64) -> Usage {
        Usage {
            input_tokens,
            cached_tokens,
            cache_write_tokens,
            output_tokens,
            reasoning_tokens: 0,
        }
    }

    #[test]
    fn a_cost_is_the_exact_sum_over_disjoint_classes() {
        assert_eq!(cost(&PRICE, &usage(9, 0, 0, 20), 0), Some(NanoUsd(178_000)));
        assert_eq!(
            cost(&PRICE, &usage(3_000, 500, 4_000, 25), 0),
            Some(NanoUsd(16_300_000))
        );
    }

    #[test]
    fn a_cost_is_rounded_once_half_to_even() {
        let rate = |input: i64| Price {
            input,
            ..Price::default()
        };
        assert_eq!(cost(&rate(500_000), &usage(1, 0, 0, 0), 0), Some(NanoUsd(0)));
        assert_eq!(cost(&rate(500_000), &usage(3, 0, 0, 0), 0), Some(NanoUsd(2)));
        assert_eq!(cost(&rate(500_001), &usage(1, 0, 0, 0), 0), Some(NanoUsd(1)));
    }

    #[test]
    fn the_most_that_a_call_can_cost_is_rounded_up_and_takes_the_dearest_class() {
        assert_eq!(cost_most(&PRICE, (9, 20), 0), 9 * 2_500 + 20 * 8_000);
        let rate = |input: i64| Price {
            input,
            ..Price::default()
        };
        assert_eq!(cost_most(&rate(1), (1, 0), 0), 1);
        assert_eq!(cost_most(&rate(1_000_000), (3, 7), 0), 3);
        assert_eq!(cost_most(&rate(i64::MAX), (u64::MAX, 0), 0), u64::MAX);
        let each = Price {
            request: 7,
            image: 5,
            ..Price::default()
        };
        assert_eq!(cost_most(&each, (0, 0), 2), 17);
    }

    #[test]
    fn a_price_per_request_counts_without_tokens() {
        let price = Price {
            request: 7,
            ..Price::default()
        };
        assert_eq!(cost(&price, &usage(0, 0, 0, 0), 0), Some(NanoUsd(7)));
        assert_eq!(
            cost(&Price { image: 5, ..price }, &usage(0, 0, 0, 0), 2),
            Some(NanoUsd(17))
        );
    }

    #[test]
    fn dollars_are_read_and_written_exactly() {
        assert_eq!(NanoUsd::parse_usd("0.000000001"), Ok(NanoUsd(1)));
        assert_eq!(NanoUsd::parse_usd("12.50"), Ok(NanoUsd(12_500_000_000)));
        assert_eq!(NanoUsd(178_000).usd(), "0.000178000");
        assert_eq!(NanoUsd(0).usd(), "0.000000000");
        assert_eq!(NanoUsd(-12_000_000_001).usd(), "-12.000000001");
        assert_eq!(NanoUsd(i64::MAX).usd(), "9223372036.854775807");
        assert_eq!(NanoUsd(i64::MIN).usd(), "-9223372036.854775808");
        for (text, error) in [
            ("", ParseError::Malformed),
            ("-1", ParseError::Malformed),
            ("1e3", ParseError::Malformed),
            ("0.0000000001", ParseError::TooPrecise),
            ("99999999999999", ParseError::TooLarge),
        ] {
            assert_eq!(NanoUsd::parse_usd(text), Err(error), "{text}");
        }
    }
}
