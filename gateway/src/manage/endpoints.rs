//! `/api/v1/endpoints`: upstream services that are added while nodes run. One belongs to a tenant, and only routes of
//! that tenant lead to it; those of files are the operators', are shown here and changed in their files. To make one is
//! to register a route to it as well; to remove one removes the routes that lead to it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use schemas::catalog::served::RouteRecord;
use schemas::catalog::{Catalog, Endpoint, Origin, Stored, endpoint_key};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{EndpointId, TenantId};

use super::openapi::Operation;
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::{Parameters, creation, description, invalid, json, model_routes, rights, scope, sealing};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

mod address;
mod body;
mod judged;
mod wake;

use body::{Made, Patch, Shown, Wanted, shown};
pub(super) use judged::judge;

/// Where endpoints are made.
const PATH: &str = "/api/v1/endpoints";
/// Endpoints that a tenant may have.
const ENDPOINTS_MAX: usize = 1_000;

/// What the paths of endpoints do.
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the endpoints, by id");
pub(crate) const CREATE: Operation =
    Operation::create::<Wanted, Made>("Makes an endpoint, and a route to it");
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows an endpoint");
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed an endpoint, and what, the newest first");
pub(crate) const CHANGE: Operation = Operation::change::<Patch, Shown>(
    "Changes an endpoint; what is not named stays, but another address voids its credential",
);
pub(crate) const REMOVE: Operation =
    Operation::remove::<Shown>("Removes an endpoint and the routes that lead to it")
        .under(super::openapi::Condition::IfMatch);

/// Makes an endpoint.
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
    match make(&state, &caller, &arrival, (&headers, body)).await {
        Ok((written, priced)) => {
            let endpoint = shown(&written.record, written.revision);
            creation::answer(&written, &Made { endpoint, priced })
        }
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Makes an endpoint and its route; true where calls by the route have a price.
async fn make(
    state: &Shared,
    caller: &Caller,
    arrival: &Arrival,
    (headers, body): (&HeaderMap, Body),
) -> Result<(Written<Endpoint>, bool), Failure> {
    let bytes = description::body(state, headers, body).await?;
    let mut wanted: Wanted = description::read(&bytes, body::WANTED)?;
    let catalog = state.ports.catalog.load();
    let tenant = rights::living_tenant(caller, &catalog, wanted.tenant.as_deref())?;
    let fresh: Arc<str> = URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()).into();
    // What is wrong is told before anything is written or bound.
    let draft = wanted.endpoint(caller, (&tenant, &fresh), arrival.at)?;
    let route = wanted.route(&draft, &fresh, arrival.at)?;
    if count_of(&catalog, &tenant) >= ENDPOINTS_MAX {
        return Err(invalid("tenant", "the tenant has as many endpoints as it may"));
    }
    let creation = creation::begin(state, caller, headers, (PATH, &bytes), fresh).await?;
    let mut endpoint = wanted.endpoint(caller, (&tenant, &creation.id), arrival.at)?;
    if let Some(value) = wanted.credential.as_mut().and_then(|held| held.value.take()) {
        endpoint.sealed = vec![sealing::seal(state, &endpoint, &value)?];
    }
    let route = RouteRecord {
        id: format!("rt-{}", creation.id).into(),
        endpoint: endpoint.id.clone(),
        ..route
    };
    let is_priced = catalog.is_priced(&route, arrival.at);
    let place = place(&endpoint);
    let author = caller.author(arrival);
    let made = creation.made;
    let repeats = match made {
        None => false,
        Some(_) => records::exists::<Endpoint>(state, &place).await?,
    };
    if !repeats {
        model_routes::check(caller, &catalog, &route, &endpoint)?;
        // A route leads nowhere until there is an endpoint.
        let of_route = records::another(state, &author);
        records::create(state, &model_routes::place(&route), route, made, of_route).await?;
    }
    let written = records::create(state, &place, endpoint, made, author).await?;
    Ok((written, is_priced))
}

fn count_of(catalog: &Catalog, tenant: &TenantId) -> usize {
    let endpoints = catalog.endpoints().into_iter();
    endpoints
        .filter(|endpoint| endpoint.tenant == *tenant && endpoint.origin == Origin::Runtime)
        .count()
}

