//! `/admin/config/export` and `/admin/config/import`: the catalogue as a document, without keys and without secrets,
//! and the records of run time out of one. What files said stands in it for whoever reads it; it comes from files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bus::{BusError, Change, Kv};
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::change::Author;
use schemas::catalog::user::User;
use schemas::catalog::{Catalog, Endpoint};
use schemas::configuration::shown;
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::seal::Context;
use schemas::subject::CATALOG_BUCKET;
use schemas::subject::catalog as place;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::away;
use super::judge::{self, Judge, Members};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::manage::openapi::Operation;
use crate::manage::records::{self, Match, Place};
use crate::manage::{answered, description, internal, invalid, rights};
use crate::sign_in::turn::{Address, Turn};
use crate::state::Shared;

/// How long the bucket may take to tell what is in it.
const WITHIN: Duration = Duration::from_secs(10);

/// Where a record keeps what is sealed.
const SEALED: &str = "sealed";
/// How much of a record's key is told.
const KEY_CHARACTERS_MAX: usize = 300;

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
    /// Endpoints among them that have a sealed credential, which stays where it is: wherever they are made anew, it has
    /// to be given again.
    #[serde(default)]
    without_credential: BTreeSet<String>,
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
    /// Endpoints whose credential has to be given: the document does not have it, and they have none, or are elsewhere
    /// than it was sealed for.
    without_credential: BTreeSet<String>,
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
        let found = everything(&state).await?;
        Ok(Document {
            catalog_revision: found.revision,
            exported_at: Some(arrival.at),
            records: found.records,
            without_credential: found.sealed,
        })
    };
    answered(&arrival, exported.await)
}

/// What is in the bucket, without secrets.
struct Everything {
    revision: u64,
    records: Vec<Record>,
    /// Where records lie that have a sealed secret.
    sealed: BTreeSet<String>,
}

async fn everything(state: &Shared) -> Result<Everything, Failure> {
    let read = timeout(WITHIN, read_all(&*state.ports.kv)).await;
    read.unwrap_or(Err(BusError::Timeout)).map_err(away)
}

