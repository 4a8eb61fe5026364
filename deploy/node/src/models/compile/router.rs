//! How a model says that its legs are chosen: `router` and `router_params`. What is unknown is an error, and so is what
//! this version does not offer: calls would go another way than the one that was meant. What is known and has nothing to
//! change here is reported.

use std::sync::Arc;

use schemas::catalog::router::{Fixed, ONE_MICRO, Offload, RouteWise, Router};
use schemas::id::EndpointId;
use schemas::named;
use serde::Deserialize;
use serde_json::Value;

use super::{Context, Ready};
use crate::yaml::{Problem, number};

/// The largest count of anything.
const COUNT_MAX: u64 = 10_000_000;
/// The longest time that calls of a leg may count, in seconds: a day.
const WINDOW_SECONDS_MAX: u64 = 86_400;
/// Most calls of a leg that may count.
const SAMPLES_MAX: u64 = 50_000;
/// The longest time that a leg may be taken to need, in milliseconds: an hour.
const TTFT_MS_MAX: u64 = 3_600_000;
/// The longest wait after which a call may go to the leg for those that wait, in seconds: an hour.
const WAIT_SECONDS_MAX: f64 = 3_600.0;
/// Parameters of `routewise` that change nothing: what they are for is not there, or needs no saying.
const INERT: [&str; 13] = [
    "random_seed",
    "reference_api_price",
    "db_bootstrap_enabled",
    "db_bootstrap_max_rows",
    "stateful_providers_single_worker_only",
    "quota_snapshot_refresh_interval_sec",
    "shadow_price_window_hours",
    "envelope_lower_percentile",
    "envelope_upper_percentile",
    "envelope_min_samples",
    "latency_slo_sec",
    "canary_enabled_models",
    "canary_traffic_fraction",
];

/// `offload`, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OffloadText {
    route_id: String,
    #[serde(default, deserialize_with = "number")]
    wait_seconds: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    max_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    engine_queue_limit: Option<u64>,
}

