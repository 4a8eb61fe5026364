//! What came of a simulation: figures for each policy.

use schemas::money::{NanoUsd, Price, cost};
use serde::Serialize;

use super::scenario::{Policy, Prices, Scenario};
use super::trace::Trace;
use super::world::Served;

/// Points of a distribution that are kept for drawing.
const POINTS: usize = 100;

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Requests of the trace.
    pub requests: usize,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Those of them that one endless cache would have had.
    pub ideal_cached_tokens: u64,
    /// What counted as a good answer: milliseconds to the first token.
    pub slo_ttft_ms: u64,
    /// And from a token to the next.
    pub slo_token_ms: u64,
    /// Of each policy, in the scenario's order.
    pub policies: Vec<Outcome>,
}

/// What came of one policy. Shares are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub policy: String,
    /// Milliseconds to the first token.
    pub ttft_ms: Spread,
    /// Milliseconds to the last token.
    pub latency_ms: Spread,
    /// The share of good answers.
    pub good_share: f64,
    /// Good answers per second, from the first arrival to the end of the last answer.
    pub goodput_per_second: f64,
    /// The share of the prompts' tokens that was found in caches.
    pub cached_share: f64,
    /// The share of what one endless cache would have had; absent where that is nothing.
    pub cached_of_ideal: Option<f64>,
    /// What everything cost, in nano-dollars.
    pub cost_nano_usd: i64,
    /// The same in US dollars.
    pub cost_usd: String,
    /// What there was to spend, in nano-dollars: of every request so far from what it would have cost at the cheapest
    /// endpoint to that at the dearest; absent where costs do not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_nano_usd: Option<i64>,
    /// What each replica did, in the scenario's order.
    pub replicas: Vec<Share>,
    /// Milliseconds to the first token that so many hundredths of the requests did not exceed, from 0 to 100.
    pub ttft_ms_percentiles: Vec<f64>,
}

/// A distribution, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half of all are not above.
    pub p50: f64,
    /// 95 of 100 are not above.
    pub p95: f64,
    /// 99 of 100 are not above.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

/// What a replica did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// It.
    pub backend: String,
    /// Requests.
    pub requests: u64,
    /// Tokens of their prompts that it read.
    pub read_tokens: u64,
    /// Tokens of their prompts that it had.
    pub cached_tokens: u64,
    /// Tokens that it said.
    pub output_tokens: u64,
}

impl Report {
    pub(super) fn new(scenario: &Scenario, trace: &Trace, ideal: u64, policies: Vec<Outcome>) -> Self {
        Self {
            requests: trace.lines.len(),
            prompt_tokens: trace.lines.iter().map(|line| line.prompt_tokens).sum(),
            ideal_cached_tokens: ideal,
            slo_ttft_ms: scenario.slo.ttft_ms,
            slo_token_ms: scenario.slo.token_ms,
            policies,
        }
    }
}

impl Outcome {
    pub(super) fn of(policy: &Policy, served: &[Served], (scenario, ideal): (&Scenario, u64)) -> Self {
        let ttft_us = sorted(served.iter().map(|one| one.ttft_us));
        let whole_us = sorted(served.iter().map(|one| one.whole_us));
        let good = served.iter().filter(|one| is_good(one, scenario)).count();
        let good = u64::try_from(good).unwrap_or(0);
        let count = u64::try_from(served.len()).unwrap_or(0);
        let prompt: u64 = served.iter().map(|one| one.prompt_tokens).sum();
        let cached: u64 = served.iter().map(|one| one.cached_tokens).sum();
        let cost = NanoUsd(cost_nano_usd(scenario, served));
        Self {
            policy: policy.name(),
            ttft_ms: Spread::of(&ttft_us),
            latency_ms: Spread::of(&whole_us),
            good_share: ratio(good, count),
            goodput_per_second: ratio(good.saturating_mul(1_000_000), lasted_us(served)),
            cached_share: ratio(cached, prompt),
            cached_of_ideal: (ideal > 0).then(|| ratio(cached, ideal)),
            cost_nano_usd: cost.0,
            cost_usd: cost.usd(),
            budget_nano_usd: policy
                .routewise
                .map(|terms| budget_nano_usd(scenario, served, terms.budget_alpha_percent)),
            replicas: shares(scenario, served),
            ttft_ms_percentiles: (0..=POINTS)
                .map(|point| ms(rank(&ttft_us, (point, POINTS))))
                .collect(),
        }
    }
}

