//! Members of a JSON object, taken by name; what is left was not known. Values are looked at where they stand.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::superset::request::Refusal;

/// A value, `None` when it is missing or null.
pub(super) type Told<'a> = Option<&'a RawValue>;

/// An object of a request, and where it stands.
pub(super) struct Reader<'a> {
    /// Its path with dots; empty for the request itself.
    pub(super) path: String,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Reader<'a> {
    /// Reads an object of the request.
    pub(super) fn of(raw: &'a RawValue, path: String) -> Result<Self, Refusal> {
        match serde_json::from_str::<Members<'a>>(raw.get()) {
            Ok(Members(members)) => Ok(Self { path, members }),
            Err(_) => Err(invalid(path, "must be an object")),
        }
    }

    /// Reads the request itself.
    pub(super) fn of_body(body: &'a [u8]) -> Result<Self, Refusal> {
        let members = serde_json::from_slice::<Members<'a>>(body).map_err(|_| Refusal::InvalidJson)?;
        Ok(Self {
            path: String::new(),
            members: members.0,
        })
    }

    /// The path of one of its members.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A refusal of one of its members.
    pub(super) fn invalid(&self, name: &str, problem: &'static str) -> Refusal {
        invalid(self.at(name), problem)
    }

    /// Takes a member; of several the last counts.
    pub(super) fn take(&mut self, name: &str) -> Told<'a> {
        let mut taken = None;
        self.members.retain(|(other, value)| {
            let same = other == name;
            if same {
                taken = Some(*value);
            }
            !same
        });
        taken.filter(|value| value.get() != "null")
    }

    /// Takes a member of a type.
    pub(super) fn read<T: Deserialize<'a>>(
        &mut self,
        name: &str,
        problem: &'static str,
    ) -> Result<Option<T>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(raw) => match serde_json::from_str(raw.get()) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.invalid(name, problem)),
            },
        }
    }

    /// Takes a text.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.read(name, "must be a string")
    }

    /// Takes a text that must be there.
    pub(super) fn required_text(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| self.invalid(name, "is required"))
    }

    /// Takes true or false.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.read(name, "must be true or false")
    }

    /// Takes a list; an absent one is empty.
    pub(super) fn list(&mut self, name: &str) -> Result<Vec<&'a RawValue>, Refusal> {
        Ok(self.read(name, "must be an array")?.unwrap_or_default())
    }

    /// Takes an object.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Reader<'a>>, Refusal> {
        self.take(name)
            .map(|raw| Reader::of(raw, self.at(name)))
            .transpose()
    }

    /// Takes a number as it was written; `empty` is the one that means nothing.
    pub(super) fn number(
        &mut self,
        name: &str,
        empty: Option<f64>,
    ) -> Result<Option<Box<RawValue>>, Refusal> {
        let Some(raw) = self.take(name) else {
            return Ok(None);
        };
        match serde_json::from_str::<f64>(raw.get()) {
            Ok(number) if Some(number) == empty => Ok(None),
            Ok(_) => Ok(Some(raw.to_owned())),
            Err(_) => Err(self.invalid(name, "must be a number")),
        }
    }

    /// What was not taken and is not empty, in order.
    pub(super) fn rest(self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        let empty = |value: &RawValue| matches!(value.get(), "null" | "[]" | "{}" | "\"\"");
        self.members.into_iter().filter(move |(_, value)| !empty(value))
    }
}

/// A refusal by path.
pub(super) fn invalid(path: impl Into<Cow<'static, str>>, problem: &'static str) -> Refusal {
    Refusal::Invalid {
        param: path.into(),
        problem: problem.into(),
    }
}

/// A refusal of something that is of the dialect and not served here.
pub(super) fn unsupported(path: impl Into<Cow<'static, str>>, problem: &'static str) -> Refusal {
    Refusal::Unsupported {
        param: path.into(),
        problem: problem.into(),
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            members.push((name, map.next_value()?));
        }
        Ok(members)
    }
}
