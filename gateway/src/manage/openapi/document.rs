//! Routes and what they do become a document: pure.

use std::collections::{BTreeMap, BTreeSet};

use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::operation::{Audience, Condition, Operation, Parameter, of_type};
use crate::error::Wrapped;
use crate::manage::page::page_size;
use crate::routes::Listed;

/// Where schemas stand.
const SCHEMAS: &str = "#/components/schemas/";
/// Where those of what callers send stand until it is known which of them differ from the others.
const INWARD: &str = "#/components/inward/";
/// What the names of those that do end with.
const WANTED: &str = "Wanted";
/// What every call with a credential may be answered.
const OF_CALLERS: [u16; 6] = [400, 401, 403, 429, 431, 503];
/// What every other call may be answered.
const OF_EVERYBODY: [u16; 2] = [400, 431];

const ABOUT: &str = "Tenants, members, keys and what they used. Lists are pages; changes honour If-Match; what is made \
    with an Idempotency-Key is made once. Bodies with unknown fields are refused, with the field's name in `param`. \
    Times are RFC 3339 in UTC, money is nano-dollars as whole numbers or US dollars as decimal text.";

/// The document of what is described.
pub(super) fn of(described: &[(Listed, Operation)]) -> Value {
    let mut writer = Writer::new();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (listed, operation) in described {
        let method = listed.method.to_ascii_lowercase();
        let written = writer.operation(listed, operation);
        let path = listed.path.replace("{*", "{");
        paths.entry(path).or_default().insert(method, written);
    }
    let inward = writer.inward.take_definitions(true);
    let outward = writer.outward.take_definitions(true);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Waybill management API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": writer.components(),
    });
    let differing = differing(&inward, &outward);
    let mut schemas = outward;
    for (name, schema) in inward {
        let name = settled(&name, &differing);
        schemas.entry(name).or_insert(schema);
    }
    document["components"]["schemas"] = schemas.into();
    finish(&mut document, &differing);
    document
}

/// The names of what is one thing when it is sent and another when it is answered.
fn differing(inward: &Map<String, Value>, outward: &Map<String, Value>) -> BTreeSet<String> {
    let none = BTreeSet::new();
    let differs = |(name, schema): &(&String, &Value)| {
        let mut schema = (*schema).clone();
        finish(&mut schema, &none);
        outward.get(*name).is_some_and(|other| {
            let mut other = other.clone();
            finish(&mut other, &none);
            other != schema
        })
    };
    let mut found: BTreeSet<String> = inward
        .iter()
        .filter(differs)
        .map(|(name, _)| name.clone())
        .collect();
    // What names one of them differs as well.
    loop {
        let names = |schema: &Value| {
            let text = schema.to_string();
            found
                .iter()
                .any(|name| text.contains(&format!("{INWARD}{name}\"")))
        };
        let more = inward
            .iter()
            .filter(|(name, schema)| outward.contains_key(*name) && names(schema));
        let more: BTreeSet<String> = more.map(|(name, _)| name.clone()).collect();
        if more.is_subset(&found) {
            return found;
        }
        found.extend(more);
    }
}

/// The name that a schema of what is sent has in the end.
fn settled(name: &str, differing: &BTreeSet<String>) -> String {
    if differing.contains(name) {
        format!("{name}{WANTED}")
    } else {
        name.to_owned()
    }
}

/// Has references lead to where schemas are in the end, and descriptions say nothing that only rustdoc reads.
fn finish(value: &mut Value, differing: &BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| finish(item, differing)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (name.as_str(), &mut *member) {
                    ("$ref", Value::String(text)) => {
                        if let Some(name) = text.strip_prefix(INWARD) {
                            *text = format!("{SCHEMAS}{}", settled(name, differing));
                        }
                    }
                    ("description", Value::String(text)) => {
                        *text = text.replace("[`", "`").replace("`]", "`");
                    }
                    _ => finish(member, differing),
                }
            }
        }
        _ => {}
    }
}

