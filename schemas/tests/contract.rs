//! What is checked in for consumers of the log is what the types write, and holds for every event that was ever written.

#![expect(clippy::expect_used, reason = "a test that cannot read its file has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use schemas::contract::documents;
use schemas::subject;
use serde_json::{Value, json};

fn directory(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn files(of: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory(of)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a plain name");
        files.push((name, std::fs::read_to_string(entry.path()).expect("text")));
    }
    files.sort_unstable();
    files
}

fn golden() -> Vec<(String, Value)> {
    files("tests/golden/v1")
        .into_iter()
        .map(|(name, text)| (name, serde_json::from_str(&text).expect("JSON")))
        .collect()
}

fn validator(kind: &str) -> Validator {
    let name = format!("{kind}.json");
    let document = documents().into_iter().find(|document| document.name == name);
    let schema = serde_json::from_str(&document.expect("a schema").text).expect("JSON");
    jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("a schema of the draft it names")
}

fn kind(event: &Value) -> &str {
    event["type"].as_str().expect("a type")
}

#[test]
fn the_files_say_what_is_written() {
    let written: Vec<_> = documents()
        .into_iter()
        .map(|document| (document.name, document.text))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();

    assert!(
        files("json-schema") == written,
        "schemas/json-schema is stale: `make gen` writes it anew"
    );
}

#[test]
fn every_event_that_was_ever_written_is_as_its_schema_says() {
    for (name, event) in golden() {
        let faults: Vec<_> = validator(kind(&event))
            .iter_errors(&event)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
}

#[test]
fn an_event_that_lacks_something_or_has_it_of_another_type_is_not() {
    for (name, event) in golden() {
        let validator = validator(kind(&event));
        let members: Vec<String> = event["data"]
            .as_object()
            .expect("a payload")
            .keys()
            .cloned()
            .collect();
        let optional = [
            "job_id",
            "quotas",
            "decision",
            "metering",
            "auto",
            "fields",
            "adjustments",
            "adjusted_nano_usd",
        ];
        for member in members {
            let mut lacking = event.clone();
            lacking["data"]
                .as_object_mut()
                .expect("a payload")
                .remove(&member);
            assert_eq!(
                validator.is_valid(&lacking),
                optional.contains(&member.as_str()),
                "{name} without {member}"
            );
            let mut other = event.clone();
            other["data"][&member] = json!([[7]]);
            assert!(!validator.is_valid(&other), "{name} with another {member}");
        }
        let mut other = event.clone();
        other["type"] = json!("waybill.request.settled.v2");
        assert!(!validator.is_valid(&other), "{name} of another type");
    }
}

#[test]
fn members_of_later_versions_are_allowed() {
    for (name, mut event) in golden() {
        event["later"] = json!(1);
        event["data"]["later"] = json!({ "of": [1] });
        assert!(validator(kind(&event)).is_valid(&event), "{name}");
    }
}

#[test]
fn the_description_of_the_subjects_names_every_event_where_it_is_found() {
    let document = documents()
        .into_iter()
        .find(|document| document.name == "asyncapi.json")
        .expect("a description");
    let described: Value = serde_json::from_str(&document.text).expect("JSON");
    let golden = golden();
    let kinds: BTreeSet<&str> = golden.iter().map(|(_, event)| kind(event)).collect();
    let messages = described["components"]["messages"].as_object().expect("messages");

    assert_eq!(
        messages.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        kinds
    );
    for kind in kinds {
        let address = subject::event(kind, "{tenant}");
        let channels = described["channels"].as_object().expect("channels");
        let of: Vec<_> = channels
            .values()
            .filter(|channel| channel["messages"].get(kind).is_some())
            .map(|channel| channel["address"].as_str().expect("an address"))
            .collect();
        assert_eq!(of, [address], "{kind}");
        let payload = messages[kind]["payload"]["$ref"].as_str().expect("a file");
        assert!(directory("json-schema").join(payload).is_file(), "{payload}");
    }
}
