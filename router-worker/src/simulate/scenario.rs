//! What is simulated: engines, the endpoints that run on them, gateways, and the policies that are compared. Durations
//! and sizes have their unit in their name; all of it is integers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemas::balance::Algorithm;
use schemas::catalog::router;
use schemas::money::{NanoUsd, Price};
use serde::Deserialize;

use super::generate::Shape;

/// Gateways there may be.
const GATEWAYS_MAX: u64 = 64;
/// Replicas of one endpoint.
const REPLICAS_MAX: usize = 256;
/// Longest duration that can be set, in milliseconds.
const MS_MAX: u64 = 3_600_000;

/// A simulation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What luck is drawn from.
    #[serde(default = "one")]
    pub seed: u64,
    /// The requests.
    pub trace: Source,
    /// Only requests of this model; of all where it is absent.
    #[serde(default)]
    pub model: Option<String>,
    /// How many gateways the requests are spread over, by luck. Each has its own view.
    #[serde(default = "gateways")]
    pub gateways: usize,
    /// What counts as a good answer.
    #[serde(default)]
    pub slo: Slo,
    /// How old what gateways know may be.
    #[serde(default)]
    pub delays: Delays,
    /// Kinds of engines, by their names.
    pub engines: BTreeMap<String, Engine>,
    /// Who serves the model.
    pub endpoints: Vec<Endpoint>,
    /// What is compared.
    pub policies: Vec<Policy>,
}

/// Where the requests come from: one of the two.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A trace, beside the scenario's file unless it is an absolute path.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Requests that are made up.
    #[serde(default)]
    pub generate: Option<Shape>,
    /// Tokens of a block of a prompt: what an engine caches as one.
    #[serde(default = "block_tokens")]
    pub block_tokens: u64,
}

/// What counts as a good answer: both.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slo {
    /// Milliseconds to the first token, at most.
    pub ttft_ms: u64,
    /// Milliseconds from a token to the next, at most, in the mean of the answer.
    pub token_ms: u64,
}

impl Default for Slo {
    fn default() -> Self {
        Self {
            ttft_ms: 1_000,
            token_ms: 50,
        }
    }
}

/// How old what gateways know may be, in milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delays {
    /// From one reading of the engines to the next.
    pub engines_every_ms: u64,
    /// From one telling of a gateway's calls to the next.
    pub calls_every_ms: u64,
    /// From one telling of what was learned from requests to the next.
    pub profiles_every_ms: u64,
    /// On the bus.
    pub bus_ms: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            engines_every_ms: 5_000,
            calls_every_ms: 250,
            profiles_every_ms: 500,
            bus_ms: 5,
        }
    }
}

/// A kind of engine: it works in steps, each of which reads parts of prompts and says one token of every answer that is
/// under way.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Microseconds of a step, whatever is done in it.
    #[serde(default = "step_us")]
    pub step_us: u64,
    /// Nanoseconds to read a token of a prompt.
    pub prefill_ns_per_token: u64,
    /// Microseconds to say a token, for each answer under way.
    pub decode_us_per_token: u64,
    /// Tokens of one step, those of answers included.
    #[serde(default = "step_tokens")]
    pub step_tokens_max: u64,
    /// Requests at once; others wait.
    #[serde(default = "sequences")]
    pub sequences_max: usize,
    /// Tokens that its cache keeps, of prompts and answers.
    pub kv_tokens: u64,
}

/// Who serves the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Its name.
    pub name: String,
    /// The kind of its engines.
    pub engine: String,
    /// Its replicas: how fast each is, in percent of its kind.
    pub speeds_percent: Vec<u64>,
    /// 0 is asked first.
    #[serde(default)]
    pub priority: i32,
    /// Its share among those of its priority.
    #[serde(default = "one")]
    pub weight: u64,
    /// What it costs; nothing where it is absent.
    #[serde(default)]
    pub price: Option<Prices>,
}

