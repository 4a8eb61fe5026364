//! What is served to whom: models of files, ways to them that people add while nodes run, what an operator changes of a
//! model of a file, and prices, folded into one model for each name of each tenant. The operators' own models are those
//! of tenant `default`, and are everybody's unless they say otherwise; a tenant's own are nobody else's. Where both have
//! a name, the operators' counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rates::{PriceRecord, Rates, Version};
use super::{
    Catalog, Modalities, Model, Origin, RecordError, Role, Route, Stored, operators, read, replace_at,
};
use crate::id::{DEFAULT_TENANT, EndpointId, ModelName, PoolName, TenantId};
use crate::money::Price;
use crate::subject;
use crate::time::Timestamp;

/// Tokens of prompt and answer together, where nobody says.
pub const CONTEXT_LENGTH_DEFAULT: u64 = 8_192;
/// Tokens of an answer, where nobody says.
pub const MAX_OUTPUT_LENGTH_DEFAULT: u64 = 4_096;
/// Millionths in a weight of 1.
const MICRO: u64 = 1_000_000;
/// Place in the listing: after the models of files.
const POSITION: u32 = 900_000;

/// Where a record of a tenant lies: the tenant, and its id.
pub type Place = (TenantId, Arc<str>);

/// A way to serve a model that was added while nodes run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRecord {
    /// Its id.
    pub id: Arc<str>,
    /// Whose callers it serves; through `default` the model is the operators'.
    pub tenant: TenantId,
    /// The model, by the name that callers ask for.
    pub model: ModelName,
    /// Where to.
    pub endpoint: EndpointId,
    /// The upstream's name of the model.
    pub upstream_model: Arc<str>,
    /// 0 is tried first.
    pub priority: i32,
    /// Share of the draw within a priority; 0 serves when nobody else of the priority can.
    pub weight: u32,
    /// The pool that may run it.
    pub pool: PoolName,
    /// Tokens of prompt and answer together; `None` for what the model has, or what is safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// Tokens of an answer; `None` likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_length: Option<u64>,
    /// What it takes; `None` likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_modalities: Option<Modalities>,
    /// Takes `tools`; counts for a model that has no file.
    #[serde(default)]
    pub supports_tools: bool,
    /// Takes `response_format`; counts likewise.
    #[serde(default)]
    pub supports_structured_output: bool,
    /// Gives embeddings instead of answers; counts likewise.
    #[serde(default)]
    pub embeds: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it came from.
    pub origin: Origin,
}

/// For whom a model is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// For every tenant.
    Everybody,
    /// For these tenants.
    Only(Vec<TenantId>),
}

/// What an operator changed of one of the operators' models; what is not said stays as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// The model.
    pub model: ModelName,
    /// The lowest role that may see and call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_role: Option<Role>,
    /// For whom it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// False: it is not served to anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it came from.
    pub origin: Origin,
}

impl Overlay {
    /// One that changes nothing.
    pub const fn new(model: ModelName, created_at: Timestamp) -> Self {
        Self {
            model,
            required_role: None,
            sharing: None,
            enabled: None,
            created_at,
            origin: Origin::Runtime,
        }
    }

    fn apply(&self, model: &mut Model) {
        if let Some(role) = self.required_role {
            model.required_role = role;
        }
        match &self.sharing {
            None => {}
            Some(Sharing::Everybody) => model.tenants = None,
            Some(Sharing::Only(tenants)) => model.tenants = Some(tenants.clone()),
        }
    }
}

/// The records, and what comes of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Served {
    /// Models of files.
    files: HashMap<ModelName, Arc<Model>>,
    routes: BTreeMap<Place, Stored<RouteRecord>>,
    overlays: HashMap<ModelName, Stored<Overlay>>,
    pub(super) prices: BTreeMap<Place, Stored<PriceRecord>>,
    /// The operators' models that are served.
    default: HashMap<ModelName, Arc<Model>>,
    /// Models of tenants.
    own: HashMap<TenantId, HashMap<ModelName, Arc<Model>>>,
    aliases: HashMap<ModelName, ModelName>,
}

impl Model {
    /// Is it there for the callers of a tenant?
    pub fn is_shared_with(&self, tenant: &TenantId) -> bool {
        let tenants = self.tenants.as_deref();
        tenants.is_none_or(|tenants| tenants.contains(tenant))
    }
}