async fn read_all(kv: &dyn Kv) -> Result<Everything, BusError> {
    let mut changes = kv.watch(CATALOG_BUCKET).await?;
    let mut found: BTreeMap<(usize, String), Value> = BTreeMap::new();
    let (mut revision, mut sealed) = (0, BTreeSet::new());
    while let Some(change) = changes.recv().await {
        let Change::Entry(entry) = change else {
            let records = found.into_iter().filter_map(|((_, key), value)| match value {
                Value::Object(record) => Some(Record { key, record }),
                _ => None,
            });
            return Ok(Everything {
                revision,
                records: records.collect(),
                sealed,
            });
        };
        revision = revision.max(entry.revision);
        let rank = rank(&entry.key);
        let value = entry.value;
        let value: Option<Value> = value.and_then(|value| serde_json::from_slice(&value).ok());
        if let (Some((rank, _)), Some(value)) = (rank, value) {
            if value.as_object().is_some_and(has_sealed) {
                sealed.insert(entry.key.clone());
            }
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
        let author = caller.author(&arrival);
        take_in(&state, &caller, document, &author).await
    };
    answered(&arrival, imported.await)
}

/// A record that is to be written.
#[derive(Debug)]
struct Wanted {
    /// Which of the document's it is.
    number: usize,
    /// The document says that it has a credential which it does not tell.
    needs_credential: bool,
    rank: usize,
    kind: Kind,
    key: String,
    record: Map<String, Value>,
}

/// All of it is judged before any of it is written.
async fn take_in(
    state: &Shared,
    caller: &Caller,
    document: Document,
    author: &Author,
) -> Result<Done, Failure> {
    let Everything { records, sealed, .. } = everything(state).await?;
    let found: HashMap<String, Map<String, Value>> =
        records.into_iter().map(|one| (one.key, one.record)).collect();
    let found = There { found, sealed };
    let mut done = Done::default();
    let wanted = wanted(document, &mut done)?;
    let signing_in = judge::signing_in(state, wanted.iter().map(|one| one.key.as_str())).await?;
    let catalog = state.ports.catalog.load();
    let wanted = judged((caller, &catalog, &signing_in), &found, wanted, &mut done)?;
    let mut turns = begun(state, &wanted, author).await?;
    let mut written = Ok(());
    for one in wanted {
        let turn = turns.remove(&one.key);
        written = taken(state, (one, turn), author, &mut done).await;
        if written.is_err() {
            break;
        }
    }
    for turn in turns.into_values() {
        turn.fail(state).await;
    }
    written.map(|()| done)
}

/// Members who are about to be changed, by where they lie.
type Turns = HashMap<String, Turn>;

/// Holds what members are to have. Refuses all of it for one who may not.
async fn begun(state: &Shared, wanted: &[Wanted], author: &Author) -> Result<Turns, Failure> {
    let mut turns = Turns::new();
    for one in wanted {
        let Some((tenant, user)) = judge::member_of(&one.key) else {
            continue;
        };
        let email = one.record.get("email").and_then(Value::as_str);
        match Turn::begin(state, (&tenant, &user), Address::Is(email), author.at).await {
            Ok(turn) => drop(turns.insert(one.key.clone(), turn)),
            Err(failure) => {
                for turn in turns.into_values() {
                    turn.fail(state).await;
                }
                return Err(match failure.code {
                    FailureCode::StoreUnavailable => failure,
                    _ => refused(one.number, &one.key, &failure),
                });
            }
        }
    }
    Ok(turns)
}

/// Takes one record in, and has the account follow that is its member's.
async fn taken(
    state: &Shared,
    (one, turn): (Wanted, Option<Turn>),
    author: &Author,
    done: &mut Done,
) -> Result<(), Failure> {
    match (write(state, one, author, done).await, turn) {
        (Ok(lies), Some(turn)) => {
            let member: User = serde_json::from_value(Value::Object(lies)).map_err(|_| internal())?;
            turn.done(state, Some(&member), author).await
        }
        (Err(failure), Some(turn)) => {
            turn.fail(state).await;
            Err(failure)
        }
        (written, None) => written.map(drop),
    }
}

/// What there is before an import, without secrets.
struct There {
    found: HashMap<String, Map<String, Value>>,
    sealed: BTreeSet<String>,
}

/// The records that are to be judged, in the order in which they are. What comes from files or hides something is left.
fn wanted(document: Document, done: &mut Done) -> Result<Vec<Wanted>, Failure> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let needed = document.without_credential;
    for (number, Record { key, record }) in document.records.into_iter().enumerate() {
        let wrong = |text| refused(number, &key, &invalid("key", text));
        let (rank, kind) = rank(&key).ok_or_else(|| wrong("there is no such kind of record"))?;
        let value = Value::Object(record.clone());
        if !is_readable(&key, &value) {
            return Err(wrong("it is not a record of its kind, or lies elsewhere"));
        }
        let why = if is_of_file(&record) {
            "it comes from a file: put it into one"
        } else if shown::is_hidden(&value) || shown::without_secrets(&value) != value {
            "something of it is or could be a secret: make it by its own path"
        } else {
            wanted.push(Wanted {
                needs_credential: needed.contains(&key),
                number,
                rank,
                kind,
                key,
                record,
            });
            continue;
        };
        done.left.push(Left { key, why });
    }
    wanted.sort_by(|one, other| (one.rank, &one.key).cmp(&(other.rank, &other.key)));
    for pair in wanted.windows(2) {
        if let [one, other] = pair
            && one.key == other.key
        {
            let twice = invalid("key", "the record is there twice");
            return Err(refused(other.number.max(one.number), &other.key, &twice));
        }
    }
    Ok(wanted)
}

/// What of the records is to be written. Refuses all of them for one that its own path would not make. `found` is what
/// there is, without secrets.
fn judged(
    (caller, catalog, signing_in): (&Caller, &Catalog, &Members),
    there: &There,
    wanted: Vec<Wanted>,
    done: &mut Done,
) -> Result<Vec<Wanted>, Failure> {
    let There { found, sealed } = there;
    let mut judge = Judge::new(caller, catalog, signing_in)?;
    let mut good = Vec::with_capacity(wanted.len());
    for one in wanted {
        let there = found.get(&one.key);
        if there == Some(&one.record) {
            done.unchanged += 1;
            if one.needs_credential && !sealed.contains(&one.key) {
                done.without_credential.insert(one.key);
            }
        } else if there.is_some_and(is_of_file) {
            let why = "a file says something of it: change the file";
            done.left.push(Left { key: one.key, why });
        } else {
            let taken = judge.take(&one.key, &Value::Object(one.record.clone()), there);
            taken.map_err(|failure| refused(one.number, &one.key, &failure))?;
            good.push(one);
        }
    }
    Ok(good)
}

/// A failure of the whole import: which record it is, and what is wrong with it.
fn refused(number: usize, key: &str, failure: &Failure) -> Failure {
    let (_, name) = shown::named(key, None);
    // Some names are spelled in hexadecimal there.
    let place = if key.ends_with(&name) {
        key.to_owned()
    } else {
        format!("{key} ({name})")
    };
    let key: String = place.chars().take(KEY_CHARACTERS_MAX).collect();
    let what = failure.param.as_deref().unwrap_or("record");
    let text = format!("nothing was imported: {key}: {what}: {}", failure.message);
    Failure::new(FailureCode::InvalidRequest, text).param(format!("records[{number}]"))
}

