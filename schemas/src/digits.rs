//! Decimal digits of a fixed width, without the machinery of formatting: times and amounts are written for every
//! request.

/// Fills `out` with the last digits of `value`, zeros in front.
pub(crate) fn put(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
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
}
