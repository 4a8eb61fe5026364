//! Dollars as upstreams write them, in nano-dollars: from the decimal text, never through a float. What is finer than
//! a nano-dollar is rounded once, half to even.

/// Decimals that are kept.
const DECIMALS: i32 = 9;
/// Most digits of a number that is read, and most places that its exponent moves the point.
const DIGITS_MAX: usize = 36;
const PLACES_MAX: i32 = 36;

/// Reads a JSON number, or one in quotes, that is not negative. `None` for anything else, and for what does not fit.
pub(super) fn nano_usd(text: &str) -> Option<i64> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let text = quoted.unwrap_or(text).trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let number: i128 = digits.parse().ok()?;
    let places = exponent
        .checked_sub(i32::try_from(fraction.len()).ok()?)?
        .checked_add(DECIMALS)?;
    if !(-PLACES_MAX..=PLACES_MAX).contains(&places) {
        return (places < 0).then_some(0);
    }
    let scale = 10_i128.checked_pow(places.unsigned_abs())?;
    let nano = if places >= 0 {
        number.checked_mul(scale)?
    } else {
        rounded(number, scale)
    };
    i64::try_from(nano).ok()
}

/// `number / scale`, ties to the even quotient; neither is negative, and `scale` is not 0.
const fn rounded(number: i128, scale: i128) -> i128 {
    let (quotient, rest) = (number / scale, number % scale);
    let above = scale - rest;
    if rest > above || (rest == above && quotient % 2 == 1) {
        quotient + 1
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_become_nano_dollars_exactly() {
        for (text, nano) in [
            ("0.00014", 140_000),
            ("1.4e-05", 14_000),
            ("1E-9", 1),
            ("\"0.5\"", 500_000_000),
            ("0", 0),
            ("0.0", 0),
            ("12", 12_000_000_000),
            ("0.1", 100_000_000),
            ("0.00000000000000000000000000000000000000000001", 0),
        ] {
            assert_eq!(nano_usd(text), Some(nano), "{text}");
        }
    }

    #[test]
    fn what_is_finer_is_rounded_half_to_even() {
        for (text, nano) in [
            ("0.0000000005", 0),
            ("0.0000000015", 2),
            ("0.0000000025", 2),
            ("0.00000000251", 3),
            ("1e-99", 0),
        ] {
            assert_eq!(nano_usd(text), Some(nano), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for text in [
            "-1",
            "null",
            "\"\"",
            "{}",
            "1e",
            "1e99",
            ".5",
            "NaN",
            "99999999999999",
            "1e2147483647",
            "1.2.3",
            "+1",
        ] {
            assert_eq!(nano_usd(text), None, "{text}");
        }
    }
}
