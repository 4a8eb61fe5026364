//! `/admin/config/export` and `/admin/config/import`: the catalogue as a document, without keys and without secrets,
//! and the records of run time out of one. What files said stands in it for whoever reads it; it comes from files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bus::{BusError, Change, Kv};
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::change::Author;
use schemas::catalog::{self, Catalog};
use schemas::configuration::shown;
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, EndpointId, ModelName, TenantId, UserId};
use schemas::subject::CATALOG_BUCKET;
use schemas::subject::catalog as place;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::away;
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::manage::openapi::Operation;
use crate::manage::records::{self, Match, Place};
use crate::manage::{description, invalid, json, rights};
use crate::state::Shared;

/// How long the bucket may take to tell what is in it.
const WITHIN: Duration = Duration::from_secs(10);

/// Kinds of records that are exported, in the order in which they are imported, and how events call them.
const KINDS: [(&str, Kind); 11] = [
    (place::TENANT, Kind::Tenant),
    (place::USER, Kind::User),
    (place::ROLE, Kind::Setting),
    (place::ENDPOINT, Kind::Endpoint),
    (place::MODEL, Kind::Model),
    (place::ROUTE, Kind::Route),
    (place::OVERLAY, Kind::Model),
    (place::PRICE, Kind::Price),
    (place::SETTING, Kind::Setting),
    (place::PROVIDER, Kind::Provider),
    (place::POLICY, Kind::ModelPolicy),
];

/// A record of the catalogue.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CatalogRecord")]
pub(crate) struct Record {
    /// Where it lies.
    key: String,
    /// What it says; `***` stands for what is not shown.
    record: Map<String, Value>,
}

/// The catalogue, without keys and secrets.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CatalogDocument")]
pub(crate) struct Document {
    /// The revision of the catalogue that it shows.
    #[serde(default)]
    catalog_revision: u64,
    /// When it was made.
    #[serde(default)]
    exported_at: Option<Timestamp>,
    /// The records, by where they lie.
    records: Vec<Record>,
}

const DOCUMENT: &str = "the body is not an exported catalogue: expected records, a list of key and record";

/// What an import did.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "CatalogImport")]
pub(crate) struct Done {
    /// Records that were not there.
    made: usize,
    /// Records that said something else.
    changed: usize,
    /// Records that said the same.
    unchanged: usize,
    /// Records that were left alone, and why.
    left: Vec<Left>,
}

/// A record that was not imported.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CatalogImportLeft")]
struct Left {
    key: String,
    why: &'static str,
}

/// What the paths do.
pub(crate) const EXPORT: Operation =
    Operation::read::<Document>("Gives the catalogue as a document, without keys and secrets")
        .of_operators()
        .failing(&[503]);
pub(crate) const IMPORT: Operation =
    Operation::ask::<Document, Done>("Takes in the records of an exported catalogue that are of run time")
        .of_operators()
        .failing(&[409, 503]);

