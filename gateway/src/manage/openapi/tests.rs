//! The document is whole, up to date, and says of each class of routes what they have in common.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn read() -> Value {
    serde_json::from_str(&text()).expect("a document")
}

/// What every reference of a document leads to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        _ => {}
    }
}

#[test]
fn every_route_of_management_is_described() {
    assert_eq!(
        routes::undescribed(),
        Vec::new(),
        "say what they do: see manage::openapi"
    );
}

#[test]
fn the_file_says_what_is_served() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let file = std::fs::read_to_string(path).expect("docs/openapi.json");
    assert!(
        file == text(),
        "docs/openapi.json is stale: `make gen` writes it anew"
    );
}

#[test]
fn references_lead_to_what_is_there() {
    let document = read();
    let mut found = BTreeSet::new();
    references(&document, &mut found);

    assert!(!found.is_empty());
    for reference in found {
        let place = reference.trim_start_matches('#');
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn schemas_have_names_of_their_own() {
    let document = read();
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    for name in schemas.keys() {
        let general = ["Shown", "Wanted", "Patch", "List"].contains(&name.as_str());
        // A second type of the same name gets a number.
        assert!(
            !general && !name.ends_with(|last: char| last.is_ascii_digit()),
            "{name}: two types of one name, or one that says nothing: give it another with #[schemars(rename = ..)]"
        );
    }
}

#[test]
fn what_is_common_to_a_class_of_handlers_is_said_of_each() {
    let document = read();
    let of = |path: &str, method: &str| document["paths"][path][method].clone();
    let statuses = |path: &str, method: &str| -> Vec<String> {
        let responses = of(path, method)["responses"]
            .as_object()
            .expect("responses")
            .clone();
        responses.keys().cloned().collect()
    };

    assert_eq!(
        statuses("/api/v1/tenants", "post"),
        [
            "201", "400", "401", "403", "408", "409", "413", "415", "422", "429", "431", "503"
        ]
    );
    assert_eq!(
        statuses("/api/v1/users/{id}", "patch"),
        [
            "200", "400", "401", "403", "404", "408", "409", "413", "415", "429", "431", "503"
        ]
    );
    assert_eq!(statuses("/api/v1/openapi.json", "get"), ["200", "400", "431"]);
    let user = of("/api/v1/users/{id}", "patch");
    let names: Vec<&str> = user["parameters"]
        .as_array()
        .expect("parameters")
        .iter()
        .map(|parameter| parameter["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["id", "tenant", "If-Match"]);
    assert_eq!(
        user["requestBody"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/UserPatch"
    );
    assert_eq!(
        user["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/User"
    );
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["UserPatch"]["additionalProperties"], false);
    // What may be sent as text and what is answered as a number are two things.
    assert_eq!(schemas["Limits"]["properties"]["rpm"]["type"], "integer");
    assert_eq!(
        schemas["LimitsWanted"]["properties"]["rpm"]["oneOf"][1]["type"],
        "string"
    );
    assert_eq!(
        schemas["UserPatch"]["properties"]["limits"]["$ref"],
        "#/components/schemas/LimitsWanted"
    );
}
