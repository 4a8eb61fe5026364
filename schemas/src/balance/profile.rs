//! What is learned of the legs of a model from the events of its calls: how long each takes to the first token, and how
//! long answers are. Means over a window, as integers, so that whoever reads the same events knows the same.
//!
//! A leg that fails counts as slow: as slow as one of which nothing is known, or as it was.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::is_zero;
use crate::catalog::router::RouteWise;
use crate::envelope::Envelope;
use crate::event::request::{Attempt, RequestSettled};
use crate::id::{EndpointId, ModelName};
use crate::outcome::Outcome;
use crate::subject::REQUEST_SETTLED;

/// Lengths of answers from which on older ones count half.
const ANSWERS_MAX: u64 = 10_000;
/// Legs of all models of which calls are kept.
const LEGS_MAX: usize = 10_000;

/// A mean, and of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mean {
    /// Of how many.
    #[serde(skip_serializing_if = "is_zero")]
    pub count: u64,
    /// It, rounded down.
    #[serde(skip_serializing_if = "is_zero")]
    pub mean: u64,
}

/// How long a leg takes, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// To the first token of a stream.
    pub streamed: Mean,
    /// To an answer that is not streamed.
    pub whole: Mean,
}

/// What is known of a model: what nodes tell each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The model.
    pub model: ModelName,
    /// Its legs.
    #[serde(default)]
    pub legs: BTreeMap<EndpointId, Times>,
    /// Tokens of answers, by the size of their prompts: the place of the highest bit of its tokens.
    #[serde(default)]
    pub answers_by_size: BTreeMap<u32, Mean>,
    /// Tokens of all answers of the model.
    #[serde(default)]
    pub answers: Mean,
    /// Tokens of all answers of all models that are learned of.
    #[serde(default)]
    pub answers_of_all: Mean,
}

impl Profile {
    /// The profile of a model of which nothing is known.
    pub const fn new(model: ModelName) -> Self {
        Self {
            model,
            legs: BTreeMap::new(),
            answers_by_size: BTreeMap::new(),
            answers: Mean { count: 0, mean: 0 },
            answers_of_all: Mean { count: 0, mean: 0 },
        }
    }

    /// How long a leg takes.
    pub fn times(&self, leg: &EndpointId, streamed: bool) -> Mean {
        let times = self.legs.get(leg).copied().unwrap_or_default();
        if streamed { times.streamed } else { times.whole }
    }

    /// Tokens that the answer to a prompt is taken to have, at most `most`.
    pub fn answer_tokens(&self, terms: &RouteWise, prompt_tokens: u64, most: Option<u64>) -> u64 {
        let of_size = self.answers_by_size.get(&size(prompt_tokens)).copied();
        let known = [of_size.unwrap_or_default(), self.answers, self.answers_of_all];
        let counts = |(mean, least): (&Mean, &u64)| (mean.count >= *least).then_some(mean.mean);
        let mean = known.iter().zip(&terms.output_samples_min).find_map(counts);
        let tokens = mean.unwrap_or(terms.output_default_tokens);
        most.map_or(tokens, |most| tokens.min(most))
    }
}

/// The size of a prompt: the place of the highest bit of its tokens.
pub fn size(prompt_tokens: u64) -> u32 {
    prompt_tokens.checked_ilog2().unwrap_or(0)
}

/// A call, as far as something is learned from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its model.
    pub model: ModelName,
    /// When it was settled, in milliseconds of unix time.
    pub at_ms: u64,
    /// Its answer was streamed.
    pub streamed: bool,
    /// The legs that were asked, and how long each took, in microseconds; `Err` for one that failed.
    pub asked: Vec<(EndpointId, Result<u64, u64>)>,
    /// Tokens of its prompt and of its answer; `None` for one without an answer.
    pub tokens: Option<(u64, u64)>,
}

impl Call {
    /// Reads an event as it lies in the log; `None` for one that is no waybill, or of a version that is not known.
    pub fn read(envelope: &[u8]) -> Option<Self> {
        let envelope: Envelope<RequestSettled> = serde_json::from_slice(envelope).ok()?;
        (envelope.kind == REQUEST_SETTLED).then(|| Self::of(&envelope.data))
    }

    /// What a waybill tells.
    pub fn of(settled: &RequestSettled) -> Self {
        let is_served = settled.outcome == Outcome::Ok;
        let last = settled.attempts.len();
        let asked = settled
            .attempts
            .iter()
            .enumerate()
            .filter_map(|(place, attempt)| {
                let took = if is_served && place + 1 == last {
                    Ok(took_ms(settled, attempt)?)
                } else if is_failure(attempt) {
                    Err(attempt.latency_ms)
                } else {
                    return None;
                };
                let micros = |ms: u64| ms.saturating_mul(1_000);
                Some((attempt.endpoint_id.clone(), took.map(micros).map_err(micros)))
            });
        let prompt = settled
            .input_tokens
            .saturating_add(settled.cached_tokens)
            .saturating_add(settled.cache_write_tokens);
        Self {
            model: served_by(settled).clone(),
            at_ms: u64::try_from(settled.ended_at.millis()).unwrap_or(0),
            streamed: settled.stream,
            asked: asked.collect(),
            tokens: is_served.then_some((prompt, settled.output_tokens)),
        }
    }
}

