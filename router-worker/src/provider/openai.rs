//! Servers of the OpenAI chat API: their URL, and members that an endpoint adds to request bodies.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use http::Uri;
use schemas::catalog::{Backend, Endpoint};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Error;

/// The URL of chat completions on a backend.
pub(super) fn url(endpoint: &Endpoint, backend: &Backend) -> Result<Uri, Error> {
    let mut url = String::with_capacity(backend.base_url.len() + endpoint.chat_path.len() + 1);
    url.push_str(backend.base_url.trim_end_matches('/'));
    url.push_str(&endpoint.chat_path);
    if !endpoint.query.is_empty() {
        url.push('?');
        url.push_str(&endpoint.query);
    }
    let uri: Uri = url.parse().map_err(Error::Url)?;
    Ok(uri)
}

/// Those of `additions` (members of an object, without braces) that `body` does not have, each followed by
/// a comma, ready to stand behind the opening brace.
pub(super) fn missing_members(body: &[u8], additions: &[&str]) -> String {
    let mut missing = String::new();
    if additions.iter().all(|members| members.is_empty()) {
        return missing;
    }
    let Some(mut present) = member_names(body) else {
        return missing;
    };
    for members in additions.iter().filter(|members| !members.is_empty()) {
        for (name, value) in parse_members(&format!("{{{members}}}")) {
            if present.insert(name.clone()) {
                missing.push_str(&String::from_utf8_lossy(&dialects::splice::json_string(&name)));
                missing.push(':');
                missing.push_str(&value);
                missing.push(',');
            }
        }
    }
    missing
}

/// The names of a body's members; `None` when it is no object.
fn member_names(body: &[u8]) -> Option<HashSet<String>> {
    serde_json::Deserializer::from_slice(body)
        .deserialize_map(Names)
        .ok()
}

/// Name and JSON value of each member of an object; none when it is no object.
fn parse_members(object: &str) -> Vec<(String, String)> {
    serde_json::Deserializer::from_str(object)
        .deserialize_map(Members)
        .unwrap_or_default()
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = HashSet<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            names.insert(name.into_owned());
            map.next_value::<IgnoredAny>()?;
        }
        Ok(names)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let value: &RawValue = map.next_value()?;
            members.push((name.into_owned(), value.get().to_owned()));
        }
        Ok(members)
    }
}
