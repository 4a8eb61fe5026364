//! A record of the catalogue as operators see it: named by what it is, without what must not leave.

use serde_json::{Map, Value, json};

/// Stands for what is not shown.
pub const HIDDEN: &str = "***";
/// Members that nobody is shown: secrets, and what a record keeps for its own sake.
const LEFT_OUT: [&str; 4] = ["sealed", "history", "made", "password"];
/// Headers whose values are no secrets.
const PLAIN_HEADERS: [&str; 6] = [
    "http-referer",
    "x-title",
    "anthropic-beta",
    "anthropic-version",
    "user-agent",
    "content-type",
];

/// The kind of a record and its name, by its place in the bucket and what it says.
pub fn named(key: &str, record: Option<&Value>) -> (String, String) {
    let (kind, rest) = key.split_once('.').unwrap_or((key, ""));
    let said = record.and_then(|record| record.get("id")).and_then(Value::as_str);
    let name = match (said, kind) {
        (Some(id), _) => id.to_owned(),
        // The place of a key is the digest of itself.
        (None, "key") => HIDDEN.to_owned(),
        (None, "model" | "endpoint" | "overlay" | "policy" | "provider") => {
            name_of_hex(rest).unwrap_or_else(|| rest.to_owned())
        }
        (None, "user") => {
            let (tenant, user) = rest.split_once('.').unwrap_or((rest, ""));
            let user = name_of_hex(user).unwrap_or_else(|| user.to_owned());
            format!("{user} of {tenant}")
        }
        (None, _) => rest.to_owned(),
    };
    (kind.to_owned(), name)
}

/// A name that is spelled in hexadecimal; `None` where it is not.
fn name_of_hex(text: &str) -> Option<String> {
    if text.is_empty() || !text.is_ascii() || text.len() % 2 == 1 {
        return None;
    }
    let byte = |n| {
        text.get(n..n + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// A record without secrets.
pub fn without_secrets(record: &Value) -> Value {
    let Value::Object(members) = record else {
        return record.clone();
    };
    let kept = members
        .iter()
        .filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    let shown: Map<String, Value> = kept
        .map(|(name, value)| {
            let value = match name.as_str() {
                "extra_headers" => headers(value),
                "backends" => backends(value),
                "query" => query(value),
                _ => value.clone(),
            };
            (name.clone(), value)
        })
        .collect();
    Value::Object(shown)
}

/// True where something of it is not shown.
pub fn is_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(HIDDEN),
        Value::Array(items) => items.iter().any(is_hidden),
        Value::Object(members) => members.values().any(is_hidden),
        _ => false,
    }
}

fn headers(value: &Value) -> Value {
    let pairs = value.as_array().into_iter().flatten();
    let shown = pairs.map(|pair| match pair.get(0).and_then(Value::as_str) {
        Some(name) if PLAIN_HEADERS.contains(&name) => pair.clone(),
        Some(name) => json!([name, HIDDEN]),
        None => json!([]),
    });
    shown.collect()
}

/// A secret may stand in the query that is appended to every call.
fn query(value: &Value) -> Value {
    match value.as_str() {
        None | Some("") => value.clone(),
        Some(_) => json!(HIDDEN),
    }
}

fn backends(value: &Value) -> Value {
    let all = value.as_array().into_iter().flatten();
    let shown = all.map(|backend| {
        let mut backend = backend.clone();
        if let Some(url) = backend.get("base_url").and_then(Value::as_str) {
            backend["base_url"] = json!(address(url));
        }
        backend
    });
    shown.collect()
}

/// An address without a name and password in it.
fn address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{path}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_secret_is_not_shown() {
        let endpoint = json!({
            "id": "m:a",
            "backends": [{"id": "b", "base_url": "https://user:pass@h.example/v1"}],
            "extra_headers": [["x-title", "Site"], ["authorization", "Bearer secret"]],
            "query": "key=secret",
            "sealed": ["ciphertext"],
            "history": [{"at": "then"}],
        });

        let shown = without_secrets(&endpoint);

        assert_eq!(
            shown,
            json!({
                "id": "m:a",
                "backends": [{"id": "b", "base_url": "https://***@h.example/v1"}],
                "extra_headers": [["x-title", "Site"], ["authorization", "***"]],
                "query": "***",
            })
        );
        assert!(is_hidden(&shown) && !is_hidden(&json!({"id": "m"})));
    }

    #[test]
    fn records_are_named_by_what_they_are() {
        let named = |key: &str, record: Option<Value>| named(key, record.as_ref());
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(named("model.6d", None), pair("model", "m"));
        assert_eq!(named("overlay.70726f642f78", None), pair("overlay", "prod/x"));
        assert_eq!(named("user.acme.616e6e", None), pair("user", "ann of acme"));
        assert_eq!(named("model.x", None), pair("model", "x"));
        assert_eq!(named("key.00ff", None), pair("key", "***"));
        assert_eq!(named("key.00ff", Some(json!({"id": "k1"}))), pair("key", "k1"));
        assert_eq!(
            named("role.pro", Some(json!({"role": "pro"}))),
            pair("role", "pro")
        );
    }
}
