//! `/api/v1/endpoint-keys`: keys that stand for one endpoint, for callers who are nobody's members. They call the models
//! that the endpoint serves and nothing else; who is behind one of their calls is told by `X-End-User` or `user`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::grant::{Kind, Reach};
use schemas::catalog::{Catalog, Key, Origin, Role, Stored};
use schemas::failure::Failure;
use schemas::id::{EndpointId, KeyId, ModelName, TenantId};
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::openapi::{Condition, Operation, Parameter};
use super::page::Asked;
use super::records::{self, History, Match};
use super::{Parameters, credentials, description, invalid, json, keys, parameters, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Where keys of endpoints are made.
const PATH: &str = "/api/v1/endpoint-keys";

/// A key of an endpoint that is to be made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndpointKeyWanted")]
pub(super) struct Wanted {
    /// For people.
    pub(super) name: String,
    /// The endpoint that it stands for.
    pub(super) endpoint: String,
    /// Who pays; the caller's own tenant where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// What models it may use: no more than `internal`, and the lowest where it is left out.
    #[serde(default)]
    pub(super) role: Option<Role>,
    /// The only models of the endpoint that it may use; all of them where it is left out.
    #[serde(default)]
    pub(super) models: Option<Vec<String>>,
    /// Its own.
    #[serde(default)]
    #[schemars(with = "Option<Limits>")]
    pub(super) limits: Option<Map<String, Value>>,
    /// When it ends.
    #[serde(default)]
    pub(super) expires_at: Option<Timestamp>,
    /// Most tokens of an answer to a call that names no maximum; 0 names none.
    #[serde(default)]
    pub(super) output_default_max: Option<u64>,
}

const WANTED: &str = "the body is not a description of an endpoint's key: expected name, endpoint and, optionally, \
                      tenant, role, models, limits, expires_at, output_default_max";

/// A key of an endpoint as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EndpointKey")]
struct Shown {
    id: KeyId,
    /// Only in the answer that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    name: Arc<str>,
    prefix: Arc<str>,
    tenant: TenantId,
    endpoint: Option<EndpointId>,
    role: Role,
    models: Option<Vec<ModelName>>,
    limits: Limits,
    output_default_max: Option<u64>,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    /// When it got its secret, where that is not its first.
    rotated_at: Option<Timestamp>,
    revoked: bool,
    /// The number in its `ETag`.
    revision: u64,
}

const FILTERS: &[Parameter] = &[
    Parameter::new::<TenantId>("tenant", "Only keys of this tenant."),
    Parameter::new::<EndpointId>("endpoint", "Only keys of this endpoint."),
];

/// What the paths of endpoints' keys do.
pub(crate) const LIST: Operation =
    Operation::list::<Shown>("Lists the keys of endpoints that the caller administers, by id")
        .taking(FILTERS);
pub(crate) const CREATE: Operation =
    Operation::create::<Wanted, Shown>("Mints a key of an endpoint, which is shown in this answer alone");
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a key of an endpoint");
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a key of an endpoint, and what, the newest first");
pub(crate) const ROTATE: Operation = Operation::find::<Shown>(
    "Gives a key of an endpoint another secret, which is shown in this answer alone",
)
.answering(201)
.under(Condition::IfMatch)
.failing(&[409]);
pub(crate) const REVOKE: Operation = Operation::remove::<Shown>("Revokes a key of an endpoint");

/// Mints a key of an endpoint.
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
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        let record = record(&caller, &state.ports.catalog.load(), wanted, arrival.at)?;
        let author = caller.author(&arrival);
        credentials::mint(&state, &caller, (&headers, PATH, &bytes), record, author).await
    };
    match made.await {
        Ok(minted) => minted.answer(&shown(&minted.key, minted.revision, minted.secret.clone())),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The keys of endpoints that the caller administers, by id, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::administers(&caller)?;
        let (mut tenant, mut endpoint, mut rest) = (None, None, Vec::new());
        for (name, value) in parameters(given)? {
            match name.as_str() {
                "tenant" => tenant = Some(rights::tenant(&caller, Some(&value))?),
                "endpoint" => endpoint = Some(EndpointId::from(value.as_str())),
                _ => rest.push((name, value)),
            }
        }
        let asked = Asked::of(Ok(Query(rest)), false)?;
        let catalog = state.ports.catalog.load();
        let mut keys = catalog.keys_after(Kind::Endpoint, asked.after.as_deref());
        keys.retain(|stored| {
            let key = &stored.record;
            rights::reaches(&caller, &key.tenant)
                && tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant)
                && endpoint
                    .as_ref()
                    .is_none_or(|wanted| of_endpoint(key) == Some(wanted))
        });
        let cursor = |stored: &&Stored<Key>| stored.record.id.to_string();
        Ok(asked.page(keys, cursor, |stored| {
            shown(&stored.record, stored.revision, None)
        }))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One key of an endpoint, with its `ETag`.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    match credentials::found(Kind::Endpoint, &caller, &catalog, id) {
        Ok((_, stored)) => records::shown(&shown(&stored.record, stored.revision, None), stored.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What was changed of a key of an endpoint, and by whom.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    let told = async {
        let (_, stored) = credentials::found(Kind::Endpoint, &caller, &catalog, id)?;
        let named = (Kind::Endpoint, stored.record.id.as_str());
        credentials::history(&state, &catalog, named).await
    };
    told.await.unwrap_or_else(|failure| arrival.refuse(&failure))
}

/// Gives a key of an endpoint another secret; the one before is refused from then on.
pub(crate) async fn rotate(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let catalog = state.ports.catalog.load();
    let rotated = async {
        let known = credentials::found(Kind::Endpoint, &caller, &catalog, id)?;
        let expected = Match::of(&headers)?;
        let may = |key: &Key| rights::may_hold(&caller, &catalog, key);
        credentials::rotate(&state, known, expected, &caller.author(&arrival), may).await
    };
    match rotated.await {
        Ok(minted) => minted.answer(&shown(&minted.key, minted.revision, minted.secret.clone())),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Revokes a key of an endpoint.
pub(crate) async fn revoke(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    let revoked = async {
        let (_, stored) = credentials::found(Kind::Endpoint, &caller, &catalog, id)?;
        let named = (Kind::Endpoint, stored.record.id.as_str());
        credentials::revoke(&state, named, &caller.author(&arrival), |_| Ok(())).await
    };
    match revoked.await {
        Ok(written) => json(&shown(&written.record, written.revision, None)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The record of a key as it is wanted, without its id and its secret.
pub(super) fn record(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Wanted,
    now: Timestamp,
) -> Result<Key, Failure> {
    let tenant = rights::living_tenant(caller, catalog, wanted.tenant.as_deref())?;
    let id = EndpointId::from(wanted.endpoint.as_str());
    // The endpoints of others are not there for an administrator.
    let endpoint = catalog
        .endpoint(&id)
        .filter(|endpoint| endpoint.tenant == tenant || rights::operates(caller).is_ok());
    let endpoint = endpoint.ok_or_else(|| invalid("endpoint", "there is no such endpoint"))?;
    Ok(Key {
        id: KeyId::from(""),
        name: description::name(wanted.name)?,
        tenant,
        user: None,
        role: role(caller, wanted.role)?,
        models: keys::models(caller, catalog, wanted.models)?,
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        output_default_max: keys::output_default_max(wanted.output_default_max)?,
        expires_at: rights::may_last(caller, wanted.expires_at)?,
        revoked: false,
        created_at: now,
        origin: Origin::Runtime,
        prefix: "".into(),
        reach: Reach::Endpoint(endpoint.id.clone()),
        denied: rights::denied(caller, catalog),
        rotated_at: None,
        routing: None,
    })
}

/// What models a key may use; it administers nothing.
fn role(caller: &Caller, wanted: Option<Role>) -> Result<Role, Failure> {
    let role = rights::may_give(caller, wanted.unwrap_or_default())?;
    if role > Role::Internal {
        return Err(invalid("role", "a key of an endpoint administers nothing"));
    }
    Ok(role)
}

fn of_endpoint(key: &Key) -> Option<&EndpointId> {
    match &key.reach {
        Reach::Endpoint(endpoint) => Some(endpoint),
        Reach::Member | Reach::Grant(_) => None,
    }
}

fn shown(key: &Key, revision: u64, secret: Option<String>) -> Shown {
    Shown {
        id: key.id.clone(),
        key: secret,
        name: Arc::clone(&key.name),
        prefix: Arc::clone(&key.prefix),
        tenant: key.tenant.clone(),
        endpoint: of_endpoint(key).cloned(),
        role: key.role,
        models: key.models.clone(),
        limits: key.limits.clone(),
        output_default_max: key.output_default_max,
        expires_at: key.expires_at,
        created_at: key.created_at,
        rotated_at: key.rotated_at,
        revoked: key.revoked,
        revision,
    }
}