impl Context<'_> {
    /// What is said; `None` where nothing is.
    pub(super) fn router(&self, problems: &mut Vec<Problem>) -> Result<Option<Router>, Problem> {
        match self.entry.router.as_deref() {
            None if self.entry.router_params.is_empty() => Ok(None),
            None | Some("fixed") => self.fixed(problems).map(Router::Fixed).map(Some),
            Some("routewise") if self.embeds() => Err(self.problem(
                "router",
                "the legs of models of embeddings are asked in their order",
                "remove it",
            )),
            Some("routewise") => self.routewise(problems).map(Router::Routewise).map(Some),
            Some(word) => Err(self.problem(
                "router",
                format!("\"{word}\" is not a router"),
                "use fixed or routewise",
            )),
        }
    }

    fn fixed(&self, problems: &mut Vec<Problem>) -> Result<Fixed, Problem> {
        let mut fixed = Fixed::default();
        for param in self.params() {
            match param.name {
                "hybrid_composition" => fixed.hybrid_composition = param.switch()?,
                "offload" => fixed.offload = Some(param.offload()?),
                "local_fraction" => problems.push(param.inert()),
                _ => return Err(param.unknown("fixed", "hybrid_composition, offload")),
            }
        }
        Ok(fixed)
    }

    fn routewise(&self, problems: &mut Vec<Problem>) -> Result<RouteWise, Problem> {
        let mut terms = RouteWise::default();
        for param in self.params() {
            match param.name {
                "budget_alpha" => terms.budget_alpha_micro = param.fraction_micro()?,
                "output_default_tokens" => terms.output_default_tokens = param.count(COUNT_MAX)?,
                "output_min_bucket_samples" => terms.output_samples_min[0] = param.count(COUNT_MAX)?,
                "output_min_model_samples" => terms.output_samples_min[1] = param.count(COUNT_MAX)?,
                "output_min_global_samples" => terms.output_samples_min[2] = param.count(COUNT_MAX)?,
                "latency_window_sec" => {
                    terms.latency_window_ms = param.count(WINDOW_SECONDS_MAX)?.saturating_mul(1_000);
                }
                "latency_max_samples_per_profile" => terms.latency_samples_max = param.count(SAMPLES_MAX)?,
                "latency_min_samples" => terms.latency_samples_min = param.count(SAMPLES_MAX)?,
                "latency_unprofiled_ttft_ms" => {
                    terms.latency_unprofiled_us = param.count(TTFT_MS_MAX)?.saturating_mul(1_000);
                }
                "latency_hedge_mode" if *param.value == "disabled" => {}
                "latency_hedge_mode" => {
                    return Err(param.problem(
                        "no call is sent to two legs at once by this version",
                        "write disabled, or remove it",
                    ));
                }
                "prefix_cache_cost_adjustment_enabled" | "canary_enabled" | "routewise_probe_enabled" => {
                    if param.switch()? {
                        return Err(param.problem("this version does not offer it", "write false, or remove it"));
                    }
                }
                name if INERT.contains(&name) => problems.push(param.inert()),
                _ => return Err(param.unknown("routewise", "budget_alpha, output_default_tokens, output_min_bucket_samples, output_min_model_samples, output_min_global_samples, latency_window_sec, latency_max_samples_per_profile, latency_min_samples, latency_unprofiled_ttft_ms, latency_hedge_mode")),
            }
        }
        if terms.latency_samples_min > terms.latency_samples_max {
            return Err(self.problem(
                "router_params.latency_min_samples",
                "it is more than the calls that count at most",
                "make it smaller than latency_max_samples_per_profile",
            ));
        }
        Ok(terms)
    }

    /// The parameters that are written; one that is null is not.
    fn params(&self) -> impl Iterator<Item = Param<'_>> {
        let written = self.entry.router_params.iter();
        written
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| Param {
                context: self,
                name,
                value,
            })
    }

    /// The router over the legs that are there.
    pub(super) fn routed(
        &self,
        router: Option<Router>,
        legs: &[Ready],
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Arc<Router>>, Problem> {
        Ok(match router {
            None => None,
            Some(Router::Routewise(mut terms)) => {
                for leg in legs {
                    if let Some(slots) = self.slots(leg, problems)? {
                        terms.slots.insert(leg.endpoint.id.clone(), slots);
                    }
                }
                Some(Arc::new(Router::Routewise(terms)))
            }
            Some(Router::Fixed(fixed)) => {
                if fixed.hybrid_composition && fixed.offload.is_some() {
                    return Err(self.problem(
                        "router_params.offload",
                        "a call that stays in its pool does not go to a leg for those that wait",
                        "remove it, or hybrid_composition",
                    ));
                }
                if let Some(offload) = &fixed.offload {
                    self.check_offload(offload, legs)?;
                }
                Some(Arc::new(Router::Fixed(fixed)))
            }
        })
    }

    /// How many calls a leg bears at once for nothing; `None` for one that is paid by the call.
    fn slots(&self, leg: &Ready, problems: &mut Vec<Problem>) -> Result<Option<u64>, Problem> {
        let key = |name: &str| format!("route[{}].{name}", leg.place);
        match leg.leg.provider_type.as_deref() {
            None | Some("on_demand") => {
                if leg.route.price.is_none() && leg.route.rates.is_none() {
                    let message =
                        "nothing says what the leg costs, so it is taken to cost as much as the dearest";
                    problems.push(self.problem(
                        &key("pricing"),
                        message,
                        "give it a `pricing`, 0 for one that is free",
                    ));
                }
                Ok(None)
            }
            Some("concurrency") if leg.leg.concurrency_pool.is_some() => Err(self.problem(
                &key("concurrency_pool"),
                "slots are of one endpoint, and not shared by several",
                "remove it, and name the endpoint that they share with `endpoint`",
            )),
            Some("concurrency") => {
                let limit = leg.leg.concurrency.as_ref().and_then(|told| told.get("limit"));
                let limit = limit
                    .and_then(counted)
                    .filter(|limit| (1..=COUNT_MAX).contains(limit));
                let told = limit.ok_or_else(|| {
                    let message = "a leg of type concurrency says how many calls may run there at once";
                    self.problem(&key("concurrency"), message, "write concurrency: { limit: 4 }")
                })?;
                Ok(Some(told))
            }
            Some("quota") => Err(self.problem(
                &key("provider_type"),
                "quotas of providers are not counted by this version",
                "write on_demand and what a call is worth as `pricing`, or concurrency",
            )),
            Some(word) => Err(self.problem(
                &key("provider_type"),
                format!("\"{word}\" is not a type of resource"),
                "use on_demand or concurrency",
            )),
        }
    }

    fn check_offload(&self, offload: &Offload, legs: &[Ready]) -> Result<(), Problem> {
        let names: Vec<&str> = legs.iter().map(|leg| leg.endpoint.id.as_str()).collect();
        let refused = |message: String, remedy: String| {
            Err(self.problem("router_params.offload.route_id", message, &remedy))
        };
        if !names.contains(&offload.endpoint.as_str()) {
            let message = format!("no leg leads to \"{}\"", offload.endpoint);
            return refused(message, format!("use one of {}", names.join(", ")));
        }
        if names.iter().all(|name| *name == offload.endpoint.as_str()) {
            let message = "no other leg is there whose calls could wait".to_owned();
            return refused(message, "add a leg, or remove it".to_owned());
        }
        Ok(())
    }
}