/// True for a record that keeps a sealed secret.
fn has_sealed(record: &Map<String, Value>) -> bool {
    let sealed = record.get(SEALED).and_then(Value::as_array);
    sealed.is_some_and(|sealed| !sealed.is_empty())
}

fn is_of_file(record: &Map<String, Value>) -> bool {
    record.get("origin").is_some_and(|origin| origin == "file")
}

/// True for a record that every node can read.
fn is_readable(key: &str, record: &Value) -> bool {
    let text = record.to_string();
    Catalog::default().apply(1, key, Some(text.as_bytes())).is_ok()
}

/// True where what is sealed for one of two endpoints opens for the other.
fn is_sealed_alike(found: &Map<String, Value>, wanted: &Map<String, Value>) -> bool {
    let context = |record: &Map<String, Value>| {
        let endpoint: Endpoint = serde_json::from_value(Value::Object(record.clone())).ok()?;
        Some(Context::of(&endpoint))
    };
    context(found) == context(wanted)
}

/// An endpoint after the import, and whether it lost what was sealed for other addresses.
fn unsealed(found: &Map<String, Value>, wanted: &Map<String, Value>) -> (Map<String, Value>, bool) {
    let mut merged = merged(found, wanted);
    let loses = merged.contains_key(SEALED) && !is_sealed_alike(found, wanted);
    if loses {
        merged.remove(SEALED);
    }
    (merged, loses)
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

/// Writes a record; gives what lies there then.
async fn write(
    state: &Shared,
    wanted: Wanted,
    author: &Author,
    done: &mut Done,
) -> Result<Map<String, Value>, Failure> {
    let Wanted {
        kind,
        key,
        record,
        needs_credential,
        ..
    } = wanted;
    let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
    let (_, name) = shown::named(&key, Some(&Value::Object(record.clone())));
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
        let written = records::create(state, &place, record, None, author).await?;
        done.made += 1;
        if needs_credential {
            done.without_credential.insert(place.key);
        }
        return Ok(written.record);
    }
    let (of_file, lost) = (AtomicBool::new(false), AtomicBool::new(false));
    let decide = |found: &Map<String, Value>| {
        of_file.store(is_of_file(found), Ordering::Relaxed);
        if is_of_file(found) {
            return Ok(found.clone());
        }
        let (after, loses) = unsealed(found, &record);
        lost.store(loses, Ordering::Relaxed);
        if kind == Kind::Price && after != *found {
            return Err(invalid(
                "records",
                "somebody else made a version of a price meanwhile",
            ));
        }
        Ok(after)
    };
    let written = records::change(state, &place, Match::Any, &author, decide).await?;
    if of_file.load(Ordering::Relaxed) {
        done.left.push(Left {
            key: place.key,
            why: "a file says something of it: change the file",
        });
        return Ok(written.record);
    }
    if written.repeated {
        done.unchanged += 1;
    } else {
        done.changed += 1;
    }
    let lacks = needs_credential && !has_sealed(&written.record);
    if lacks || lost.load(Ordering::Relaxed) {
        done.without_credential.insert(place.key);
    }
    Ok(written.record)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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

    #[test]
    fn what_was_sealed_for_other_addresses_is_dropped() {
        let at = |url: &str, more: Value| {
            let mut endpoint = json!({
                "id": "ep-1", "kind": "openai_compat", "provider": "p", "chat_path": "/v1", "query": "",
                "backends": [{"id": "ep-1", "base_url": url}], "auth_header": "authorization", "auth_format": "",
                "extra_headers": [], "extra_body": "", "credentials": [], "single_backend_rescue": true,
                "http2": false, "disabled": false, "tenant": "acme", "origin": "runtime",
            });
            let object = endpoint.as_object_mut().expect("an object");
            object.extend(more.as_object().cloned().expect("an object"));
            object.clone()
        };
        let found = at("https://one.example", json!({"sealed": ["s"]}));

        let (same, lost) = unsealed(&found, &at("https://one.example", json!({"disabled": true})));
        assert_eq!((same.get("sealed"), lost), (Some(&json!(["s"])), false));
        let (other, lost) = unsealed(&found, &at("https://two.example", json!({})));
        assert_eq!((other.get("sealed"), lost), (None, true));
        let keyless = at("https://one.example", json!({}));
        assert!(!unsealed(&keyless, &at("https://two.example", json!({}))).1);
    }
}
