//! Whose endpoint it is, and which of its models a call counts as.
//!
//! Members of an endpoint's tenant and the endpoint's own keys may have calls pass to it, and operators. Endpoints of
//! the operators' tenant serve others as well, with one account at their provider: there, whoever does not run the
//! platform only calls models, since everything else in that account may be another's.

use std::sync::Arc;

use dialects::raw;
use dialects::raw::named::{Name, Named, bare};
use schemas::catalog::grant::Reach;
use schemas::catalog::{Catalog, Endpoint, Model, ProviderKind, Role, Route};
use schemas::event::request::Surface;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, EndpointId};

use super::Ask;
use crate::caller::Caller;
use crate::gate;

/// The endpoint of an id, or of a name that one of the caller's tenant has alone, if it is there for him.
pub(crate) fn endpoint<'c>(catalog: &'c Catalog, caller: &Caller, name: &str) -> Option<&'c Arc<Endpoint>> {
    let of_id = catalog.endpoint(&EndpointId::new(name));
    if let Some(endpoint) = of_id.filter(|endpoint| reaches(caller, endpoint)) {
        return Some(endpoint);
    }
    let is_called = |endpoint: &&Arc<Endpoint>| {
        let registered = endpoint.registered.as_ref();
        endpoint.tenant == *caller.tenant()
            && reaches(caller, endpoint)
            && registered.is_some_and(|registered| &*registered.name == name)
    };
    let mut named = catalog.endpoints().into_iter().filter(is_called);
    named.next().filter(|_| named.next().is_none())
}

fn reaches(caller: &Caller, endpoint: &Endpoint) -> bool {
    match &caller.key.reach {
        Reach::Member => caller.role() == Role::Operator || endpoint.tenant == *caller.tenant(),
        Reach::Endpoint(own) => *own == endpoint.id,
        Reach::Grant(_) => false,
    }
}

/// The answer where an endpoint is not there for the caller.
pub(crate) fn no_endpoint() -> Failure {
    let text = "The endpoint does not exist or you do not have access to it.";
    Failure::new(FailureCode::NotFound, text)
}

/// The model that a call counts as, with no other way than the endpoint.
pub(crate) fn model(
    catalog: &Catalog,
    caller: &Caller,
    endpoint: &Endpoint,
    (ask, named, body): (&Ask, &Named, &[u8]),
) -> Result<Arc<Model>, Failure> {
    if endpoint.kind == ProviderKind::Echo {
        let text = "the endpoint answers in process: there is nothing to pass a call to";
        return Err(Failure::new(FailureCode::UnsupportedEndpoint, text));
    }
    let (legs, is_all) = legs(catalog, caller, endpoint);
    let leg = match named.models.split_first() {
        Some((first, others)) => {
            if others.iter().any(|name| find(&legs, name).is_none()) {
                return Err(gate::no_model());
            }
            find(&legs, first).ok_or_else(gate::no_model)?
        }
        None if !is_all => return Err(unnamed()),
        None => *legs.first().ok_or_else(gate::no_model)?,
    };
    if endpoint.tenant.as_str() == DEFAULT_TENANT && !caller.operates() {
        // What Responses go on from is kept in that account, under ids that are no secret.
        let surface = ask.dialect.and_then(raw::surface);
        let surface = surface.filter(|surface| *surface != Surface::Responses);
        let (Some(surface), false) = (surface, named.models.is_empty()) else {
            return Err(shared());
        };
        gate::of_account(surface, body)?;
    }
    let (model, route) = leg;
    Ok(Arc::new(Model {
        routes: vec![route.clone()],
        ..Model::clone(model)
    }))
}

/// A model and its way to the endpoint.
type Leg<'c> = (&'c Arc<Model>, &'c Route);

/// The models of the endpoint that are there for the caller, and whether those are all.
fn legs<'c>(catalog: &'c Catalog, caller: &Caller, endpoint: &Endpoint) -> (Vec<Leg<'c>>, bool) {
    let of_endpoint = |model: &&Arc<Model>| model.owner == endpoint.tenant;
    let models = catalog.all_models().into_iter().filter(of_endpoint);
    let mut legs = Vec::new();
    let mut is_all = true;
    for model in models {
        let is_there = gate::sees(Some(&caller.key), model) && catalog.reaches(&caller.key, model);
        let led = model.routes.iter();
        for route in led.filter(|route| route.endpoint_id == endpoint.id) {
            is_all &= is_there;
            if is_there {
                legs.push((model, route));
            }
        }
    }
    (legs, is_all)
}

/// The first model that the upstream calls so.
fn find<'c>(legs: &[Leg<'c>], name: &Name) -> Option<Leg<'c>> {
    let is_called = |leg: &&Leg<'_>| name.contains(&bare(&leg.1.upstream_model));
    legs.iter().find(is_called).copied()
}

fn unnamed() -> Failure {
    let text = "the credential may not call every model of the endpoint, so that a call has to name one of its models";
    Failure::new(FailureCode::InsufficientScope, text)
}

fn shared() -> Failure {
    let text = "the endpoint serves other tenants as well: only calls of chat, completions, embeddings and messages pass that name one of its models";
    Failure::new(FailureCode::InsufficientScope, text)
}
