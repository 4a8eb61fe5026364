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

use super::description::{self, Edit};
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
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "InferenceConfig")]
struct Config {
    /// Calls may leave the choice of a model to the gateway.
    auto_routing_enabled: bool,
    /// By what it chooses.
    auto_routing_strategy: Strategy,
    /// Degrees Celsius of a host's hottest accelerator from which it is spared; null where nothing is set here, so that
    /// `gpu_temperature_threshold` of waybill.yaml holds.
    #[schemars(range(max = 150))]
    gpu_temperature_threshold: Option<u32>,
}

/// What of that is to be different. What is not named stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InferencePatch")]
pub(crate) struct Patch {
    /// Calls may leave the choice of a model to the gateway.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    auto_routing_enabled: Option<bool>,
    /// By what it chooses.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Strategy")]
    auto_routing_strategy: Option<Strategy>,
    /// Degrees Celsius of a host's hottest accelerator from which it is spared; null for what waybill.yaml says, 150,
    /// which none reaches, so that no host is spared whatever waybill.yaml says.
    #[serde(default)]
    #[schemars(range(max = 150))]
    gpu_temperature_threshold: Edit<u32>,
}

const CONFIG: &str = "the body is not a configuration: expected any of auto_routing_enabled, auto_routing_strategy, \
                      gpu_temperature_threshold";

/// What one key says.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeyRoutingPolicy")]
struct OfKey {
    /// Its calls may leave the choice of a model to the gateway; null for what holds for all.
    auto_routing_enabled: Option<bool>,
    /// By what the gateway chooses; null for what holds for all.
    strategy: Option<Strategy>,
}

/// What one key is to say otherwise. What is not named stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeyRoutingPatch")]
pub(crate) struct KeyPatch {
    /// Its calls may leave the choice of a model to the gateway; null for what holds for all.
    #[serde(default)]
    auto_routing_enabled: Edit<bool>,
    /// By what the gateway chooses; null for what holds for all.
    #[serde(default)]
    strategy: Edit<Strategy>,
}

const OF_KEY: &str = "the body is not a policy of a key: expected any of auto_routing_enabled, strategy";

/// What is to be said of a model otherwise. What is not named stays, and is as of a model of which nothing is said where
/// nobody named it before.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelPolicyPatch")]
pub(crate) struct OfModel {
    /// How much its goodness counts; null for 1, as where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    quality_weight: Edit<f64>,
    /// How much its speed counts; null for 1, as where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    latency_weight: Edit<f64>,
    /// How much its price counts; null for 1, as where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    cost_weight: Edit<f64>,
    /// It may be chosen; null for true, as where nothing is said.
    #[serde(default)]
    routing_enabled: Edit<bool>,
    /// What it is for; null for what nobody said.
    #[serde(default)]
    purpose: Edit<Purpose>,
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
pub(crate) const SET_INFERENCE: Operation = Operation::change::<Patch, Config>(
    "Says what holds for calls that leave the choice of a model to the gateway; what is not named stays",
)
.of_operators();
pub(crate) const KEY: Operation = Operation::show::<OfKey>(
    "Shows what a key says of calls that leave the choice of a model to the gateway",
);
pub(crate) const SET_KEY: Operation = Operation::change::<KeyPatch, OfKey>(
    "Says for a key what holds for its calls that leave the choice of a model to the gateway; what is not named stays",
);
pub(crate) const MODELS: Operation =
    Operation::list::<Shown>("Lists what is said of models that may be chosen, by name").of_operators();
pub(crate) const SET_MODEL: Operation =
    Operation::change::<OfModel, Shown>("Says how a model is to be chosen; what is not named stays")
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
    type Patch = Patch;
    const PATCH: &str = CONFIG;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<Inference>, Failure> {
        let decide = |set: Option<&Inference>| patched(set.cloned().unwrap_or_default(), &patch);
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
    type Patch = KeyPatch;
    const PATCH: &str = OF_KEY;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: KeyPatch,
    ) -> Result<Written<Key>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |key: &Key| {
            let routing = routing(key.routing.unwrap_or_default(), &patch)?;
            change::routed(act.caller, &catalog, key, routing)
        };
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

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: OfModel,
    ) -> Result<Written<ModelPolicy>, Failure> {
        let fresh = ModelPolicy::new(ModelName(Arc::clone(&place.id)));
        let decide = |said: Option<&ModelPolicy>| policy(said.unwrap_or(&fresh), &fresh, &patch);
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

/// What holds for all after a change.
fn patched(mut set: Inference, patch: &Patch) -> Result<Inference, Failure> {
    set.auto_routing_enabled = patch.auto_routing_enabled.unwrap_or(set.auto_routing_enabled);
    set.auto_routing_strategy = patch.auto_routing_strategy.unwrap_or(set.auto_routing_strategy);
    let good = |degrees: u32| {
        let fits = degrees <= TEMPERATURE_MAX;
        let wrong = || {
            invalid(
                "gpu_temperature_threshold",
                "expected at most 150 degrees Celsius",
            )
        };
        fits.then_some(degrees).ok_or_else(wrong)
    };
    patch
        .gpu_temperature_threshold
        .apply(&mut set.gpu_temperature_threshold, good)?;
    Ok(set)
}

/// What a key says after a change; none where that is nothing.
fn routing(mut said: KeyRouting, patch: &KeyPatch) -> Result<Option<KeyRouting>, Failure> {
    patch
        .auto_routing_enabled
        .apply(&mut said.auto_routing_enabled, Ok)?;
    patch.strategy.apply(&mut said.strategy, Ok)?;
    Ok((said != KeyRouting::default()).then_some(said))
}

/// What is said of a model after a change; `fresh` is what is said of one of which nothing is.
fn policy(said: &ModelPolicy, fresh: &ModelPolicy, patch: &OfModel) -> Result<ModelPolicy, Failure> {
    let weight = |name: &'static str, edit: &Edit<f64>, (said, fresh): (u32, u32)| match edit {
        Edit::Stays => Ok(said),
        Edit::Goes => Ok(fresh),
        Edit::Is(weight) => micro(*weight).ok_or_else(|| invalid(name, "expected a number from 0 to 1")),
    };
    let mut purpose = said.purpose;
    patch.purpose.apply(&mut purpose, Ok)?;
    Ok(ModelPolicy {
        model: said.model.clone(),
        quality_weight_micro: weight(
            "quality_weight",
            &patch.quality_weight,
            (said.quality_weight_micro, fresh.quality_weight_micro),
        )?,
        latency_weight_micro: weight(
            "latency_weight",
            &patch.latency_weight,
            (said.latency_weight_micro, fresh.latency_weight_micro),
        )?,
        cost_weight_micro: weight(
            "cost_weight",
            &patch.cost_weight,
            (said.cost_weight_micro, fresh.cost_weight_micro),
        )?,
        routing_enabled: match patch.routing_enabled {
            Edit::Stays => said.routing_enabled,
            Edit::Goes => fresh.routing_enabled,
            Edit::Is(enabled) => enabled,
        },
        purpose,
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
