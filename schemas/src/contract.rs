//! What consumers of the log are promised, as documents made of the types that write it: a JSON Schema of each event's
//! message, and an `AsyncAPI` document that says where which of them are found. They are checked in under
//! `schemas/json-schema/`; a test compares the files with these, and `make gen` writes them anew.
//!
//! A schema says what is there. Later versions of Waybill add members and take none away, so schemas allow members that
//! they do not name, and so must their readers.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::envelope::Envelope;
use crate::event::Fact;
use crate::event::audit::Audited;
use crate::event::health::{CircuitChanged, CredentialChanged, EndpointChanged, WakeEnded};
use crate::event::ledger::{Adjusted, Sealed};
use crate::event::limit::LimitRefused;
use crate::event::request::{RequestAccepted, RequestLost, RequestSettled};
use crate::event::spool::{SpoolFilled, SpoolLost};
use crate::subject;

/// Name of the document that says where events are found.
const ASYNCAPI: &str = "asyncapi.json";
/// What `AsyncAPI` calls the part of a subject that is a tenant's id.
const TENANT: &str = "{tenant}";

/// One file of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its name, without a directory.
    pub name: String,
    /// JSON, indented, with a line's end.
    pub text: String,
}

/// An event as consumers see it.
struct Told {
    /// `waybill.<fact>.v<n>`
    kind: &'static str,
    /// One sentence: the first paragraph of the payload's documentation.
    summary: String,
    schema: Schema,
}

/// Every document: the schemas in the order of their types, then the description of the subjects.
pub fn documents() -> Vec<Document> {
    let events = events();
    let mut documents: Vec<_> = events
        .iter()
        .map(|event| document(file(event.kind), event.schema.as_value()))
        .collect();
    documents.push(document(ASYNCAPI.to_owned(), &asyncapi(&events)));
    documents
}

/// All events, ordered by their types.
fn events() -> [Told; 13] {
    [
        told::<Audited>(),
        told::<CircuitChanged>(),
        told::<CredentialChanged>(),
        told::<EndpointChanged>(),
        told::<WakeEnded>(),
        told::<Sealed>(),
        told::<LimitRefused>(),
        told::<RequestAccepted>(),
        told::<Adjusted>(),
        told::<RequestLost>(),
        told::<RequestSettled>(),
        told::<SpoolFilled>(),
        told::<SpoolLost>(),
    ]
}

fn told<F: Fact + JsonSchema>() -> Told {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(without_line_ends))
        .into_generator();
    let payload = generator.root_schema_for::<F>();
    let summary = payload
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let mut schema = generator.into_root_schema_for::<Envelope<F>>();
    schema.insert(
        "$id".to_owned(),
        json!(format!("urn:{}", F::KIND.replace('.', ":"))),
    );
    schema.insert("title".to_owned(), json!(F::KIND));
    schema.insert("description".to_owned(), json!(summary));
    if let Some(kind) = schema.pointer_mut("/properties/type") {
        *kind = json!({ "const": F::KIND, "description": "What this is." });
    }
    Told {
        kind: F::KIND,
        summary,
        schema,
    }
}

/// Sentences of a documentation are told as one paragraph, however the source breaks its lines.
fn without_line_ends(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

/// Name of the file with an event's schema.
fn file(kind: &str) -> String {
    format!("{kind}.json")
}

fn document(name: String, value: &Value) -> Document {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    Document { name, text }
}

/// Where events are found: one subject for each family and tenant.
fn asyncapi(events: &[Told]) -> Value {
    let mut channels = Map::new();
    let mut operations = Map::new();
    let mut messages = Map::new();
    for event in events {
        let address = subject::event(event.kind, TENANT);
        let family = address.split('.').rev().nth(1).unwrap_or_default().to_owned();
        let name = json!({ "$ref": format!("#/components/messages/{}", event.kind) });
        let channel = channels
            .entry(family.clone())
            .or_insert_with(|| channel(&address));
        if let Some(of_channel) = channel.get_mut("messages").and_then(Value::as_object_mut) {
            of_channel.insert(event.kind.to_owned(), name);
        }
        operations.entry(family.clone()).or_insert_with(|| {
            json!({
                "action": "receive",
                "channel": { "$ref": format!("#/channels/{family}") },
                "summary": format!("Reads the events of the family `{family}`."),
            })
        });
        messages.insert(event.kind.to_owned(), message(event));
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Waybill events",
            "version": "1",
            "description": "Facts that a Waybill cluster writes to its log, each as a CloudEvents 1.0 message in structured JSON. A message may come more than once: its `id` stays the same. Those of one `source` are numbered by `sourcesequence` without a gap, over all tenants. Members are added and never taken away: pass over those that you do not know.",
            "license": { "name": "Apache-2.0" },
        },
        "defaultContentType": "application/cloudevents+json",
        "servers": {
            "cluster": {
                "host": "localhost:4222",
                "protocol": "nats",
                "description": format!(
                    "NATS with JetStream; the stream is `{}`, its subjects `{}`.",
                    subject::EVENTS_STREAM,
                    subject::EVENTS,
                ),
            },
        },
        "channels": channels,
        "operations": operations,
        "components": { "messages": messages },
    })
}

fn channel(address: &str) -> Value {
    json!({
        "address": address,
        "parameters": { "tenant": { "description": "The tenant's id; `default` for what belongs to the operator." } },
        "messages": {},
    })
}

fn message(event: &Told) -> Value {
    json!({
        "name": event.kind,
        "contentType": "application/cloudevents+json",
        "summary": event.summary,
        "payload": { "$ref": format!("./{}", file(event.kind)) },
    })
}