/// A parameter that is written.
struct Param<'a> {
    context: &'a Context<'a>,
    name: &'a str,
    value: &'a Value,
}

impl Param<'_> {
    fn problem(&self, message: impl Into<String>, remedy: &str) -> Problem {
        let key = format!("router_params.{}", self.name);
        self.context.problem(&key, message, remedy)
    }

    fn unknown(&self, router: &str, known: &str) -> Problem {
        let message = format!("the router {router} has no parameter \"{}\"", self.name);
        self.problem(
            message,
            &format!("remove it or correct its name; known are {known}"),
        )
    }

    fn inert(&self) -> Problem {
        self.problem("this version reads it without effect", "nothing, or remove it")
    }

    fn switch(&self) -> Result<bool, Problem> {
        match self.value {
            Value::Bool(told) => Ok(*told),
            Value::String(text) if text == "true" => Ok(true),
            Value::String(text) if text == "false" => Ok(false),
            _ => Err(self.problem("it is neither true nor false", "write true or false")),
        }
    }

    /// A whole number from 1 to `most`.
    fn count(&self, most: u64) -> Result<u64, Problem> {
        let told = counted(self.value).filter(|told| (1..=most).contains(told));
        told.ok_or_else(|| {
            let remedy = format!("write a whole number from 1 to {most}");
            self.problem("it is no number that makes sense here", &remedy)
        })
    }

    /// A fraction, in millionths.
    fn fraction_micro(&self) -> Result<u64, Problem> {
        let told = match self.value {
            Value::Number(told) => told.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let told = told.filter(|told: &f64| (0.0..=1.0).contains(told));
        let told = told.ok_or_else(|| self.problem("it is no fraction", "write a number from 0 to 1"))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 0 and a million"
        )]
        let micro = (told * ONE_MICRO as f64).round() as u64;
        Ok(micro)
    }

    fn offload(&self) -> Result<Offload, Problem> {
        let form = "write { route_id: ENDPOINT_ID, wait_seconds: 5 }, and optionally max_input_tokens and engine_queue_limit";
        let text: OffloadText =
            named::from_value(self.value.clone()).map_err(|error| self.problem(error.to_string(), form))?;
        let wait = text
            .wait_seconds
            .filter(|wait| *wait > 0.0 && *wait <= WAIT_SECONDS_MAX);
        let wait = wait.ok_or_else(|| {
            let message = "a call waits some time before it goes elsewhere";
            self.problem(message, "write wait_seconds: more than 0 and at most 3600")
        })?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded just before"
        )]
        let wait_ms = ((wait * 1_000.0).round() as u64).max(1);
        Ok(Offload {
            endpoint: EndpointId::from(text.route_id.as_str()),
            wait_ms,
            input_tokens_max: text.max_input_tokens,
            engine_queue_max: text.engine_queue_limit,
        })
    }
}

/// A whole number that is not negative, or text that an expanded variable left and that reads as one.
fn counted(value: &Value) -> Option<u64> {
    match value {
        Value::Number(told) => told.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}
