//! How the service of a leg is woken. A command never enters the catalogue: it lies with the credentials, which routers
//! alone hold.

use std::sync::Arc;

use schemas::catalog::{Backend, CredentialRef};
use schemas::id::EndpointId;
use schemas::named;
use schemas::secret::Secret;
use schemas::wake::{Wake, command_reference};

use super::Context;
use crate::models::file::Leg;
use crate::yaml::Problem;

/// What is said of waking, for all to see and for routers alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Waking {
    pub(super) shown: Option<Arc<Wake>>,
    /// The words of a command, as JSON.
    pub(super) command: Option<Secret<String>>,
}

impl Waking {
    /// The command by its name in the routers' book.
    pub(super) fn entry(&self, endpoint: &EndpointId) -> Option<(CredentialRef, Secret<String>)> {
        Some((command_reference(endpoint), self.command.clone()?))
    }
}

impl Context<'_> {
    pub(super) fn waking(&self, leg: &Leg, backends: &[Backend], key: &str) -> Result<Waking, Problem> {
        let Some(told) = &leg.wake else {
            return Ok(Waking::default());
        };
        let at = format!("{key}.wake");
        let remedy = "write it as the page on waking shows";
        let mut wake: Wake = named::from_value(told.clone())
            .map_err(|error| self.problem(&at, format!("`wake` is not understood: {error}"), remedy))?;
        if let Err(problem) = wake.check(backends) {
            let member = format!("{at}.{}", problem.at);
            return Err(self.problem(&member, problem.to_string(), remedy));
        }
        let command = match &mut wake {
            Wake::Exec(exec) => {
                let words = std::mem::take(&mut exec.command);
                Some(Secret::new(serde_json::Value::from(words).to_string()))
            }
            Wake::Http(_) | Wake::VllmSleep(_) => None,
        };
        Ok(Waking {
            shown: Some(Arc::new(wake)),
            command,
        })
    }
}
