//! `/api/v1/endpoint-keys`: keys that stand for one endpoint, for callers who are nobody's members. They call the models
//! that the endpoint serves and nothing else; who is behind one of their calls is told by `X-End-User` or `user`.

use std::sync::Arc;

use axum::extract::{Query, State};
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
use super::records::{History, Match, Place};
use super::resource::{self, Act, Created, Found, Id, Resource, Sent, There};
use super::{Parameters, answered, credentials, description, invalid, json, keys, parameters, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Where keys of endpoints are made.
const PATH: &str = "/api/v1/endpoint-keys";

/// A key of an endpoint that is to be made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndpointKeyWanted")]
pub(crate) struct Wanted {
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

/// The keys of endpoints.
pub(crate) enum EndpointKeys {}

impl Resource for EndpointKeys {
    type Record = Key;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Key>, Failure> {
        credentials::named(Kind::Endpoint, caller, catalog, id)
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Key>) -> Result<Response, Failure> {
        resource::told(there, |key, revision| shown(key, revision, None))
    }

    fn history(act: &Act<'_>, place: &Place) -> impl Future<Output = Result<History, Failure>> + Send {
        credentials::history(act.state, Kind::Endpoint, place)
    }
}

impl Created for EndpointKeys {
    type Wanted = Wanted;
    const WANTED: &str = WANTED;

    async fn create(act: &Act<'_>, sent: Sent<'_>, wanted: Wanted) -> Result<Response, Failure> {
        let catalog = act.state.ports.catalog.load();
        let record = record(act.caller, &catalog, wanted, act.arrival.at)?;
        let minted = credentials::mint(act, (sent, PATH), record).await?;
        Ok(minted.answer(&shown(&minted.key, minted.revision, minted.secret.clone())))
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
    answered(&arrival, listed())
}

/// Gives a key of an endpoint another secret; the one before is refused from then on.
pub(crate) async fn rotate(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Id,
    headers: HeaderMap,
) -> Response {
    let catalog = state.ports.catalog.load();
    let rotated = async {
        let known = credentials::found(Kind::Endpoint, &caller, &catalog, id)?;
        let expected = Match::of(&headers)?;
        let renewed = |key: &Key| rights::renewed(&caller, &catalog, key);
        credentials::rotate(&state, known, expected, &caller.author(&arrival), renewed).await
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
    id: Id,
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
    let key = Key {
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
        granted: None,
        maker: None,
        seen_by: None,
    };
    rights::minted(caller, catalog, key)
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