struct Writer {
    /// Of what callers send.
    inward: SchemaGenerator,
    /// Of what they are answered.
    outward: SchemaGenerator,
    failures: BTreeSet<u16>,
    failure: Value,
}

impl Writer {
    fn new() -> Self {
        let of = |contract: Contract, path: &str| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = path
                .trim_start_matches('#')
                .trim_end_matches('/')
                .to_owned()
                .into();
            settings.meta_schema = None;
            settings.contract = contract;
            settings.into_generator()
        };
        let mut outward = of(Contract::Serialize, SCHEMAS);
        Self {
            inward: of(Contract::Deserialize, INWARD),
            failure: of_type::<Wrapped<'static>>(&mut outward).to_value(),
            outward,
            failures: BTreeSet::new(),
        }
    }

    fn operation(&mut self, listed: &Listed, operation: &Operation) -> Value {
        let mut written = json!({
            "operationId": id_of(listed),
            "summary": operation.summary,
            "tags": [tag_of(listed.path)],
            "parameters": self.parameters(listed.path, operation),
            "responses": self.responses(listed.path, operation),
            "x-audience": word_of(operation.audience),
            "security": security(operation.audience),
        });
        if let (Some(body), Some(members)) = (operation.body, written.as_object_mut()) {
            let schema = body(&mut self.inward).to_value();
            let content = json!({"application/json": {"schema": schema}});
            let body = json!({"required": true, "content": content});
            members.insert("requestBody".to_owned(), body);
        }
        written
    }

    fn parameters(&mut self, path: &str, operation: &Operation) -> Vec<Value> {
        let mut parameters: Vec<Value> = variables(path)
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}))
            .collect();
        if operation.pages {
            parameters.extend(PAGES.iter().map(|parameter| self.parameter(parameter)));
        }
        parameters.extend(
            operation
                .parameters
                .iter()
                .map(|parameter| self.parameter(parameter)),
        );
        match operation.condition {
            Condition::None => {}
            Condition::IfMatch => parameters.push(json!({
                "name": "If-Match", "in": "header", "required": false,
                "description": "The ETag of the revision that is to be changed; without it whichever is there.",
                "schema": {"type": "string", "pattern": "^(\"[0-9]{1,18}\"|\\*)$"},
            })),
            Condition::Once => parameters.push(json!({
                "name": "Idempotency-Key", "in": "header", "required": false,
                "description": "Sent again with the same key and body, the call makes nothing and shows what it made.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            })),
        }
        parameters
    }

    fn parameter(&mut self, parameter: &Parameter) -> Value {
        let schema = (parameter.schema)(&mut self.inward).to_value();
        let mut written = json!({
            "name": parameter.name, "in": "query", "required": parameter.required,
            "description": parameter.about, "schema": schema,
        });
        let is_list = written["schema"]["type"] == "array";
        if let (true, Some(members)) = (is_list, written.as_object_mut()) {
            members.insert("style".to_owned(), "form".into());
            members.insert("explode".to_owned(), false.into());
        }
        written
    }

    fn responses(&mut self, path: &str, operation: &Operation) -> Map<String, Value> {
        let schema = (operation.answer)(&mut self.outward).to_value();
        let mut content = Map::new();
        for (index, media_type) in operation.media_types.iter().enumerate() {
            let schema = match index {
                0 => schema.clone(),
                _ => json!({"type": "string"}),
            };
            content.insert((*media_type).to_owned(), json!({ "schema": schema }));
        }
        let mut success = json!({"description": "Done.", "content": content});
        let headers = headers_of(operation);
        if let (false, Some(members)) = (headers.is_empty(), success.as_object_mut()) {
            members.insert("headers".to_owned(), headers.into());
        }
        let mut responses = Map::new();
        responses.insert(operation.status.to_string(), success);
        for status in failures_of(path, operation) {
            self.failures.insert(status);
            let reference = json!({"$ref": format!("#/components/responses/{}", name_of(status))});
            responses.insert(status.to_string(), reference);
        }
        responses
    }

    /// All but the schemas.
    fn components(&self) -> Value {
        let mut responses = Map::new();
        for status in &self.failures {
            let mut response = json!({
                "description": about(*status),
                "content": {"application/json": {"schema": self.failure}},
            });
            if let (429 | 503, Some(members)) = (*status, response.as_object_mut()) {
                let seconds = json!({"description": "Seconds.", "schema": {"type": "integer"}});
                members.insert("headers".to_owned(), json!({"Retry-After": seconds}));
            }
            responses.insert(name_of(*status), response);
        }
        json!({
            "responses": responses,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A virtual key."},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same."},
            },
        })
    }
}

