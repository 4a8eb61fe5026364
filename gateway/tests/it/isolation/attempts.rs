//! Every way to name a thing: each path of the router with each method, and there each variable of the path, parameter,
//! header and field of a body. What there is comes from the router's own table and from its description, so that a new
//! route, parameter or field is tried without a line here; a new field that a body must have needs a value below.

use std::collections::BTreeMap;

use gateway::routes::Listed;
use serde_json::{Map, Value, json};

/// Where something is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query(String),
    Header(&'static str),
    /// A field of the body, as a text or as the only one of a list.
    Field(String, bool),
}

/// A way to name a thing.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) place: Place,
    /// What the body has beside.
    base: Map<String, Value>,
}

/// Parameters that are tried everywhere, whether they are known there or not.
const PARAMETERS: [&str; 6] = ["tenant", "user", "key", "id", "after", "tenant_id"];
/// Headers that mean something somewhere, or might.
const HEADERS: [&str; 9] = [
    "idempotency-key",
    "if-match",
    "x-route-pin",
    "x-session-id",
    "x-request-id",
    "x-end-user",
    "x-tenant",
    "cookie",
    "anthropic-beta",
];
/// Fields of bodies that ask a model.
const ASKING: [(&str, bool); 8] = [
    ("model", false),
    ("user", false),
    ("previous_response_id", false),
    ("conversation", false),
    ("session_id", false),
    ("prompt_cache_key", false),
    ("container", false),
    ("include", true),
];
/// What ends the session of whoever calls it, and names nothing.
const LEFT_OUT: [&str; 2] = ["/auth/logout", "/auth/refresh"];

/// What stands for a text of the caller's own, which is no other's.
const OWN: &str = "~";
/// What stands for his own endpoint.
const OWN_ENDPOINT: &str = "~endpoint";

/// A value that a field must have, which says nothing of anybody's.
fn needed(field: &str) -> Option<Value> {
    Some(match field {
        "name" | "id" | "model" | "code" | "token" | "password" | "new_password" | "old_password"
        | "current_password" | "user" | "external_job_id" => json!(OWN),
        "endpoint" => json!(OWN_ENDPOINT),
        "email" => json!("nobody@nova.example"),
        "backends" => json!([{"url": "http://own.example:8000"}]),
        "pricing" => json!({"prompt": "1", "completion": "1"}),
        "gpus" => json!([{"index": 0, "temperature_c": 40}]),
        "minutes" | "to" => json!(5),
        "records" => json!([]),
        "value" => json!("1"),
        "disabled" | "auto_routing_enabled" => json!(false),
        _ => return None,
    })
}

/// All ways over these routes, as they are described.
pub(super) fn all(routes: &[Listed], described: &Value) -> Vec<Way> {
    let mut ways = Vec::new();
    for route in routes.iter().filter(|route| !LEFT_OUT.contains(&route.path)) {
        let operation = &described["paths"][route.path.replace("{*", "{")][route.method.to_lowercase()];
        let way = |place| Way {
            method: route.method,
            path: route.path,
            place,
            base: Map::new(),
        };
        if route.path.contains('{') {
            ways.push(way(Place::Path));
        }
        ways.extend(
            parameters(operation)
                .into_iter()
                .map(|name| way(Place::Query(name))),
        );
        ways.extend(HEADERS.map(|name| way(Place::Header(name))));
        ways.extend(
            fields(route, described, operation)
                .into_iter()
                .map(|(field, base)| Way { base, ..way(field) }),
        );
    }
    ways
}

