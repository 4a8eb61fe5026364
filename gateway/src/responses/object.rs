//! JSON objects whose members are replaced where they stand, all others passing as they were written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of an object, in order.
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads one; `None` for anything else.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The value of a member; of several of one name the last counts.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rfind(|(own, _)| own == name);
        found.map(|(_, value)| *value)
    }

    /// How many members have a name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|(own, _)| own == name).count()
    }

    /// The value of a member that is text.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name)?)
    }

    /// The object with other values for some members, which it need not have; without those whose value is empty.
    pub(crate) fn with(&self, members: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.iter().map(|(_, value)| value.get().len() + 32).sum());
        let replaced = |name: &str| members.iter().find(|(own, _)| *own == name);
        for (name, value) in &self.0 {
            let value = replaced(name).map_or(value.get(), |(_, value)| value);
            push(&mut out, name, value);
        }
        for (name, value) in members.iter().filter(|(name, _)| self.get(name).is_none()) {
            push(&mut out, name, value);
        }
        if out.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        out
    }
}

fn push(out: &mut Vec<u8>, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    out.push(if out.is_empty() { b'{' } else { b',' });
    out.extend_from_slice(quoted(name).as_bytes());
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}

/// Text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    // Text always serializes.
    serde_json::to_string(text).unwrap_or_default()
}

/// The text of a JSON string.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    let plain = text.strip_prefix('"')?.strip_suffix('"')?;
    if !plain.contains('\\') {
        return Some(Cow::Borrowed(plain));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<Name<'de>>()? {
            members.push((name.0, map.next_value()?));
        }
        Ok(Object(members))
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_replaced_where_they_stand_added_or_left_out() {
        let object = Object::read(br#"{ "a" : [1, 2], "b\"":"x", "c":null }"#).expect("an object");

        let changed = object.with(&[("c", "3"), ("a", ""), ("d", "{}")]);

        assert_eq!(String::from_utf8_lossy(&changed), r#"{"b\"":"x","c":3,"d":{}}"#);
        assert_eq!(object.text("b\"").as_deref(), Some("x"));
        let nothing = Object::read(b"{}").expect("an object");
        assert_eq!(nothing.with(&[]), b"{}");
        assert!(Object::read(b"[]").is_none());
    }
}
