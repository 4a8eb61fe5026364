//! The places within a body: whatever may be a text, however deep it lies, as the schema of the body describes it.

use gateway::routes::Listed;
use serde_json::{Map, Value, json};

/// How deep a body is gone into.
const DEPTH_MAX: usize = 6;
/// What stands for a text of the caller's own, which is no other's.
const OWN: &str = "~";
/// What stands for his own endpoint.
const OWN_ENDPOINT: &str = "~endpoint";

/// The places within bodies that ask a model, which no schema describes.
const ASKING: [(&str, Kind); 23] = [
    ("/model", Kind::Text),
    ("/user", Kind::Text),
    ("/safety_identifier", Kind::Text),
    ("/previous_response_id", Kind::Text),
    ("/conversation", Kind::Text),
    ("/conversation/id", Kind::Text),
    ("/session_id", Kind::Text),
    ("/prompt_cache_key", Kind::Text),
    ("/prompt/id", Kind::Text),
    ("/container", Kind::Text),
    ("/container/id", Kind::Text),
    ("/include", Kind::List),
    ("/metadata/user_id", Kind::Text),
    ("/metadata", Kind::Member),
    ("/input/0/id", Kind::Text),
    ("/input/0/call_id", Kind::Text),
    ("/input/0/content/0/file_id", Kind::Text),
    ("/messages/0/name", Kind::Text),
    ("/messages/0/tool_call_id", Kind::Text),
    ("/messages/0/content/0/source/file_id", Kind::Text),
    ("/tools/0/vector_store_ids", Kind::List),
    ("/service_tier", Kind::Text),
    ("/stop", Kind::List),
];

/// How something is named at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As a text.
    Text,
    /// As the only one of a list.
    List,
    /// As the name of a member.
    Member,
}

/// A place within a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    pointer: String,
    kind: Kind,
}

impl Spot {
    /// Names something there.
    pub(super) fn name(&self, body: &mut Value, named: &str) {
        let value = match self.kind {
            Kind::Text => json!(named),
            Kind::List => json!([named]),
            Kind::Member => json!({named: {"rpm": 5}}),
        };
        put(body, &self.pointer, value);
    }
}

/// Puts a value at a place; what is on the way there and cannot hold it is replaced.
fn put(body: &mut Value, pointer: &str, value: Value) {
    let mut at = body;
    for step in pointer.split('/').skip(1) {
        at = if step == "0" {
            if at.get(0).is_none() {
                *at = json!([null]);
            }
            &mut at[0]
        } else {
            if !at.is_object() {
                *at = json!({});
            }
            &mut at[step]
        };
    }
    *at = value;
}

/// Has the caller's own stand where a body left room for it.
pub(super) fn own(body: &mut Value, named: &str, endpoint: &str) {
    match body {
        Value::String(text) if text == OWN => *text = format!("own-{named}"),
        Value::String(text) if text == OWN_ENDPOINT => endpoint.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(|value| own(value, named, endpoint)),
        Value::Object(members) => members.values_mut().for_each(|value| own(value, named, endpoint)),
        _ => {}
    }
}

/// The places of a route's body in which something can be named, each with what must stand beside it.
pub(super) fn of(route: &Listed, described: &Value, operation: &Value) -> Vec<(Spot, Value)> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        let asks = route.method == "POST" && operation.is_null();
        let places = ASKING.iter().filter(|_| asks);
        return places
            .map(|(pointer, kind)| {
                let pointer = (*pointer).to_owned();
                (Spot { pointer, kind: *kind }, asking())
            })
            .collect();
    }
    let mut search = Search {
        described,
        found: Vec::new(),
    };
    search.object(resolved(described, schema), "", &json!({}));
    search.found
}

fn asking() -> Value {
    json!({
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi",
    })
}

struct Search<'v> {
    described: &'v Value,
    found: Vec<(Spot, Value)>,
}

