//! Halves of characters: servers that cut texts between the two halves of a character write each as an escape of its
//! own, which JSON allows and no text of ours can hold. Where bytes pass, the caller puts the halves together again.

/// The same JSON with a replacement character for every escape of half a character, byte for byte as long; `None` where
/// there is none.
pub(crate) fn replaced(json: &str) -> Option<String> {
    let mut whole: Option<Vec<u8>> = None;
    let (bytes, mut at) = (json.as_bytes(), 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        let unit = unit(bytes, at);
        let is_pair = matches!(unit, Some(0xD800..=0xDBFF))
            && matches!(self::unit(bytes, at + 6), Some(0xDC00..=0xDFFF));
        match unit {
            Some(0xD800..=0xDFFF) if !is_pair => {
                let whole = whole.get_or_insert_with(|| bytes.to_vec());
                if let Some(digits) = whole.get_mut(at + 2..at + 6) {
                    digits.copy_from_slice(b"fffd");
                }
                at += 6;
            }
            Some(_) if is_pair => at += 12,
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    String::from_utf8(whole?).ok()
}

/// The UTF-16 unit of the escape that stands there.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_alone_are_replaced_and_all_else_stays_where_it_is() {
        for (json, expected) in [
            (r#"{"a":"x\ud83c"}"#, Some(r#"{"a":"x\ufffd"}"#)),
            (r#"["\uDF89b"]"#, Some(r#"["\ufffdb"]"#)),
            (r#"["\ud83c\ud83c\udf89"]"#, Some(r#"["\ufffd\ud83c\udf89"]"#)),
            (r#"["\ud83c\u00e9"]"#, Some(r#"["\ufffd\u00e9"]"#)),
            (r#"["\ud83c\udf89\udf89"]"#, Some(r#"["\ud83c\udf89\ufffd"]"#)),
            (r#"["\\ud83c \u00e9 \n"]"#, None),
            (r#"["\ud83c\udf89"]"#, None),
            (r#"["\\\ud83c\"]"#, Some(r#"["\\\ufffd\"]"#)),
            (r"\u12", None),
            (r"\", None),
            ("", None),
        ] {
            assert_eq!(replaced(json).as_deref(), expected, "{json}");
        }
    }
}