/// Gives the catalogue.
pub(crate) async fn export(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    let exported = async {
        rights::operates(&caller)?;
        let read = timeout(WITHIN, everything(&*state.ports.kv)).await;
        let (catalog_revision, records) = read.unwrap_or(Err(BusError::Timeout)).map_err(away)?;
        Ok(Document {
            catalog_revision,
            exported_at: Some(arrival.at),
            records,
        })
    };
    match exported.await {
        Ok(document) => json(&document),
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn everything(kv: &dyn Kv) -> Result<(u64, Vec<Record>), BusError> {
    let mut changes = kv.watch(CATALOG_BUCKET).await?;
    let mut found: BTreeMap<(usize, String), Value> = BTreeMap::new();
    let mut newest = 0;
    while let Some(change) = changes.recv().await {
        let Change::Entry(entry) = change else {
            let records = found.into_iter().filter_map(|((_, key), value)| match value {
                Value::Object(record) => Some(Record { key, record }),
                _ => None,
            });
            return Ok((newest, records.collect()));
        };
        newest = newest.max(entry.revision);
        let rank = rank(&entry.key);
        let value = entry.value.and_then(|value| serde_json::from_slice(&value).ok());
        if let (Some((rank, _)), Some(value)) = (rank, value) {
            found.insert((rank, entry.key), shown::without_secrets(&value));
        }
    }
    Err(BusError::Timeout)
}

/// The place of a record's kind among those that are exported, and how events call it.
fn rank(key: &str) -> Option<(usize, Kind)> {
    let kinds = KINDS.iter().enumerate();
    let mut found = kinds.filter(|(_, (prefix, _))| key.starts_with(prefix));
    found.next().map(|(rank, (_, kind))| (rank, *kind))
}

/// Takes records in.
pub(crate) async fn import(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let imported = async {
        let bytes = description::large_body(&state, &headers, body).await?;
        let document: Document = description::read(&bytes, DOCUMENT)?;
        take_in(&state, document, &caller.author(&arrival)).await
    };
    match imported.await {
        Ok(done) => json(&done),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// All of it is judged before any of it is written.
async fn take_in(state: &Shared, document: Document, author: &Author) -> Result<Done, Failure> {
    let mut done = Done::default();
    let mut wanted = Vec::new();
    for (n, Record { key, record }) in document.records.into_iter().enumerate() {
        let (rank, kind) = rank(&key).ok_or_else(|| wrong(n, "there is no such kind of record"))?;
        let value = Value::Object(record);
        if !is_sound(&key, &value) {
            return Err(wrong(n, "it is not a record of its kind, or lies elsewhere"));
        }
        let why = if value.get("origin").is_some_and(|origin| origin == "file") {
            "it comes from a file: put it into one"
        } else if shown::is_hidden(&value) || shown::without_secrets(&value) != value {
            "something of it is or could be a secret: make it by its own path"
        } else {
            wanted.push((rank, kind, key, value));
            continue;
        };
        done.left.push(Left { key, why });
    }
    wanted.sort_by(|one, other| (one.0, &one.2).cmp(&(other.0, &other.2)));
    for (_, kind, key, value) in wanted {
        write(state, (kind, key, value), author, &mut done).await?;
    }
    Ok(done)
}

fn wrong(n: usize, text: &'static str) -> Failure {
    invalid(format!("records[{n}]"), text)
}

/// True for a record that every node can read, and that lies where its own id says.
fn is_sound(key: &str, record: &Value) -> bool {
    let text = record.to_string();
    let readable = Catalog::default().apply(1, key, Some(text.as_bytes())).is_ok();
    let id = record.get("id").and_then(Value::as_str);
    let expected = match (id, rank(key).map(|(_, kind)| kind)) {
        (Some(id), Some(Kind::Tenant)) => catalog::tenant::tenant_key(&TenantId::from(id)),
        (Some(id), Some(Kind::Endpoint)) => catalog::endpoint_key(&EndpointId::new(id.to_owned())),
        (Some(id), Some(Kind::User)) => {
            let tenant = record.get("tenant").and_then(Value::as_str).unwrap_or_default();
            catalog::user::user_key(&TenantId::from(tenant), &UserId::from(id))
        }
        (Some(id), Some(Kind::Model)) if key.starts_with(place::MODEL) => {
            catalog::model_key(&ModelName::from(id))
        }
        _ => key.to_owned(),
    };
    readable && expected == key
}

/// What of two records is compared: what an export does not show is kept as it is.
fn merged(found: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = wanted.clone();
    let shown = shown::without_secrets(&Value::Object(found.clone()));
    for (name, value) in found {
        if shown.get(name).is_none() {
            merged.insert(name.clone(), value.clone());
        }
    }
    merged
}

async fn write(
    state: &Shared,
    (kind, key, value): (Kind, String, Value),
    author: &Author,
    done: &mut Done,
) -> Result<(), Failure> {
    let Value::Object(wanted) = value else {
        return Ok(());
    };
    let text = |name: &str| wanted.get(name).and_then(Value::as_str).map(str::to_owned);
    let (_, name) = shown::named(&key, Some(&Value::Object(wanted.clone())));
    let tenant = if kind == Kind::Tenant {
        text("id")
    } else {
        text("tenant")
    };
    let place = Place {
        kind,
        tenant: TenantId::from(tenant.as_deref().unwrap_or(DEFAULT_TENANT)),
        id: name.into(),
        key,
    };
    // Every change is told under an id of its own.
    let author = Author {
        id: state.ports.mint.request_id(author.at),
        ..author.clone()
    };
    let exists = records::exists::<Map<String, Value>>(state, &place).await?;
    if !exists {
        records::create(state, &place, wanted, None, author).await?;
        done.made += 1;
        return Ok(());
    }
    let of_file = AtomicBool::new(false);
    let decide = |found: &Map<String, Value>| {
        let is_of_file = found.get("origin").is_some_and(|origin| origin == "file");
        of_file.store(is_of_file, Ordering::Relaxed);
        Ok(if is_of_file {
            found.clone()
        } else {
            merged(found, &wanted)
        })
    };
    let written = records::change(state, &place, Match::Any, &author, decide).await?;
    if of_file.load(Ordering::Relaxed) {
        done.left.push(Left {
            key: place.key,
            why: "a file says something of it: change the file",
        });
    } else if written.repeated {
        done.unchanged += 1;
    } else {
        done.changed += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_lies_where_it_says_is_taken_in() {
        let tenant = json!({"id": "acme", "origin": "runtime"});
        assert!(is_sound("tenant.acme", &tenant));
        assert!(!is_sound("tenant.other", &tenant));
        assert!(!is_sound("tenant.acme", &json!({"id": 7})));
        assert!(!is_sound("key.00", &tenant));
        let user = json!({"tenant": "acme", "id": "a", "origin": "runtime"});
        assert!(is_sound("user.acme.61", &user));
        assert!(!is_sound("user.default.61", &user));
    }

    #[test]
    fn what_is_not_shown_is_kept() {
        let map = |value: Value| value.as_object().cloned().expect("an object");
        let found = map(json!({"id": "m:a", "sealed": ["s"], "disabled": false}));
        let wanted = map(json!({"id": "m:a", "disabled": true}));
        assert_eq!(
            merged(&found, &wanted),
            map(json!({"id": "m:a", "sealed": ["s"], "disabled": true}))
        );
    }
}
