//! `/api/v1/tenant/api-keys`: virtual keys are minted, listed and revoked here. A key is shown once, in the answer
//! that makes it; to revoke is to mark its record, never to delete it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bus::{BusError, Expected};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use schemas::catalog::{Catalog, Key, Origin, Role, key_key};
use schemas::failure::{Amount, Failure, FailureCode};
use schemas::id::{ModelName, TenantId, UserId};
use schemas::limit::layers::Bound;
use schemas::limit::limits::Limits;
use schemas::subject::CATALOG_BUCKET;
use schemas::time::Timestamp;
use schemas::usage::TOKENS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::{invalid, json, scope};
use crate::arrival::Arrival;
use crate::body;
use crate::caller::Caller;
use crate::demand;
use crate::gate;
use crate::key::{self, Grant};
use crate::limits::Usage;
use crate::peers;
use crate::standing;
use crate::state::Shared;

/// Largest body of a management call, in bytes.
const BODY_BYTES_MAX: u64 = 64 * 1024;
/// How long a caller may pause while he sends it.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest name of a key or of a member, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Models one key may be narrowed to.
const MODELS_MAX: usize = 1_000;
/// How long a change may take to come back through the catalogue's watch.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How often is looked whether it has.
const SEEN_POLL: Duration = Duration::from_millis(2);
/// Times a change is decided anew after somebody else's.
const TRIES_MAX: usize = 4;

/// What a caller asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) name: String,
    #[serde(default)]
    pub(super) tenant: Option<String>,
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) role: Option<Role>,
    #[serde(default)]
    pub(super) models: Option<Vec<String>>,
    #[serde(default)]
    pub(super) limits: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) expires_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) output_default_max: Option<u64>,
}

/// A key as it is shown.
#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    /// Only in the answer that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    name: &'a str,
    prefix: &'a str,
    tenant: &'a str,
    user: Option<&'a str>,
    role: Role,
    models: Option<&'a [ModelName]>,
    limits: &'a Limits,
    /// How its own quotas stand; only in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<Vec<Counted>>,
    output_default_max: Option<u64>,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    revoked: bool,
}

/// How one quota of a key stands.
#[derive(Serialize)]
struct Counted {
    /// Which.
    quota: &'static str,
    /// For calls of this model only.
    model: Option<ModelName>,
    limit: Amount,
    /// Null where nothing is known.
    used: Option<Amount>,
    remaining: Option<Amount>,
    /// False where some node or the records could not be asked: the figures are those that were known last.
    is_current: bool,
    /// Null for what is never whole again.
    reset_at: Option<String>,
}

#[derive(Serialize)]
struct List<'a> {
    data: Vec<Shown<'a>>,
}