/// The endpoints that the caller administers, by id, page by page.
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
        let catalog = state.ports.catalog.load();
        let after = asked.after.as_deref().map(EndpointId::from);
        let mut endpoints = catalog.endpoints_after(after.as_ref());
        endpoints.retain(|stored| reached(&stored.record.tenant));
        let cursor = |stored: &&Stored<Endpoint>| stored.record.id.to_string();
        Ok(asked.page(endpoints, cursor, |stored| shown(&stored.record, stored.revision)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One endpoint, with its `ETag`.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    match named(&caller, &catalog, id) {
        Ok(stored) => records::shown(&shown(&stored.record, stored.revision), stored.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What was changed of an endpoint, and by whom.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let told = async {
        let place = place(&named(&caller, &state.ports.catalog.load(), id)?.record);
        records::history::<Endpoint>(&state, &place).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Changes an endpoint.
pub(crate) async fn patch(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let place = match named(&caller, &state.ports.catalog.load(), id) {
        Ok(stored) => place(&stored.record),
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let changed = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let patch: Patch = description::read(&bytes, body::PATCH)?;
        let decide = |endpoint: &Endpoint| {
            of_run_time(endpoint)?;
            let mut after = patch.patched(&caller, endpoint)?;
            if let Some(value) = patch.value() {
                after.sealed = vec![sealing::seal(&state, &after, value)?];
            }
            Ok(after)
        };
        records::change(&state, &place, expected, &caller.author(&arrival), decide).await
    };
    match changed.await {
        Ok(written) => records::shown(&shown(&written.record, written.revision), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Removes an endpoint, and first what leads to it: a route never leads to what is not there.
pub(crate) async fn remove(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let removed = async {
        let expected = Match::of(&headers)?;
        let catalog = state.ports.catalog.load();
        let endpoint = Arc::clone(&named(&caller, &catalog, id)?.record);
        of_run_time(&endpoint)?;
        records::check::<Endpoint>(&state, &place(&endpoint), expected).await?;
        let author = caller.author(&arrival);
        let decide = |route: &RouteRecord| may_go(&caller, &catalog, route);
        let leading = catalog.routes_after(None).map(|stored| &stored.record);
        let leading: Vec<_> = leading.filter(|route| route.endpoint == endpoint.id).collect();
        leading.iter().try_for_each(|route| decide(route))?;
        for route in leading {
            let place = model_routes::place(route);
            let author = records::another(&state, &author);
            match records::remove(&state, &place, Match::Any, author, decide).await {
                Ok(_) => {}
                // Somebody else removed it in between.
                Err(failure) if failure.status == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        records::remove(&state, &place(&endpoint), expected, author, of_run_time).await
    };
    match removed.await {
        Ok(written) => json(&shown(&written.record, written.revision)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Refuses to remove, with an endpoint, a route that is not the caller's to remove. Nothing is told of it: it may be
/// another tenant's.
fn may_go(caller: &Caller, catalog: &Catalog, route: &RouteRecord) -> Result<(), Failure> {
    model_routes::may_touch(caller, catalog, route).map_err(|_| {
        scope("routes that an operator made lead to the endpoint: only an operator may remove it").param("id")
    })
}

/// Refuses to change what a file says.
fn of_run_time(endpoint: &Endpoint) -> Result<(), Failure> {
    match endpoint.origin {
        Origin::Runtime => Ok(()),
        Origin::File => Err(invalid("id", "the endpoint is of a file: change it there")),
    }
}

/// The endpoint that a caller names: one of a tenant that he administers. Another is not there.
pub(super) fn named<'c>(
    caller: &Caller,
    catalog: &'c Catalog,
    id: Result<Path<String>, PathRejection>,
) -> Result<&'c Stored<Endpoint>, Failure> {
    rights::administers(caller)?;
    // What is not even text is the name of nothing.
    let id = id.map(|Path(id)| EndpointId::new(id));
    let id = id.map_err(|_| records::nothing())?;
    let found = catalog.stored_endpoint(&id);
    found
        .filter(|stored| rights::reaches(caller, &stored.record.tenant))
        .ok_or_else(records::nothing)
}

fn place(endpoint: &Endpoint) -> Place {
    Place {
        kind: Kind::Endpoint,
        key: endpoint_key(&endpoint.id),
        tenant: endpoint.tenant.clone(),
        id: Arc::clone(&endpoint.id.0),
    }
}