/// The model that was asked: the one that was chosen, where that was left to the gateway.
fn served_by(settled: &RequestSettled) -> &ModelName {
    let chosen = settled.auto.as_ref().and_then(|routed| routed.model.as_ref());
    chosen.unwrap_or(&settled.model)
}

/// How long the attempt that served took to the first token, or to its answer.
fn took_ms(settled: &RequestSettled, attempt: &Attempt) -> Option<u64> {
    if !settled.stream {
        return Some(attempt.latency_ms);
    }
    let waited_ms = attempt.started_at.millis_since(settled.started_at);
    Some(settled.ttft_ms?.saturating_sub(waited_ms))
}

/// Whether an attempt failed by its leg's fault: it was not the call that was refused.
fn is_failure(attempt: &Attempt) -> bool {
    let failed = matches!(
        attempt.outcome,
        Outcome::UpstreamError | Outcome::UpstreamCut | Outcome::Timeout
    );
    failed && matches!(attempt.status, None | Some(200 | 408 | 429 | 500..))
}

/// Everything that is learned. Whoever learns is told of calls in the order of the log.
#[derive(Debug, Default)]
pub struct Learned {
    models: HashMap<ModelName, OfModel>,
    answers: Tally,
}

#[derive(Debug, Default)]
struct OfModel {
    legs: HashMap<(EndpointId, bool), Window>,
    sizes: BTreeMap<u32, Tally>,
    answers: Tally,
}

impl Learned {
    /// Learns from a call of a model with these terms and legs.
    pub fn take(&mut self, call: &Call, terms: &RouteWise, legs: &[&EndpointId]) {
        let kept: usize = self.models.values().map(|model| model.legs.len()).sum();
        let model = self.models.entry(call.model.clone()).or_default();
        for (leg, took) in &call.asked {
            let key = (leg.clone(), call.streamed);
            let has_room = kept < LEGS_MAX || model.legs.contains_key(&key);
            if !legs.contains(&leg) || !has_room {
                continue;
            }
            let took_us = took.unwrap_or_else(|failed| failed.max(terms.latency_unprofiled_us));
            let window = model.legs.entry(key).or_default();
            window.add((call.at_ms, took_us), terms.latency_samples_max);
        }
        let served = call
            .asked
            .last()
            .filter(|(leg, took)| took.is_ok() && legs.contains(&leg));
        if let (Some((prompt, answer)), true) = (call.tokens, served.is_some()) {
            model.sizes.entry(size(prompt)).or_default().add(answer);
            model.answers.add(answer);
            self.answers.add(answer);
        }
    }

    /// What is known of a model at a moment of unix time, in milliseconds.
    pub fn profile(&mut self, model: &ModelName, terms: &RouteWise, now_ms: u64) -> Profile {
        let mut profile = Profile {
            answers_of_all: self.answers.mean(),
            ..Profile::new(model.clone())
        };
        let Some(known) = self.models.get_mut(model) else {
            return profile;
        };
        for ((leg, streamed), window) in &mut known.legs {
            window.forget(now_ms.saturating_sub(terms.latency_window_ms));
            let mean = window.mean();
            if mean.count > 0 {
                let times = profile.legs.entry(leg.clone()).or_default();
                *(if *streamed {
                    &mut times.streamed
                } else {
                    &mut times.whole
                }) = mean;
            }
        }
        known.legs.retain(|_, window| !window.took.is_empty());
        profile.answers = known.answers.mean();
        let sizes = known.sizes.iter().map(|(size, tally)| (*size, tally.mean()));
        profile.answers_by_size = sizes.collect();
        profile
    }

    /// Forgets all models but these.
    pub fn keep(&mut self, models: impl Fn(&ModelName) -> bool) {
        self.models.retain(|model, _| models(model));
    }
}

/// The newest calls of a leg.
#[derive(Debug, Default)]
struct Window {
    /// When each was settled, and how long it took.
    took: VecDeque<(u64, u64)>,
    sum: u128,
}

impl Window {
    fn add(&mut self, (at_ms, took_us): (u64, u64), most: u64) {
        self.took.push_back((at_ms, took_us));
        self.sum += u128::from(took_us);
        while u64::try_from(self.took.len()).unwrap_or(u64::MAX) > most {
            self.drop_oldest();
        }
    }

    /// Forgets what was before a moment. Clocks of nodes differ: what is told late is forgotten late.
    fn forget(&mut self, before_ms: u64) {
        while self.took.front().is_some_and(|(at_ms, _)| *at_ms < before_ms) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, took_us)) = self.took.pop_front() {
            self.sum -= u128::from(took_us);
        }
    }

    fn mean(&self) -> Mean {
        let count = u64::try_from(self.took.len()).unwrap_or(u64::MAX);
        let mean = self.sum.checked_div(u128::from(count)).unwrap_or(0);
        Mean {
            count,
            mean: u64::try_from(mean).unwrap_or(u64::MAX),
        }
    }
}

/// A sum that grows, and of how many.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: u64,
    sum: u64,
}

impl Tally {
    const fn add(&mut self, number: u64) {
        if self.count >= ANSWERS_MAX {
            self.count /= 2;
            self.sum /= 2;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(number);
    }

    fn mean(&self) -> Mean {
        Mean {
            count: self.count,
            mean: self.sum.checked_div(self.count).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests;
