//! `/api/v1/tenant/api-keys`: virtual keys are minted, listed and revoked here. A key is shown once, in the answer
//! that makes it; to revoke is to mark its record, never to delete it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use schemas::catalog::change::Author;
use schemas::catalog::user::User;
use schemas::catalog::{Catalog, Key, KeyDigest, Origin, Role, key_key};
use schemas::event::audit::Kind;
use schemas::failure::{Amount, Failure, FailureCode};
use schemas::id::{ModelName, UserId};
use schemas::limit::layers::Bound;
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use schemas::usage::TOKENS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::records::{self, Match, Place};
use super::{description, invalid, json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::demand;
use crate::gate;
use crate::key::{self, Grant};
use crate::limits::Usage;
use crate::peers;
use crate::standing;
use crate::state::Shared;

/// Models one key may be narrowed to.
const MODELS_MAX: usize = 1_000;

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
    if let Err(failure) = rights::administers(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let made = async {
        let bytes = description::body(&state, &headers, body).await?;
        let grant = grant(&caller, &state.ports.catalog.load(), wanted(&bytes)?)?;
        make(&state, grant, caller.author(&arrival)).await
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
    if let Err(failure) = rights::administers(&caller) {
        return arrival.refuse(&failure);
    }
    let catalog = state.ports.catalog.load();
    let keys = catalog.keys().into_iter().map(|(_, key)| key);
    let keys: Vec<_> = keys.filter(|key| rights::reaches(&caller, &key.tenant)).collect();
    // All at once: each question goes to every node.
    let own = keys.iter().map(|key| demand::own_quotas(&catalog, key));
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
    match mark(&state, &caller, &id, &caller.author(&arrival)).await {
        Ok(record) => json(&shown(&record, None)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Reads the body of a call that mints a key.
pub(super) fn wanted(bytes: &[u8]) -> Result<Wanted, Failure> {
    description::read(
        bytes,
        "the body is not a key's description: expected name and, optionally, tenant, user, role, models, limits, \
         expires_at, output_default_max",
    )
}

/// What the caller may grant of what he wants.
pub(super) fn grant(caller: &Caller, catalog: &Catalog, wanted: Wanted) -> Result<Grant, Failure> {
    let tenant = rights::living_tenant(caller, catalog, wanted.tenant.as_deref())?;
    let name = description::name(wanted.name)?;
    let role = rights::may_give(caller, wanted.role.unwrap_or_default())?;
    let user = wanted
        .user
        .map(|user| description::named("user", user).map(UserId::new));
    let user = user.transpose()?;
    if let Some(member) = user.as_ref().and_then(|id| catalog.user(&tenant, id)) {
        of_member(member, role)?;
    }
    Ok(Grant {
        name,
        tenant,
        user,
        role,
        models: models(caller, catalog, wanted.models)?,
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        output_default_max: output_default_max(wanted.output_default_max)?,
        expires_at: rights::may_last(caller, wanted.expires_at)?,
    })
}

/// Refuses what a key of a member could not be.
fn of_member(member: &User, role: Role) -> Result<(), Failure> {
    if member.disabled {
        return Err(invalid("user", "the member is disabled"));
    }
    if member.role.is_some_and(|most| role > most) {
        return Err(invalid("role", "the member's own role is lower"));
    }
    Ok(())
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

/// Writes the record of a new key. Returns the key, which is nowhere else.
async fn make(state: &Shared, grant: Grant, author: Author) -> Result<(String, Key), Failure> {
    let mint = &state.ports.mint;
    let text = key::mint_member(mint);
    let record = key::record(mint, &text, grant, Origin::Runtime, author.at);
    let place = place(&state.doorkeeper.digest(&text), &record);
    let written = records::create(state, &place, record, None, author).await?;
    Ok((text, written.record))
}

/// Marks a key as revoked.
async fn mark(state: &Shared, caller: &Caller, id: &str, author: &Author) -> Result<Key, Failure> {
    rights::administers(caller)?;
    let none = || Failure::new(FailureCode::NotFound, "there is no such key");
    let catalog = state.ports.catalog.load();
    let mut keys = catalog.keys().into_iter();
    let (digest, known) = keys.find(|(_, key)| key.id.as_str() == id).ok_or_else(none)?;
    if !rights::reaches(caller, &known.tenant) || known.role > caller.role() {
        return Err(none());
    }
    let revoked = |key: &Key| {
        Ok(Key {
            revoked: true,
            // From now on a decision of run time: the file that brought the key does not bring it back.
            origin: Origin::Runtime,
            ..key.clone()
        })
    };
    let written = records::change(state, &place(digest, known), Match::Any, author, revoked).await?;
    Ok(written.record)
}

fn place(digest: &KeyDigest, key: &Key) -> Place {
    Place {
        kind: Kind::Key,
        key: key_key(digest),
        tenant: key.tenant.clone(),
        id: Arc::clone(&key.id.0),
    }
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
