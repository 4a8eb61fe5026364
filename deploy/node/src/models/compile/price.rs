//! What legs cost: what is written as `pricing`, and by the time of the day as `pricing_schedule`. What is wrong in either
//! is an error: calls would go at another price than the one that was meant.

use std::sync::Arc;

use schemas::catalog::pricing::{self, ScheduleText};
use schemas::catalog::rates::{Rates, Version};
use schemas::catalog::{Endpoint, ProviderKind};
use schemas::money::Price;
use schemas::named;

use super::{Context, Ready};
use crate::models::file::{Entry, Leg};
use crate::yaml::Problem;

const SCHEDULE_FORM: &str = "write windows, a list of {start: \"16:30\", end: \"00:30\", pricing}, and optionally effective_at and default";

impl Context<'_> {
    pub(super) fn price(&self, leg: &Leg, key: &str, endpoint: &Endpoint) -> Result<Option<Price>, Problem> {
        if endpoint.kind == ProviderKind::Echo && leg.pricing.is_none() && self.entry.pricing.is_none() {
            return Ok(Some(Price::default()));
        }
        let Some(block) = leg.pricing.as_ref().or(self.entry.pricing.as_ref()) else {
            return Ok(None);
        };
        let key = written_at(leg.pricing.is_some(), key, "pricing");
        pricing::read(block)
            .map_err(|error| self.problem(&key, error.to_string(), "write prices as decimal strings of USD"))
    }

    /// Prices by the time of the day. `price` is what holds without them.
    pub(super) fn rates(
        &self,
        leg: &Leg,
        key: &str,
        price: Option<Price>,
    ) -> Result<Option<Arc<Rates>>, Problem> {
        let of_leg = leg.pricing_schedule.as_ref();
        let Some(told) = of_leg.or(self.entry.pricing_schedule.as_ref()) else {
            return Ok(None);
        };
        let key = written_at(of_leg.is_some(), key, "pricing_schedule");
        let text: ScheduleText = named::from_value(told.clone())
            .map_err(|error| self.problem(&key, error.to_string(), SCHEDULE_FORM))?;
        if text.default.is_none() && price.is_none() {
            return Err(self.problem(
                &key,
                "nothing says what holds outside of its windows",
                "give it a `default`, or the model a `pricing`",
            ));
        }
        let schedule = pricing::schedule(&text, &price.unwrap_or_default())
            .map_err(|error| self.problem(&format!("{key}.{}", error.field), error.reason, SCHEDULE_FORM))?;
        let version = Version {
            from: None,
            price,
            schedule: Some(schedule),
        };
        Ok(Some(Arc::new(Rates(vec![version]))))
    }
}

/// Where something is written: at the leg, or at its model.
fn written_at(of_leg: bool, key: &str, name: &str) -> String {
    if of_leg {
        format!("{key}.{name}")
    } else {
        name.to_owned()
    }
}

/// Prices for the listing, as they are written.
pub(super) fn listed(entry: &Entry, legs: &[Ready]) -> Vec<(String, String)> {
    let block = entry
        .pricing
        .as_ref()
        .or_else(|| legs.first().and_then(|leg| leg.leg.pricing.as_ref()));
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    block
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}