/// US dollars for a million tokens, as decimals in quotes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Input that is read.
    pub input: String,
    /// Input out of the cache; as `input` where it is absent.
    #[serde(default)]
    pub cached: Option<String>,
    /// Output.
    pub output: String,
}

impl Prices {
    /// As they are reckoned with; `None` when one of them is not an amount.
    pub(super) fn read(&self) -> Option<Price> {
        let amount = |text: &str| NanoUsd::parse_usd(text).ok().map(|NanoUsd(nano)| nano);
        let input = amount(&self.input)?;
        Some(Price {
            input,
            cached: self.cached.as_deref().map_or(Some(input), amount)?,
            output: amount(&self.output)?,
            ..Price::default()
        })
    }
}

/// One way to choose.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// How backends are chosen.
    pub algorithm: Algorithm,
    /// Sessions stay on their backend.
    #[serde(default)]
    pub affinity: bool,
    /// Endpoints are chosen by what they cost and how soon they answer, instead of by their weights.
    #[serde(default)]
    pub routewise: Option<RouteWise>,
}

/// How `RouteWise` chooses.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteWise {
    /// How far the budget of a request lies between the cheapest endpoint and the dearest, in percent.
    #[serde(default = "alpha")]
    pub budget_alpha_percent: u64,
}

impl RouteWise {
    /// Its terms.
    pub(super) fn terms(self) -> router::RouteWise {
        router::RouteWise {
            budget_alpha_micro: self.budget_alpha_percent.saturating_mul(router::ONE_MICRO / 100),
            ..router::RouteWise::default()
        }
    }
}

impl Policy {
    /// Its name in tables.
    pub fn name(&self) -> String {
        let affinity = if self.affinity { " + affinity" } else { "" };
        let legs = self.routewise.map_or("", |_| "routewise, ");
        format!("{legs}{}{affinity}", self.algorithm)
    }
}

