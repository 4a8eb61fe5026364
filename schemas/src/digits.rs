//! Decimal digits of a fixed width, without the machinery of formatting: times and amounts are written for every
//! request.

/// Fills `out` with the last digits of `value`, zeros in front.
pub(crate) fn put(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
}

/// The number that `text` writes in decimal digits; `None` when anything else is in it. At most nine digits.
pub(crate) fn read(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter().try_fold(0, |value: u32, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| value * 10 + u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_fill_their_place() {
        let mut text = *b"----";

        put(&mut text[..3], 7);
        assert_eq!(&text, b"007-");
        put(&mut text, 98_765);
        assert_eq!(&text, b"8765");
    }

    #[test]
    fn only_digits_are_read() {
        assert_eq!(read(b"007"), Some(7));
        assert_eq!(read(b"999999999"), Some(999_999_999));
        for other in [&b""[..], b"1 ", b"+1", b"-1", b"1a", b"1234567890"] {
            assert_eq!(read(other), None);
        }
    }
}
