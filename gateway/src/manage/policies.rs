//! How calls that leave the choice of a model to the gateway are to be routed: what holds for all
//! (`/api/v1/system/inference-config`), what one key says (`…/api-keys/{id}/routing-policy`), and what is said of single
//! models (`/api/v1/models/routing-policies`).

use std::sync::Arc;

use axum::response::Response;
use schemars::JsonSchema;
use schemas::catalog::grant;
use schemas::catalog::policy::{
    Inference, KeyRouting, ModelPolicy, Purpose, Strategy, WEIGHT_MAX, model_policy_key,
};
use schemas::catalog::{Catalog, Key, Stored};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, ModelName, TenantId};
use schemas::subject;
use serde::{Deserialize, Serialize};

use super::keys::change;
use super::openapi::{Operation, Parameter};
use super::page::Asked;
use super::records::{self, Match, Place, Written};
use super::resource::{self, Act, Changed, Found, Id, Listed, Resource, There};
use super::{Parameters, credentials, invalid, parameters, rights, upsert};
use crate::caller::Caller;

/// Degrees Celsius that may be set.
const TEMPERATURE_MAX: u32 = 150;

/// What holds for all calls whose keys say nothing else.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InferenceConfig")]
pub(crate) struct Config {
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
pub(crate) struct OfKey {
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
pub(crate) struct OfModel {
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

/// What holds for all.
pub(crate) enum InferenceConfig {}

impl Resource for InferenceConfig {
    type Record = Inference;
    type Named = ();

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, (): ()) -> Result<Found<'c, Inference>, Failure> {
        rights::operates(caller)?;
        let key = subject::catalog::INFERENCE.to_owned();
        Ok(Found {
            place: platform(Kind::Inference, key, "inference"),
            stored: catalog.inference(),
        })
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Inference>) -> Result<Response, Failure> {
        let set = there.map(|(record, _)| config(record));
        let shown = set.unwrap_or_else(|| config(&Inference::default()));
        Ok(resource::overlaid(&shown, there.map(|(_, revision)| revision)))
    }
}

impl Changed for InferenceConfig {
    type Patch = Config;
    const PATCH: &str = CONFIG;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        wanted: Config,
    ) -> Result<Written<Inference>, Failure> {
        let most = wanted.gpu_temperature_threshold;
        if most.is_some_and(|most| most > TEMPERATURE_MAX) {
            return Err(invalid(
                "gpu_temperature_threshold",
                "expected at most 150 degrees Celsius",
            ));
        }
        let decide = |_: Option<&Inference>| {
            Ok(Inference {
                auto_routing_enabled: wanted.auto_routing_enabled,
                auto_routing_strategy: wanted.auto_routing_strategy,
                gpu_temperature_threshold: most,
            })
        };
        upsert::set(act.state, place, expected, &act.author(), decide).await
    }
}

/// What keys say, each for its own calls.
pub(crate) enum KeyPolicies {}

impl Resource for KeyPolicies {
    type Record = Key;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Key>, Failure> {
        credentials::named(grant::Kind::Member, caller, catalog, id)
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Key>) -> Result<Response, Failure> {
        resource::told(there, |key, _| said(key))
    }
}

impl Changed for KeyPolicies {
    type Patch = OfKey;
    const PATCH: &str = OF_KEY;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        wanted: OfKey,
    ) -> Result<Written<Key>, Failure> {
        let routing = KeyRouting {
            auto_routing_enabled: wanted.auto_routing_enabled,
            strategy: wanted.strategy,
        };
        let routing = (routing != KeyRouting::default()).then_some(routing);
        let catalog = act.state.ports.catalog.load();
        let decide = |key: &Key| change::routed(act.caller, &catalog, key, routing);
        credentials::change(act.state, place, expected, &act.author(), decide).await
    }
}

/// What is said of models.
pub(crate) enum ModelPolicies {}

impl Resource for ModelPolicies {
    type Record = ModelPolicy;
    type Named = Parameters;

    fn found<'c>(
        caller: &Caller,
        catalog: &'c Catalog,
        given: Parameters,
    ) -> Result<Found<'c, ModelPolicy>, Failure> {
        let model = named(caller, catalog, given)?;
        Ok(Found {
            place: platform(Kind::ModelPolicy, model_policy_key(&model), model.as_str()),
            stored: None,
        })
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, ModelPolicy>) -> Result<Response, Failure> {
        resource::told(there, shown)
    }
}

impl Listed for ModelPolicies {
    const OF_TENANT: bool = false;

    fn may_list(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<ModelPolicy>>, Failure> {
        let after = asked.after.as_deref().map(ModelName::from);
        Ok(catalog.model_policies_after(after.as_ref()))
    }

    fn tenant(_: &ModelPolicy) -> Option<&TenantId> {
        None
    }

    fn cursor(policy: &ModelPolicy) -> String {
        policy.model.to_string()
    }

    fn shown(_: &Act<'_>, policy: &ModelPolicy, revision: u64) -> impl Serialize {
        shown(policy, revision)
    }
}

impl Changed for ModelPolicies {
    type Patch = OfModel;
    const PATCH: &str = OF_MODEL;

    /// What the body does not name is as it is for a model of which nothing is said.
    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        wanted: OfModel,
    ) -> Result<Written<ModelPolicy>, Failure> {
        let policy = policy(&ModelName(Arc::clone(&place.id)), &wanted)?;
        let decide = |_: Option<&ModelPolicy>| Ok(policy.clone());
        upsert::set(act.state, place, expected, &act.author(), decide).await
    }
}

/// The model of the parameter `name`, by the name of the catalogue. Names may have slashes, which no segment has.
fn named(caller: &Caller, catalog: &Catalog, given: Parameters) -> Result<ModelName, Failure> {
    rights::operates(caller)?;
    let mut model = None;
    for (name, value) in parameters(given)? {
        match name.as_str() {
            "name" => model = Some(value),
            _ => return Err(invalid(name, "there is no such parameter")),
        }
    }
    let model = model.ok_or_else(|| invalid("name", "the model is to be named"))?;
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
