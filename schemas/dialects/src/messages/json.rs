//! JSON read one level at a time: objects keep their members as they were written, so that what is not known can be
//! told apart from what is, and what is wrong can be named by its path.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::superset::request::Refusal;

/// The members of an object, in their order.
#[derive(Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A member's name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(name))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(name.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Name)
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

impl<'a> Object<'a> {
    /// Reads an object; `None` for anything else.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Reads an object that a request must have at `path`.
    pub(super) fn at(raw: &'a RawValue, path: &Path<'_>) -> Result<Self, Refusal> {
        Self::read(raw.get()).ok_or_else(|| path.invalid("must be an object"))
    }

    /// Takes a member out; the last one where several have the name, `None` for one that is `null`.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let mut found = None;
        self.0.retain(|(key, raw)| {
            if key == name {
                found = Some(*raw);
            }
            key != name
        });
        found.filter(|raw| raw.get() != "null")
    }

    /// What was not taken and is not `null`.
    pub(super) fn rest(self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        self.0.into_iter().filter(|(_, raw)| raw.get() != "null")
    }
}

/// Where in a request a value stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'p> {
    /// A member of the request.
    Root(&'p str),
    /// A member of an object.
    Member(&'p Path<'p>, &'p str),
    /// An element of a list.
    Element(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}.{index}"),
        }
    }
}

impl<'p> Path<'p> {
    /// A member of what stands here.
    pub(super) const fn member(&'p self, name: &'p str) -> Self {
        Path::Member(self, name)
    }

    /// An element of what stands here.
    pub(super) const fn element(&'p self, index: usize) -> Self {
        Path::Element(self, index)
    }

    /// What stands here is wrong.
    pub(super) fn invalid(&self, problem: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Invalid {
            param: self.to_string().into(),
            problem: problem.into(),
        }
    }

    /// What stands here cannot be done.
    pub(super) fn unsupported(&self, problem: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Unsupported {
            param: self.to_string().into(),
            problem: problem.into(),
        }
    }

    /// Reads a string.
    pub(super) fn text(&self, raw: &RawValue) -> Result<String, Refusal> {
        self.value(raw, "must be a string")
    }

    /// Reads a string that a request must have.
    pub(super) fn required_text(&self, raw: Option<&RawValue>) -> Result<String, Refusal> {
        self.text(raw.ok_or_else(|| self.invalid(MISSING))?)
    }

    /// Reads a boolean.
    pub(super) fn flag(&self, raw: &RawValue) -> Result<bool, Refusal> {
        self.value(raw, "must be true or false")
    }

    /// Reads a list.
    pub(super) fn list<'a>(&self, raw: &'a RawValue) -> Result<Vec<&'a RawValue>, Refusal> {
        serde_json::from_str(raw.get()).map_err(|_| self.invalid("must be an array"))
    }

    /// Reads a value of a type that borrows nothing.
    pub(super) fn value<T: DeserializeOwned>(
        &self,
        raw: &RawValue,
        problem: &'static str,
    ) -> Result<T, Refusal> {
        serde_json::from_str(raw.get()).map_err(|_| self.invalid(problem))
    }
}

/// What is said of a member that must be there and is not.
pub(super) const MISSING: &str = "is required";

/// A name as it may be repeated to a caller: short and plain, else a placeholder.
pub(super) fn plain_name(name: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(plain) {
        name
    } else {
        "unknown"
    }
}

/// Free text as the arguments of a tool that takes it in a member.
pub(super) fn free_text(text: &str) -> String {
    #[derive(serde::Serialize)]
    struct Wrapped<'a> {
        input: &'a str,
    }
    serde_json::to_string(&Wrapped { input: text }).unwrap_or_else(|_| "{}".to_owned())
}
