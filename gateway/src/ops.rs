//! What operators and balancers ask of a node: is it alive, is it ready, what does it count, where does it route?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use schemas::catalog::{Catalog, Model, Origin, Route};
use schemas::circuit::CircuitState;
use schemas::failure::{Failure, FailureCode};
use schemas::health::Spared;
use schemas::node::NodeRecord;
use schemas::query::{BackendHealth, EndpointHealth, HealthAnswer};
use schemas::subject::QUERY_HEALTH;
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::{Caller, Visitor, refused};
use crate::gate;
use crate::manage::openapi::{Audience, Operation};
use crate::manage::{self, ask, json};
use crate::state::{Phase, Shared};

mod gauges;

/// How long routers may take to tell their health.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);
/// Headers by which a proxy tells that it speaks for somebody else.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

#[derive(Serialize)]
struct Root<'a> {
    message: &'static str,
    version: &'a str,
    cluster: &'a str,
    endpoints: [&'static str; 7],
}

/// How a node is, as everybody may know.
#[derive(Serialize)]
struct Health<'a> {
    status: &'static str,
    database_configured: bool,
    database_connected: bool,
    bus_connected: bool,
    routes_configured: usize,
    version: &'a str,
    node: &'a str,
}

/// The same with what operators may know.
#[derive(Serialize)]
struct Deep<'a> {
    #[serde(flatten)]
    health: Health<'a>,
    endpoints: BTreeMap<String, EndpointHealth>,
    nodes: Vec<Peer>,
    /// Seconds for which the view of the catalogue may be outdated.
    watch_age: u64,
}

/// A node of the cluster.
#[derive(Serialize)]
struct Peer {
    #[serde(flatten)]
    record: NodeRecord,
    /// Seconds since its last sign of life.
    silent_seconds: u64,
}

#[derive(Serialize)]
struct Readiness {
    status: &'static str,
}

/// `GET /`: what this is.
pub(crate) async fn root(State(state): State<Shared>) -> Response {
    json(&Root {
        message: "Waybill, an LLM inference gateway",
        version: &state.config.version,
        cluster: &state.config.cluster,
        endpoints: [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/messages",
            "/v1/models",
            "/v1/responses",
            "/health",
        ],
    })
}

/// `GET /health`: is the process of use?
pub(crate) async fn health(State(state): State<Shared>) -> Response {
    let health = shallow(&state);
    with_status(json(&health), health.status != "unhealthy")
}

/// `GET /health/ready`: may calls be sent here? `?strict=1`: only if all that is configured is there.
pub(crate) async fn ready(State(state): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let strict = query.is_some_and(|query| query.split('&').any(|pair| pair == "strict=1"));
    let health = shallow(&state);
    let status = match state.phase() {
        Phase::Draining | Phase::Closed => "draining",
        Phase::Serving if state.ports.catalog.peek().revision == 0 => "starting",
        Phase::Serving if state.stale() => "stale",
        Phase::Serving if !state.ports.spool.has_room() => "full",
        Phase::Serving if health.status == "healthy" => "ready",
        Phase::Serving => "degraded",
    };
    let ready = status == "ready" || (status == "degraded" && !strict);
    with_status(json(&Readiness { status }), ready)
}

/// `GET /health/deep`: every endpoint and backend. For those who run the platform.
pub(crate) async fn deep(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if !caller.operates() {
        return arrival.refuse(&not_for_callers());
    }
    let mut health = shallow(&state);
    let answer: Result<HealthAnswer, Failure> = ask(&state, QUERY_HEALTH, &(), HEALTH_WITHIN).await;
    let told = answer.is_ok();
    let endpoints = answer.unwrap_or_default().endpoints;
    if health.status == "healthy" && (!told || endpoints.values().any(is_ill)) {
        health.status = "degraded";
    }
    let named = endpoints
        .into_iter()
        .map(|(id, health)| (id.as_str().to_owned(), health));
    let endpoints = named.collect();
    let up = health.status != "unhealthy";
    let nodes = state.ports.nodes.all().into_iter();
    let nodes = nodes.map(|(record, silent_ms)| Peer {
        record,
        silent_seconds: silent_ms / 1_000,
    });
    let deep = Deep {
        health,
        endpoints,
        nodes: nodes.collect(),
        watch_age: state.view_age_ms() / 1_000,
    };
    with_status(json(&deep), up)
}

/// Worn, cut off, failing its probes, or refusing our credential, which speaks for itself from the first time on.
fn is_ill(endpoint: &EndpointHealth) -> bool {
    let ill = |backend: &BackendHealth| {
        let refused =
            matches!(backend.last_error_status, Some(401 | 407)) && backend.consecutive_failures > 0;
        let unhealthy = backend.exclusion_reasons.contains(&Spared::Unhealthy);
        refused || unhealthy || backend.circuit_state != CircuitState::Closed
    };
    endpoint.availability < 0.9 || endpoint.backends.values().any(ill)
}