impl Catalog {
    /// Applies a record of a model, of a way to one, of what was changed of one, or of a price; `None` for a record of
    /// another kind.
    pub(super) fn apply_served(
        &mut self,
        revision: u64,
        key: &str,
        value: Option<&[u8]>,
    ) -> Option<Result<(), RecordError>> {
        let kinds = [
            subject::catalog::MODEL,
            subject::catalog::ROUTE,
            subject::catalog::OVERLAY,
            subject::catalog::PRICE,
        ];
        let kind = kinds.into_iter().find(|kind| key.starts_with(kind))?;
        Some(self.apply_kind(kind, revision, key, value))
    }

    fn apply_kind(
        &mut self,
        kind: &str,
        revision: u64,
        key: &str,
        value: Option<&[u8]>,
    ) -> Result<(), RecordError> {
        let unknown = || RecordError::Kind(key.to_owned());
        if kind == subject::catalog::MODEL {
            self.replace_file_model(
                &ModelName::new(super::name_of_record(key, kind)),
                read(key, value)?,
            );
        } else if kind == subject::catalog::OVERLAY {
            let name = ModelName::new(super::name_of_record(key, kind));
            replace_at(
                &mut self.served.overlays,
                name.clone(),
                revision,
                read(key, value)?,
            );
            self.serve(&operators(), &name);
        } else if kind == subject::catalog::ROUTE {
            let place = place_of(key, kind).ok_or_else(unknown)?;
            let route: Option<RouteRecord> = read(key, value)?;
            let new = route.as_ref().map(|route| route.model.clone());
            let old = put(&mut self.served.routes, place.clone(), revision, route);
            let old = old.map(|stored| stored.record.model.clone());
            for name in old.into_iter().chain(new) {
                self.serve(&place.0, &name);
            }
        } else {
            let place = place_of(key, kind).ok_or_else(unknown)?;
            let price: Option<PriceRecord> = read(key, value)?;
            let new = price.as_ref().map(|price| price.model.clone());
            let old = put(&mut self.served.prices, place.clone(), revision, price);
            let old = old.map(|stored| stored.record.model.clone());
            for name in old.into_iter().chain(new) {
                self.serve(&place.0, &name);
            }
        }
        Ok(())
    }

    fn replace_file_model(&mut self, name: &ModelName, model: Option<Model>) {
        self.served.aliases.retain(|_, canonical| canonical != name);
        if let Some(model) = &model {
            for alias in &model.aliases {
                self.served.aliases.insert(alias.clone(), name.clone());
            }
        }
        super::replace(&mut self.served.files, name.clone(), model);
        self.serve(&operators(), name);
    }

    /// Serves anew whatever leads to an endpoint.
    pub(super) fn serve_endpoint(&mut self, id: &EndpointId) {
        let routes = self.served.routes.values().map(|stored| &stored.record);
        let led = routes.filter(|route| route.endpoint == *id);
        let names: HashSet<_> = led
            .map(|route| (route.tenant.clone(), route.model.clone()))
            .collect();
        for (tenant, name) in names {
            self.serve(&tenant, &name);
        }
    }

    /// Works out what a name of a tenant means.
    fn serve(&mut self, tenant: &TenantId, name: &ModelName) {
        let is_default = tenant.as_str() == DEFAULT_TENANT;
        let overlay = self.served.overlays.get(name).filter(|_| is_default);
        let is_enabled = overlay.is_none_or(|stored| stored.record.enabled != Some(false));
        let model = self.effective(tenant, name).filter(|_| is_enabled);
        if is_default {
            super::replace(&mut self.served.default, name.clone(), model);
            return;
        }
        let own = self.served.own.entry(tenant.clone()).or_default();
        super::replace(own, name.clone(), model);
        if own.is_empty() {
            self.served.own.remove(tenant);
        }
    }

    /// Serves a model as somebody who knows the whole catalogue tells it.
    pub(super) fn serve_told(&mut self, model: Model) {
        let (owner, name) = (model.owner.clone(), model.id.clone());
        if owner.as_str() == DEFAULT_TENANT {
            super::replace(&mut self.served.default, name, Some(model));
        } else {
            let own = self.served.own.entry(owner).or_default();
            super::replace(own, name, Some(model));
        }
    }