impl<'v> Search<'v> {
    /// Looks through an object that stands at `pointer` of a body.
    fn object(&mut self, schema: &'v Value, pointer: &str, beside: &Value) {
        if pointer.split('/').count() > DEPTH_MAX {
            return;
        }
        let mut base = beside.clone();
        put(&mut base, pointer, Value::Object(self.required(schema)));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.property(property, &format!("{pointer}/{name}"), &base);
        }
    }

    /// Looks through what may stand at `pointer`.
    fn property(&mut self, schema: &'v Value, pointer: &str, base: &Value) {
        let schema = resolved(self.described, schema);
        let mut push = |kind| {
            let spot = Spot {
                pointer: pointer.to_owned(),
                kind,
            };
            if !self.found.iter().any(|(known, _)| *known == spot) {
                self.found.push((spot, base.clone()));
            }
        };
        if is(schema, "string") {
            push(Kind::Text);
        }
        if is(schema, "object") && !matches!(schema["additionalProperties"], Value::Null | Value::Bool(false))
        {
            push(Kind::Member);
        }
        let items = resolved(self.described, &schema["items"]);
        if is(schema, "array") && is(items, "string") {
            push(Kind::List);
        }
        for (holder, at) in [(schema, pointer.to_owned()), (items, format!("{pointer}/0"))] {
            if is(holder, "object") && holder["properties"].is_object() {
                self.object(holder, &at, base);
            }
        }
        for choice in ["anyOf", "oneOf", "allOf"] {
            for one in schema[choice].as_array().into_iter().flatten() {
                self.property(one, pointer, base);
            }
        }
    }

    /// What an object must have.
    fn required(&self, schema: &Value) -> Map<String, Value> {
        let names = schema["required"].as_array().into_iter().flatten();
        let names = names.filter_map(Value::as_str);
        names
            .map(|name| (name.to_owned(), self.needed(name, &schema["properties"][name])))
            .collect()
    }

    /// A value that a field must have, which says nothing of anybody's.
    fn needed(&self, name: &str, schema: &Value) -> Value {
        let schema = resolved(self.described, schema);
        match name {
            "endpoint" => json!(OWN_ENDPOINT),
            "email" => json!("nobody@nova.example"),
            "url" => json!("http://own.example:8000"),
            "backends" => json!([{"url": "http://own.example:8000"}]),
            "pricing" => json!({"prompt": "1", "completion": "1"}),
            "gpus" => json!([{"index": 0, "temperature_c": 40}]),
            "value" => json!("1"),
            _ if schema["enum"].is_array() => schema["enum"][0].clone(),
            _ if is(schema, "string") => json!(OWN),
            _ if is(schema, "integer") || is(schema, "number") => json!(5),
            _ if is(schema, "boolean") => json!(false),
            _ if is(schema, "array") => json!([]),
            _ => json!({}),
        }
    }
}

fn resolved<'v>(described: &'v Value, schema: &'v Value) -> &'v Value {
    match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        Some(name) => &described["components"]["schemas"][name],
        None => schema,
    }
}

/// May it be of this type?
fn is(schema: &Value, kind: &str) -> bool {
    let kinds = &schema["type"];
    kinds == kind
        || kinds
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|one| one == kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_be_a_text_is_a_place() {
        let described = json!({"components": {"schemas": {
            "Wanted": {"type": "object", "required": ["name", "backends"], "properties": {
                "name": {"type": "string"},
                "size": {"type": ["integer", "null"]},
                "models": {"type": ["array", "null"], "items": {"type": "string"}},
                "limits": {"anyOf": [{"$ref": "#/components/schemas/Limits"}, {"type": "null"}]},
                "backends": {"type": "array", "items": {"$ref": "#/components/schemas/Backend"}},
            }},
            "Limits": {"type": "object", "properties": {"per_model": {"type": "object", "additionalProperties": true}}},
            "Backend": {"type": "object", "required": ["url"], "properties": {
                "url": {"type": "string"}, "node": {"type": ["string", "null"]},
            }},
        }}});
        let operation = json!({"requestBody": {"content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/Wanted"},
        }}}});
        let route = Listed {
            path: "/x",
            method: "POST",
        };

        let found = of(&route, &described, &operation);

        let mut bodies: Vec<String> = Vec::new();
        for (spot, base) in found {
            let mut body = base;
            spot.name(&mut body, "it");
            own(&mut body, "it", "ep-1");
            bodies.push(body.to_string());
        }
        bodies.sort();
        let backends = r#""backends":[{"url":"http://own.example:8000"}]"#;
        let mut wanted = [
            r#"{"backends":[{"url":"it"}],"name":"own-it"}"#.to_owned(),
            r#"{"backends":[{"node":"it","url":"http://own.example:8000"}],"name":"own-it"}"#.to_owned(),
            format!(r#"{{{backends},"limits":{{"per_model":{{"it":{{"rpm":5}}}}}},"name":"own-it"}}"#),
            format!(r#"{{{backends},"models":["it"],"name":"own-it"}}"#),
            format!(r#"{{{backends},"name":"it"}}"#),
        ];
        wanted.sort();
        assert_eq!(bodies, wanted);
    }
}
