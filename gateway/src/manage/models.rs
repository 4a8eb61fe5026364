//! `/api/v1/models`: the models as those see them who run the platform, with the ways that serve them. Of the operators'
//! own, whether of files or of run time, an operator may say who sees them, and whether they are served at all. What he
//! says lies over the file until it is dropped; the file is read on beneath it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::served::{Overlay, Sharing, overlay_key};
use schemas::catalog::{Catalog, Model, Origin, Role};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, EndpointId, ModelName, PoolName, TenantId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::description::Edit;
use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place};
use super::{Parameters, description, invalid, json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Tenants that a model may be kept for.
const TENANTS_MAX: usize = 10_000;

/// What of a model is to be different. What is not named stays.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelPatch")]
pub(super) struct Patch {
    /// The lowest role that may see and call it.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Role")]
    required_role: Option<Role>,
    /// Only these tenants; null for all.
    #[serde(default)]
    tenants: Edit<Vec<String>>,
    /// False: it is served to nobody.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    enabled: Option<bool>,
}

const PATCH: &str = "the body is not a change of a model: expected any of required_role, tenants, enabled";

/// What was changed of a model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelOverlay")]
struct Changed {
    /// Null where it is as the file has it.
    required_role: Option<Role>,
    /// True where `tenants` is not as the file has it.
    tenants: bool,
    /// Null where it is as the file has it.
    enabled: Option<bool>,
    /// The number in its `ETag`.
    revision: u64,
}

/// A way that serves a model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelLeg")]
struct Leg {
    endpoint: EndpointId,
    upstream_model: Arc<str>,
    priority: i32,
    /// In millionths of one; 0 of a file is never used.
    weight_micro: u64,
    pool: PoolName,
    origin: Origin,
}

/// A model as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
struct Shown {
    id: ModelName,
    /// Whose it is.
    tenant: TenantId,
    name: Arc<str>,
    aliases: Vec<ModelName>,
    required_role: Role,
    /// Null for all.
    tenants: Option<Vec<TenantId>>,
    /// Whether it is served.
    enabled: bool,
    context_length: u64,
    max_output_length: u64,
    /// Decimal strings of USD, as they hold now.
    pricing: std::collections::BTreeMap<String, String>,
    routes: Vec<Leg>,
    created_at: Timestamp,
    origin: Origin,
    /// What was changed of it at run time; null where nothing was.
    overlay: Option<Changed>,
}

/// What the paths of models do.
pub(crate) const LIST: Operation =
    Operation::list::<Shown>("Lists the models that the caller administers, by tenant and name");
pub(crate) const SHOW: Operation =
    Operation::show::<Shown>("Shows one of the operators' models").of_operators();
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a model, and what, the newest first").of_operators();
pub(crate) const CHANGE: Operation = Operation::change::<Patch, Shown>(
    "Changes who sees one of the operators' models; what is not named stays",
)
.of_operators();
pub(crate) const DROP: Operation =
    Operation::remove::<Shown>("Drops what was changed of a model: it is again as its file has it")
        .of_operators()
        .under(Condition::IfMatch);

/// The models that the caller administers, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::administers(&caller)?;
        let asked = Asked::of(given, true)?;
        let reached = asked.reaching(&caller)?;
        let after = asked.after_place(|cursor| {
            let (tenant, name) = cursor.split_once('.')?;
            Some((TenantId::from(tenant), ModelName::from(name)))
        })?;
        let catalog = state.ports.catalog.load();
        let mut models = all(&catalog);
        models.retain(|model| {
            let later = after
                .as_ref()
                .is_none_or(|(tenant, name)| (&model.owner, &model.id) > (tenant, name));
            later && reached(&model.owner)
        });
        let cursor = |model: &Arc<Model>| format!("{}.{}", model.owner, model.id);
        Ok(asked.page(models, cursor, |model| shown(&catalog, &model, arrival.at)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Every model, switched on or off, by tenant and name.
fn all(catalog: &Catalog) -> Vec<Arc<Model>> {
    let names = catalog.configured_names();
    let configured = names.iter().filter_map(|name| catalog.configured_model(name));
    let mut models: Vec<Arc<Model>> = configured.map(Arc::new).collect();
    models.extend(catalog.models_of_tenants().into_iter().cloned());
    models.sort_by(|a, b| (&a.owner, &a.id).cmp(&(&b.owner, &b.id)));
    models
}

/// One of the operators' models.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    match named(&caller, &catalog, id) {
        Ok(model) => answer(&catalog, &model, arrival.at),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What was changed of a model, and by whom.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let told = async {
        let model = named(&caller, &state.ports.catalog.load(), id)?;
        records::history::<Overlay>(&state, &place(&model.id)).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Changes who sees a model.
pub(crate) async fn patch(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let model = match named(&caller, &state.ports.catalog.load(), id) {
        Ok(model) => model,
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let changed = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let patch: Patch = description::read(&bytes, PATCH)?;
        let catalog = state.ports.catalog.load();
        let (place, author) = (place(&model.id), caller.author(&arrival));
        let fresh = || Overlay::new(model.id.clone(), arrival.at);
        let first = patched(&catalog, &fresh(), &patch)?;
        if expected == Match::Any && !records::exists::<Overlay>(&state, &place).await? {
            match records::create(&state, &place, first, None, author.clone()).await {
                // Somebody else was faster: his is changed.
                Err(failure) if failure.code == schemas::failure::FailureCode::AlreadyExists => {}
                made => return made,
            }
        }
        let decide = |overlay: &Overlay| patched(&catalog, overlay, &patch);
        records::change(&state, &place, expected, &author, decide).await
    };
    match changed.await {
        Ok(_) => told(&state, &model.id, &arrival),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Drops what was changed of a model.
pub(crate) async fn drop_overlay(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let dropped = async {
        let expected = Match::of(&headers)?;
        let model = named(&caller, &state.ports.catalog.load(), id)?;
        let (place, author) = (place(&model.id), caller.author(&arrival));
        records::remove::<Overlay>(&state, &place, expected, author, |_| Ok(())).await?;
        Ok(model.id.clone())
    };
    match dropped.await {
        Ok(name) => told(&state, &name, &arrival),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The model after a change.
fn told(state: &Shared, name: &ModelName, arrival: &Arrival) -> Response {
    let catalog = state.ports.catalog.load();
    match catalog.configured_model(name) {
        Some(model) => answer(&catalog, &Arc::new(model), arrival.at),
        None => arrival.refuse(&records::nothing()),
    }
}

fn answer(catalog: &Catalog, model: &Arc<Model>, at: Timestamp) -> Response {
    let shown = shown(catalog, model, at);
    match shown.overlay.as_ref().map(|changed| changed.revision) {
        Some(revision) => records::shown(&shown, revision),
        None => json(&shown),
    }
}

/// The operators' model that a caller names, switched on or off.
fn named(
    caller: &Caller,
    catalog: &Catalog,
    id: Result<Path<String>, PathRejection>,
) -> Result<Arc<Model>, Failure> {
    rights::operates(caller)?;
    let Path(id) = id.map_err(|_| records::nothing())?;
    let name = catalog.canonical(&id).cloned();
    let name = name.unwrap_or_else(|| ModelName::from(id.as_str()));
    let model = catalog.configured_model(&name).map(Arc::new);
    model.ok_or_else(records::nothing)
}

fn place(model: &ModelName) -> Place {
    Place {
        kind: Kind::Model,
        key: overlay_key(model),
        tenant: TenantId::from(DEFAULT_TENANT),
        id: Arc::clone(&model.0),
    }
}

/// What was changed of a model, after another change.
pub(super) fn patched(catalog: &Catalog, overlay: &Overlay, patch: &Patch) -> Result<Overlay, Failure> {
    let mut after = overlay.clone();
    after.required_role = match patch.required_role {
        Some(Role::Operator) => {
            return Err(invalid("required_role", "expected free, pro, internal or admin"));
        }
        Some(role) => Some(role),
        None => after.required_role,
    };
    match &patch.tenants {
        Edit::Stays => {}
        Edit::Goes => after.sharing = Some(Sharing::Everybody),
        Edit::Is(names) => after.sharing = Some(Sharing::Only(tenants(catalog, names)?)),
    }
    after.enabled = patch.enabled.or(after.enabled);
    Ok(after)
}

fn tenants(catalog: &Catalog, names: &[String]) -> Result<Vec<TenantId>, Failure> {
    if names.len() > TENANTS_MAX {
        return Err(invalid("tenants", "too many tenants"));
    }
    let known = names.iter().map(|name| {
        let id = TenantId::parse(name).filter(|id| catalog.tenant(id).is_some());
        id.ok_or_else(|| invalid("tenants", "there is no such tenant"))
    });
    known.collect()
}

fn shown(catalog: &Catalog, model: &Arc<Model>, at: Timestamp) -> Shown {
    let is_default = model.owner.as_str() == DEFAULT_TENANT;
    let overlay = catalog.stored_overlay(&model.id).filter(|_| is_default);
    let (priced, _) = model.priced(at);
    Shown {
        id: model.id.clone(),
        tenant: model.owner.clone(),
        name: Arc::clone(&model.name),
        aliases: model.aliases.clone(),
        required_role: model.required_role,
        tenants: model.tenants.clone(),
        enabled: overlay.is_none_or(|stored| stored.record.enabled != Some(false)),
        context_length: model.context_length,
        max_output_length: model.max_output_length,
        pricing: priced.pricing.iter().cloned().collect(),
        routes: model
            .routes
            .iter()
            .map(|route| Leg {
                endpoint: route.endpoint_id.clone(),
                upstream_model: Arc::clone(&route.upstream_model),
                priority: route.priority,
                weight_micro: route.weight_micro,
                pool: route.pool.clone(),
                origin: route.origin,
            })
            .collect(),
        created_at: model.created_at,
        origin: model.origin,
        overlay: overlay.map(|stored| Changed {
            required_role: stored.record.required_role,
            tenants: stored.record.sharing.is_some(),
            enabled: stored.record.enabled,
            revision: stored.revision,
        }),
    }
}