    /// A name of a tenant with all its ways, whether it is switched off or not.
    fn effective(&self, tenant: &TenantId, name: &ModelName) -> Option<Model> {
        let is_default = tenant.as_str() == DEFAULT_TENANT;
        let file = self.served.files.get(name).filter(|_| is_default);
        let routes = self.served.routes_of(tenant);
        let mut routes: Vec<&RouteRecord> = routes
            .map(|stored| &*stored.record)
            .filter(|route| route.model == *name && self.endpoint_for(tenant, &route.endpoint).is_some())
            .collect();
        routes.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let mut model = match (file, routes.first()) {
            (Some(file), _) => Model::clone(file),
            (None, Some(first)) => of_routes(first, &routes),
            (None, None) => return None,
        };
        let base = (model.context_length, model.input_modalities);
        let (price, rates) = of_legs(file.map(Arc::as_ref));
        for route in routes {
            let mut route = route.route(base);
            (route.price, route.rates) = (price, rates.clone());
            model.context_length = model.context_length.min(route.context_length);
            model.input_modalities = model.input_modalities | route.input_modalities;
            model.routes.push(route);
        }
        for route in &mut model.routes {
            route.rates = self.served.rates(tenant, name, route);
        }
        if let Some(stored) = self.served.overlays.get(name).filter(|_| is_default) {
            stored.record.apply(&mut model);
        }
        Some(model)
    }
}

impl Served {
    fn routes_of(&self, tenant: &TenantId) -> impl Iterator<Item = &Stored<RouteRecord>> {
        let from = (tenant.clone(), Arc::from(""));
        let of_tenant = self.routes.range(from..);
        of_tenant
            .take_while(move |((of, _), _)| of == tenant)
            .map(|(_, stored)| stored)
    }

    /// The versions of a route's price: of its file, of its model, of its model at its endpoint, each in its time.
    fn rates(&self, tenant: &TenantId, name: &ModelName, route: &Route) -> Option<Arc<Rates>> {
        let from = (tenant.clone(), Arc::from(""));
        let of_tenant = self.prices.range(from..).take_while(|((of, _), _)| of == tenant);
        let suits = |price: &&PriceRecord| {
            let endpoint = price.endpoint.as_ref();
            price.model == *name && endpoint.is_none_or(|endpoint| *endpoint == route.endpoint_id)
        };
        let mut prices: Vec<&PriceRecord> = of_tenant
            .map(|(_, stored)| &*stored.record)
            .filter(suits)
            .collect();
        if prices.is_empty() {
            return route.rates.clone();
        }
        prices.sort_by_key(|price| {
            let rank = price.endpoint.is_some();
            (
                rank,
                price.effective_from,
                price.created_at,
                Arc::clone(&price.id),
            )
        });
        let of_file = route.rates.as_ref().map(|rates| rates.0.clone());
        let of_file = of_file.unwrap_or_else(|| {
            vec![Version {
                from: None,
                price: route.price,
                schedule: None,
            }]
        });
        let made = prices.into_iter().map(|price| Version {
            from: Some(price.effective_from),
            price: Some(price.price),
            schedule: price.schedule.clone(),
        });
        Some(Arc::new(Rates(of_file.into_iter().chain(made).collect())))
    }
}

impl RouteRecord {
    /// The route of its model. `base` is what the model has where the record says nothing.
    fn route(&self, (context_length, input_modalities): (u64, Modalities)) -> Route {
        Route {
            endpoint_id: self.endpoint.clone(),
            upstream_model: Arc::clone(&self.upstream_model),
            priority: self.priority,
            weight_micro: u64::from(self.weight) * MICRO,
            pool: self.pool.clone(),
            context_length: self.context_length.unwrap_or(context_length),
            input_modalities: self.input_modalities.unwrap_or(input_modalities),
            takes: Arc::default(),
            price: None,
            origin: Origin::Runtime,
            rates: None,
        }
    }
}

/// What a way beside the legs of a file costs where no version says it: what they cost, if they all cost the same.
fn of_legs(file: Option<&Model>) -> (Option<Price>, Option<Arc<Rates>>) {
    let mut legs = file.into_iter().flat_map(|model| &model.routes);
    let Some(first) = legs.next() else {
        return (None, None);
    };
    if legs.all(|leg| (leg.price, &leg.rates) == (first.price, &first.rates)) {
        (first.price, first.rates.clone())
    } else {
        (None, None)
    }
}

