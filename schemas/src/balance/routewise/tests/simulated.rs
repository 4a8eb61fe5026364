//! A day of calls over two legs, of which one is three times as quick and costs four times as much: what is learned of
//! them comes late, answers are longer or shorter than expected, and calls fail.

use crate::balance::profile::{Call, Learned, Profile};
use crate::id::{EndpointId, ModelName};
use crate::money::{Price, cost};
use crate::usage::Usage;

use super::*;

/// Calls until others hear how long one took.
const HEARD_AFTER: usize = 20;

/// What comes of a series of calls.
#[derive(Debug, Default)]
struct Sums {
    ttft_us: u64,
    calls: u64,
    spent: u64,
    budgets: u64,
}

impl Sums {
    fn mean_us(&self) -> u64 {
        self.ttft_us / self.calls
    }
}

/// How a leg is chosen.
enum By<'a> {
    Weights,
    Cost(&'a RouteWise),
}

const CHEAP: Price = Price {
    input: 500_000_000,
    cached: 0,
    cache_write: 0,
    output: 1_500_000_000,
    request: 0,
    image: 0,
};

fn dear() -> Price {
    Price {
        input: 4 * CHEAP.input,
        output: 4 * CHEAP.output,
        ..CHEAP
    }
}

/// About `mean`, from half of it to half more.
fn about(mean: u64, draws: &mut Draws) -> u64 {
    mean / 2 + draws.next() % (mean + 1)
}

fn costs(prompt: u64, answer: u64) -> Vec<Option<u64>> {
    let usage = Usage {
        input_tokens: prompt,
        output_tokens: answer,
        ..Usage::default()
    };
    let legs = [CHEAP, dear()];
    let costs = legs.iter().map(|price| cost(price, &usage, 0));
    costs
        .map(|cost| cost.and_then(|cost| u64::try_from(cost.0).ok()))
        .collect()
}

/// `failing`: one call of so many fails at the leg that it is sent to, and the other one serves.
fn run(by: &By<'_>, (calls, failing): (usize, usize), seed: u64) -> Sums {
    let (mut draws, mut learned, mut sums) = (Draws::new(seed), Learned::default(), Sums::default());
    let names = [EndpointId::from("cheap"), EndpointId::from("dear")];
    let model = ModelName::from("m");
    let (mut balance, mut told) = (0_i64, Vec::new());
    let mut profile = Profile::new(model.clone());
    for number in 0..calls {
        let at_ms = u64::try_from(number).expect("small") * 500;
        let size = draws.below(8);
        let (prompt, answer) = (
            about(40 << size, &mut draws),
            about(100 + 20 * u64::try_from(size).expect("small"), &mut draws),
        );
        let times = [about(900_000, &mut draws), about(300_000, &mut draws)];
        let actual = costs(prompt, answer);
        let leg = match by {
            By::Weights => draws.below(2),
            By::Cost(terms) => {
                let expected = costs(prompt, profile.answer_tokens(terms, prompt, None));
                let legs = names.iter().zip(expected).map(|(name, cost_nano_usd)| {
                    let mean = profile.times(name, true);
                    Offered {
                        cost_nano_usd,
                        ttft_us: (mean.count > 0).then_some(mean.mean),
                        samples: mean.count,
                        ..Offered::default()
                    }
                });
                let market = Market {
                    legs: legs.collect(),
                    ..Market::new(terms, balance)
                };
                let chosen = choose(&market, &[0, 1], &mut Draws::new(draws.next()))
                    .expect("two legs")
                    .leg;
                let served = if draws.below(failing) == 1 {
                    1 - chosen
                } else {
                    chosen
                };
                balance += market.change(chosen);
                balance += market.correction(chosen, Some(served), &actual);
                told.push(Call {
                    model: model.clone(),
                    at_ms,
                    streamed: true,
                    asked: vec![(names[served].clone(), Ok(times[served]))],
                    tokens: Some((prompt, answer)),
                });
                if told.len() >= HEARD_AFTER {
                    for call in told.drain(..) {
                        learned.take(&call, terms, &[&names[0], &names[1]]);
                    }
                    profile = learned.profile(&model, terms, at_ms);
                }
                served
            }
        };
        let (low, high) = (actual[0].expect("priced"), actual[1].expect("priced"));
        sums.ttft_us += times[leg];
        sums.spent += actual[leg].expect("priced");
        let alpha_micro = match by {
            By::Weights => ONE_MICRO / 2,
            By::Cost(terms) => terms.budget_alpha_micro,
        };
        sums.budgets += low + (high - low) * alpha_micro / ONE_MICRO;
        sums.calls += 1;
    }
    sums
}

#[test]
fn it_stays_within_a_hundredth_of_its_budget_and_answers_a_fifth_sooner_than_weights() {
    for seed in 1..6 {
        let terms = RouteWise::default();
        let (by_cost, by_weights) = (
            run(&By::Cost(&terms), (4_000, 50), seed),
            run(&By::Weights, (4_000, 50), seed),
        );

        let off = by_cost.spent.abs_diff(by_cost.budgets);
        assert!(off * 100 <= by_cost.budgets, "seed {seed}: {by_cost:?}");
        assert!(
            by_cost.mean_us() * 100 <= by_weights.mean_us() * 80,
            "seed {seed}: {} of {} µs",
            by_cost.mean_us(),
            by_weights.mean_us()
        );
    }
}

#[test]
fn every_budget_is_kept_and_the_larger_it_is_the_sooner_answers_come() {
    // At the ends nothing is left with which a failure could be made up for.
    let ends = [0, ONE_MICRO];
    let means = [0, 200_000, 500_000, 900_000, ONE_MICRO].map(|budget_alpha_micro| {
        let terms = RouteWise {
            budget_alpha_micro,
            ..RouteWise::default()
        };
        let failing = if ends.contains(&budget_alpha_micro) { 0 } else { 50 };
        let sums = run(&By::Cost(&terms), (4_000, failing), 9);
        // What calls leave of the whole price while little is known is nobody's.
        let least = if budget_alpha_micro == ONE_MICRO { 97 } else { 99 };
        let share = sums.spent * 100 / sums.budgets;
        assert!((least..=100).contains(&share), "{budget_alpha_micro}: {sums:?}");
        sums.mean_us()
    });
    assert!(means.is_sorted_by(|less, more| less > more), "{means:?}");
}