/// Mints a key.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let made = async {
        let limits = body::Limits {
            bytes_max: BODY_BYTES_MAX,
            pause_max: PAUSE_MAX,
        };
        let read = body::read(&state.bodies, &headers, body, limits).await;
        let (bytes, _permit) = read.map_err(body::Refusal::failure)?;
        let grant = grant(&caller, &state.ports.catalog.peek(), wanted(&bytes)?)?;
        make(&state, grant, arrival.at).await
    };
    match made.await {
        Ok((text, record)) => {
            let mut response = json(&shown(&record, Some(&text)));
            *response.status_mut() = StatusCode::CREATED;
            response
        }
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Every key the caller may know of.
pub(crate) async fn list(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if let Err(failure) = administers(&caller) {
        return arrival.refuse(&failure);
    }
    let catalog = state.ports.catalog.load();
    let keys = catalog.keys().into_iter().map(|(_, key)| key);
    let keys: Vec<_> = keys.filter(|key| reaches(&caller, &key.tenant)).collect();
    // All at once: each question goes to every node.
    let own = keys.iter().map(|key| demand::own_quotas(&catalog.subjects(key)));
    let own: Vec<Vec<Bound>> = own.collect();
    let usages = peers::usage_of(&state, &own.concat()).await;
    let mut usages = usages.into_iter();
    let mut data = Vec::with_capacity(keys.len());
    for (key, own) in keys.into_iter().zip(&own) {
        let quotas = usages.by_ref().take(own.len());
        let quotas = quotas.map(|usage| counted(&state, usage)).collect();
        data.push(Shown {
            quotas: Some(quotas),
            ..shown(key, None)
        });
    }
    json(&List { data })
}

/// How a quota of a key stands.
fn counted(state: &Shared, usage: Usage) -> Counted {
    let Bound {
        key, limit, model, ..
    } = usage.bound;
    let amount = |amount| Amount::of(key, amount);
    Counted {
        quota: key.as_str(),
        model,
        limit: amount(limit),
        used: usage.used.map(amount),
        remaining: usage.used.map(|used| amount(limit.saturating_sub(used))),
        is_current: usage.is_current,
        reset_at: usage
            .resets_at
            .map(|at| standing::shown(at, state.config.billing_tz)),
    }
}

/// Revokes a key.
pub(crate) async fn revoke(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    // A name that is not even text is the name of nothing.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    match mark(&state, &caller, &id).await {
        Ok(record) => json(&shown(&record, None)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Reads the body of a call that mints a key.
pub(super) fn wanted(bytes: &[u8]) -> Result<Wanted, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let wanted = serde_path_to_error::deserialize(&mut reader).map_err(|problem| {
        let place = problem.path().to_string();
        misread(problem.inner(), place)
    })?;
    reader.end().map_err(|problem| misread(&problem, String::new()))?;
    Ok(wanted)
}

/// What is wrong with a key's description at `place`. The parser's words are not shown, the field is.
fn misread(problem: &serde_json::Error, place: String) -> Failure {
    let code = if problem.is_data() {
        FailureCode::InvalidRequest
    } else {
        FailureCode::InvalidJson
    };
    let text = "the body is not a key's description: expected name and, optionally, tenant, user, role, models, limits, \
                expires_at, output_default_max";
    let field = unknown_field(problem).unwrap_or(place);
    let shown = if showable(&field) {
        field
    } else {
        "body".to_owned()
    };
    Failure::new(code, text).param(shown)
}

/// The field that a parser did not know, or missed.
fn unknown_field(problem: &serde_json::Error) -> Option<String> {
    let text = problem.to_string();
    let named = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|lead| text.split_once(lead));
    let (field, _) = named?.1.split_once('`')?;
    Some(field.to_owned())
}

/// A field's name or place that may stand in an answer.
fn showable(field: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'[' | b']');
    !field.is_empty() && field.len() <= NAME_BYTES_MAX && field.bytes().all(plain)
}

/// What the caller may grant of what he wants.
pub(super) fn grant(caller: &Caller, catalog: &Catalog, wanted: Wanted) -> Result<Grant, Failure> {
    administers(caller)?;
    let tenant = wanted
        .tenant
        .map_or_else(|| caller.tenant().clone(), TenantId::new);
    if !reaches(caller, &tenant) {
        return Err(scope("the key may not administer other tenants").param("tenant"));
    }
    if catalog.tenant(&tenant).is_none() {
        return Err(invalid("tenant", "there is no such tenant"));
    }
    let role = wanted.role.unwrap_or_default();
    if role > caller.role() {
        return Err(scope("nobody may grant a role above his own").param("role"));
    }
    Ok(Grant {
        name: named("name", wanted.name)?.into(),
        tenant,
        user: wanted
            .user
            .map(|user| named("user", user).map(UserId::new))
            .transpose()?,
        role,
        models: models(caller, catalog, wanted.models)?,
        limits: limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        output_default_max: output_default_max(wanted.output_default_max)?,
        expires_at: wanted.expires_at,
    })
}

/// What a new key may use. The limits of its tenant and its member hold beside its own, whatever they are.
/// Limits of one model stand under the name that calls are counted by.
fn limits(caller: &Caller, catalog: &Catalog, wanted: Map<String, Value>) -> Result<Limits, Failure> {
    let refused = |path: &str, text: String| {
        let place = format!("limits.{path}");
        let place = if showable(&place.replace('.', "_")) {
            place
        } else {
            "limits".to_owned()
        };
        Failure::new(FailureCode::InvalidRequest, text).param(place)
    };
    let limits =
        Limits::try_from(wanted).map_err(|problem| refused(&problem.path, problem.kind.to_string()))?;
    for name in limits.per_model.keys() {
        let known = gate::visible(catalog, Some(&caller.key), name.as_str());
        if let Some(model) = known.filter(|model| model.id != *name) {
            let text = format!(
                "the name is an alias of the model '{}': give the limits under that name",
                model.id
            );
            return Err(refused(&format!("per_model.{name}"), text));
        }
    }
    Ok(limits)
}

/// The most tokens of an answer to a call that names no maximum; 0 names none.
fn output_default_max(wanted: Option<u64>) -> Result<Option<u64>, Failure> {
    let wanted = wanted.filter(|tokens| *tokens > 0);
    if wanted.is_some_and(|tokens| tokens > TOKENS_MAX) {
        return Err(invalid("output_default_max", "no answer has so many tokens"));
    }
    Ok(wanted)
}

