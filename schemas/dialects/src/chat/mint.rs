//! Names made of other names: always the same of the same, so that both sides of a conversation agree without memory.

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// FNV-1a of texts, 128 bits. Not for secrets: whoever wants two texts of one digest can find them.
pub(crate) fn digest(texts: &[&str]) -> u128 {
    let step = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    texts.iter().fold(OFFSET, |hash, text| {
        // What never occurs in UTF-8 stands between them.
        step(text.bytes().fold(hash, step), 0xff)
    })
}

/// Some letters and digits of a digest, at most 21.
pub(crate) fn letters(mut digest: u128, count: usize) -> String {
    let digit = |_| {
        let digit = usize::try_from(digest % 62).unwrap_or_default();
        digest /= 62;
        DIGITS.get(digit).copied().map_or('0', char::from)
    };
    (0..count).map(digit).collect()
}

/// The id of a call that was given none.
pub(crate) fn call_id(texts: &[&str]) -> String {
    format!("call_{}", letters(digest(texts), 21))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_other_texts_is_another_name() {
        assert_eq!(call_id(&["a", "b"]), call_id(&["a", "b"]));
        assert_ne!(call_id(&["a", "b"]), call_id(&["ab", ""]));
        assert_eq!(letters(digest(&["x"]), 9).len(), 9);
        assert!(call_id(&["a"]).len() <= 40);
    }
}
