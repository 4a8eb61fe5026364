//! `/api/v1/model-routes`: ways to serve a model, added while nodes run. A route belongs to a tenant and serves its
//! callers; it leads to an endpoint of that tenant, or, where an operator made it, to one of the operators'. A name that
//! the operators serve to a tenant is not the tenant's to give.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::catalog::modality::Modalities;
use schemas::catalog::served::{RouteRecord, place_of_cursor, route_key};
use schemas::catalog::{Catalog, Endpoint, Origin, Role, Stored};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, EndpointId, MODEL_NAME_BYTES_MAX, ModelName, PoolName, TenantId};
use schemas::time::Timestamp;
use schemas::usage::TOKENS_MAX;
use serde::Serialize;

use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Created, Found, Id, Listed, Removed, Resource, Sent, There};
use super::{creation, invalid, rights, scope};
use crate::caller::Caller;

mod body;
mod judged;

use body::{Patch, Shown, Wanted};
pub(super) use judged::judge;

/// Where routes are made.
const PATH: &str = "/api/v1/model-routes";
/// Routes that a tenant may have.
const ROUTES_MAX: usize = 5_000;
/// The largest weight.
const WEIGHT_MAX: u32 = 1_000_000;
/// The weight of a route that says none.
const WEIGHT_DEFAULT: u32 = 100;
/// The pool of a route that says none.
const POOL_DEFAULT: &str = "default";

/// What the paths of routes do.
pub(crate) const LIST: Operation =
    Operation::list::<Shown>("Lists the routes that were added, by tenant and id");
pub(crate) const CREATE: Operation = Operation::create::<Wanted, Shown>("Adds a route to a model");
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a route");
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a route, and what, the newest first");
pub(crate) const CHANGE: Operation =
    Operation::change::<Patch, Shown>("Changes a route; what is not named stays");
pub(crate) const REMOVE: Operation = Operation::remove::<Shown>("Removes a route").under(Condition::IfMatch);

/// What a model has by a route.
#[derive(Debug, Clone, Default)]
pub(super) struct Ability {
    pub(super) context_length: Option<u64>,
    pub(super) max_output_length: Option<u64>,
    pub(super) input_modalities: Option<Vec<String>>,
    pub(super) supports_tools: bool,
    pub(super) supports_structured_output: bool,
    pub(super) model_type: Option<String>,
}

/// How a route is called, and what it is a route of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) id: &'a str,
    pub(super) tenant: &'a TenantId,
    pub(super) model: &'a str,
    pub(super) upstream_model: Option<&'a str>,
}

impl Named<'_> {
    /// A route of the highest priority, with the weight of one that says none.
    pub(super) fn route(
        self,
        endpoint: &Endpoint,
        ability: &Ability,
        now: Timestamp,
    ) -> Result<RouteRecord, Failure> {
        let embeds = match ability.model_type.as_deref() {
            None | Some("chat") => false,
            Some("embedding") => true,
            Some(_) => return Err(invalid("model_type", "expected chat or embedding")),
        };
        let modalities = ability.input_modalities.as_deref().map(modalities);
        Ok(RouteRecord {
            id: self.id.into(),
            tenant: self.tenant.clone(),
            model: ModelName::new(model_name("model", self.model)?),
            endpoint: endpoint.id.clone(),
            upstream_model: model_name("upstream_model", self.upstream_model.unwrap_or(self.model))?,
            priority: 0,
            weight: WEIGHT_DEFAULT,
            pool: PoolName::from(POOL_DEFAULT),
            context_length: tokens("context_length", ability.context_length)?,
            max_output_length: tokens("max_output_length", ability.max_output_length)?,
            input_modalities: modalities.transpose()?,
            supports_tools: ability.supports_tools,
            supports_structured_output: ability.supports_structured_output,
            embeds,
            created_at: now,
            origin: Origin::Runtime,
        })
    }
}

