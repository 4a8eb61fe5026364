//! Arguments of calls: whatever was written in their place, as the text of a JSON object.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Arguments as the text of a JSON object, and whether something was lost on the way: what is no object becomes one
/// without members, an object that is no text becomes its text.
pub(crate) fn whole(raw: &str) -> (Cow<'_, str>, bool) {
    if raw.starts_with('{') {
        return (Cow::Borrowed(raw), false);
    }
    let text: Cow<'_, str> = match serde_json::from_str::<String>(raw) {
        Ok(text) => text.into(),
        Err(_) => raw.into(),
    };
    if is_object(&text) {
        return (text, false);
    }
    let lost = !means_none(&text);
    (Cow::Borrowed("{}"), lost)
}

/// The arguments that an upstream meant by a text that is no object: none, or an object whose text was quoted once
/// more. `None` when there is no telling.
pub(crate) fn repaired(text: &str) -> Option<String> {
    if means_none(text) {
        return Some("{}".to_owned());
    }
    let unquoted: Option<String> = serde_json::from_str(text).ok();
    unquoted.filter(|inner| is_object(inner))
}

/// True for what servers write where there are no arguments: nothing, or nothing that is quoted once more.
fn means_none(text: &str) -> bool {
    matches!(text.trim(), "" | "null" | "\"\"" | "\"null\"")
}

/// True for the text of a JSON object.
pub(super) fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_text_of_an_object_whatever_was_written() {
        let read = |raw: &'static str| {
            let (text, lost) = whole(raw);
            (text.into_owned(), lost)
        };
        let empty = "{}".to_owned();

        assert_eq!(read(r#""{\"a\": 1.0}""#), (r#"{"a": 1.0}"#.to_owned(), false));
        assert_eq!(read(r#"{"a":1}"#), (r#"{"a":1}"#.to_owned(), false));
        assert_eq!(read(r#""""#), (empty.clone(), false));
        assert_eq!(read("null"), (empty.clone(), false));
        assert_eq!(read(r#""\"\"""#), (empty.clone(), false));
        assert_eq!(read(r#""{""#), (empty.clone(), true));
        assert_eq!(read(r#""[\"x\"]""#), (empty.clone(), true));
        assert_eq!(read(r#""{}\"\"""#), (empty, true));
    }

    #[test]
    fn what_an_upstream_meant_is_none_or_the_object_that_was_quoted_once_more() {
        for none in ["", " ", "null", r#""""#, r#" "" "#, r#""null""#] {
            assert_eq!(repaired(none).as_deref(), Some("{}"), "{none:?}");
        }
        assert_eq!(repaired(r#""{\"a\":1}""#).as_deref(), Some(r#"{"a":1}"#));
        for unclear in [r#""a""#, "[]", "None", r#"{"a":"#, r#""{\"a\":""#] {
            assert_eq!(repaired(unclear), None, "{unclear:?}");
        }
    }
}
