//! Byte search and nesting depth: the two passes over raw text that run before a parser sees it.
//! The search looks at a block at a time, so that long strings cost little.

use std::sync::OnceLock;

use memchr::memmem::Finder;

/// Bytes looked at together in long text; a block compiles to a handful of vector instructions.
const BLOCK_BYTES: usize = 32;
/// A word with each byte 1.
const ONES: u64 = u64::MAX / 255;
/// A word with the top bit of each byte set.
const TOPS: u64 = ONES << 7;

/// A word that bodies and events are searched for. How it is found is worked out once, not for each of them.
#[derive(Debug)]
pub(crate) struct Word {
    text: &'static [u8],
    finder: OnceLock<Finder<'static>>,
}

impl Word {
    /// The word `text`.
    pub(crate) const fn new(text: &'static str) -> Self {
        Self {
            text: text.as_bytes(),
            finder: OnceLock::new(),
        }
    }

    /// What finds it.
    pub(crate) fn finder(&self) -> &Finder<'static> {
        self.finder.get_or_init(|| Finder::new(self.text))
    }

    /// Whether it is in `text`.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.finder().find(text).is_some()
    }
}

/// The first place of `first` or `second` in `text`.
pub(crate) fn find_either(text: &[u8], first: u8, second: u8) -> Option<usize> {
    let (head, rest) = text.split_at_checked(BLOCK_BYTES).unwrap_or((text, &[]));
    if let Some(found) = find_by_words(head, first, second) {
        return Some(found);
    }
    let (blocks, _) = rest.as_chunks::<BLOCK_BYTES>();
    let clean = blocks
        .iter()
        .take_while(|block| !block_holds(block, first, second))
        .count();
    let offset = head.len() + clean * BLOCK_BYTES;
    find_by_words(text.get(offset..)?, first, second).map(|found| offset + found)
}

/// True when the block has one of the two bytes; without early exit, which is what makes it fast.
fn block_holds(block: &[u8; BLOCK_BYTES], first: u8, second: u8) -> bool {
    let hit = |byte: u8| u8::from(byte == first) | u8::from(byte == second);
    block.iter().fold(0, |held, &byte| held | hit(byte)) != 0
}

/// The same search, eight bytes at a time: finds near places at once.
fn find_by_words(text: &[u8], first: u8, second: u8) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let zeros =
            zero_bytes(word ^ (ONES * u64::from(first))) | zero_bytes(word ^ (ONES * u64::from(second)));
        if zeros != 0 {
            return Some(index * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|&byte| byte == first || byte == second)?;
    Some(words.len() * 8 + found)
}

/// The top bit of each byte that is zero; exact up to the lowest such byte, which is all that is used.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

/// True when arrays and objects nest deeper than `depth_max` somewhere in the JSON text. Iterative, so that
/// hostile nesting costs no stack; brackets in strings do not count. Says nothing about validity.
pub(crate) fn nests_deeper_than(text: &[u8], depth_max: usize) -> bool {
    // Brackets in strings included: mostly there are not even so many.
    if memchr::memchr2_iter(b'{', b'[', text).nth(depth_max).is_none() {
        return false;
    }
    let mut depth: usize = 0;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'"' => rest = after_string(tail),
            b'{' | b'[' => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// What follows the string whose opening quote was just passed; empty when it never ends.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = find_either(text, b'"', b'\\') {
        let escaped = text.get(at) == Some(&b'\\');
        let skip = if escaped { at + 2 } else { at + 1 };
        text = text.get(skip..).unwrap_or_default();
        if !escaped {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_in_strings_do_not_count_as_nesting() {
        assert!(!nests_deeper_than(br#"{"a":"[[[[\"[[[["}"#, 1));
        assert!(nests_deeper_than(br#"{"a":"[[[[","b":[]}"#, 1));
        assert!(nests_deeper_than(br#"{"a":["\\",[1]]}"#, 2));
        assert!(!nests_deeper_than(br#"{"a":["\\",[1]]}"#, 3));
    }

    #[test]
    fn nesting_of_a_million_is_found_without_recursion() {
        let text = vec![b'['; 1_000_000];

        assert!(nests_deeper_than(&text, 64));
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_a_byte_by_byte_search(text in proptest::collection::vec(prop_oneof![60 => 0_u8..1, 1 => 0_u8..4, 1 => 128_u8..=255], 0..200)) {
            let expected = text.iter().position(|&byte| byte == 1 || byte == 2);

            prop_assert_eq!(find_either(&text, 1, 2), expected);
        }
    }
}
