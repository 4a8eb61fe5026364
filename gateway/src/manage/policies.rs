//! How calls that leave the choice of a model to the gateway are to be routed: what holds for all
//! (`/api/v1/system/inference-config`), what one key says (`…/api-keys/{id}/routing-policy`), and what is said of single
//! models (`/api/v1/models/routing-policies`).

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::catalog::grant;
use schemas::catalog::policy::{
    Inference, KeyRouting, ModelPolicy, Purpose, Strategy, WEIGHT_MAX, model_policy_key,
};
use schemas::catalog::{Key, Stored};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, ModelName, TenantId};
use schemas::subject;
use serde::{Deserialize, Serialize};

use super::keys::change;
use super::openapi::{Operation, Parameter};
use super::page::Asked;
use super::records::{self, Match, Place};
use super::{Parameters, credentials, description, invalid, json, parameters, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// Degrees Celsius that may be set.
const TEMPERATURE_MAX: u32 = 150;

/// What holds for all calls whose keys say nothing else.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InferenceConfig")]
pub(super) struct Config {
    /// Calls may leave the choice of a model to the gateway.
    auto_routing_enabled: bool,
    /// By what it chooses.
    #[serde(default)]
    auto_routing_strategy: Strategy,
    /// Degrees Celsius of a node's hottest accelerator from which it is spared; null for never.
    #[serde(default)]
    #[schemars(range(max = 150))]
    gpu_temperature_threshold: Option<u32>,
}

const CONFIG: &str = "the body is not a configuration: expected auto_routing_enabled and, optionally, \
                      auto_routing_strategy, gpu_temperature_threshold";

/// What one key says.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeyRoutingPolicy")]
pub(super) struct OfKey {
    /// Its calls may leave the choice of a model to the gateway; null for what holds for all.
    #[serde(default)]
    auto_routing_enabled: Option<bool>,
    /// By what the gateway chooses; null for what holds for all.
    #[serde(default)]
    strategy: Option<Strategy>,
}

const OF_KEY: &str = "the body is not a policy of a key: expected any of auto_routing_enabled, strategy";

/// What is said of a model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelPolicyWanted")]
pub(super) struct OfModel {
    /// How much its goodness counts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    quality_weight: Option<f64>,
    /// How much its speed counts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    latency_weight: Option<f64>,
    /// How much its price counts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    cost_weight: Option<f64>,
    /// It may be chosen.
    #[serde(default)]
    routing_enabled: Option<bool>,
    /// What it is for; null for what nobody said.
    #[serde(default)]
    purpose: Option<Purpose>,
}

const OF_MODEL: &str = "the body is not a policy of a model: expected any of quality_weight, latency_weight, \
                        cost_weight, routing_enabled, purpose";

/// What is said of a model, as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelPolicy")]
struct Shown {
    name: ModelName,
    quality_weight: f64,
    latency_weight: f64,
    cost_weight: f64,
    routing_enabled: bool,
    purpose: Option<Purpose>,
    /// The number in its `ETag`.
    revision: u64,
}

const NAME: &[Parameter] = &[Parameter::new::<String>("name", "The model.").required()];

/// What the paths of policies do.
pub(crate) const INFERENCE: Operation =
    Operation::read::<Config>("Shows what holds for calls that leave the choice of a model to the gateway")
        .of_operators();
pub(crate) const SET_INFERENCE: Operation = Operation::change::<Config, Config>(
    "Says what holds for calls that leave the choice of a model to the gateway",
)
.of_operators();
pub(crate) const KEY: Operation = Operation::show::<OfKey>(
    "Shows what a key says of calls that leave the choice of a model to the gateway",
);
pub(crate) const SET_KEY: Operation = Operation::change::<OfKey, OfKey>(
    "Says for a key what holds for its calls that leave the choice of a model to the gateway",
);
pub(crate) const MODELS: Operation =
    Operation::list::<Shown>("Lists what is said of models that may be chosen, by name").of_operators();
pub(crate) const SET_MODEL: Operation =
    Operation::change::<OfModel, Shown>("Says how a model is to be chosen")
        .taking(NAME)
        .of_operators();

/// Shows what holds for all.
pub(crate) async fn inference(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse(&failure);
    }
    match state.ports.catalog.load().inference() {
        Some(stored) => records::shown(&config(&stored.record), stored.revision),
        None => json(&config(&Inference::default())),
    }
}