impl Spread {
    fn of(sorted_us: &[u64]) -> Self {
        let sum: u64 = sorted_us.iter().fold(0, |sum, us| sum.saturating_add(*us));
        let at = |percent| ms(rank(sorted_us, (percent, 100)));
        Self {
            mean: ratio(sum, u64::try_from(sorted_us.len()).unwrap_or(0)) / 1_000.0,
            p50: at(50),
            p95: at(95),
            p99: at(99),
            max: at(100),
        }
    }
}

/// The least of some numbers that so many parts of them do not exceed.
fn rank(sorted: &[u64], (part, parts): (usize, usize)) -> u64 {
    let place = sorted.len().saturating_mul(part).div_ceil(parts.max(1));
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0)
}

fn sorted(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// The first token in time, and every other one in the mean.
fn is_good(served: &Served, scenario: &Scenario) -> bool {
    let later = served.output_tokens.saturating_sub(1);
    let saying_us = served.whole_us.saturating_sub(served.ttft_us);
    let slo = scenario.slo;
    served.ttft_us <= slo.ttft_ms.saturating_mul(1_000)
        && saying_us <= later.saturating_mul(slo.token_ms).saturating_mul(1_000)
}

fn lasted_us(served: &[Served]) -> u64 {
    let ends = served
        .iter()
        .map(|one| one.arrived_us.saturating_add(one.whole_us));
    let begins = served.iter().map(|one| one.arrived_us);
    let (end, begin) = (ends.max().unwrap_or(0), begins.min().unwrap_or(0));
    end.saturating_sub(begin)
}

/// The price of every replica's endpoint, and its name, in the order of replicas.
fn priced(scenario: &Scenario) -> Vec<(String, Option<Price>)> {
    let endpoints = scenario.endpoints.iter().flat_map(|endpoint| {
        let price = endpoint.price.as_ref().and_then(Prices::read);
        let replicas = 0..endpoint.speeds_percent.len();
        replicas.map(move |replica| (super::fleet::backend_id(endpoint, replica).to_string(), price))
    });
    endpoints.collect()
}

fn cost_nano_usd(scenario: &Scenario, served: &[Served]) -> i64 {
    let prices = priced(scenario);
    let costs = served.iter().filter_map(|one| {
        let price = prices.get(one.replica)?.1?;
        cost(&price, &one.usage(), 0)
    });
    costs.fold(0, |sum: i64, cost| sum.saturating_add(cost.0))
}

/// The budgets of all requests: each as far from the cheapest endpoint to the dearest as so many percent say.
fn budget_nano_usd(scenario: &Scenario, served: &[Served], alpha_percent: u64) -> i64 {
    let prices: Vec<Price> = priced(scenario)
        .into_iter()
        .filter_map(|(_, price)| price)
        .collect();
    let alpha = i64::try_from(alpha_percent).unwrap_or(0);
    let budgets = served.iter().map(|one| {
        let costs = || {
            prices
                .iter()
                .filter_map(|price| Some(cost(price, &one.usage(), 0)?.0))
        };
        let (least, most) = (costs().min().unwrap_or(0), costs().max().unwrap_or(0));
        least.saturating_add(most.saturating_sub(least).saturating_mul(alpha) / 100)
    });
    budgets.fold(0, i64::saturating_add)
}

fn shares(scenario: &Scenario, served: &[Served]) -> Vec<Share> {
    let mut shares: Vec<Share> = priced(scenario)
        .into_iter()
        .map(|(backend, _)| Share {
            backend,
            requests: 0,
            read_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
        })
        .collect();
    for one in served {
        if let Some(share) = shares.get_mut(one.replica) {
            share.requests += 1;
            share.read_tokens += one.prompt_tokens.saturating_sub(one.cached_tokens);
            share.cached_tokens += one.cached_tokens;
            share.output_tokens += one.output_tokens;
        }
    }
    shares
}

/// Microseconds as milliseconds.
fn ms(us: u64) -> f64 {
    ratio(us, 1_000)
}

/// One number over another; 0 where that is 0.
#[expect(clippy::cast_precision_loss, reason = "figures to look at")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}
