//! How calls that leave the choice of a model to us are to be routed: for all, for one key, and what is said of single
//! models. What is written here is what the choice goes by.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Catalog, Stored, from_hex, hex};
use crate::id::ModelName;
use crate::subject;

/// The largest weight, in millionths.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// By what a model is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// By all weights together.
    #[default]
    Balanced,
    /// By how good it is.
    Quality,
    /// By how soon it answers.
    Latency,
    /// By how little it costs.
    Cost,
}

impl Strategy {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Quality => "quality",
            Self::Latency => "latency",
            Self::Cost => "cost",
        }
    }
}

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Conversations.
    Chat,
    /// Texts to be gone on with.
    Completion,
    /// Embeddings.
    Embedding,
}

/// What one key says of the choice; what it leaves out is as it is for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub struct KeyRouting {
    /// Whether its calls may leave the choice to us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_routing_enabled: Option<bool>,
    /// By what is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
}

/// What holds for all calls whose keys say nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inference {
    /// Whether calls may leave the choice to us.
    #[serde(default)]
    pub auto_routing_enabled: bool,
    /// By what is chosen.
    #[serde(default)]
    pub auto_routing_strategy: Strategy,
    /// Degrees Celsius of a host's hottest accelerator from which it is spared; `None` where the routers' files say.
    #[serde(default)]
    pub gpu_temperature_threshold: Option<u32>,
}

/// What is said of one model. Weights are in millionths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPolicy {
    /// The model.
    pub model: ModelName,
    /// How much its goodness counts.
    pub quality_weight_micro: u32,
    /// How much its speed counts.
    pub latency_weight_micro: u32,
    /// How much its price counts.
    pub cost_weight_micro: u32,
    /// It may be chosen.
    pub routing_enabled: bool,
    /// What it is for; `None` where nobody said.
    pub purpose: Option<Purpose>,
}

impl ModelPolicy {
    /// What holds of a model of which nothing is said.
    pub fn new(model: ModelName) -> Self {
        Self {
            model,
            quality_weight_micro: WEIGHT_MAX,
            latency_weight_micro: WEIGHT_MAX,
            cost_weight_micro: WEIGHT_MAX,
            routing_enabled: true,
            purpose: None,
        }
    }
}

/// The policies of a catalogue.
#[derive(Debug, Clone, Default)]
pub(super) struct Policies {
    inference: Option<Stored<Inference>>,
    models: std::collections::BTreeMap<ModelName, Stored<ModelPolicy>>,
}

impl Policies {
    /// Notes what holds for all.
    pub(super) fn note_inference(&mut self, revision: u64, record: Option<Inference>) {
        self.inference = record.map(|record| Stored {
            revision,
            record: Arc::new(record),
        });
    }

    /// Notes what is said of a model.
    pub(super) fn note_model(&mut self, name: ModelName, revision: u64, record: Option<ModelPolicy>) {
        match record.map(Arc::new) {
            Some(record) => {
                self.models.insert(name, Stored { revision, record });
            }
            None => {
                self.models.remove(&name);
            }
        }
    }
}

impl Catalog {
    /// What was set for all calls; `None` where nobody set anything.
    pub fn inference(&self) -> Option<&Stored<Inference>> {
        self.policies.inference.as_ref()
    }

    /// What was said of a model.
    pub fn model_policy(&self, model: &ModelName) -> Option<&Stored<ModelPolicy>> {
        self.policies.models.get(model)
    }

    /// What was said of the models that come after `after`, by name.
    pub fn model_policies_after(&self, after: Option<&ModelName>) -> Vec<&Stored<ModelPolicy>> {
        let later = |(name, _): &(&ModelName, &Stored<ModelPolicy>)| after.is_none_or(|after| *name > after);
        let policies = self.policies.models.iter().filter(later);
        policies.map(|(_, stored)| stored).collect()
    }
}

/// The record key of what is said of a model.
pub fn model_policy_key(model: &ModelName) -> String {
    format!("{}{}", subject::catalog::POLICY, hex(model.as_str().as_bytes()))
}

/// The model of a record key; `None` for a key that is none.
pub(super) fn model_of_key(key: &str) -> Option<ModelName> {
    let name = from_hex(key.strip_prefix(subject::catalog::POLICY)?)?;
    String::from_utf8(name).ok().map(ModelName::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_models_is_told_by_name_and_forgotten_with_its_record() {
        let mut catalog = Catalog::default();
        for (revision, name) in [(1, "b/c"), (2, "a")] {
            let policy = ModelPolicy::new(ModelName::from(name));
            let value = serde_json::to_vec(&policy).expect("serialize");
            catalog
                .apply(revision, &model_policy_key(&policy.model), Some(&value))
                .expect("apply");
        }
        let names = |after: Option<&str>| -> Vec<String> {
            let after = after.map(ModelName::from);
            let policies = catalog.model_policies_after(after.as_ref()).into_iter();
            policies.map(|stored| stored.record.model.to_string()).collect()
        };

        assert_eq!(names(None), ["a", "b/c"]);
        assert_eq!(names(Some("a")), ["b/c"]);
        let mut catalog = catalog.clone();
        let gone = ModelName::from("a");
        catalog.apply(3, &model_policy_key(&gone), None).expect("apply");
        assert!(catalog.model_policy(&gone).is_none());
        assert!(catalog.apply(3, "policy.zz", None).is_err());
    }
}