/// The routes that were added.
pub(crate) enum Routes {}

impl Resource for Routes {
    type Record = RouteRecord;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, RouteRecord>, Failure> {
        let stored = named(caller, catalog, id)?;
        Ok(Found::there(place(&stored.record), stored))
    }

    fn gone(id: &Id) -> Option<(Kind, Arc<str>)> {
        resource::of_kind(Kind::Route, id)
    }

    fn answer(act: &Act<'_>, _: &Place, there: There<'_, RouteRecord>) -> Result<Response, Failure> {
        resource::told(there, |route, revision| Self::shown(act, route, revision))
    }
}

impl Created for Routes {
    type Wanted = Wanted;
    const WANTED: &str = body::WANTED;

    async fn create(act: &Act<'_>, sent: Sent<'_>, wanted: Wanted) -> Result<Response, Failure> {
        let (state, caller) = (act.state, act.caller);
        let id = format!("rt-{}", URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()));
        let catalog = state.ports.catalog.load();
        let mut route = wanted_route(caller, &catalog, &wanted, (&id, act.arrival.at))?;
        let creation = creation::begin(state, caller, sent.headers, (PATH, sent.bytes), id.into()).await?;
        route.id = Arc::clone(&creation.id);
        let made = creation.make(state, &place(&route), route, act.author()).await?;
        let Some(written) = made else {
            return creation.again();
        };
        let shown = Self::shown(act, &written.record, written.revision);
        Ok(creation.answer(state, &written, &shown).await)
    }
}

impl Listed for Routes {
    const OF_TENANT: bool = true;

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<RouteRecord>>, Failure> {
        let after = asked.after_place(place_of_cursor)?;
        Ok(catalog.routes_after(after.as_ref()).collect())
    }

    fn tenant(route: &RouteRecord) -> Option<&TenantId> {
        Some(&route.tenant)
    }

    fn cursor(route: &RouteRecord) -> String {
        format!("{}.{}", route.tenant, route.id)
    }

    fn shown(act: &Act<'_>, route: &RouteRecord, revision: u64) -> impl Serialize {
        let catalog = act.state.ports.catalog.load();
        body::shown(route, revision, catalog.is_priced(route, act.arrival.at))
    }
}

impl Changed for Routes {
    type Patch = Patch;
    const PATCH: &str = body::PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<RouteRecord>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |route: &RouteRecord| patched(act.caller, &catalog, route, &patch);
        records::change(act.state, place, expected, &act.author(), decide).await
    }
}

impl Removed for Routes {
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<RouteRecord>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |route: &RouteRecord| may_touch(act.caller, &catalog, route);
        records::remove(act.state, place, expected, act.author(), decide).await
    }
}

/// The route that a caller names: one of a tenant that he administers. Another is not there.
fn named<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<&'c Stored<RouteRecord>, Failure> {
    rights::administers(caller)?;
    let Path(id) = id.map_err(|_| records::nothing())?;
    catalog
        .route_by_id(&id)
        .filter(|stored| rights::reaches(caller, &stored.record.tenant))
        .ok_or_else(records::nothing)
}

/// Where a route lies.
pub(super) fn place(route: &RouteRecord) -> Place {
    Place {
        kind: Kind::Route,
        key: route_key(&route.tenant, &route.id),
        tenant: route.tenant.clone(),
        id: Arc::clone(&route.id),
    }
}

