//! Tokens guessed from text, where no upstream has counted them: admission, and answers without usage.
//! Integer arithmetic only; every result is rounded up, so that text is never free.

/// Tokens a message costs beside its text.
pub const MESSAGE_TOKENS: u64 = 4;
/// Tokens a tool costs beside its schema.
pub const TOOL_TOKENS: u64 = 8;
/// Tokens of an image that is asked for in low detail.
pub const IMAGE_TOKENS_MIN: u64 = 85;
/// Tokens of any other image: its size is not known without decoding it.
pub const IMAGE_TOKENS_MAX: u64 = 1_500;
/// Tokens of a piece of audio.
pub const AUDIO_TOKENS: u64 = 200;
/// Tokens of a video: as an image, since its length is not known.
pub const VIDEO_TOKENS: u64 = 1_500;
/// Tokens of an attached file, about one page.
pub const FILE_TOKENS: u64 = 1_500;

/// Bytes of one ideograph, kana or Hangul syllable in UTF-8 (the rare four-byte ones count as Latin text).
const IDEOGRAPH_BYTES: u64 = 3;
/// Bytes counted with 8-bit lanes before the sum is widened.
const LANE_BYTES: usize = 255;

/// Tokens of a text: an ideograph counts 0.85, all other bytes 1 / 3.6.
pub fn text_tokens(text: &str) -> u64 {
    let bytes = wide(text.len());
    if text.is_ascii() {
        return bytes_tokens(bytes);
    }
    let ideographs = ideographs(text.as_bytes());
    let other_bytes = bytes.saturating_sub(ideographs * IDEOGRAPH_BYTES);
    (other_bytes * 50 + ideographs * 153).div_ceil(180)
}

/// Tokens of so many bytes of text whose script is not known: 1 / 3.6 each. 0 only for 0.
pub fn bytes_tokens(bytes: u64) -> u64 {
    let whole = (bytes / 18).saturating_mul(5);
    whole.saturating_add((bytes % 18 * 5).div_ceil(18))
}

/// Tokens of a JSON schema of so many bytes: 1 / 3.2 each.
pub fn schema_tokens(bytes: u64) -> u64 {
    let whole = (bytes / 16).saturating_mul(5);
    whole.saturating_add((bytes % 16 * 5).div_ceil(16))
}

/// Characters of U+3000..U+DFFF and U+F000..U+FFFF, told by their first byte.
fn ideographs(text: &[u8]) -> u64 {
    let opens = |byte: u8| matches!(byte, 0xE3..=0xED | 0xEF);
    let in_lane = |lane: &[u8]| {
        lane.iter()
            .fold(0_u8, |count, &byte| count + u8::from(opens(byte)))
    };
    text.chunks(LANE_BYTES).map(|lane| u64::from(in_lane(lane))).sum()
}

/// A length in memory as a count.
fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latin_text_counts_a_token_for_each_3_6_bytes_rounded_up() {
        assert_eq!(text_tokens(""), 0);
        assert_eq!(text_tokens("a"), 1);
        assert_eq!(text_tokens(&"a".repeat(36)), 10);
        assert_eq!(text_tokens(&"a".repeat(37)), 11);
    }

    #[test]
    fn an_ideograph_counts_most_of_a_token() {
        assert_eq!(text_tokens(&"漢".repeat(20)), 17);
        assert_eq!(text_tokens(&"한".repeat(20)), 17);
        assert_eq!(text_tokens(&"漢".repeat(2_000)), 1_700);
        assert_eq!(text_tokens(&"漢a".repeat(180)), 153 + 50);
    }

    #[test]
    fn other_scripts_and_emoji_count_by_their_bytes() {
        assert_eq!(text_tokens("приве"), 3);
        assert_eq!(text_tokens(&"🙂".repeat(9)), 10);
    }

    #[test]
    fn delivered_bytes_are_never_free() {
        assert_eq!(bytes_tokens(0), 0);
        assert_eq!(bytes_tokens(1), 1);
        assert_eq!(bytes_tokens(72), 20);
        assert_eq!(bytes_tokens(u64::MAX), u64::MAX / 18 * 5 + 5);
    }

    #[test]
    fn a_schema_counts_a_token_for_each_3_2_bytes() {
        assert_eq!(schema_tokens(32), 10);
        assert_eq!(schema_tokens(33), 11);
    }

    proptest! {
        #[test]
        fn any_text_has_at_most_a_token_a_byte(text in ".*") {
            let tokens = text_tokens(&text);

            prop_assert!(tokens <= u64::try_from(text.len()).unwrap());
            prop_assert!(text.is_empty() || tokens > 0);
        }
    }
}
