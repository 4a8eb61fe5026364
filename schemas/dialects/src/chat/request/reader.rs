//! Members of a JSON object, taken by name; what is left was not known. Values are looked at where they stand.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::Object;
use crate::superset::request::Refusal;

/// A value, `None` when it is missing or null.
pub(super) type Told<'a> = Option<&'a RawValue>;

/// An object of a request, and where it stands.
pub(super) struct Reader<'a> {
    /// Its path with dots; empty for the request itself.
    pub(super) path: String,
    members: Object<'a>,
}

impl<'a> Reader<'a> {
    /// Reads an object of the request.
    pub(super) fn of(raw: &'a RawValue, path: String) -> Result<Self, Refusal> {
        match Object::read(raw.get()) {
            Some(members) => Ok(Self { path, members }),
            None => Err(invalid(path, "must be an object")),
        }
    }

    /// Reads the request itself.
    pub(super) fn of_body(body: &'a [u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(body).map_err(|_| Refusal::InvalidJson)?;
        Ok(Self {
            path: String::new(),
            members: Object::read(text).ok_or(Refusal::InvalidJson)?,
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
        self.members.take(name)
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

    /// What was not taken, in order.
    pub(super) fn all_the_rest(self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        self.members.rest()
    }

    /// The same, but for what is empty.
    pub(super) fn rest(self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        let empty = |value: &RawValue| matches!(value.get(), "[]" | "{}" | "\"\"");
        self.members.rest().filter(move |(_, value)| !empty(value))
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
