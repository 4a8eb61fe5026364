//! Answers questions about the health of endpoints: circuits as this router sees them, and routes that are
//! left out by configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::waiting::once_there;
use bus::{Bus, Question};
use bytes::Bytes;
use schemas::catalog::{Catalog, Endpoint, Origin};
use schemas::circuit::CircuitState;
use schemas::id::BackendId;
use schemas::query::{BackendHealth, EndpointHealth, HealthAnswer, QueryError};
use schemas::subject::QUERY_HEALTH;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Error;
use crate::circuit::Circuits;
use crate::signs::Signs;
use crate::state::Shared;

/// Every route of the model to the endpoint has weight 0.
const CONFIGURED_ZERO: &str = "configured_zero";
/// The endpoint's provider is switched off.
const PROVIDER_DISABLED: &str = "provider_disabled";

/// Answers until `shutdown`.
pub(crate) async fn serve(
    shared: &Shared,
    bus: Arc<dyn Bus>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let mut questions = tokio::select! {
        biased;
        questions = once_there("the router cannot be asked", || bus.serve(QUERY_HEALTH)) => questions?,
        () = shutdown.cancelled() => return Ok(()),
    };
    loop {
        let question = tokio::select! {
            question = questions.recv() => question,
            () = shutdown.cancelled() => return Ok(()),
        };
        match question {
            Some(question) => reply(shared, question),
            None => return Err(Error::Bus(bus::BusError::Closed)),
        }
    }
}

fn reply(shared: &Shared, question: Question) {
    let known = Known {
        circuits: &shared.circuits,
        signs: &shared.samples,
    };
    let answer: Result<HealthAnswer, QueryError> = Ok(health(&shared.catalog.load(), &known));
    match serde_json::to_vec(&answer) {
        // An asker who has given up needs no answer.
        Ok(bytes) => drop(question.reply.send(Bytes::from(bytes))),
        Err(error) => warn!(
            error = &error as &dyn std::error::Error,
            "the health of endpoints cannot be told"
        ),
    }
}

/// What a router knows of backends.
struct Known<'a> {
    circuits: &'a Circuits,
    signs: &'a Signs,
}

impl Known<'_> {
    /// The availability and the health of a backend.
    fn of(&self, backend: &BackendId) -> (f64, BackendHealth) {
        let asked = self.circuits.health(backend);
        let (availability, health) = asked.unwrap_or_else(|| (1.0, never_attempted()));
        let health = BackendHealth {
            engine: self.signs.engine(backend),
            exclusion_reasons: self.signs.spared(backend).into_iter().collect(),
            ..health
        };
        (availability, health)
    }
}

/// The health of every endpoint.
fn health(catalog: &Catalog, known: &Known<'_>) -> HealthAnswer {
    let endpoints = catalog
        .endpoints()
        .into_iter()
        .map(|endpoint| (endpoint.id.clone(), of_endpoint(catalog, endpoint, known)));
    HealthAnswer {
        endpoints: endpoints.collect(),
    }
}

fn of_endpoint(catalog: &Catalog, endpoint: &Endpoint, known: &Known<'_>) -> EndpointHealth {
    let mut backends = BTreeMap::new();
    let mut best: Option<f64> = None;
    for backend in &endpoint.backends {
        let (availability, health) = known.of(&backend.id);
        best = Some(best.map_or(availability, |best| best.max(availability)));
        backends.insert(backend.id.clone(), health);
    }
    let (mut excluded_from_models, mut exclusion_reasons) = (Vec::new(), Vec::new());
    for model in catalog.all_models() {
        let mut routes = model
            .routes
            .iter()
            .filter(|route| route.endpoint_id == endpoint.id)
            .peekable();
        let any = routes.peek().is_some();
        let weightless = any && routes.all(|route| route.weight_micro == 0 && route.origin == Origin::File);
        if weightless || (any && catalog.is_off(endpoint)) {
            excluded_from_models.push(model.id.clone());
        }
        if weightless && !exclusion_reasons.iter().any(|reason| reason == CONFIGURED_ZERO) {
            exclusion_reasons.push(CONFIGURED_ZERO.to_owned());
        }
    }
    if catalog.is_off(endpoint) {
        exclusion_reasons.push(PROVIDER_DISABLED.to_owned());
    }
    exclusion_reasons.extend(of_all(&backends));
    EndpointHealth {
        availability: best.unwrap_or(1.0),
        excluded_from_models,
        exclusion_reasons,
        backends,
    }
}

/// Why backends are left out, where all of them are.
fn of_all(backends: &BTreeMap<BackendId, BackendHealth>) -> impl Iterator<Item = String> {
    let is_out = |health: &BackendHealth| !health.exclusion_reasons.is_empty();
    let all_out = !backends.is_empty() && backends.values().all(is_out);
    let told = backends.values().filter(move |_| all_out);
    let words: BTreeSet<&str> = told
        .flat_map(|health| health.exclusion_reasons.iter().map(|reason| reason.word()))
        .collect();
    words.into_iter().map(str::to_owned)
}

const fn never_attempted() -> BackendHealth {
    BackendHealth {
        circuit_state: CircuitState::Closed,
        consecutive_failures: 0,
        last_error_status: None,
        engine: None,
        exclusion_reasons: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::id::EndpointId;

    use crate::testing::{Act, PLAIN, Scene, Server, config, endpoint, model, response, route};

    use super::*;

    #[tokio::test]
    async fn health_tells_circuits_availability_and_why_routes_are_left_out() {
        let failing = response("503 Service Unavailable", "application/json", b"{}");
        let server = Server::always(vec![Act::Send(failing)]).await;
        let mut off = endpoint("off", &["http://u"]);
        off.disabled = true;
        let endpoints = [
            endpoint("bad", &[&server.url(), "http://127.0.0.1:9"]),
            off,
            endpoint("zero", &["http://u"]),
        ];
        let mut routes = vec![route("bad", 0), route("off", 0), route("zero", 0)];
        routes[2].weight_micro = 0;
        let scene = Scene::new(config(), &endpoints, &model(routes)).await;
        scene.call(PLAIN).await;

        let shared = &scene.router.shared;
        let known = Known {
            circuits: &shared.circuits,
            signs: &shared.samples,
        };
        let answer = health(&shared.catalog.load(), &known);

        let of = |id: &str| &answer.endpoints[&EndpointId::from(id)];
        let first = &of("bad").backends[&BackendId::from("bad#0")];
        assert_eq!(
            (first.consecutive_failures, first.last_error_status),
            (1, Some(503))
        );
        assert_eq!(first.circuit_state, CircuitState::Closed);
        assert!((of("bad").availability - 0.9).abs() < 1e-9);
        assert!(of("bad").excluded_from_models.is_empty());
        assert_eq!(of("off").exclusion_reasons, [PROVIDER_DISABLED]);
        assert_eq!(of("zero").exclusion_reasons, [CONFIGURED_ZERO]);
        assert_eq!(of("zero").excluded_from_models.len(), 1);
    }
}
