//! Texts as PostgreSQL can hold them. It takes any character but U+0000; a caller may send that one, too.
//! U+0000 is kept as U+001A and `0`, U+001A as two of itself; every other text is kept as it is.

use std::borrow::Cow;

/// What stands before the character that is meant.
const MARK: char = '\u{1a}';

/// A text as it is kept.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == 0 || byte == 0x1a) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => kept.extend([MARK, '0']),
            MARK => kept.extend([MARK, MARK]),
            other => kept.push(other),
        }
    }
    Cow::Owned(kept)
}

/// The text that was kept so.
pub(super) fn meant(kept: &str) -> Cow<'_, str> {
    if !kept.contains(MARK) {
        return Cow::Borrowed(kept);
    }
    let mut text = String::with_capacity(kept.len());
    let mut characters = kept.chars();
    while let Some(character) = characters.next() {
        match (character, character == MARK) {
            (_, true) => text.extend(
                characters
                    .next()
                    .map(|next| if next == '0' { '\0' } else { next }),
            ),
            (other, false) => text.push(other),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_ordinary_text_is_kept_as_it_is() {
        assert!(matches!(
            kept("caf\u{e9} 0 \\0"),
            Cow::Borrowed("caf\u{e9} 0 \\0")
        ));
        assert_eq!(kept("a\0b\u{1a}"), "a\u{1a}0b\u{1a}\u{1a}");
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in prop_oneof![any::<String>(), "[\u{0}\u{1a}0a]{0,12}"]) {
            let stored = kept(&text);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(meant(&stored), text.as_str());
        }
    }
}
