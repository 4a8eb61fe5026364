//! Ids and names as Messages has them: letters, digits, underscores and dashes. What is not so is brought into that
//! form, the same every time, so that a call and its result still meet.

/// The longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// An id of a call.
pub(super) fn of_call(id: &str) -> String {
    if !id.is_empty() && id.bytes().all(legal) {
        return id.to_owned();
    }
    marked(id, usize::MAX)
}

/// A name of a tool, with the group it belongs to.
pub(super) fn of_tool(namespace: Option<&str>, name: &str) -> String {
    let whole = match namespace {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    };
    if !whole.is_empty() && whole.len() <= NAME_BYTES_MAX && whole.bytes().all(legal) {
        return whole;
    }
    marked(&whole, NAME_BYTES_MAX)
}

/// `text` in legal bytes, followed by what tells it from others that would look the same; at most `bytes_max`.
pub(super) fn marked(text: &str, bytes_max: usize) -> String {
    let mark = format!("_{:08x}", digest(text));
    let kept = bytes_max.saturating_sub(mark.len());
    let mut id: String = text
        .bytes()
        .take(kept)
        .map(|byte| if legal(byte) { char::from(byte) } else { '_' })
        .collect();
    id.push_str(&mark);
    id
}

const fn legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// FNV-1a, folded to 32 bits.
fn digest(text: &str) -> u32 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
    let folded = (hash ^ (hash >> 32)) as u32;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_legal_stays_and_what_is_not_is_mapped_the_same_way_every_time() {
        assert_eq!(of_call("toolu_01-A"), "toolu_01-A");
        assert_eq!(of_call("call:1"), of_call("call:1"));
        assert_ne!(of_call("call:1"), of_call("call.1"));
        assert!(of_call("call:1").starts_with("call_1_"));
        assert!(of_call("").bytes().all(legal) && !of_call("").is_empty());
        assert_eq!(of_tool(Some("files"), "read"), "files__read");
        assert_eq!(of_tool(None, &"a".repeat(64)), "a".repeat(64));
        let long = of_tool(None, &"a".repeat(65));
        assert!(long.len() == 64 && long.bytes().all(legal), "{long}");
        assert!(of_tool(None, &"é".repeat(90)).len() <= 64);
    }
}