/// Something in a scenario that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The key's path.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Scenario {
    /// The first thing that is wrong; `None` for a scenario that can be run.
    pub fn wrong(&self) -> Option<Wrong> {
        let wrong = self.source().or_else(|| self.sizes());
        wrong.or_else(|| self.kinds()).or_else(|| self.places())
    }

    fn source(&self) -> Option<Wrong> {
        match (&self.trace.file, &self.trace.generate) {
            (Some(_), None) => {}
            (None, Some(shape)) => return shape.wrong(),
            _ => {
                return Some(wrong(
                    "trace",
                    "has to name either file or generate",
                    "name one of the two",
                ));
            }
        }
        None
    }

    fn sizes(&self) -> Option<Wrong> {
        let sizes = [
            (
                "gateways",
                u64::try_from(self.gateways).unwrap_or(u64::MAX),
                GATEWAYS_MAX,
            ),
            ("trace.block_tokens", self.trace.block_tokens, 65_536),
            ("slo.ttft_ms", self.slo.ttft_ms, MS_MAX),
            ("slo.token_ms", self.slo.token_ms, MS_MAX),
            ("delays.engines_every_ms", self.delays.engines_every_ms, MS_MAX),
            ("delays.calls_every_ms", self.delays.calls_every_ms, MS_MAX),
            ("delays.profiles_every_ms", self.delays.profiles_every_ms, MS_MAX),
        ];
        let out = sizes
            .into_iter()
            .find(|(_, size, most)| !(1..=*most).contains(size));
        if let Some((path, _, most)) = out {
            return Some(wrong(
                path,
                &format!("has to be between 1 and {most}"),
                "correct the value",
            ));
        }
        if self.delays.bus_ms > MS_MAX {
            let message = format!("has to be at most {MS_MAX}");
            return Some(wrong("delays.bus_ms", &message, "correct the value"));
        }
        None
    }

    fn kinds(&self) -> Option<Wrong> {
        for (name, engine) in &self.engines {
            let sizes = [
                ("step_us", engine.step_us, 60_000_000),
                ("prefill_ns_per_token", engine.prefill_ns_per_token, 1_000_000_000),
                ("decode_us_per_token", engine.decode_us_per_token, 60_000_000),
                ("step_tokens_max", engine.step_tokens_max, 1 << 24),
                (
                    "sequences_max",
                    u64::try_from(engine.sequences_max).unwrap_or(u64::MAX),
                    65_536,
                ),
                ("kv_tokens", engine.kv_tokens, 1 << 40),
            ];
            let out = sizes
                .into_iter()
                .find(|(_, size, most)| !(1..=*most).contains(size));
            if let Some((key, _, most)) = out {
                let message = format!("has to be between 1 and {most}");
                return Some(wrong(
                    &format!("engines.{name}.{key}"),
                    &message,
                    "correct the value",
                ));
            }
            // An answer under way takes one token of every step: a prompt beside it has to come on.
            if engine.step_tokens_max <= u64::try_from(engine.sequences_max).unwrap_or(u64::MAX) {
                let path = format!("engines.{name}.step_tokens_max");
                return Some(wrong(&path, "has to be more than sequences_max", "raise it"));
            }
        }
        None
    }

    fn places(&self) -> Option<Wrong> {
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            let at = |key: &str| format!("endpoints[{place}].{key}");
            let twice = self
                .endpoints
                .iter()
                .take(place)
                .any(|one| one.name == endpoint.name);
            if endpoint.name.is_empty() || twice {
                return Some(wrong(
                    &at("name"),
                    "has to be a name of its own",
                    "choose another one",
                ));
            }
            if !self.engines.contains_key(&endpoint.engine) {
                let message = format!("there is no engine {}", endpoint.engine);
                return Some(wrong(&at("engine"), &message, "name one of engines"));
            }
            let speeds = &endpoint.speeds_percent;
            let is_speed = |speed: &u64| (1..=100_000).contains(speed);
            if !(1..=REPLICAS_MAX).contains(&speeds.len()) || !speeds.iter().all(is_speed) {
                let message = format!("has to hold 1 to {REPLICAS_MAX} numbers between 1 and 100000");
                return Some(wrong(&at("speeds_percent"), &message, "correct the list"));
            }
            if !(1..=1_000_000).contains(&endpoint.weight) {
                return Some(wrong(
                    &at("weight"),
                    "has to be between 1 and 1000000",
                    "correct the value",
                ));
            }
            if endpoint
                .price
                .as_ref()
                .is_some_and(|price| price.read().is_none())
            {
                let message = "holds something that is not an amount of US dollars";
                return Some(wrong(&at("price"), message, "write it as \"1.25\", in quotes"));
            }
        }
        let alpha = |policy: &Policy| policy.routewise.is_some_and(|one| one.budget_alpha_percent > 100);
        if let Some(place) = self.policies.iter().position(alpha) {
            let path = format!("policies[{place}].routewise.budget_alpha_percent");
            return Some(wrong(&path, "has to be at most 100", "correct the value"));
        }
        let lacking = [
            ("endpoints", self.endpoints.is_empty()),
            ("policies", self.policies.is_empty()),
        ];
        let (path, _) = lacking.into_iter().find(|(_, lacks)| *lacks)?;
        Some(wrong(path, "is empty", "name at least one"))
    }
}

pub(super) fn wrong(path: &str, message: &str, remedy: &'static str) -> Wrong {
    Wrong {
        path: path.to_owned(),
        message: message.to_owned(),
        remedy,
    }
}

const fn one() -> u64 {
    1
}

const fn alpha() -> u64 {
    75
}

const fn gateways() -> usize {
    2
}

const fn block_tokens() -> u64 {
    128
}

const fn step_us() -> u64 {
    5_000
}

const fn step_tokens() -> u64 {
    2_048
}

const fn sequences() -> usize {
    64
}