/// A model of which no file says anything. Nobody but its tenant sees it until an operator says otherwise.
fn of_routes(first: &RouteRecord, routes: &[&RouteRecord]) -> Model {
    let smallest = |of: fn(&RouteRecord) -> Option<u64>, default: u64| {
        let told = routes.iter().map(|route| of(route).unwrap_or(default));
        told.min().unwrap_or(default)
    };
    Model {
        id: first.model.clone(),
        name: Arc::clone(&first.model.0),
        aliases: Vec::new(),
        position: POSITION,
        input_modalities: Modalities::TEXT,
        output_modalities: Modalities::TEXT,
        quantization: "unknown".into(),
        context_length: smallest(|route| route.context_length, CONTEXT_LENGTH_DEFAULT),
        max_output_length: smallest(|route| route.max_output_length, MAX_OUTPUT_LENGTH_DEFAULT),
        supports_tools: routes.iter().any(|route| route.supports_tools),
        supports_structured_output: routes.iter().any(|route| route.supports_structured_output),
        embeds: first.embeds,
        supported_params: ["temperature", "top_p", "max_tokens"].map(str::to_owned).to_vec(),
        required_role: Role::Free,
        tenants: Some(vec![first.tenant.clone()]),
        pricing: Vec::new(),
        created_at: first.created_at,
        routes: Vec::new(),
        origin: Origin::Runtime,
        owner: first.tenant.clone(),
        router: None,
    }
}

/// Lookups.
impl Catalog {
    /// The operators' model of a name or of an alias.
    pub fn model(&self, name: &str) -> Option<&Arc<Model>> {
        let name = ModelName::from(name);
        let default = &self.served.default;
        default
            .get(&name)
            .or_else(|| default.get(self.served.aliases.get(&name)?))
    }

    /// What a name means to the callers of a tenant: the operators' model, if it is shared with them, else their own.
    pub fn model_for(&self, tenant: &TenantId, name: &str) -> Option<&Arc<Model>> {
        let shared = self.model(name).filter(|model| model.is_shared_with(tenant));
        shared.or_else(|| self.model_of(tenant, name))
    }

    /// The model that belongs to a tenant itself.
    pub fn model_of(&self, owner: &TenantId, name: &str) -> Option<&Arc<Model>> {
        if owner.as_str() == DEFAULT_TENANT {
            return self.model(name);
        }
        self.served.own.get(owner)?.get(&ModelName::from(name))
    }

    /// What a name means to those who cross tenants and whose own does not know it: the operators' model whomever it is
    /// shared with, else that of the first tenant that has one.
    pub fn model_anywhere(&self, name: &str) -> Option<&Arc<Model>> {
        let wanted = ModelName::from(name);
        self.model(name).or_else(|| {
            let owners = self.served.own.iter();
            let having = owners.filter(|(_, models)| models.contains_key(&wanted));
            let (_, models) = having.min_by(|a, b| a.0.cmp(b.0))?;
            models.get(&wanted)
        })
    }

    /// Every one of the operators' models that is served, in the order of the listing.
    pub fn models(&self) -> Vec<&Arc<Model>> {
        let mut models: Vec<_> = self.served.default.values().collect();
        models.sort_by(|a, b| (a.position, &a.id).cmp(&(b.position, &b.id)));
        models
    }

    /// The models of tenants, by tenant and name.
    pub fn models_of_tenants(&self) -> Vec<&Arc<Model>> {
        let mut models: Vec<_> = self.served.own.values().flat_map(HashMap::values).collect();
        models.sort_by(|a, b| (&a.owner, &a.id).cmp(&(&b.owner, &b.id)));
        models
    }

    /// Every model whoever's it is: the operators' first.
    pub fn all_models(&self) -> Vec<&Arc<Model>> {
        let mut models = self.models();
        models.extend(self.models_of_tenants());
        models
    }

    /// One of the operators' models as it would be served were it switched on.
    pub fn configured_model(&self, name: &ModelName) -> Option<Model> {
        self.effective(&operators(), name)
    }