/// The models a new key is narrowed to: only such as the caller may use himself.
fn models(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Option<Vec<String>>,
) -> Result<Option<Vec<ModelName>>, Failure> {
    let Some(wanted) = wanted else {
        return Ok(caller.key.models.clone());
    };
    if wanted.len() > MODELS_MAX {
        return Err(invalid("models", "too many models"));
    }
    let known = wanted
        .iter()
        .map(|name| gate::visible(catalog, Some(&caller.key), name).map(|model| model.id.clone()));
    let known: Option<Vec<ModelName>> = known.collect();
    known
        .map(Some)
        .ok_or_else(|| invalid("models", "there is no such model"))
}

fn named(field: &'static str, text: String) -> Result<String, Failure> {
    let fits = !text.trim().is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    if fits {
        Ok(text)
    } else {
        Err(invalid(field, "expected 1 to 128 bytes of printable text"))
    }
}

fn administers(caller: &Caller) -> Result<(), Failure> {
    match caller.role() {
        Role::Operator | Role::Admin => Ok(()),
        Role::Free | Role::Pro | Role::Internal => Err(scope("only an administrator may do this")),
    }
}

fn reaches(caller: &Caller, tenant: &TenantId) -> bool {
    caller.role() == Role::Operator || tenant == caller.tenant()
}

/// Writes the record of a new key. Returns the key, which is nowhere else.
async fn make(state: &Shared, grant: Grant, now: Timestamp) -> Result<(String, Key), Failure> {
    let mint = &state.ports.mint;
    let text = key::mint_member(mint);
    let record = key::record(mint, &text, grant, Origin::Runtime, now);
    let place = key_key(&state.doorkeeper.digest(&text));
    write(state, &place, &record, Expected::Absent).await?;
    Ok((text, record))
}

/// Marks a key as revoked.
async fn mark(state: &Shared, caller: &Caller, id: &str) -> Result<Key, Failure> {
    administers(caller)?;
    let none = || Failure::new(FailureCode::NotFound, "there is no such key");
    let catalog = state.ports.catalog.load();
    let mut keys = catalog.keys().into_iter();
    let (digest, known) = keys.find(|(_, key)| key.id.as_str() == id).ok_or_else(none)?;
    if !reaches(caller, &known.tenant) || known.role > caller.role() {
        return Err(none());
    }
    let place = key_key(digest);
    for _ in 0..TRIES_MAX {
        let entry = state
            .ports
            .kv
            .get(CATALOG_BUCKET, &place)
            .await
            .map_err(|_| away())?;
        let Some((entry, value)) = entry.and_then(|entry| entry.value.clone().map(|value| (entry, value)))
        else {
            return Err(none());
        };
        let mut record: Key = serde_json::from_slice(&value).map_err(|_| super::internal())?;
        record.revoked = true;
        // From now on a decision of run time: the file that brought the key does not bring it back.
        record.origin = Origin::Runtime;
        match write(state, &place, &record, Expected::Revision(entry.revision)).await {
            Err(failure) if failure.status == StatusCode::CONFLICT => {}
            written => return written.map(|()| record),
        }
    }
    Err(away())
}

/// Puts a record and waits until this node's own catalogue has it.
async fn write(state: &Shared, place: &str, record: &Key, expected: Expected) -> Result<(), Failure> {
    let value = serde_json::to_vec(record).map_err(|_| super::internal())?;
    let put = state
        .ports
        .kv
        .put(CATALOG_BUCKET, place, Bytes::from(value), expected);
    let revision = put.await.map_err(|problem| match problem {
        BusError::Conflict => away().with_status(StatusCode::CONFLICT.as_u16()),
        _ => away(),
    })?;
    let seen = async {
        while state.ports.catalog.peek().revision < revision {
            sleep(SEEN_POLL).await;
        }
    };
    // Written it is in any case; a slow watch only delays when it counts here.
    let _ = timeout(SEEN_WITHIN, seen).await;
    Ok(())
}

fn away() -> Failure {
    Failure::new(
        FailureCode::StoreUnavailable,
        "the catalogue cannot be changed at the moment",
    )
    .retry_after(2)
}

fn shown<'a>(record: &'a Key, key: Option<&'a str>) -> Shown<'a> {
    Shown {
        id: record.id.as_str(),
        key,
        name: &record.name,
        prefix: &record.prefix,
        tenant: record.tenant.as_str(),
        user: record.user.as_ref().map(UserId::as_str),
        role: record.role,
        models: record.models.as_deref(),
        limits: &record.limits,
        quotas: None,
        output_default_max: record.output_default_max,
        expires_at: record.expires_at,
        created_at: record.created_at,
        revoked: record.revoked,
    }
}
