//! RouteWise: of the legs of a model the one that answers soonest, within a budget. A call's budget lies between what it
//! would cost at the cheapest leg and at the dearest. Where the best that the budget allows is a mix of two legs, what
//! calls at the cheaper one leave of their budgets is put by until it pays for a call at the dearer one: so the sum of
//! what is spent stays below the sum of the budgets, to the nano-dollar, and no luck is in it. What was taken beyond a
//! budget (a session that stays at a dear leg, a fallback, an answer that was longer than expected) is a debt that later
//! calls repay.
//!
//! A leg that is not known is tried until it is: by calls that earlier ones left enough for, and by a part of the others,
//! as far as a debt of one call allows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::draws::Draws;
use super::is_zero;
use crate::catalog::router::{ONE_MICRO, RouteWise};

/// Of so many calls one tries a leg that is not known though nothing was put by for it.
const TRIED_ONE_IN: usize = 4;

/// What the legs of a model offer for a call, and what there is to spend.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Market {
    /// How far the budget lies between the cheapest leg and the dearest, in millionths.
    pub alpha_micro: u64,
    /// What earlier calls left of their budgets, in nano-dollars; below 0 for a debt.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub balance_nano_usd: i64,
    /// Calls of a leg from which on it is known.
    pub samples_min: u64,
    /// What a leg is taken to need to its first token that is not known, in microseconds.
    pub unprofiled_us: u64,
    /// The legs, in the order of the snapshot's.
    pub legs: Vec<Offered>,
}

/// What one leg offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Offered {
    /// What the call is taken to cost there, in nano-dollars; absent where nobody knows: as much as the dearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// The mean time to the first token there, in microseconds; absent where no call was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// Calls that the mean is of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub samples: u64,
    /// Calls that the fleet runs there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// It takes no more calls at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
}

/// Why a leg was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is the quickest that the budget pays for.
    Within,
    /// It is the quicker one of a mix, and earlier calls left what it costs more.
    Spent,
    /// It is the cheaper one of a mix, and what it leaves is put by for the quicker one.
    Saved,
    /// It is not known, and was tried.
    Tried,
}

/// Who was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The place of the leg.
    pub leg: usize,
    /// Why.
    pub way: Way,
}

/// What the budget allows: one leg, or two of which the dearer is beyond it.
struct Solution {
    cheap: usize,
    dear: Option<usize>,
}

impl Market {
    /// The market of a call by these terms, its legs yet to come.
    pub const fn new(terms: &RouteWise, balance_nano_usd: i64) -> Self {
        Self {
            alpha_micro: terms.budget_alpha_micro,
            balance_nano_usd,
            samples_min: terms.latency_samples_min,
            unprofiled_us: terms.latency_unprofiled_us,
            legs: Vec::new(),
        }
    }

    /// By how much the balance is to be corrected once it is known what a call cost: it was decided by this market for
    /// the leg `chosen`, `served` is the leg that served it, if any did, and `costs` are what the call would have cost at
    /// each leg, in nano-dollars.
    pub fn correction(&self, chosen: usize, served: Option<usize>, costs: &[Option<u64>]) -> i64 {
        let supposed = self.change(chosen);
        let Some(served) = served else {
            return supposed.saturating_neg();
        };
        let mut known = self.clone();
        for (leg, cost) in known.legs.iter_mut().zip(costs) {
            leg.cost_nano_usd = *cost;
        }
        known.change(served).saturating_sub(supposed)
    }

    /// Whether a leg is known.
    pub fn is_known(&self, leg: &Offered) -> bool {
        leg.samples >= self.samples_min && leg.ttft_us.is_some()
    }

    /// What a leg is taken to need to its first token, in microseconds.
    pub fn expected_us(&self, leg: &Offered) -> u64 {
        let known = leg.ttft_us.filter(|_| self.is_known(leg));
        known.unwrap_or(self.unprofiled_us)
    }

    /// What a leg is taken to cost, in nano-dollars.
    pub fn cost(&self, leg: &Offered) -> i64 {
        let dearest = || self.legs.iter().filter_map(|leg| leg.cost_nano_usd).max();
        let cost = leg.cost_nano_usd.or_else(dearest).unwrap_or(0);
        i64::try_from(cost).unwrap_or(i64::MAX)
    }

    /// The budget of the call among legs with these costs, in nano-dollars.
    fn budget(&self, costs: impl Iterator<Item = i64> + Clone) -> i64 {
        let (least, most) = (costs.clone().min().unwrap_or(0), costs.max().unwrap_or(0));
        let part = i128::from(most.saturating_sub(least)) * i128::from(self.alpha_micro.min(ONE_MICRO));
        least.saturating_add(i64::try_from(part / i128::from(ONE_MICRO)).unwrap_or(i64::MAX))
    }

    /// The places among `open` that take calls; all of them where none does.
    fn free(&self, open: &[usize]) -> Vec<usize> {
        let at = |place: &usize| self.legs.get(*place);
        let takes = |place: &usize| at(place).is_some_and(|leg| !leg.full);
        let free: Vec<usize> = open.iter().copied().filter(takes).collect();
        if free.is_empty() {
            open.iter().copied().filter(|place| at(place).is_some()).collect()
        } else {
            free
        }
    }

    fn at(&self, place: usize) -> (i64, u64) {
        let leg = self.legs.get(place).copied().unwrap_or_default();
        (self.cost(&leg), self.expected_us(&leg))
    }

    fn budget_among(&self, places: &[usize]) -> i64 {
        self.budget(places.iter().map(|place| self.at(*place).0))
    }