fn parameters(operation: &Value) -> Vec<String> {
    let told = operation["parameters"].as_array().into_iter().flatten();
    let of_query = told.filter(|one| one["in"] == "query");
    let names = of_query.filter_map(|one| one["name"].as_str());
    let mut names: Vec<String> = names.chain(PARAMETERS).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// The fields of a route's body in which something can be named, each with what must stand beside it.
fn fields(route: &Listed, described: &Value, operation: &Value) -> Vec<(Place, Map<String, Value>)> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        let asks = route.method == "POST" && operation.is_null();
        let places = ASKING.iter().filter(|_| asks);
        return places
            .map(|(name, list)| (Place::Field((*name).to_owned(), *list), asking()))
            .collect();
    }
    let schema = resolved(described, schema);
    let required = schema["required"].as_array().into_iter().flatten();
    let mut base: Map<String, Value> = Map::new();
    for name in required.filter_map(Value::as_str) {
        let value = needed(name);
        let value =
            value.unwrap_or_else(|| panic!("say what {name} of {} {} may be", route.method, route.path));
        base.insert(name.to_owned(), value);
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let of_text = properties.filter_map(|(name, property)| {
        let (text, list) = kinds(described, property);
        (text || list).then(|| (Place::Field(name.clone(), list), base.clone()))
    });
    of_text.collect()
}

fn asking() -> Map<String, Value> {
    let body = json!({
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi",
    });
    body.as_object().cloned().unwrap_or_default()
}

fn resolved<'v>(described: &'v Value, schema: &'v Value) -> &'v Value {
    match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        Some(name) => &described["components"]["schemas"][name],
        None => schema,
    }
}

/// May a property be a text, or a list of texts?
fn kinds(described: &Value, property: &Value) -> (bool, bool) {
    let property = resolved(described, property);
    let says = |kind: &str| {
        property["type"] == kind
            || property["type"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    let mut found = (
        says("string"),
        says("array") && kinds(described, &property["items"]).0,
    );
    for one in property["anyOf"].as_array().into_iter().flatten() {
        let (text, list) = kinds(described, one);
        found = (found.0 || text, found.1 || list);
    }
    found
}

/// A call.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) line: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Way {
    /// True for what only reads.
    pub(super) fn reads(&self) -> bool {
        self.method == "GET"
    }

    /// True for what says something in a body, which may be kept.
    pub(super) const fn says(&self) -> bool {
        matches!(self.place, Place::Field(..))
    }

    /// True for what may ask a model.
    pub(super) fn asks(&self) -> bool {
        self.method == "POST" && !self.path.starts_with("/api/") && !self.path.starts_with("/a")
            || self.path.starts_with("/anthropic")
    }

    /// The call that names this. `own` are the caller's own things by the path of their kind, and his endpoint.
    pub(super) fn sent(&self, named: &str, own: &BTreeMap<&'static str, String>) -> Sent {
        let variable = match &self.place {
            Place::Path => encoded(named),
            // What is taken away is not there the next time.
            _ if self.method == "DELETE" => "nothing".to_owned(),
            _ => {
                let kind = own.iter().find(|(kind, _)| self.path.starts_with(*kind));
                kind.map_or_else(|| "nothing".to_owned(), |(_, id)| encoded(id))
            }
        };
        let mut line = format!("{} {}", self.method, filled(self.path, &variable));
        let mut headers = Vec::new();
        let mut body = self.base.clone();
        match &self.place {
            Place::Path => {}
            Place::Query(name) => line.extend(["?", name, "=", &encoded(named)]),
            Place::Header(name) => headers.push((*name, named.to_owned())),
            Place::Field(name, list) => {
                let value = if *list { json!([named]) } else { json!(named) };
                body.insert(name.clone(), value);
            }
        }
        for value in body.values_mut() {
            if value == OWN {
                *value = json!(format!("own-{named}"));
            } else if value == OWN_ENDPOINT {
                *value = json!(own["/api/v1/endpoints/"]);
            }
        }
        Sent {
            line,
            headers,
            body: if self.reads() {
                String::new()
            } else {
                Value::Object(body).to_string()
            },
        }
    }
}

/// A path with something for its variables.
fn filled(path: &str, variable: &str) -> String {
    let steps = path
        .split('/')
        .map(|step| if step.starts_with('{') { variable } else { step });
    steps.collect::<Vec<_>>().join("/")
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