/// `GET /metrics` on the administrators' listener.
pub(crate) async fn metrics(State(state): State<Shared>) -> Response {
    gauges::refresh(&state);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &state.ports.registry);
    let mut response = Response::new(text.into());
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// `GET /metrics` on the callers' listener: only for this machine, and not through a proxy on it.
pub(crate) async fn metrics_of_loopback(
    state: State<Shared>,
    arrival: Arrival,
    headers: HeaderMap,
) -> Response {
    let own = arrival
        .peer
        .is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if !own || FORWARDED.iter().any(|name| headers.contains_key(*name)) {
        let failure = Failure::new(FailureCode::NotFound, "there is no such path");
        return arrival.refuse(&failure);
    }
    metrics(state).await
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Routing<'a> {
    /// The legs of each model.
    routes: BTreeMap<&'a str, Vec<Leg<'a>>>,
    description: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Leg")]
struct Leg<'a> {
    endpoint_id: &'a str,
    provider: &'a str,
    priority: i32,
    /// Share within its priority.
    weight: String,
    /// Why it takes no call.
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusion_reasons: Option<Vec<&'static str>>,
}

/// `GET /routing`: where each model is served. For those who run the platform, unless it is public: then whoever comes is
/// told of the models that he sees in the listing.
pub(crate) async fn routing(State(state): State<Shared>, arrival: Arrival, visitor: Visitor) -> Response {
    if !manage::settings::public_routing(&state) {
        match &visitor.0 {
            None => return arrival.refuse(&refused()),
            Some(caller) if !caller.operates() => {
                return arrival.refuse(&not_for_callers());
            }
            Some(_) => {}
        }
    }
    let catalog = state.ports.catalog.load();
    let mut models = catalog.models();
    let caller = visitor.0.as_ref();
    if !caller.is_some_and(Caller::operates) {
        let key = caller.map(|caller| &*caller.key);
        models.retain(|model| {
            gate::visible(&catalog, key, model.id.as_str()).is_some_and(|meant| Arc::ptr_eq(meant, model))
        });
    }
    let routes = models
        .iter()
        .map(|model| (model.id.as_str(), legs(&catalog, model, false)));
    json(&Routing {
        routes: routes.collect(),
        description: "share of each endpoint within its priority; 0 is tried first",
    })
}

/// What `/admin/routing` does.
pub(crate) const ROUTING_OF_PLATFORM: Operation =
    Operation::read::<Routing<'static>>("Tells where each model is served, and why legs are left out")
        .of(Audience::Platform);

/// `GET /admin/routing`: the same, with the legs that are left out and why; never public.
pub(crate) async fn routing_of_platform(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
) -> Response {
    if !caller.operates() {
        return arrival.refuse(&not_for_callers());
    }
    let catalog = state.ports.catalog.load();
    let models = catalog.models();
    let routes = models
        .iter()
        .map(|model| (model.id.as_str(), legs(&catalog, model, true)));
    json(&Routing {
        routes: routes.collect(),
        description: "share of each endpoint within its priority, as configured; 0 is tried first",
    })
}

/// Why a leg takes no call, whatever its circuit says.
fn exclusions(catalog: &Catalog, route: &Route) -> Vec<&'static str> {
    let endpoint = catalog.endpoint(&route.endpoint_id);
    let off = endpoint.is_some_and(|endpoint| catalog.is_off(endpoint));
    let zero = route.weight_micro == 0 && route.origin == Origin::File;
    [(off, "provider_disabled"), (zero, "configured_zero")]
        .into_iter()
        .filter_map(|(holds, reason)| holds.then_some(reason))
        .collect()
}

fn legs<'a>(catalog: &'a Catalog, model: &'a Model, tells: bool) -> Vec<Leg<'a>> {
    let group = |priority| {
        let peers = model
            .routes
            .iter()
            .filter(move |route| route.priority == priority);
        peers.map(|route| route.weight_micro).sum::<u64>()
    };
    let routes = model.routes.iter();
    routes
        .map(|route| Leg {
            endpoint_id: route.endpoint_id.as_str(),
            provider: catalog
                .endpoint(&route.endpoint_id)
                .map_or("", |endpoint| &*endpoint.provider),
            priority: route.priority,
            weight: percent(route.weight_micro, group(route.priority)),
            exclusion_reasons: tells.then(|| exclusions(catalog, route)),
        })
        .collect()
}

/// A share in whole percent.
fn percent(part: u64, whole: u64) -> String {
    let percent = (u128::from(part) * 100 + u128::from(whole / 2)).checked_div(u128::from(whole));
    format!("{}%", percent.unwrap_or(0))
}

fn shallow(state: &Shared) -> Health<'_> {
    let routes_configured = state
        .ports
        .catalog
        .peek()
        .all_models()
        .iter()
        .map(|model| model.routes.len())
        .sum();
    let database_configured = state.config.database_configured;
    let database_connected = database_configured && state.pulse.database_connected();
    let bus_connected = state.pulse.bus_connected();
    let whole = bus_connected && database_connected == database_configured;
    Health {
        status: match (routes_configured, whole) {
            (0, _) => "unhealthy",
            _ if !state.ports.spool.has_room() || state.stale() => "unhealthy",
            (_, true) => "healthy",
            (_, false) => "degraded",
        },
        database_configured,
        database_connected,
        bus_connected,
        routes_configured,
        version: &state.config.version,
        node: state.config.node.as_str(),
    }
}

fn with_status(mut response: Response, up: bool) -> Response {
    if !up {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

fn not_for_callers() -> Failure {
    Failure::new(FailureCode::InsufficientScope, "only an operator may see this")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_to_whole_percents_and_nothing_divides_by_zero() {
        assert_eq!(percent(700_000, 1_000_000), "70%");
        assert_eq!(percent(2, 3), "67%");
        assert_eq!(percent(0, 0), "0%");
    }
}