/// A route as it was wanted, if it is the caller's to make.
fn wanted_route(
    caller: &Caller,
    catalog: &Catalog,
    wanted: &Wanted,
    (id, now): (&str, Timestamp),
) -> Result<RouteRecord, Failure> {
    let told = wanted.tenant.as_deref();
    let told = told.map(|named| rights::living_tenant(caller, catalog, Some(named)));
    let told = told.transpose()?;
    let endpoint = find_endpoint(caller, catalog, told.as_ref(), &wanted.endpoint)?;
    // Where nobody says whose it is, it is for those whose endpoint it leads to.
    let tenant = told.unwrap_or_else(|| endpoint.tenant.clone());
    let tenant = rights::living_tenant(caller, catalog, Some(tenant.as_str()))?;
    let ability = Ability {
        context_length: wanted.context_length,
        max_output_length: wanted.max_output_length,
        input_modalities: wanted.input_modalities.clone(),
        supports_tools: wanted.supports_tools,
        supports_structured_output: wanted.supports_structured_output,
        model_type: wanted.model_type.clone(),
    };
    let named = Named {
        id,
        tenant: &tenant,
        model: &wanted.model,
        upstream_model: wanted.upstream_model.as_deref(),
    };
    let mut route = named.route(endpoint, &ability, now)?;
    route.priority = wanted.priority;
    route.weight = weight(wanted.weight.unwrap_or(WEIGHT_DEFAULT))?;
    if let Some(told) = &wanted.pool {
        route.pool = pool(caller, told)?;
    }
    check(caller, catalog, &route, endpoint)?;
    if count_of(catalog, &tenant) >= ROUTES_MAX {
        return Err(invalid("tenant", "the tenant has as many routes as it may"));
    }
    Ok(route)
}

fn count_of(catalog: &Catalog, tenant: &TenantId) -> usize {
    let routes = catalog.routes_after(None);
    routes.filter(|stored| stored.record.tenant == *tenant).count()
}

/// Refuses a route that is not the caller's to make: to what is not his, before those of operators, or of a name that
/// is the operators'.
pub(super) fn check(
    caller: &Caller,
    catalog: &Catalog,
    route: &RouteRecord,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let is_operator = caller.role() == Role::Operator;
    let is_own = endpoint.tenant == route.tenant;
    let is_reached = is_own || (is_operator && endpoint.serves(&route.tenant));
    if !is_reached {
        return Err(no_endpoint());
    }
    if route.priority < 0 && !is_operator {
        return Err(scope("only an operator may put a route before the first").param("priority"));
    }
    let name = route.model.as_str();
    if route.tenant.as_str() != DEFAULT_TENANT {
        if catalog.is_taken(&route.tenant, name) {
            return Err(invalid("model", "the operators serve a model of that name"));
        }
        return Ok(());
    }
    if catalog.canonical(name).is_some() {
        return Err(invalid(
            "model",
            "the name is another name of a model: use the model's own",
        ));
    }
    let of_file = catalog.configured_model(&route.model);
    let of_file = of_file.is_some_and(|model| model.origin == Origin::File);
    if of_file && !is_operator {
        return Err(scope("only an operator may add a route to a model of a file").param("model"));
    }
    Ok(())
}

/// Refuses a change of a route that an operator made to one of the operators' endpoints.
pub(super) fn may_touch(caller: &Caller, catalog: &Catalog, route: &RouteRecord) -> Result<(), Failure> {
    if caller.role() == Role::Operator {
        return Ok(());
    }
    let endpoint = catalog.endpoint(&route.endpoint);
    let is_own = endpoint.is_none_or(|endpoint| endpoint.tenant == route.tenant);
    if is_own && route.priority >= 0 {
        Ok(())
    } else {
        Err(scope("only an operator may change this route").param("id"))
    }
}

