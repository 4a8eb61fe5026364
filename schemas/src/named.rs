//! Objects whose fields are named. Derived readers take a list as the fields of an object in the order in which they
//! happen to stand in the source; whoever writes a list where an object belongs is told so here, however deep it lies.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, Expected, IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Error, Value};

/// What a reader of an enum says that it expects whose variants are told by a field.
const TAGGED: &str = "internally tagged enum";

/// A value of which no list is read as an object. As a deserializer it is the value else.
#[derive(Debug, Clone)]
pub struct Named(pub Value);

impl Named {
    /// An error where this is a list.
    fn no_list(&self) -> Result<(), Error> {
        if self.0.is_array() {
            return Err(Error::custom("a list stands where named fields belong"));
        }
        Ok(())
    }
}

/// Reads a value of which no list is read as an object.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Named(value))
}

impl IntoDeserializer<'_, Error> for Named {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Named {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if (&visitor as &dyn Expected).to_string().starts_with(TAGGED) {
            self.no_list()?;
        }
        match self.0 {
            Value::Array(values) => {
                let mut values = SeqDeserializer::new(values.into_iter().map(Self));
                let read = visitor.visit_seq(&mut values)?;
                values.end()?;
                Ok(read)
            }
            Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (name, Self(value)));
                let mut members = MapDeserializer::new(members);
                let read = visitor.visit_map(&mut members)?;
                members.end()?;
                Ok(read)
            }
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            value => visitor.visit_some(Self(value)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // JSON kept as it is has a name of its own there.
        if name.starts_with('$') {
            return self.0.deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.no_list()?;
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.no_list()?;
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(members) if members.len() == 1 => {
                let members = members.into_iter().map(|(name, value)| (name, Self(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(members)))
            }
            value => value.deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Pair {
        one: u64,
        other: Option<String>,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        None,
        Of(Pair),
        With { one: u64, other: String },
        Both(u64, u64),
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Tagged {
        Http { url: String },
    }

    #[derive(Debug, Deserialize)]
    struct Whole {
        pairs: Vec<Pair>,
        by_name: BTreeMap<String, Pair>,
        kinds: Vec<Kind>,
        tagged: Option<Tagged>,
        kept: Box<RawValue>,
        bounds: (u64, u64),
        letter: char,
        small: u8,
    }

    fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
        serde_path_to_error::deserialize(Named(value)).map_err(|error| error.to_string())
    }

    fn whole() -> Value {
        json!({
            "pairs": [{"one": 1}, {"one": 2, "other": "two"}],
            "by_name": {"a": {"one": 3, "other": null}},
            "kinds": ["none", {"of": {"one": 4}}, {"with": {"one": 5, "other": "five"}}, {"both": [6, 7]}],
            "tagged": {"kind": "http", "url": "http://w"},
            "kept": [1, {"b": 2}],
            "bounds": [8, 9],
            "letter": "l",
            "small": 10,
        })
    }

    #[test]
    fn everything_else_is_read_as_ever() {
        let read: Whole = read(whole()).expect("a value");

        let pair = |one, other: Option<&str>| Pair {
            one,
            other: other.map(str::to_owned),
        };
        assert_eq!(read.pairs, [pair(1, None), pair(2, Some("two"))]);
        assert_eq!(read.by_name["a"], pair(3, None));
        let (one, other) = (5, "five".to_owned());
        assert_eq!(
            read.kinds,
            [
                Kind::None,
                Kind::Of(pair(4, None)),
                Kind::With { one, other },
                Kind::Both(6, 7)
            ]
        );
        let url = "http://w".to_owned();
        assert_eq!(read.tagged, Some(Tagged::Http { url }));
        assert_eq!(read.kept.get(), "[1,{\"b\":2}]");
        assert_eq!((read.bounds, read.letter, read.small), ((8, 9), 'l', 10));
    }

    #[test]
    fn a_list_is_no_object_at_any_depth() {
        for (pointer, list, place) in [
            ("/pairs/1", json!([2, "two"]), "pairs[1]"),
            ("/by_name/a", json!([3, null]), "by_name.a"),
            ("/by_name", json!([]), "by_name"),
            ("/kinds/1/of", json!([4, null]), "kinds[1]"),
            ("/kinds/2/with", json!([5, "five"]), "kinds[2]"),
            ("/tagged", json!(["http", "http://w"]), "tagged"),
            ("", json!([[], {}, [], null, 1, [8, 9], "l", 10]), ""),
        ] {
            let mut value = whole();
            *value.pointer_mut(pointer).expect("a place") = list;

            let told = read::<Whole>(value).expect_err("no object");

            assert!(told.starts_with(place), "{pointer}: {told}");
            assert!(told.contains("a list stands"), "{pointer}: {told}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let mut value = whole();
        value["small"] = json!(300);
        assert!(read::<Whole>(value).expect_err("too large").starts_with("small"));
        let mut value = whole();
        value["bounds"] = json!([1, 2, 3]);
        assert!(read::<Whole>(value).expect_err("too many").starts_with("bounds"));
    }
}