    /// The names of all of the operators' models, switched on or off.
    pub fn configured_names(&self) -> Vec<ModelName> {
        let operators = operators();
        let of_files = self.served.files.keys().cloned();
        let routes = self.served.routes_of(&operators);
        let of_routes = routes.map(|stored| stored.record.model.clone());
        let names: std::collections::BTreeSet<ModelName> = of_files.chain(of_routes).collect();
        names.into_iter().collect()
    }

    /// True for a name, or an alias, that is among the operators' models, switched on or off, and shared with a tenant:
    /// what a route of that tenant may not be called.
    pub fn is_taken(&self, tenant: &TenantId, name: &str) -> bool {
        let name = ModelName::from(name);
        let canonical = self.served.aliases.get(&name).unwrap_or(&name);
        self.configured_model(canonical)
            .is_some_and(|model| model.is_shared_with(tenant))
    }

    /// The name of which `alias` is another of an operators' model.
    pub fn canonical(&self, alias: &str) -> Option<&ModelName> {
        self.served.aliases.get(&ModelName::from(alias))
    }

    /// True where a call by a way that was added, or is about to be, costs something, or is free by its price.
    pub fn is_priced(&self, record: &RouteRecord, at: Timestamp) -> bool {
        let is_default = record.tenant.as_str() == DEFAULT_TENANT;
        let file = self.served.files.get(&record.model).filter(|_| is_default);
        let mut route = record.route((0, Modalities::TEXT));
        (route.price, route.rates) = of_legs(file.map(Arc::as_ref));
        let rates = self.served.rates(&record.tenant, &record.model, &route);
        let applied = rates.and_then(|rates| rates.at(at));
        applied.map_or(route.price, |applied| applied.price).is_some()
    }

    /// True for a name that a tenant's models have, switched on or off.
    pub fn is_known(&self, tenant: &TenantId, name: &ModelName) -> bool {
        let of_file = tenant.as_str() == DEFAULT_TENANT && self.served.files.contains_key(name);
        let mut routes = self.served.routes_of(tenant);
        of_file || routes.any(|stored| stored.record.model == *name)
    }

    /// A way that was added at run time, with its revision.
    pub fn stored_route(&self, tenant: &TenantId, id: &str) -> Option<&Stored<RouteRecord>> {
        self.served.routes.get(&(tenant.clone(), Arc::from(id)))
    }

    /// A way by its id alone: ids are never given twice.
    pub fn route_by_id(&self, id: &str) -> Option<&Stored<RouteRecord>> {
        let mut routes = self.served.routes.values();
        routes.find(|stored| &*stored.record.id == id)
    }

    /// Every way that was added, by tenant and id, that comes after `after`.
    pub fn routes_after(&self, after: Option<&Place>) -> impl Iterator<Item = &Stored<RouteRecord>> {
        let routes = self.served.routes.iter();
        let later = routes.filter(move |(place, _)| after.is_none_or(|after| *place > after));
        later.map(|(_, stored)| stored)
    }

    /// What was changed of a model, with its revision.
    pub fn stored_overlay(&self, model: &ModelName) -> Option<&Stored<Overlay>> {
        self.served.overlays.get(model)
    }
}

/// The record key of a way.
pub fn route_key(tenant: &TenantId, id: &str) -> String {
    format!("{}{tenant}.{id}", subject::catalog::ROUTE)
}

/// The record key of what was changed of a model.
pub fn overlay_key(model: &ModelName) -> String {
    let name = super::hex(model.as_str().as_bytes());
    format!("{}{name}", subject::catalog::OVERLAY)
}

/// Where the record of a cursor, `tenant.id`, lies; `None` for a text that is none.
pub fn place_of_cursor(cursor: &str) -> Option<Place> {
    let (tenant, id) = cursor.split_once('.')?;
    Some((TenantId::parse(tenant)?, Arc::from(id)))
}

fn place_of(key: &str, kind: &str) -> Option<Place> {
    let (tenant, id) = place_of_cursor(key.strip_prefix(kind)?)?;
    (!id.is_empty()).then_some((tenant, id))
}

fn put<T>(
    map: &mut BTreeMap<Place, Stored<T>>,
    place: Place,
    revision: u64,
    record: Option<T>,
) -> Option<Stored<T>> {
    match record.map(Arc::new) {
        Some(record) => map.insert(place, Stored { revision, record }),
        None => map.remove(&place),
    }
}

#[cfg(test)]
mod tests;