/// A route after a change.
fn patched(
    caller: &Caller,
    catalog: &Catalog,
    route: &RouteRecord,
    patch: &Patch,
) -> Result<RouteRecord, Failure> {
    may_touch(caller, catalog, route)?;
    let mut after = route.clone();
    if let Some(told) = &patch.endpoint {
        let endpoint = find_endpoint(caller, catalog, Some(&route.tenant), told)?;
        after.endpoint = endpoint.id.clone();
    }
    if let Some(name) = &patch.upstream_model {
        after.upstream_model = model_name("upstream_model", name)?;
    }
    if let Some(told) = patch.weight {
        after.weight = weight(told)?;
    }
    if let Some(told) = &patch.pool {
        after.pool = pool(caller, told)?;
    }
    after.priority = patch.priority.unwrap_or(after.priority);
    if patch.context_length.is_some() {
        after.context_length = tokens("context_length", patch.context_length)?;
    }
    if patch.max_output_length.is_some() {
        after.max_output_length = tokens("max_output_length", patch.max_output_length)?;
    }
    if after.priority < 0 && after.priority != route.priority && caller.role() != Role::Operator {
        return Err(scope("only an operator may put a route before the first").param("priority"));
    }
    if after.endpoint != route.endpoint {
        let endpoint = catalog.endpoint(&after.endpoint).ok_or_else(no_endpoint)?;
        let is_operator = caller.role() == Role::Operator;
        if endpoint.tenant != route.tenant && !(is_operator && endpoint.serves(&route.tenant)) {
            return Err(no_endpoint());
        }
    }
    Ok(after)
}

/// The endpoint of an id, or of a name within a tenant: one that the caller administers.
fn find_endpoint<'c>(
    caller: &Caller,
    catalog: &'c Catalog,
    tenant: Option<&TenantId>,
    told: &str,
) -> Result<&'c Arc<Endpoint>, Failure> {
    let reached = |endpoint: &&Arc<Endpoint>| rights::reaches(caller, &endpoint.tenant);
    if let Some(endpoint) = catalog.endpoint(&EndpointId::from(told)).filter(reached) {
        return Ok(endpoint);
    }
    let mut named = catalog.endpoints();
    named.retain(|endpoint| {
        let said = endpoint
            .registered
            .as_ref()
            .is_some_and(|said| &*said.name == told);
        said && reached(endpoint) && tenant.is_none_or(|tenant| endpoint.tenant == *tenant)
    });
    match named.as_slice() {
        [] => Err(no_endpoint()),
        [one] => Ok(one),
        [..] => Err(invalid(
            "endpoint",
            "several endpoints have that name: give the id of one",
        )),
    }
}

fn no_endpoint() -> Failure {
    invalid("endpoint", "there is no such endpoint")
}

/// A name by which a model is asked for.
pub(super) fn model_name(field: &'static str, name: &str) -> Result<Arc<str>, Failure> {
    let fits = !name.trim().is_empty() && name.len() <= MODEL_NAME_BYTES_MAX;
    if fits && name.trim() == name && !name.chars().any(char::is_control) {
        Ok(name.into())
    } else {
        Err(invalid(field, "expected 1 to 256 bytes of printable text"))
    }
}

fn weight(told: u32) -> Result<u32, Failure> {
    if told > WEIGHT_MAX {
        return Err(invalid("weight", "expected a whole number from 0 to 1000000"));
    }
    Ok(told)
}

/// The pool that a caller names.
pub(super) fn pool(caller: &Caller, told: &str) -> Result<PoolName, Failure> {
    if told != POOL_DEFAULT && caller.role() != Role::Operator {
        return Err(scope("only an operator may choose a pool").param("pool"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if told.is_empty() || told.len() > 63 || !told.bytes().all(plain) {
        return Err(invalid("pool", "expected the name of a pool"));
    }
    Ok(PoolName::from(told))
}

fn tokens(field: &'static str, told: Option<u64>) -> Result<Option<u64>, Failure> {
    if told.is_some_and(|tokens| tokens == 0 || tokens > TOKENS_MAX) {
        return Err(invalid(field, "expected a number of tokens"));
    }
    Ok(told)
}

fn modalities(words: &[String]) -> Result<Modalities, Failure> {
    let mut set = Modalities::TEXT;
    for word in words {
        let text = "expected text, image, audio or video";
        set = set | Modalities::of_word(word).ok_or_else(|| invalid("input_modalities", text))?;
    }
    Ok(set)
}
