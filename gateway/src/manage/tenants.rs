//! `/api/v1/tenants`: who pays. Operators make tenants, bound what they may use, and disable them: to disable is to
//! refuse all their keys, on every node, until they are enabled again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::{Catalog, Origin, Stored};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::description::Edit;
use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place};
use super::{Parameters, creation, description, invalid, json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Where tenants are made.
const PATH: &str = "/api/v1/tenants";

/// A tenant that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TenantWanted")]
pub(super) struct Wanted {
    /// 1 to 63 lower-case letters, digits and hyphens, beginning with a letter or digit.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,62}$"))]
    id: String,
    /// For people.
    #[serde(default)]
    name: Option<String>,
    /// Of all its members and keys together.
    #[serde(default)]
    #[schemars(with = "Option<Limits>")]
    limits: Option<Map<String, Value>>,
}

const WANTED: &str = "the body is not a tenant's description: expected id and, optionally, name, limits";

/// What of a tenant is to be different. What is not named stays; limits are replaced as a whole.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TenantPatch")]
pub(super) struct Patch {
    /// Null takes it away.
    #[serde(default)]
    #[schemars(length(max = description::NAME_BYTES_MAX))]
    name: Edit<String>,
    /// All of them: what is not named is no more.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Limits")]
    limits: Option<Map<String, Value>>,
    /// True has all its keys refused.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    disabled: Option<bool>,
}

const PATCH: &str = "the body is not a change of a tenant: expected any of name, limits, disabled";

/// A tenant as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
struct Shown {
    id: TenantId,
    name: Option<Arc<str>>,
    limits: Limits,
    disabled: bool,
    /// Null for one of a file.
    created_at: Option<Timestamp>,
    origin: Origin,
    /// The number in its `ETag`.
    revision: u64,
}

/// What the paths of tenants do.
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the tenants, by id").of_operators();
pub(crate) const CREATE: Operation = Operation::create::<Wanted, Shown>("Makes a tenant").of_operators();
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a tenant").of_operators();
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a tenant, and what, the newest first").of_operators();
pub(crate) const CHANGE: Operation =
    Operation::change::<Patch, Shown>("Changes a tenant; what is not named stays").of_operators();
pub(crate) const RESTORE: Operation =
    Operation::remove::<Shown>("Drops what was changed of a tenant: it is again as its file has it")
        .of_operators()
        .under(Condition::IfMatch);

/// Has a tenant be again as its file has it.
pub(crate) async fn restore(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let restored = async {
        let place = place(&named(&caller, id)?);
        let expected = Match::of(&headers)?;
        records::restore::<Tenant>(&state, &place, expected, &caller.author(&arrival)).await
    };
    match restored.await {
        Ok(written) => json(&shown(&written.record, written.revision)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Makes a tenant.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let made = async {
        let bytes = description::body(&state, &headers, body).await?;
        let described = description::read(&bytes, WANTED)?;
        let tenant = wanted(&caller, &state.ports.catalog.load(), described, arrival.at)?;
        let id = Arc::clone(&tenant.id.0);
        let creation = creation::begin(&state, &caller, &headers, (PATH, &bytes), id).await?;
        let place = place(&tenant.id);
        records::create(&state, &place, tenant, creation.made, caller.author(&arrival)).await
    };
    match made.await {
        Ok(written) => creation::answer(&written, &shown(&written.record, written.revision)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The tenants, by id, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::operates(&caller)?;
        let asked = Asked::of(given, false)?;
        let catalog = state.ports.catalog.load();
        let after = asked.after.as_deref().map(TenantId::from);
        let tenants = catalog.tenants_after(after.as_ref());
        let cursor = |stored: &&Stored<Tenant>| stored.record.id.to_string();
        Ok(asked.page(tenants, cursor, |stored| shown(&stored.record, stored.revision)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One tenant, with its `ETag`.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    let found = named(&caller, id).and_then(|id| catalog.stored_tenant(&id).ok_or_else(records::nothing));
    match found {
        Ok(stored) => records::shown(&shown(&stored.record, stored.revision), stored.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What was changed of a tenant, and by whom.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let told = async {
        let place = place(&named(&caller, id)?);
        records::history::<Tenant>(&state, &place).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Changes a tenant.
pub(crate) async fn patch(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let place = match named(&caller, id) {
        Ok(id) => place(&id),
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let changed = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let patch: Patch = description::read(&bytes, PATCH)?;
        let catalog = state.ports.catalog.load();
        let decide = |tenant: &Tenant| patched(&caller, &catalog, tenant, &patch);
        records::change(&state, &place, expected, &caller.author(&arrival), decide).await
    };
    match changed.await {
        Ok(written) => records::shown(&shown(&written.record, written.revision), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The tenant that a caller names, if tenants are his to see.
fn named(caller: &Caller, id: Result<Path<String>, PathRejection>) -> Result<TenantId, Failure> {
    rights::operates(caller)?;
    // What is not even the form of a name is the name of nothing.
    let id = id.ok().and_then(|Path(id)| TenantId::parse(&id));
    id.ok_or_else(records::nothing)
}

fn place(id: &TenantId) -> Place {
    Place {
        kind: Kind::Tenant,
        key: tenant_key(id),
        tenant: id.clone(),
        id: Arc::clone(&id.0),
    }
}

/// A tenant as it was wanted.
fn wanted(caller: &Caller, catalog: &Catalog, wanted: Wanted, now: Timestamp) -> Result<Tenant, Failure> {
    let alphabet =
        "expected 1 to 63 lower-case letters, digits and hyphens, beginning with a letter or digit";
    let id = TenantId::parse(&wanted.id).ok_or_else(|| invalid("id", alphabet))?;
    Ok(Tenant {
        name: wanted.name.map(description::name).transpose()?,
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        created_at: Some(now),
        ..Tenant::new(id, Origin::Runtime)
    })
}

/// A tenant after a change. A tenant of a file is from then on what the API made of it.
pub(super) fn patched(
    caller: &Caller,
    catalog: &Catalog,
    tenant: &Tenant,
    patch: &Patch,
) -> Result<Tenant, Failure> {
    let mut after = tenant.clone();
    patch.name.apply(&mut after.name, description::name)?;
    if let Some(limits) = &patch.limits {
        after.limits = description::limits(caller, catalog, limits.clone())?;
    }
    if let Some(disabled) = patch.disabled {
        after.disabled = disabled;
    }
    if after.disabled && tenant.id.as_str() == DEFAULT_TENANT {
        return Err(invalid("disabled", "the operator's own tenant is never disabled"));
    }
    if after.disabled && tenant.id == *caller.tenant() {
        return Err(invalid("disabled", "nobody disables his own tenant"));
    }
    if after != *tenant {
        after.origin = Origin::Runtime;
    }
    Ok(after)
}

fn shown(tenant: &Tenant, revision: u64) -> Shown {
    Shown {
        id: tenant.id.clone(),
        name: tenant.name.clone(),
        limits: tenant.limits.clone(),
        disabled: tenant.disabled,
        created_at: tenant.created_at,
        origin: tenant.origin,
        revision,
    }
}
