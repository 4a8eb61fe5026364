//! Bodies of the management API whose lists stand where objects belong: refused by name wherever the description of a
//! body has an object, never read as the object's fields in some order.

use serde_json::{Value, json};

use crate::scene::{OPERATOR, Scene};

/// What a reference stands for.
fn resolved<'v>(described: &'v Value, schema: &'v Value) -> &'v Value {
    match schema["$ref"].as_str().and_then(|to| to.strip_prefix('#')) {
        Some(pointer) => resolved(described, described.pointer(pointer).expect("a schema")),
        None => schema,
    }
}

fn is_object(described: &Value, schema: &Value) -> bool {
    let schema = resolved(described, schema);
    let any = ["anyOf", "oneOf", "allOf"].map(|of| schema[of].as_array());
    schema["type"] == "object"
        || schema["type"]
            .as_array()
            .is_some_and(|types| types.contains(&json!("object")))
        || any
            .into_iter()
            .flatten()
            .flatten()
            .any(|one| is_object(described, one))
}

/// Bodies with a list for an object, and where it is.
fn bodies(described: &Value, operation: &Value) -> Vec<(Value, String)> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let properties = resolved(described, schema)["properties"].as_object();
    let mut bodies = Vec::new();
    for (name, property) in properties.into_iter().flatten() {
        if is_object(described, property) {
            bodies.push((json!({name: []}), name.clone()));
        }
        let items = &resolved(described, property)["items"];
        if is_object(described, items) {
            bodies.push((json!({name: [[]]}), format!("{name}[0]")));
        }
    }
    bodies
}

async fn made(scene: &Scene, line: &str, body: Value) -> String {
    let answer = scene.call(line, OPERATOR, &body.to_string()).await;
    assert_eq!(answer.status, 201, "{line}: {answer:?}");
    answer.json()["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_list_is_no_object_in_any_body() {
    let scene = Scene::new().await;
    let described = scene.within("GET /api/v1/openapi.json", &[], "").await.json();
    let user = made(&scene, "POST /api/v1/users", json!({"id": "ann"})).await;
    let key = made(&scene, "POST /api/v1/tenant/api-keys", json!({"name": "k"})).await;
    let backend = json!({"url": "http://one.example:8000"});
    let endpoint = json!({"name": "e", "kind": "vllm", "model": "x", "backends": [backend]});
    let endpoint = made(&scene, "POST /api/v1/endpoints", endpoint).await;
    let mut asked = 0;

    for (path, operations) in described["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("methods") {
            for (body, place) in bodies(&described, operation) {
                let of = |part: &str| path.contains(part);
                let id = match () {
                    () if of("users") => &user,
                    () if of("keys") => &key,
                    () if of("endpoints") => &endpoint,
                    () => "default",
                };
                let filled = path.replace("{id}", id).replace("{node}", "n1");
                let line = format!("{} {filled}", method.to_uppercase());

                let answer = scene.call(&line, OPERATOR, &body.to_string()).await;

                let told = answer.json();
                assert_eq!(answer.status, 400, "{line} {body}: {answer:?}");
                assert_eq!(told["error"]["param"], *place, "{line} {body}: {told}");
                asked += 1;
            }
        }
    }
    assert!(asked > 15, "{asked}");
}
