//! Two measures of a value of any shape: how much text is in it, and whether it is anything at all.
//! Upstreams differ in shapes; neither measure refuses one. Nesting is bounded by the parser.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bytes a number or truth value counts for.
const SCALAR_BYTES: usize = 4;

/// Bytes of all text in a value, without names of members and without labels.
#[derive(Clone, Copy)]
pub(super) struct Weight;

/// Members that say what a value is, and hold nothing generated.
fn labels(name: &str) -> bool {
    matches!(name, "type" | "id" | "index" | "format" | "signature" | "data")
}

impl<'de> DeserializeSeed<'de> for Weight {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weight {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        Ok(text.len())
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(SCALAR_BYTES)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(SCALAR_BYTES)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(SCALAR_BYTES)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(SCALAR_BYTES)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<usize, S::Error> {
        let mut total: usize = 0;
        while let Some(bytes) = list.next_element_seed(self)? {
            total = total.saturating_add(bytes);
        }
        Ok(total)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<usize, M::Error> {
        let mut total: usize = 0;
        while let Some(name) = map.next_key_seed(Name)? {
            if labels(&name) {
                map.next_value::<IgnoredAny>()?;
            } else {
                total = total.saturating_add(map.next_value_seed(self)?);
            }
        }
        Ok(total)
    }
}

/// The same, and the address of the text where the value is a string without escapes.
pub(super) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = (usize, Option<usize>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = (usize, Option<usize>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok((text.len(), Some(text.as_ptr().addr())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Weight.visit_str(text).map(unplaced)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Weight.visit_unit().map(unplaced)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Weight.visit_bool(value).map(unplaced)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Weight.visit_u64(value).map(unplaced)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Weight.visit_i64(value).map(unplaced)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Weight.visit_f64(value).map(unplaced)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<Self::Value, S::Error> {
        Weight.visit_seq(list).map(unplaced)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        Weight.visit_map(map).map(unplaced)
    }
}

const fn unplaced(bytes: usize) -> (usize, Option<usize>) {
    (bytes, None)
}

/// The name of a member, borrowed where it can be.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Whether a value is there and not empty.
#[derive(Clone, Copy)]
pub(super) struct Presence;

impl<'de> DeserializeSeed<'de> for Presence {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Presence {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        let mut present = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            present = true;
        }
        Ok(present)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        let mut present = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            present = true;
        }
        Ok(present)
    }
}