    /// The least mean time to the first token for `budget`, by trying every leg, and every two of which one is too dear.
    /// Of equals the first.
    fn solve(&self, places: &[usize], budget: i64) -> Option<Solution> {
        let affordable = || places.iter().copied().filter(|place| self.at(*place).0 <= budget);
        let single = affordable().min_by_key(|place| {
            let (cost, time_us) = self.at(*place);
            (time_us, cost)
        })?;
        let mut best = (i128::from(self.at(single).1), None);
        for cheap in affordable() {
            for dear in places.iter().copied() {
                let ((low, slow_us), (high, quick_us)) = (self.at(cheap), self.at(dear));
                if high <= budget || quick_us >= slow_us {
                    continue;
                }
                let gain = i128::from(slow_us - quick_us) * i128::from(budget - low);
                let mean_us = i128::from(slow_us) - gain / i128::from(high - low);
                if mean_us < best.0 {
                    best = (mean_us, Some((cheap, dear)));
                }
            }
        }
        Some(match best.1 {
            Some((cheap, dear)) => Solution {
                cheap,
                dear: Some(dear),
            },
            None => Solution {
                cheap: single,
                dear: None,
            },
        })
    }

    /// What says in which order legs are asked when the one that was chosen has failed, the least first: those that take
    /// calls, those that the budget pays for, the quickest.
    pub fn rank(&self, leg: usize) -> (bool, bool, u64, i64) {
        let places = self.free(&(0..self.legs.len()).collect::<Vec<_>>());
        let (cost, expected_us) = self.at(leg);
        let is_full = self.legs.get(leg).is_none_or(|leg| leg.full);
        (is_full, cost > self.budget_among(&places), expected_us, cost)
    }

    /// By how much the balance changes when the call goes to the leg at a place, in nano-dollars. What is left of a budget
    /// is put by where it can pay for something quicker, or for as long as finding that out takes, and repays debts; else
    /// it is nobody's.
    pub fn change(&self, leg: usize) -> i64 {
        let places = self.free(&(0..self.legs.len()).collect::<Vec<_>>());
        let budget = self.budget_among(&places);
        let left = budget.saturating_sub(self.at(leg).0);
        let mixes = || {
            let solution = self.solve(&places, budget);
            solution.is_some_and(|solution| solution.dear.is_some())
        };
        if left <= 0 || mixes() {
            return left;
        }
        let most = if self.may_find_quicker(&places, budget) {
            self.found_out_within(&places)
        } else {
            0
        };
        left.min(most.saturating_sub(self.balance_nano_usd).max(0))
    }

    /// True when a leg is beyond the budget of which nobody knows yet how quick it is.
    fn may_find_quicker(&self, places: &[usize], budget: i64) -> bool {
        let mut legs = places.iter().filter_map(|place| self.legs.get(*place));
        legs.any(|leg| self.cost(leg) > budget && !self.is_known(leg))
    }

    /// What is put by at most until that is known, in nano-dollars: what the calls leave that it takes.
    fn found_out_within(&self, places: &[usize]) -> i64 {
        let costs = || places.iter().map(|place| self.at(*place).0);
        let spread = costs()
            .max()
            .unwrap_or(0)
            .saturating_sub(costs().min().unwrap_or(0));
        let calls = self.samples_min.saturating_mul(TRIED_ONE_IN as u64);
        spread.saturating_mul(i64::try_from(calls).unwrap_or(i64::MAX))
    }
}

/// The leg that a call goes to, of those at the places `open`; `None` for none.
pub fn choose(market: &Market, open: &[usize], draws: &mut Draws) -> Option<Chosen> {
    let mut places = market.free(open);
    let turn = draws.below(places.len());
    places.rotate_left(turn);
    let tries = draws.below(TRIED_ONE_IN) == 0;
    let budget = market.budget_among(&places);
    let balance = market.balance_nano_usd;
    let pays = |leg: &usize| budget.saturating_add(balance) >= market.at(*leg).0;
    if let Some(leg) = untried(market, &places, budget).filter(|leg| tries || pays(leg)) {
        return Some(Chosen { leg, way: Way::Tried });
    }
    // What was taken too much is taken off, as far as there is anything cheaper.
    let least = places.iter().map(|place| market.at(*place).0).min()?;
    let allowed = budget.saturating_add(balance.min(0)).max(least);
    let solution = market.solve(&places, allowed)?;
    Some(match solution.dear {
        None => Chosen {
            leg: solution.cheap,
            way: Way::Within,
        },
        Some(dear) if balance.saturating_add(budget).saturating_sub(market.at(dear).0) >= 0 => Chosen {
            leg: dear,
            way: Way::Spent,
        },
        Some(_) => Chosen {
            leg: solution.cheap,
            way: Way::Saved,
        },
    })
}

/// The leg of which the least is known, if a debt of no more than the dearest costs beyond the cheapest pays for it.
fn untried(market: &Market, places: &[usize], budget: i64) -> Option<usize> {
    let costs = || places.iter().map(|place| market.at(*place).0);
    let spread = costs().max()?.saturating_sub(costs().min()?);
    let in_hand = market
        .balance_nano_usd
        .saturating_add(budget)
        .saturating_add(spread);
    let known = |leg: &Offered| leg.samples.saturating_add(leg.calls);
    let unknown = places.iter().copied().filter_map(|place| {
        let leg = market.legs.get(place)?;
        (known(leg) < market.samples_min && market.cost(leg) <= in_hand).then(|| (place, known(leg)))
    });
    let least = unknown.min_by_key(|(_, known)| *known)?;
    (places.len() > 1).then_some(least.0)
}

/// True for what an event need not say.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_nothing(amount: &i64) -> bool {
    *amount == 0
}

#[cfg(test)]
mod tests;
