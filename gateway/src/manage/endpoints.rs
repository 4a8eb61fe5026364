//! `/api/v1/endpoints`: upstream services that are added while nodes run. One belongs to a tenant, and only routes of
//! that tenant lead to it; those of files are the operators', are shown here and changed in their files. To make one is
//! to register a route to it as well; to remove one removes the routes that lead to it.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::catalog::served::RouteRecord;
use schemas::catalog::{Catalog, Endpoint, Origin, Stored, endpoint_key};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{EndpointId, TenantId};
use schemas::trial;
use serde::Serialize;

use super::openapi::Operation;
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Created, Found, Id, Listed, Removed, Resource, Sent, There};
use super::{creation, invalid, model_routes, rights, scope, sealing};
use crate::caller::Caller;

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

/// The endpoints of tenants and of the operators.
pub(crate) enum Endpoints {}

impl Resource for Endpoints {
    type Record = Endpoint;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Endpoint>, Failure> {
        let stored = named(caller, catalog, id)?;
        Ok(Found::there(place(&stored.record), stored))
    }

    fn gone(id: &Id) -> Option<(Kind, Arc<str>)> {
        resource::of_kind(Kind::Endpoint, id)
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Endpoint>) -> Result<Response, Failure> {
        resource::told(there, shown)
    }
}

impl Created for Endpoints {
    type Wanted = Wanted;
    const WANTED: &str = body::WANTED;

    async fn create(act: &Act<'_>, sent: Sent<'_>, wanted: Wanted) -> Result<Response, Failure> {
        make(act, sent, wanted).await
    }
}

impl Listed for Endpoints {
    const OF_TENANT: bool = true;

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<Endpoint>>, Failure> {
        let after = asked.after.as_deref().map(EndpointId::from);
        Ok(catalog.endpoints_after(after.as_ref()))
    }

    fn tenant(endpoint: &Endpoint) -> Option<&TenantId> {
        Some(&endpoint.tenant)
    }

    fn cursor(endpoint: &Endpoint) -> String {
        endpoint.id.to_string()
    }

    fn shown(_: &Act<'_>, endpoint: &Endpoint, revision: u64) -> impl Serialize {
        shown(endpoint, revision)
    }
}

impl Changed for Endpoints {
    type Patch = Patch;
    const PATCH: &str = body::PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<Endpoint>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |endpoint: &Endpoint| {
            of_run_time(endpoint)?;
            let mut after = patch.patched(act.caller, endpoint)?;
            if let Some(value) = patch.value() {
                let pool = trial::pool(&catalog, &endpoint.id);
                after.sealed = vec![sealing::seal(act.state, (&after, &pool), value)?];
            }
            Ok(after)
        };
        records::change(act.state, place, expected, &act.author(), decide).await
    }
}

impl Removed for Endpoints {
    /// Removes an endpoint, and first what leads to it: a route never leads to what is not there.
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<Endpoint>, Failure> {
        let (state, caller) = (act.state, act.caller);
        let catalog = state.ports.catalog.load();
        let id = EndpointId(Arc::clone(&place.id));
        of_run_time(&catalog.stored_endpoint(&id).ok_or_else(records::nothing)?.record)?;
        records::check::<Endpoint>(state, place, expected).await?;
        let author = act.author();
        let decide = |route: &RouteRecord| may_go(caller, &catalog, route);
        let leading = catalog.routes_after(None).map(|stored| &stored.record);
        let leading: Vec<_> = leading.filter(|route| route.endpoint == id).collect();
        leading.iter().try_for_each(|route| decide(route))?;
        for route in leading {
            let place = model_routes::place(route);
            let author = records::another(state, &author);
            match records::remove(state, &place, Match::Any, author, decide).await {
                Ok(_) => {}
                // Somebody else removed it in between.
                Err(failure) if failure.status == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        records::remove(state, place, expected, author, of_run_time).await
    }
}

/// Makes an endpoint and its route, and shows it, and whether calls by the route have a price.
async fn make(
    act: &Act<'_>,
    Sent { headers, bytes }: Sent<'_>,
    mut wanted: Wanted,
) -> Result<Response, Failure> {
    let Act {
        state,
        arrival,
        caller,
    } = *act;
    let catalog = state.ports.catalog.load();
    let tenant = rights::living_tenant(caller, &catalog, wanted.tenant.as_deref())?;
    let fresh: Arc<str> = URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()).into();
    // What is wrong is told before anything is written or bound.
    let draft = wanted.endpoint(caller, (&tenant, &fresh), arrival.at)?;
    let route = wanted.route(caller, &draft, (&fresh, arrival.at))?;
    if count_of(&catalog, &tenant) >= ENDPOINTS_MAX {
        return Err(invalid("tenant", "the tenant has as many endpoints as it may"));
    }
    let creation = creation::begin(state, caller, headers, (PATH, bytes), fresh).await?;
    let mut endpoint = wanted.endpoint(caller, (&tenant, &creation.id), arrival.at)?;
    if let Some(value) = wanted.credential.as_mut().and_then(|held| held.value.take()) {
        endpoint.sealed = vec![sealing::seal(state, (&endpoint, &route.pool), &value)?];
    }
    let route = RouteRecord {
        id: format!("rt-{}", creation.id).into(),
        endpoint: endpoint.id.clone(),
        ..route
    };
    let priced = catalog.is_priced(&route, arrival.at);
    let place = place(&endpoint);
    let author = act.author();
    let repeats = match creation.made {
        None => false,
        Some(_) => creation.is_done() || records::exists::<Endpoint>(state, &place).await?,
    };
    if !repeats {
        model_routes::check(caller, &catalog, &route, &endpoint)?;
        // A route leads nowhere until there is an endpoint.
        let of_route = records::another(state, &author);
        records::create(
            state,
            &model_routes::place(&route),
            route,
            creation.made,
            of_route,
        )
        .await?;
    }
    let Some(written) = creation.make(state, &place, endpoint, author).await? else {
        return creation.again();
    };
    let endpoint = shown(&written.record, written.revision);
    Ok(creation.answer(state, &written, &Made { endpoint, priced }).await)
}

fn count_of(catalog: &Catalog, tenant: &TenantId) -> usize {
    let endpoints = catalog.endpoints().into_iter();
    endpoints
        .filter(|endpoint| endpoint.tenant == *tenant && endpoint.origin == Origin::Runtime)
        .count()
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
    id: Id,
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
