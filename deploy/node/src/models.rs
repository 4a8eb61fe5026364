//! models.yaml: HybridInference's registry format plus our additions, compiled into catalogue records,
//! a book of credentials, and a list of what is odd. Nothing is dropped in silence.

pub mod compile;
pub mod endpoint_id;
pub mod file;
pub mod routing;

use std::collections::HashMap;

use schemas::catalog::replica::meant_for;
use schemas::catalog::{CredentialRef, Endpoint, Model};
use schemas::id::ModelName;
use schemas::secret::Secret;
use schemas::wake::command_reference;

use crate::yaml::Problem;

/// What a models file (or discovery) amounts to.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Models that can be served.
    pub models: Vec<Model>,
    /// Their endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Secrets that endpoints refer to; they never leave the routers.
    pub credentials: HashMap<CredentialRef, Secret<String>>,
    /// What is odd: left out, not served yet, without effect.
    pub problems: Vec<Problem>,
    /// Models of the file that cannot be served, with their place in it: a variable is blank, or nothing has a weight.
    pub left_out: Vec<(ModelName, String)>,
}

impl Compiled {
    /// The secrets and the waking commands as routers keep them: each for the addresses of its endpoint.
    pub fn book(&self) -> HashMap<CredentialRef, Secret<String>> {
        let named = self.endpoints.iter().flat_map(|endpoint| {
            let references = endpoint.credentials.iter().cloned();
            let references = references.chain([command_reference(&endpoint.id)]);
            references.map(|reference| (reference, &endpoint.backends))
        });
        named
            .filter_map(|(reference, backends)| {
                let secret = self.credentials.get(&reference)?.clone();
                Some((meant_for(&reference, backends), secret))
            })
            .collect()
    }

    /// Adds `other`; models that are already there keep their place.
    pub fn extend(&mut self, other: Self) {
        for model in other.models {
            if !self.models.iter().any(|known| known.id == model.id) {
                self.models.push(model);
            }
        }
        for endpoint in other.endpoints {
            if !self.endpoints.iter().any(|known| known.id == endpoint.id) {
                self.endpoints.push(endpoint);
            }
        }
        self.credentials.extend(other.credentials);
        self.problems.extend(other.problems);
        self.left_out.extend(other.left_out);
    }
}
