//! `/api/v1/tenants`: who pays. Operators make tenants, bound what they may use, and disable them: to disable is to
//! refuse all their keys, on every node, until they are enabled again.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
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
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Created, Found, Id, Listed, Removed, Resource, Sent, There};
use super::{creation, description, invalid, rights};
use crate::caller::Caller;

/// Where tenants are made.
const PATH: &str = "/api/v1/tenants";

/// A tenant that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TenantWanted")]
pub(crate) struct Wanted {
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
pub(crate) struct Patch {
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

/// The tenants.
pub(crate) enum Tenants {}

impl Resource for Tenants {
    type Record = Tenant;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Tenant>, Failure> {
        let id = named(caller, id)?;
        Ok(Found {
            place: place(&id),
            stored: catalog.stored_tenant(&id),
        })
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Tenant>) -> Result<Response, Failure> {
        resource::told(there, shown)
    }
}

impl Created for Tenants {
    type Wanted = Wanted;
    const WANTED: &str = WANTED;

    fn may_create(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    async fn create(act: &Act<'_>, sent: Sent<'_>, described: Wanted) -> Result<Response, Failure> {
        let (state, caller) = (act.state, act.caller);
        let tenant = wanted(caller, &state.ports.catalog.load(), described, act.arrival.at)?;
        let (id, place) = (Arc::clone(&tenant.id.0), place(&tenant.id));
        let creation = creation::begin(state, caller, sent.headers, (PATH, sent.bytes), id).await?;
        let made = creation.make(state, &place, tenant, act.author()).await?;
        let Some(written) = made else {
            return creation.again();
        };
        let shown = shown(&written.record, written.revision);
        Ok(creation.answer(state, &written, &shown).await)
    }
}

impl Listed for Tenants {
    const OF_TENANT: bool = false;

    fn may_list(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<Tenant>>, Failure> {
        let after = asked.after.as_deref().map(TenantId::from);
        Ok(catalog.tenants_after(after.as_ref()))
    }

    fn tenant(tenant: &Tenant) -> Option<&TenantId> {
        Some(&tenant.id)
    }

    fn cursor(tenant: &Tenant) -> String {
        tenant.id.to_string()
    }

    fn shown(_: &Act<'_>, tenant: &Tenant, revision: u64) -> impl Serialize {
        shown(tenant, revision)
    }
}

impl Changed for Tenants {
    type Patch = Patch;
    const PATCH: &str = PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<Tenant>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |tenant: &Tenant| patched(act.caller, &catalog, tenant, &patch);
        records::change(act.state, place, expected, &act.author(), decide).await
    }
}

impl Removed for Tenants {
    /// Has a tenant be again as its file has it.
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<Tenant>, Failure> {
        records::restore(act.state, place, expected, &act.author(), |_, _| Ok(())).await
    }
}

/// The tenant that a caller names, if tenants are his to see.
fn named(caller: &Caller, id: Id) -> Result<TenantId, Failure> {
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
