//! `/api/v1/models`: the models as those see them who run the platform, with the ways that serve them. Of the operators'
//! own, whether of files or of run time, an operator may say who sees them, and whether they are served at all. What he
//! says lies over the file until it is dropped; the file is read on beneath it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::catalog::served::{Overlay, Sharing, overlay_key};
use schemas::catalog::{Catalog, Model, Origin, Role};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, EndpointId, ModelName, PoolName, TenantId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::description::Edit;
use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Found, Id, Removed, Resource, There};
use super::{Parameters, answered, description, former, invalid, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Tenants that a model may be kept for.
const TENANTS_MAX: usize = 10_000;

/// What of a model is to be different. What is not named stays.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelPatch")]
pub(crate) struct Patch {
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
struct Overlaid {
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
    overlay: Option<Overlaid>,
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
    answered(&arrival, listed())
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

/// The operators' models, with what was changed of them at run time.
pub(crate) enum Models {}

impl Resource for Models {
    type Record = Overlay;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Overlay>, Failure> {
        let model = named(caller, catalog, id)?;
        Ok(Found {
            place: place(&model),
            stored: catalog.stored_overlay(&model),
        })
    }

    fn answer(act: &Act<'_>, place: &Place, _: There<'_, Overlay>) -> Result<Response, Failure> {
        let catalog = act.state.ports.catalog.load();
        let model = catalog.configured_model(&ModelName(Arc::clone(&place.id)));
        let model = Arc::new(model.ok_or_else(records::nothing)?);
        let shown = shown(&catalog, &model, act.arrival.at);
        let revision = shown.overlay.as_ref().map(|changed| changed.revision);
        Ok(resource::overlaid(&shown, revision))
    }

    fn history(act: &Act<'_>, place: &Place) -> impl Future<Output = Result<History, Failure>> + Send {
        Self::changes(act, place)
    }
}

impl Models {
    /// What was changed of a model since it was dropped, and before.
    async fn changes(act: &Act<'_>, place: &Place) -> Result<History, Failure> {
        let own = records::history::<Overlay>(act.state, place).await;
        let former = former::history(act, place.kind, &place.id).await;
        match (own, former) {
            (Ok(mut own), Ok(former)) => {
                own.join(former);
                Ok(own)
            }
            // What the record tells is told without the books.
            (Ok(own), Err(_)) => Ok(own),
            (Err(failure), former) if failure.code == FailureCode::NotFound => former,
            (Err(failure), _) => Err(failure),
        }
    }
}

impl Changed for Models {
    type Patch = Patch;
    const PATCH: &str = PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<Overlay>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let name = ModelName(Arc::clone(&place.id));
        rights::may_show(act.caller, &catalog, &name)?;
        let fresh = Overlay::new(name.clone(), act.arrival.at);
        let decide = |overlay: Option<&Overlay>| patched(&catalog, overlay.unwrap_or(&fresh), &patch);
        upsert::set(act.state, place, expected, &act.author(), decide).await
    }
}

impl Removed for Models {
    /// Drops what was changed of a model.
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<Overlay>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let name = ModelName(Arc::clone(&place.id));
        let may = |_: &Overlay| rights::may_show(act.caller, &catalog, &name);
        records::remove(act.state, place, expected, act.author(), may).await
    }
}

/// The operators' model that a caller names, switched on or off.
fn named(caller: &Caller, catalog: &Catalog, id: Id) -> Result<ModelName, Failure> {
    rights::operates(caller)?;
    let Path(id) = id.map_err(|_| records::nothing())?;
    let name = catalog.canonical(&id).cloned();
    let name = name.unwrap_or_else(|| ModelName::from(id.as_str()));
    let model = catalog.configured_model(&name);
    model.map(|model| model.id).ok_or_else(records::nothing)
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
        overlay: overlay.map(|stored| Overlaid {
            required_role: stored.record.required_role,
            tenants: stored.record.sharing.is_some(),
            enabled: stored.record.enabled,
            revision: stored.revision,
        }),
    }
}