/// The parameters of every list.
const PAGES: [Parameter; 2] = [
    Parameter::new::<u32>("limit", "Records of the page.").like(page_size),
    Parameter::new::<String>("after", "Where the page before ended: what it said as `next`."),
];

/// The names of a path's variables.
fn variables(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.trim_start_matches('*'))
}

/// `GET /api/v1/users/{id}` as `get_api_v1_users_id`.
fn id_of(listed: &Listed) -> String {
    let words = listed.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    std::iter::once(listed.method.to_ascii_lowercase())
        .chain(words.map(str::to_owned))
        .collect::<Vec<_>>()
        .join("_")
}

/// The first word of a path that says something.
fn tag_of(path: &str) -> &str {
    let mut words = path.split('/').filter(|word| !["", "api", "v1"].contains(word));
    words.next().unwrap_or("api")
}

fn word_of(audience: Audience) -> &'static str {
    match audience {
        Audience::Everybody => "everybody",
        Audience::Callers => "callers",
        Audience::Administrators => "administrators",
        Audience::Platform => "platform",
        Audience::Operators => "operators",
        Audience::Others => "others",
    }
}

fn security(audience: Audience) -> Value {
    match audience {
        Audience::Everybody | Audience::Others => json!([]),
        _ => json!([{"bearer": []}, {"key": []}]),
    }
}

/// The headers of a success.
fn headers_of(operation: &Operation) -> Map<String, Value> {
    let mut headers = Map::new();
    if operation.tagged {
        let tag = json!({"description": "The record's revision.", "schema": {"type": "string"}});
        headers.insert("ETag".to_owned(), tag);
    }
    if operation.condition == Condition::Once {
        let replay = json!({
            "description": "There where the record was made before, by the same call.",
            "schema": {"type": "string", "const": "true"},
        });
        headers.insert("X-Idempotent-Replay".to_owned(), replay);
    }
    headers
}

/// The statuses with which it may fail.
fn failures_of(path: &str, operation: &Operation) -> BTreeSet<u16> {
    let common = match operation.audience {
        Audience::Everybody => &OF_EVERYBODY[..],
        _ => &OF_CALLERS[..],
    };
    let more = operation.failures.iter().chain(operation.more_failures);
    let mut statuses: BTreeSet<u16> = common.iter().chain(more).copied().collect();
    if variables(path).next().is_some() {
        statuses.insert(404);
    }
    statuses
}

fn name_of(status: u16) -> String {
    format!("Failure{status}")
}

/// What a status means here.
fn about(status: u16) -> &'static str {
    match status {
        400 => "Not what is expected: `param` names what is wrong.",
        401 => "No credential, or none that is good.",
        403 => "The credential may not do this.",
        404 => "There is nothing of that name that is the caller's to see.",
        408 => "The body did not arrive in time.",
        409 => "Something else is there, or somebody was faster.",
        413 => "The body is too large.",
        415 => "The body is compressed in a way that is not known.",
        422 => "The idempotency key was used with another body.",
        429 => "Too many calls, or too many false credentials.",
        431 => "The headers are too many or too large.",
        503 => "Something that is needed is away, or the node is ending.",
        _ => "It did not succeed.",
    }
}
