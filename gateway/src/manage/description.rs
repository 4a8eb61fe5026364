//! What callers of the management API send: a description in JSON, every field of which is known. What is wrong is
//! told by the field's name, never in the parser's words.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use schemas::catalog::Catalog;
use schemas::failure::{Failure, FailureCode};
use schemas::limit::limits::Limits;
use schemas::named::Named;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::invalid;
use crate::body;
use crate::caller::Caller;
use crate::gate;
use crate::state::Shared;

/// Largest body of a management call, in bytes.
const BODY_BYTES_MAX: u64 = 64 * 1024;
/// Largest body that may hold a whole catalogue, in bytes.
const LARGE_BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long a caller may pause while he sends it.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest name of anything, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// Reads the body of a management call.
pub(crate) async fn body(state: &Shared, headers: &HeaderMap, body: Body) -> Result<Bytes, Failure> {
    bounded(state, headers, body, BODY_BYTES_MAX).await
}

/// The same of one that may hold a whole catalogue.
pub(crate) async fn large_body(state: &Shared, headers: &HeaderMap, body: Body) -> Result<Bytes, Failure> {
    bounded(state, headers, body, LARGE_BODY_BYTES_MAX).await
}

async fn bounded(state: &Shared, headers: &HeaderMap, body: Body, bytes_max: u64) -> Result<Bytes, Failure> {
    let limits = body::Limits {
        bytes_max,
        pause_max: PAUSE_MAX,
    };
    let read = body::read(&state.bodies, headers, body, limits).await;
    let (bytes, _permit) = read.map_err(body::Refusal::failure)?;
    Ok(bytes)
}

/// Reads a description. `expected` says to the caller what it is.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], expected: &'static str) -> Result<T, Failure> {
    // The parser tells some wrong values as if they were no JSON.
    let value = serde_json::from_slice(bytes)
        .map_err(|_| Failure::new(FailureCode::InvalidJson, expected).param("body"))?;
    // Derived readers take a list for the fields of an object, in whatever order these stand in the source.
    let named = serde_path_to_error::deserialize::<_, T>(Named(value));
    named.map_err(|problem| refusal(&problem, expected))?;
    // A field that is there twice is seen here alone.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut reader).map_err(|problem| refusal(&problem, expected))
}

/// What is said of a field or place that does not fit.
fn refusal(problem: &serde_path_to_error::Error<serde_json::Error>, expected: &'static str) -> Failure {
    let place = problem.path().to_string();
    let field = unknown_field(problem.inner()).unwrap_or(place);
    let shown = if showable(&field) {
        field
    } else {
        "body".to_owned()
    };
    Failure::new(FailureCode::InvalidRequest, expected).param(shown)
}

/// The field that a parser did not know, or missed.
fn unknown_field(problem: &serde_json::Error) -> Option<String> {
    let text = problem.to_string();
    let named = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|lead| text.split_once(lead));
    let (field, _) = named?.1.split_once('`')?;
    Some(field.to_owned())
}

/// A field's name or place that may stand in an answer.
fn showable(field: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'[' | b']');
    !field.is_empty() && field.len() <= NAME_BYTES_MAX && field.bytes().all(plain)
}

/// Reads a field that is there: null is a value of its type or an error, never the same as its absence.
pub(super) fn given<'de, D, T>(field: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(field).map(Some)
}

/// What becomes of a value that a record need not have.
#[derive(Debug, Clone, Default)]
pub(crate) enum Edit<T> {
    /// It is not named: it stays.
    #[default]
    Stays,
    /// It is null: it goes.
    Goes,
    /// It is this.
    Is(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Edit<T> {
    fn deserialize<D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        let value = Option::<T>::deserialize(field)?;
        Ok(value.map_or(Self::Goes, Self::Is))
    }
}

impl<T: JsonSchema> JsonSchema for Edit<T> {
    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

impl<T> Edit<T> {
    /// Whether it is not named.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Self::Stays)
    }

    /// What it is to be; none where it goes, or stays.
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Self::Stays | Self::Goes => None,
            Self::Is(new) => Some(new),
        }
    }
}

impl<T: Clone> Edit<T> {
    /// Edits `value`; `good` makes of what it is to be what may stand there.
    pub(super) fn apply<V>(
        &self,
        value: &mut Option<V>,
        good: impl FnOnce(T) -> Result<V, Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Stays => {}
            Self::Goes => *value = None,
            Self::Is(new) => *value = Some(good(new.clone())?),
        }
        Ok(())
    }
}

/// Limits as they are described. Those of whom a subject belongs to hold beside its own, whatever they are. Limits of
/// one model stand under the name that calls are counted by.
pub(super) fn limits(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Map<String, Value>,
) -> Result<Limits, Failure> {
    let refused = |path: &str, text: String| {
        let place = format!("limits.{path}");
        let place = if showable(&place.replace('.', "_")) {
            place
        } else {
            "limits".to_owned()
        };
        Failure::new(FailureCode::InvalidRequest, text).param(place)
    };
    let limits =
        Limits::try_from(wanted).map_err(|problem| refused(&problem.path, problem.kind.to_string()))?;
    for name in limits.per_model.keys() {
        let known = gate::visible(catalog, Some(&caller.key), name.as_str());
        if let Some(model) = known.filter(|model| model.id != *name) {
            let text = format!(
                "the name is an alias of the model '{}': give the limits under that name",
                model.id
            );
            return Err(refused(&format!("per_model.{name}"), text));
        }
    }
    Ok(limits)
}

/// A name that people read.
pub(super) fn named(field: &'static str, text: String) -> Result<Arc<str>, Failure> {
    let fits = !text.trim().is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    if fits {
        Ok(text.into())
    } else {
        Err(invalid(field, "expected 1 to 128 bytes of printable text"))
    }
}

/// The field `name`, which a record need not have.
pub(crate) fn name(text: String) -> Result<Arc<str>, Failure> {
    named("name", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Described {
        #[serde(default)]
        name: Option<String>,
    }

    #[test]
    fn a_description_names_its_fields() {
        let read = |text: &str| read::<Described>(text.as_bytes(), "a description");
        let named = |name: Option<&str>| Described {
            name: name.map(str::to_owned),
        };

        assert_eq!(read(" {\"name\":\"a\"}").expect("it reads"), named(Some("a")));
        assert_eq!(read("{}").expect("it reads"), named(None));
        for list in ["[\"a\"]", " []", "null", "7", "\"a\""] {
            let refused = read(list).expect_err(list);
            assert_eq!(
                (refused.code, refused.param.as_deref()),
                (FailureCode::InvalidRequest, Some("body")),
                "{list}"
            );
        }
        assert_eq!(read("{").expect_err("cut").code, FailureCode::InvalidJson);
    }
}