/// Says what holds for all.
pub(crate) async fn set_inference(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let (parts, body) = request.into_parts();
    let set = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: Config = description::read(&bytes, CONFIG)?;
        if wanted
            .gpu_temperature_threshold
            .is_some_and(|most| most > TEMPERATURE_MAX)
        {
            return Err(invalid(
                "gpu_temperature_threshold",
                "expected at most 150 degrees Celsius",
            ));
        }
        let place = platform(
            Kind::Inference,
            subject::catalog::INFERENCE.to_owned(),
            "inference",
        );
        let decide = |_: Option<&Inference>| {
            Ok(Inference {
                auto_routing_enabled: wanted.auto_routing_enabled,
                auto_routing_strategy: wanted.auto_routing_strategy,
                gpu_temperature_threshold: wanted.gpu_temperature_threshold,
            })
        };
        upsert::set(&state, &place, expected, &caller.author(&arrival), decide).await
    };
    match set.await {
        Ok(written) => records::shown(&config(&written.record), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Shows what a key says.
pub(crate) async fn of_key(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    match credentials::found(grant::Kind::Member, &caller, &catalog, id) {
        Ok((_, stored)) => records::shown(&said(&stored.record), stored.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Says for a key what holds for its calls.
pub(crate) async fn set_of_key(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let catalog = state.ports.catalog.load();
    let place = match credentials::found(grant::Kind::Member, &caller, &catalog, id) {
        Ok((digest, stored)) => credentials::place(digest, &stored.record),
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let set = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: OfKey = description::read(&bytes, OF_KEY)?;
        let routing = KeyRouting {
            auto_routing_enabled: wanted.auto_routing_enabled,
            strategy: wanted.strategy,
        };
        let routing = (routing != KeyRouting::default()).then_some(routing);
        let decide = |key: &Key| change::routed(&caller, &catalog, key, routing);
        credentials::change(&state, &place, expected, &caller.author(&arrival), decide).await
    };
    match set.await {
        Ok(written) => records::shown(&said(&written.record), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What is said of models, by name, page by page.
pub(crate) async fn models(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::operates(&caller)?;
        let asked = Asked::of(given, false)?;
        let catalog = state.ports.catalog.load();
        let after = asked.after.as_deref().map(ModelName::from);
        let policies = catalog.model_policies_after(after.as_ref());
        let cursor = |stored: &&Stored<ModelPolicy>| stored.record.model.to_string();
        Ok(asked.page(policies, cursor, |stored| shown(&stored.record, stored.revision)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Says how a model is to be chosen. What the body does not name is as it is for a model of which nothing is said.
pub(crate) async fn set_model(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
    request: Request,
) -> Response {
    let model = match named(&state, &caller, given) {
        Ok(model) => model,
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let set = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: OfModel = description::read(&bytes, OF_MODEL)?;
        let policy = policy(&model, &wanted)?;
        let place = platform(Kind::ModelPolicy, model_policy_key(&model), model.as_str());
        let decide = |_: Option<&ModelPolicy>| Ok(policy.clone());
        upsert::set(&state, &place, expected, &caller.author(&arrival), decide).await
    };
    match set.await {
        Ok(written) => records::shown(&shown(&written.record, written.revision), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The model of the parameter `name`, by the name of the catalogue. Names may have slashes, which no segment has.
fn named(state: &Shared, caller: &Caller, given: Parameters) -> Result<ModelName, Failure> {
    rights::operates(caller)?;
    let mut model = None;
    for (name, value) in parameters(given)? {
        match name.as_str() {
            "name" => model = Some(value),
            _ => return Err(invalid(name, "there is no such parameter")),
        }
    }
    let model = model.ok_or_else(|| invalid("name", "the model is to be named"))?;
    let catalog = state.ports.catalog.load();
    let known = catalog.model_anywhere(&model).map(|model| model.id.clone());
    known.ok_or_else(records::nothing)
}

fn policy(model: &ModelName, wanted: &OfModel) -> Result<ModelPolicy, Failure> {
    let fresh = ModelPolicy::new(model.clone());
    let weight = |name: &'static str, wanted: Option<f64>, fresh: u32| match wanted {
        None => Ok(fresh),
        Some(weight) => micro(weight).ok_or_else(|| invalid(name, "expected a number from 0 to 1")),
    };
    Ok(ModelPolicy {
        quality_weight_micro: weight(
            "quality_weight",
            wanted.quality_weight,
            fresh.quality_weight_micro,
        )?,
        latency_weight_micro: weight(
            "latency_weight",
            wanted.latency_weight,
            fresh.latency_weight_micro,
        )?,
        cost_weight_micro: weight("cost_weight", wanted.cost_weight, fresh.cost_weight_micro)?,
        routing_enabled: wanted.routing_enabled.unwrap_or(fresh.routing_enabled),
        purpose: wanted.purpose,
        ..fresh
    })
}

/// A weight in millionths.
fn micro(weight: f64) -> Option<u32> {
    let scaled = (weight * f64::from(WEIGHT_MAX)).round();
    let whole = (0.0..=f64::from(WEIGHT_MAX)).contains(&scaled);
    // Found without a cast: the text of a whole number that fits.
    whole.then(|| format!("{scaled:.0}").parse().ok()).flatten()
}

fn weight(micro: u32) -> f64 {
    f64::from(micro) / f64::from(WEIGHT_MAX)
}

fn platform(kind: Kind, key: String, id: &str) -> Place {
    Place {
        kind,
        key,
        tenant: TenantId::from(DEFAULT_TENANT),
        id: Arc::from(id),
    }
}

fn config(record: &Inference) -> Config {
    Config {
        auto_routing_enabled: record.auto_routing_enabled,
        auto_routing_strategy: record.auto_routing_strategy,
        gpu_temperature_threshold: record.gpu_temperature_threshold,
    }
}

fn said(key: &Key) -> OfKey {
    let routing = key.routing.unwrap_or_default();
    OfKey {
        auto_routing_enabled: routing.auto_routing_enabled,
        strategy: routing.strategy,
    }
}

fn shown(policy: &ModelPolicy, revision: u64) -> Shown {
    Shown {
        name: policy.model.clone(),
        quality_weight: weight(policy.quality_weight_micro),
        latency_weight: weight(policy.latency_weight_micro),
        cost_weight: weight(policy.cost_weight_micro),
        routing_enabled: policy.routing_enabled,
        purpose: policy.purpose,
        revision,
    }
}
