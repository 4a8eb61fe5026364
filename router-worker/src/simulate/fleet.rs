//! The catalogue that a simulated fleet works from, and the offers that its gateways make: what routers read, written as
//! it lies in the bucket and comes over the bus, so that whatever is not said has its default there and here.

use std::sync::Arc;

use schemas::affinity::hint::Spoken;
use schemas::catalog::modality::Modalities;
use schemas::catalog::router::Router;
use schemas::catalog::{Backend, Catalog, Endpoint, ProviderKind, endpoint_key, model_key, operators};
use schemas::command::{Offer, Requirements};
use schemas::id::{BackendId, EndpointId, KeyId, ModelName};
use serde::Serialize;
use serde_json::{Value, json};

use super::Error;
use super::scenario::{self, Policy, Scenario};
use super::trace::Line;

/// The model that is asked for.
pub(super) const MODEL: &str = "simulated";
/// Tokens that a model takes and gives: what does not fit is told before.
const TOKENS_MAX: u64 = 1 << 53;
/// Millionths in one.
const MICRO: u64 = 1_000_000;

/// The catalogue of a scenario under one of its policies.
pub(super) fn catalog(scenario: &Scenario, policy: &Policy) -> Result<Catalog, Error> {
    let mut catalog = Catalog::default();
    for endpoint in &scenario.endpoints {
        let record = endpoint_of(endpoint, policy);
        apply(&mut catalog, &endpoint_key(&record.id), &record)?;
    }
    apply(
        &mut catalog,
        &model_key(&ModelName::from(MODEL)),
        &model(scenario, policy),
    )?;
    Ok(catalog)
}

/// The id of a replica.
pub(super) fn backend_id(endpoint: &scenario::Endpoint, replica: usize) -> BackendId {
    BackendId::from(format!("{}#{replica}", endpoint.name).as_str())
}

fn apply<T: Serialize>(catalog: &mut Catalog, key: &str, record: &T) -> Result<(), Error> {
    let bytes = serde_json::to_vec(record).map_err(Error::Record)?;
    let revision = catalog.revision.saturating_add(1);
    catalog.apply(revision, key, Some(&bytes)).map_err(Error::Catalog)
}

fn endpoint_of(endpoint: &scenario::Endpoint, policy: &Policy) -> Endpoint {
    let id = EndpointId::from(endpoint.name.as_str());
    let backends = (0..endpoint.speeds_percent.len()).map(|replica| Backend {
        id: backend_id(endpoint, replica),
        base_url: format!("http://{}-{replica}", endpoint.name),
    });
    Endpoint {
        backends: backends.collect(),
        algorithm: policy.algorithm,
        session_affinity: policy.affinity,
        ..Endpoint::of_file(id, ProviderKind::OpenaiCompat, endpoint.name.as_str().into())
    }
}

fn model(scenario: &Scenario, policy: &Policy) -> Value {
    let routes: Vec<Value> = scenario.endpoints.iter().map(route).collect();
    json!({
        "id": MODEL,
        "name": MODEL,
        "aliases": [],
        "position": 0,
        "input_modalities": Modalities::TEXT,
        "output_modalities": Modalities::TEXT,
        "quantization": "",
        "context_length": TOKENS_MAX,
        "max_output_length": TOKENS_MAX,
        "supports_tools": true,
        "supports_structured_output": true,
        "supported_params": [],
        "required_role": "free",
        "tenants": null,
        "pricing": [],
        "created_at": "2026-01-01T00:00:00Z",
        "routes": routes,
        "origin": "file",
        "router": policy.routewise.map(|one| Router::Routewise(one.terms())),
    })
}

fn route(endpoint: &scenario::Endpoint) -> Value {
    json!({
        "endpoint_id": endpoint.name,
        "upstream_model": MODEL,
        "priority": endpoint.priority,
        "weight_micro": endpoint.weight.saturating_mul(MICRO),
        "pool": "default",
        "context_length": TOKENS_MAX,
        "input_modalities": Modalities::TEXT,
        "price": endpoint.price.as_ref().and_then(scenario::Prices::read),
    })
}

/// What all offers of a scenario have in common.
pub(super) fn offered(scenario: &Scenario) -> Result<Offer, Error> {
    let endpoints: Vec<&str> = scenario.endpoints.iter().map(|one| one.name.as_str()).collect();
    let offer = json!({
        "request_id": "01890000-0000-7000-8000-000000000000",
        "tenant": operators(),
        "surface": "chat",
        "model": MODEL,
        "public_model": MODEL,
        "candidates": endpoints,
        "catalog_revision": 1,
        "requirements": Requirements { modalities: Modalities::TEXT, ..Requirements::default() },
        "pin": null,
        "splice": {
            "model": [0, 0], "stream_options": null, "insert_at": 0, "stream": true, "include_usage": false
        },
        "started_at": "2026-01-01T00:00:00Z",
        "attempts_max": 1,
    });
    serde_json::from_value(offer).map_err(Error::Record)
}

/// What a gateway offers a router for a request of the trace, and the body that goes with it: texts that are alike where
/// the blocks of prompts are.
pub(super) fn offer(offered: &Offer, line: &Line, number: usize) -> (Offer, Vec<u8>) {
    let session = line.session.as_deref();
    let caller = session.map_or_else(|| format!("r{number}"), str::to_owned);
    let offer = Offer {
        requirements: Requirements {
            prompt_tokens: line.prompt_tokens,
            ..offered.requirements
        },
        spoken: Spoken {
            session: session.map(Arc::from),
            ..Spoken::default()
        },
        caller: KeyId::from(caller.as_str()),
        ..offered.clone()
    };
    (offer, body(line, &caller))
}

/// The beginning of a conversation. What its user says first is in every turn the same; without a session it is the first
/// of his blocks.
fn body(line: &Line, caller: &str) -> Vec<u8> {
    let (instructions, rest) = line
        .blocks
        .split_at(line.instruction_blocks.min(line.blocks.len()));
    let said = match (&line.session, rest.first()) {
        (None, Some(block)) => format!("block {block}"),
        _ => format!("caller {caller}"),
    };
    let mut messages = Vec::new();
    if !instructions.is_empty() {
        messages.push(json!({"role": "system", "content": format!("{instructions:?}")}));
    }
    messages.push(json!({"role": "user", "content": said}));
    json!({"model": MODEL, "messages": messages})
        .to_string()
        .into_bytes()
}
