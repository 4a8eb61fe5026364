//! Schemas of tools for servers that read them by rules of their own.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Levels of a schema that are looked into; what lies deeper stays as it is.
const LEVELS_MAX: usize = 64;

/// Members that hold schemas by name.
const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Members that hold values and no schemas.
const VALUES: [&str; 6] = ["enum", "const", "default", "examples", "example", "required"];

/// The schema with each `type` that stands beside `anyOf` moved into those branches that have none, so that it means
/// the same; `None` when there is none to move.
pub(super) fn types_in_branches(schema: &RawValue) -> Option<Box<RawValue>> {
    let moved = of_schema(schema.get(), None, LEVELS_MAX)?;
    RawValue::from_string(moved).ok()
}

/// True for a schema that says nothing.
pub(super) fn is_empty(schema: &RawValue) -> bool {
    members(schema.get()).is_some_and(|members| members.is_empty())
}

/// A schema, changed; `given` is the type that its parent leaves to it.
fn of_schema(text: &str, given: Option<&str>, levels: usize) -> Option<String> {
    let levels = levels.checked_sub(1)?;
    let members = members(text)?;
    let value = |name: &str| {
        let found = members.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.get())
    };
    let has_branches = value("anyOf").is_some_and(|list| list.starts_with('['));
    let own = value("type");
    // What goes on into the branches, or stands here because the parent's went.
    let left = if has_branches { own.or(given) } else { None };
    let gained = given.filter(|_| !has_branches && own.is_none());
    let mut is_changed = gained.is_some();
    let mut out = Object::default();
    if let Some(kind) = gained {
        out.put("type", kind);
    }
    for (name, value) in &members {
        if has_branches && name == "type" {
            is_changed = true;
            continue;
        }
        let changed = match name.as_ref() {
            "anyOf" if has_branches => of_list(value.get(), left, levels),
            name if VALUES.contains(&name) => None,
            name if MAPS.contains(&name) => of_map(value.get(), levels),
            _ if value.get().starts_with('[') => of_list(value.get(), None, levels),
            _ => of_schema(value.get(), None, levels),
        };
        is_changed |= changed.is_some();
        out.put(name, changed.as_deref().unwrap_or(value.get()));
    }
    is_changed.then(|| out.end())
}

/// Schemas by name.
fn of_map(text: &str, levels: usize) -> Option<String> {
    let mut is_changed = false;
    let mut out = Object::default();
    for (name, value) in &members(text)? {
        let changed = of_schema(value.get(), None, levels);
        is_changed |= changed.is_some();
        out.put(name, changed.as_deref().unwrap_or(value.get()));
    }
    is_changed.then(|| out.end())
}

/// A list of schemas.
fn of_list(text: &str, given: Option<&str>, levels: usize) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let mut is_changed = false;
    let mut out = String::with_capacity(text.len() + 32);
    for item in &items {
        let changed = of_schema(item.get(), given, levels);
        is_changed |= changed.is_some();
        out.push(if out.is_empty() { '[' } else { ',' });
        out.push_str(changed.as_deref().unwrap_or(item.get()));
    }
    out.push(']');
    is_changed.then_some(out)
}

/// An object that is written.
#[derive(Default)]
struct Object(String);

impl Object {
    fn put(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        // Text always serializes.
        self.0.push_str(&serde_json::to_string(name).unwrap_or_default());
        self.0.push(':');
        self.0.push_str(value);
    }

    fn end(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

/// The members of an object in their order; `None` when `text` is none.
pub(super) fn members(text: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    if !text.starts_with('{') {
        return None;
    }
    serde_json::Deserializer::from_str(text)
        .deserialize_map(Members)
        .ok()
}

struct Members;

impl<'a> Visitor<'a> for Members {
    type Value = Vec<(Cow<'a, str>, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            members.push((name, map.next_value()?));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(schema: &str) -> Option<String> {
        let raw = RawValue::from_string(schema.to_owned()).expect("JSON");
        types_in_branches(&raw).map(|moved| moved.get().to_owned())
    }

    #[test]
    fn a_type_beside_any_of_goes_into_the_branches_that_have_none() {
        for (schema, expected) in [
            (
                r#"{"type":"object","anyOf":[{"required":["a"]},{"type":"null"},true]}"#,
                r#"{"anyOf":[{"type":"object","required":["a"]},{"type":"null"},true]}"#,
            ),
            (
                r#"{ "anyOf" : [{"const":1.0}], "type" : ["integer","null"], "title":"t" }"#,
                r#"{"anyOf":[{"type":["integer","null"],"const":1.0}],"title":"t"}"#,
            ),
            (
                r#"{"type":"object","anyOf":[{"anyOf":[{"a":1},{"type":"x"}]}]}"#,
                r#"{"anyOf":[{"anyOf":[{"type":"object","a":1},{"type":"x"}]}]}"#,
            ),
            (
                r#"{"type":"object","properties":{"p":{"type":"string","anyOf":[{"pattern":"x"}]},"q":{"type":"string"}}}"#,
                r#"{"type":"object","properties":{"p":{"anyOf":[{"type":"string","pattern":"x"}]},"q":{"type":"string"}}}"#,
            ),
            (
                r#"{"items":{"oneOf":[{"type":"string","anyOf":[{}]}]}}"#,
                r#"{"items":{"oneOf":[{"anyOf":[{"type":"string"}]}]}}"#,
            ),
        ] {
            assert_eq!(moved(schema).as_deref(), Some(expected), "{schema}");
            assert_eq!(moved(expected), None, "once is enough: {expected}");
        }
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        for schema in [
            r#"{"type":"object","properties":{"type":{"type":"string"},"anyOf":{"type":"array"}}}"#,
            r#"{"type":"object","default":{"type":"x","anyOf":[{}]},"enum":[{"type":"x","anyOf":[{}]}]}"#,
            r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
            r#"{"type":"object","anyOf":{"type":"x"}}"#,
            "true",
            "{}",
        ] {
            assert_eq!(moved(schema), None, "{schema}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_stays_and_nothing_overflows() {
        let deep = |levels: usize| {
            let inner = r#"{"type":"a","anyOf":[{}]}"#;
            format!("{}{inner}{}", r#"{"not":"#.repeat(levels), "}".repeat(levels))
        };
        assert!(moved(&deep(40)).is_some());
        assert_eq!(moved(&deep(100)), None);
    }
}
