//! Decimal numbers as others write them, with an exponent or without, to whole numbers. No float is in between.

/// Most digits that are looked at.
pub const DIGITS_MAX: usize = 40;

/// Digits without leading zeros, and by how many places they are to be moved to the left.
struct Scanned {
    digits: String,
    shift: i32,
}

/// A decimal number times a power of ten, exactly; `None` where that is no whole number, is negative or does not fit.
pub fn exactly(text: &str, places: i32) -> Option<i64> {
    let (kept, rest) = split(&scan(text, places)?)?;
    let is_whole = rest.bytes().all(|digit| digit == b'0');
    is_whole.then(|| whole(&kept))?
}

/// A decimal number times a power of ten, with a sign or without, rounded once, half to even; `None` where it is no number
/// or does not fit.
pub fn rounded(text: &str, places: i32) -> Option<i64> {
    let text = text.trim();
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (kept, rest) = split(&scan(text, places)?)?;
    let kept = whole(&kept)?;
    let (first, others) = rest.split_at(rest.len().min(1));
    let is_more = others.bytes().any(|digit| digit != b'0');
    let is_up = first > "5" || (first == "5" && (is_more || kept % 2 == 1));
    let amount = kept.checked_add(i64::from(is_up))?;
    Some(if is_negative { -amount } else { amount })
}

fn scan(text: &str, places: i32) -> Option<Scanned> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !(whole.is_empty() && fraction.is_empty()) && digits(whole) && digits(fraction);
    if !is_number || whole.len() + fraction.len() > DIGITS_MAX || exponent.unsigned_abs() > 1_000 {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let point = i32::try_from(fraction.len()).ok()?;
    Some(Scanned {
        digits: format!("{whole}{fraction}").trim_start_matches('0').to_owned(),
        shift: places + exponent - point,
    })
}

/// The digits before the point and those behind it, after the move.
fn split(scanned: &Scanned) -> Option<(String, String)> {
    let Scanned { digits, shift } = scanned;
    if digits.is_empty() {
        return Some((String::new(), String::new()));
    }
    let moved = usize::try_from(shift.unsigned_abs()).ok()?;
    if *shift >= 0 {
        let zeros = (moved <= DIGITS_MAX).then(|| "0".repeat(moved))?;
        return Some((format!("{digits}{zeros}"), String::new()));
    }
    match digits.len().checked_sub(moved) {
        Some(kept) => {
            let (kept, rest) = digits.split_at(kept);
            Some((kept.to_owned(), rest.to_owned()))
        }
        // One zero more behind the point says that it is less than a tenth.
        None => Some((String::new(), format!("0{digits}"))),
    }
}

fn whole(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES_PER_TOKEN: i32 = 15;

    #[test]
    fn decimals_are_shifted_exactly_or_not_at_all() {
        for (text, nano) in [
            ("1.5e-07", Some(150_000_000)),
            ("1.5E-7", Some(150_000_000)),
            ("0.00000015", Some(150_000_000)),
            ("3e-06", Some(3_000_000_000)),
            ("7.5e-08", Some(75_000_000)),
            ("1e-15", Some(1)),
            ("0", Some(0)),
            ("0.0", Some(0)),
            ("0e-99", Some(0)),
            ("1.25e-07", Some(125_000_000)),
            ("0.1", Some(100_000_000_000_000)),
            ("1e-16", None),
            ("1.5e-15", None),
            ("-1e-06", None),
            ("1e400", None),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(exactly(text, PLACES_PER_TOKEN), nano, "{text}");
        }
        assert_eq!(exactly("0.003", 9), Some(3_000_000));
        assert_eq!(exactly("1200.0", 0), Some(1_200));
    }

    #[test]
    fn decimals_are_rounded_once_half_to_even() {
        for (text, nano) in [
            ("0.0000000005", Some(0)),
            ("0.0000000015", Some(2)),
            ("0.0000000025", Some(2)),
            ("0.00000000250000000001", Some(3)),
            ("0.0000000035", Some(4)),
            ("2.4999e-9", Some(2)),
            ("9e-10", Some(1)),
            ("9e-11", Some(0)),
            ("5e-10", Some(0)),
            ("5.1e-10", Some(1)),
            ("-0.0000000015", Some(-2)),
            ("-1.25", Some(-1_250_000_000)),
            ("+1.25", Some(1_250_000_000)),
            (" 12 ", Some(12_000_000_000)),
            ("9223372036.854775807", Some(i64::MAX)),
            ("9223372036.8547758075", None),
            ("9223372036.854775808", None),
            ("1,5", None),
            ("$1", None),
            ("--1", None),
            ("", None),
        ] {
            assert_eq!(rounded(text, 9), nano, "{text}");
        }
    }
}
