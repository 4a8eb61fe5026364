//! What a leg says of the health of its backends: how it is asked for, and on which hosts they run.

use std::sync::Arc;

use schemas::catalog::registered::{HealthCheck, Watched};
use schemas::health::is_host;
use schemas::named;

use super::Context;
use crate::models::file::{BackendText, Leg};
use crate::yaml::Problem;

impl Context<'_> {
    /// `None` where it says nothing.
    pub(super) fn watched(&self, leg: &Leg, key: &str) -> Result<Option<Arc<Watched>>, Problem> {
        let mut watched = Watched {
            hosts: self.hosts(leg, key)?,
            health_check: self.health_check(leg, key)?,
        };
        if watched.hosts.iter().all(Option::is_none) {
            watched.hosts.clear();
        }
        Ok((watched != Watched::default()).then(|| Arc::new(watched)))
    }

    fn hosts(&self, leg: &Leg, key: &str) -> Result<Vec<Option<Arc<str>>>, Problem> {
        let backends = leg.backends.iter().flatten().enumerate();
        let host = |(place, backend): (usize, &BackendText)| {
            let BackendText::Placed(placed) = backend else {
                return Ok(None);
            };
            match placed.node.as_deref() {
                None => Ok(None),
                Some(node) if is_host(node) => Ok(Some(Arc::from(node))),
                Some(_) => Err(self.problem(
                    &format!("{key}.backends[{place}].node"),
                    "it is not the name of a host",
                    "write 1 to 128 bytes of printable text, or remove it",
                )),
            }
        };
        backends.map(host).collect()
    }

    fn health_check(&self, leg: &Leg, key: &str) -> Result<Option<HealthCheck>, Problem> {
        let Some(told) = &leg.health_check else {
            return Ok(None);
        };
        let at = format!("{key}.health_check");
        let remedy = "write { path: /health, interval_seconds: 10, threshold: 3, start_period_seconds: 0 }, or a part of it";
        let check: HealthCheck = named::from_value(told.clone()).map_err(|error| {
            self.problem(&at, format!("`health_check` is not understood: {error}"), remedy)
        })?;
        match check.check() {
            Ok(()) => Ok(Some(check)),
            Err((member, text)) => Err(self.problem(&format!("{at}.{member}"), text, remedy)),
        }
    }
}
