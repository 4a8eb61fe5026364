//! Which schemas can be followed to the letter: upstreams refuse any other that is told to be strict.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Keywords of which no object may have any.
const UNBOUND: [&str; 13] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "contains",
    "prefixItems",
];

/// True for a schema of an object in which every object names all of its members as required and allows no others.
pub(super) fn qualifies(schema: &RawValue) -> bool {
    let Ok(Value::Object(root)) = serde_json::from_str(schema.get()) else {
        return false;
    };
    is_of(&root, "object") && is_bound(&root)
}

fn is_of(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(own)) => own == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|own| own == kind),
        _ => false,
    }
}

/// No deeper than JSON is read.
fn is_bound(schema: &Map<String, Value>) -> bool {
    let says = ["type", "anyOf", "$ref", "enum", "const"]
        .iter()
        .any(|keyword| schema.contains_key(*keyword));
    if !says || UNBOUND.iter().any(|keyword| schema.contains_key(*keyword)) {
        return false;
    }
    let is_object = is_of(schema, "object") || schema.contains_key("properties");
    if is_object && !is_closed(schema) || is_of(schema, "array") && !schema.contains_key("items") {
        return false;
    }
    let within = |keyword| match schema.get(keyword) {
        None => true,
        Some(Value::Object(named)) => named.values().all(is_bound_value),
        Some(_) => false,
    };
    let items = schema.get("items").is_none_or(is_bound_value);
    let choices = match schema.get("anyOf") {
        None => true,
        Some(Value::Array(choices)) => choices.iter().all(is_bound_value),
        Some(_) => false,
    };
    items && choices && ["properties", "$defs", "definitions"].into_iter().all(within)
}

fn is_bound_value(schema: &Value) -> bool {
    schema.as_object().is_some_and(is_bound)
}

/// All members are required, and there are no others.
fn is_closed(schema: &Map<String, Value>) -> bool {
    let required: Vec<&str> = match schema.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let required: std::collections::HashSet<&str> = required.into_iter().collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut names = properties.into_iter().flat_map(Map::keys);
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && names.all(|name| required.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(schema: &Value) -> bool {
        let raw = RawValue::from_string(schema.to_string()).expect("JSON");
        qualifies(&raw)
    }

    #[test]
    fn a_schema_that_leaves_nothing_open_qualifies() {
        for schema in [
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                "additionalProperties": false}),
            json!({"type": "object", "required": ["a", "b"], "additionalProperties": false, "properties": {
                "a": {"type": ["string", "null"]},
                "b": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/c"}, {"enum": [1, 2]}]}}},
                "$defs": {"c": {"type": "object", "properties": {}, "additionalProperties": false}}}),
        ] {
            assert!(judged(&schema), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_leaves_something_open_does_not() {
        let around = |inner: Value| json!({"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false});
        for schema in [
            json!({}),
            json!([]),
            json!({"type": "string"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            json!({"type": "object", "properties": [], "additionalProperties": false}),
            around(json!({})),
            around(json!(true)),
            around(json!({"type": "object"})),
            around(json!({"type": ["object", "null"], "properties": {}})),
            around(json!({"type": "array"})),
            around(json!({"type": "array", "items": {"type": "object"}})),
            around(json!({"anyOf": [{"type": "string"}, {"type": "object"}]})),
            around(json!({"type": "string", "allOf": [{"minLength": 1}]})),
        ] {
            assert!(!judged(&schema), "{schema}");
        }
    }
}
