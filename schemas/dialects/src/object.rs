//! Requests read one level at a time: an object keeps its members as they were written, so that what is not known can
//! be told from what is, and what is wrong is named by its path.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::superset::request::Refusal;

/// Longest name of a caller's that is repeated to him.
const NAME_BYTES_MAX: usize = 64;

/// What is said of a member that must be there and is not.
pub(crate) const MISSING: &str = "is required";

/// The members of an object that were not taken yet, in order.
#[derive(Debug, Default)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A member's name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// Reads an object; `None` for anything else.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Reads an object that must stand at a path.
    pub(crate) fn at(raw: &'a RawValue, path: &Path<'_>) -> Result<Self, Refusal> {
        Self::read(raw.get()).ok_or_else(|| path.invalid("must be an object"))
    }

    /// Takes a member; `None` when it is not there or `null`. Of members of one name the last counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let mut taken = None;
        self.0.retain(|(own, value)| {
            let is_it = own == name;
            if is_it {
                taken = Some(*value);
            }
            !is_it
        });
        taken.filter(|value| value.get() != "null")
    }

    /// Takes a member that is text.
    pub(crate) fn text(&mut self, name: &str, path: &Path<'_>) -> Result<Option<String>, Refusal> {
        self.value(name, path, "must be a string")
    }

    /// Takes a member that is text and must be there, with something in it.
    pub(crate) fn filled(&mut self, name: &str, path: &Path<'_>) -> Result<String, Refusal> {
        let text = self.text(name, path)?;
        let path = path.member(name);
        let text = text.ok_or_else(|| path.invalid(MISSING))?;
        if text.is_empty() {
            Err(path.invalid("must not be empty"))
        } else {
            Ok(text)
        }
    }

    /// Takes a member that is a value of a type.
    pub(crate) fn value<T: DeserializeOwned>(
        &mut self,
        name: &str,
        path: &Path<'_>,
        problem: &'static str,
    ) -> Result<Option<T>, Refusal> {
        let raw = self.take(name);
        raw.map(|raw| path.member(name).value(raw, problem)).transpose()
    }

    /// Every member that was not taken.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// Takes a member that is a text or a list of at most `most`; none for one that is not there.
    pub(crate) fn texts(&mut self, name: &str, path: &Path<'_>, most: usize) -> Result<Vec<String>, Refusal> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Texts {
            One(String),
            Some(Vec<String>),
        }

        let problem = "must be a text or a list of texts";
        let texts = match self.value(name, path, problem)? {
            None => Vec::new(),
            Some(Texts::One(text)) => vec![text],
            Some(Texts::Some(texts)) => texts,
        };
        if texts.len() > most {
            return Err(path.member(name).invalid(problem));
        }
        Ok(texts)
    }

    /// What was not taken and is not `null`.
    pub(crate) fn rest(self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        self.0.into_iter().filter(|(_, value)| value.get() != "null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Where in a request something stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The request itself.
    Root,
    /// A member of an object.
    Member(&'p Path<'p>, &'p str),
    /// An element of a list.
    Element(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, number) => write!(f, "{parent}.{number}"),
        }
    }
}

impl<'p> Path<'p> {
    /// A member of what stands here.
    pub(crate) const fn member(&'p self, name: &'p str) -> Self {
        Path::Member(self, name)
    }

    /// An element of what stands here.
    pub(crate) const fn element(&'p self, number: usize) -> Self {
        Path::Element(self, number)
    }

    /// What stands here is wrong.
    pub(crate) fn invalid(&self, problem: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Invalid {
            param: self.to_string().into(),
            problem: problem.into(),
        }
    }

    /// What stands here cannot be done.
    pub(crate) fn unsupported(&self, problem: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Unsupported {
            param: self.to_string().into(),
            problem: problem.into(),
        }
    }

    /// Reads a string.
    pub(crate) fn text(&self, raw: &RawValue) -> Result<String, Refusal> {
        self.value(raw, "must be a string")
    }

    /// Reads a string that a request must have.
    pub(crate) fn required_text(&self, raw: Option<&RawValue>) -> Result<String, Refusal> {
        self.text(raw.ok_or_else(|| self.invalid(MISSING))?)
    }

    /// Reads a boolean.
    pub(crate) fn flag(&self, raw: &RawValue) -> Result<bool, Refusal> {
        self.value(raw, "must be true or false")
    }

    /// Reads a list.
    pub(crate) fn list<'a>(&self, raw: &'a RawValue) -> Result<Vec<&'a RawValue>, Refusal> {
        serde_json::from_str(raw.get()).map_err(|_| self.invalid("must be an array"))
    }

    /// Reads a value of a type that borrows nothing.
    pub(crate) fn value<T: DeserializeOwned>(
        &self,
        raw: &RawValue,
        problem: &'static str,
    ) -> Result<T, Refusal> {
        serde_json::from_str(raw.get()).map_err(|_| self.invalid(problem))
    }
}

/// A name as it may be repeated to whoever sent it: short and plain, else a placeholder.
pub(crate) fn shown(name: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) {
        name
    } else {
        "unknown"
    }
}
