//! The choice itself. Every strategy orders by one number, made of the weights of a model's policy and of what is known
//! of the call: `quality` by the weight alone, `latency` by the weight times how much sooner the fastest would answer,
//! `cost` the same with prices, `balanced` by the mean of the three. What is not known of a model is taken to be the
//! mean of what is known of others, so that nobody is preferred or avoided for being new. Of equal models the cheaper,
//! then the faster, then the one that comes first in the listing.

use std::collections::HashSet;

use super::record::{Exclusion, Left, Scores};
use crate::catalog::policy::{ModelPolicy, Purpose, Strategy, WEIGHT_MAX};
use crate::id::{EndpointId, ModelName};

/// A whole, in millionths.
const ONE_MICRO: u64 = 1_000_000;

/// A model that the caller may see. Its place in the list is its place in the listing.
#[derive(Debug, Clone)]
pub struct Considered {
    /// What is said of it.
    pub policy: ModelPolicy,
    /// What it would be like for the call, or why it cannot take it.
    pub offered: Result<Offered, Exclusion>,
}

/// What a model would be like for a call.
#[derive(Debug, Clone, Default)]
pub struct Offered {
    /// What the call is taken to cost at the endpoint that would serve, in nano-dollars; `None` where it has no price.
    pub cost_nano_usd: Option<u64>,
    /// Milliseconds to the first token there; `None` where nothing is known.
    pub ttft_ms: Option<u64>,
    /// Every endpoint that may serve.
    pub endpoints: Vec<EndpointId>,
}

/// A model to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its place among those considered.
    pub place: usize,
    /// Its name.
    pub model: ModelName,
    /// What it was ordered by.
    pub scores: Scores,
    /// Nobody said what it is for.
    pub unlabeled: bool,
}

/// Whom to ask, in which order, and who is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Never empty.
    pub order: Vec<Choice>,
    /// Who cannot be asked.
    pub excluded: Vec<Left>,
}

/// Nobody can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nobody {
    /// Why.
    pub why: Why,
    /// Who cannot be asked.
    pub excluded: Vec<Left>,
}

/// Why nobody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nobody is there who could take the call.
    Nobody,
    /// There are models, but all are for something else.
    OtherPurpose,
    /// Whoever could take the call takes none that is so long.
    TooLong,
}

impl Why {
    /// Of those who are out.
    fn of(excluded: &[Left]) -> Self {
        let chosen = |left: &&Left| left.reason != Exclusion::RoutingDisabled;
        let mut reasons = excluded.iter().filter(chosen).map(|left| left.reason).peekable();
        // How long a call is counts last: whoever is out because of it could have taken a shorter one.
        if excluded
            .iter()
            .any(|left| left.reason == Exclusion::ContextLength)
        {
            Self::TooLong
        } else if reasons.peek().is_some() && reasons.all(|reason| reason == Exclusion::Purpose) {
            Self::OtherPurpose
        } else {
            Self::Nobody
        }
    }
}

/// Decides for a call. `session` is the model that its session was with: it stays there while that can take the call.
/// Models of which it is said that they are for `purpose` come before those of which nobody said anything.
pub fn decide(
    (strategy, purpose): (Strategy, Purpose),
    considered: &[Considered],
    session: Option<&ModelName>,
) -> Result<Decision, Nobody> {
    let mut excluded = Vec::new();
    let mut kept: Vec<(usize, &Considered, &Offered)> = Vec::new();
    for (place, one) in considered.iter().enumerate() {
        match fitting(one, purpose) {
            Ok(offered) => kept.push((place, one, offered)),
            Err(reason) => excluded.push(Left {
                model: one.policy.model.clone(),
                reason,
            }),
        }
    }
    let field = Field::of(&kept);
    let choice = |(place, one, offered): &(usize, &Considered, &Offered)| Choice {
        place: *place,
        model: one.policy.model.clone(),
        scores: field.scores(strategy, &one.policy, offered),
        unlabeled: one.policy.purpose.is_none(),
    };
    let mut order: Vec<Choice> = kept.iter().map(choice).collect();
    order.sort_by_key(|choice| {
        let scores = &choice.scores;
        (
            session != Some(&choice.model),
            choice.unlabeled,
            std::cmp::Reverse(scores.score_micro),
            scores.cost_nano_usd.unwrap_or(u64::MAX),
            scores.ttft_ms.unwrap_or(u64::MAX),
            choice.place,
        )
    });
    let mut covered: HashSet<&EndpointId> = HashSet::new();
    order.retain(|choice| {
        let offered = kept.iter().find(|(place, ..)| *place == choice.place);
        let endpoints = offered.map_or(&[][..], |(_, _, offered)| &offered.endpoints);
        let before = covered.len();
        covered.extend(endpoints);
        let adds = covered.len() > before;
        if !adds {
            excluded.push(Left {
                model: choice.model.clone(),
                reason: Exclusion::SameEndpoints,
            });
        }
        adds
    });
    if order.is_empty() {
        return Err(Nobody {
            why: Why::of(&excluded),
            excluded,
        });
    }
    Ok(Decision { order, excluded })
}

/// What a model would be like, if its policy lets it be chosen.
fn fitting(one: &Considered, purpose: Purpose) -> Result<&Offered, Exclusion> {
    if !one.policy.routing_enabled {
        return Err(Exclusion::RoutingDisabled);
    }
    if one.policy.purpose.is_some_and(|told| told != purpose) {
        return Err(Exclusion::Purpose);
    }
    let offered = one.offered.as_ref().map_err(|reason| *reason)?;
    if offered.endpoints.is_empty() {
        return Err(Exclusion::NoEndpoint);
    }
    Ok(offered)
}

/// What the models of a call are measured by.
struct Field {
    cheapest_nano_usd: u64,
    fastest_ms: u64,
    /// How cheap, and how fast, those are whose price or speed is not known.
    cheapness_micro: u64,
    speed_micro: u64,
}

impl Field {
    fn of(kept: &[(usize, &Considered, &Offered)]) -> Self {
        let costs: Vec<u64> = kept
            .iter()
            .filter_map(|(_, _, offered)| offered.cost_nano_usd)
            .collect();
        let times: Vec<u64> = kept
            .iter()
            .filter_map(|(_, _, offered)| offered.ttft_ms)
            .collect();
        let least = |figures: &[u64]| figures.iter().min().copied().unwrap_or(0);
        let (cheapest_nano_usd, fastest_ms) = (least(&costs), least(&times));
        Self {
            cheapest_nano_usd,
            fastest_ms,
            cheapness_micro: mean(costs.iter().map(|cost| ratio(cheapest_nano_usd, *cost))),
            speed_micro: mean(times.iter().map(|time| ratio(fastest_ms, *time))),
        }
    }

    fn scores(&self, strategy: Strategy, policy: &ModelPolicy, offered: &Offered) -> Scores {
        let speed = offered
            .ttft_ms
            .map_or(self.speed_micro, |time| ratio(self.fastest_ms, time));
        let cost = offered.cost_nano_usd;
        let cheapness = cost.map_or(self.cheapness_micro, |cost| ratio(self.cheapest_nano_usd, cost));
        let quality_micro = weighed(policy.quality_weight_micro, ONE_MICRO);
        let latency_micro = weighed(policy.latency_weight_micro, speed);
        let cost_micro = weighed(policy.cost_weight_micro, cheapness);
        let score_micro = match strategy {
            Strategy::Quality => quality_micro,
            Strategy::Latency => latency_micro,
            Strategy::Cost => cost_micro,
            Strategy::Balanced => mean([quality_micro, latency_micro, cost_micro].into_iter()),
        };
        Scores {
            score_micro,
            quality_micro,
            latency_micro,
            cost_micro,
            cost_nano_usd: cost,
            ttft_ms: offered.ttft_ms,
        }
    }
}

/// The share that the best figure is of another, the best being the least; what costs nothing is one unit ahead of what
/// costs one.
fn ratio(least: u64, figure: u64) -> u64 {
    scaled(ONE_MICRO, least.saturating_add(1), figure.saturating_add(1))
}

fn weighed(weight_micro: u32, figure_micro: u64) -> u64 {
    scaled(figure_micro, u64::from(weight_micro), u64::from(WEIGHT_MAX))
}

/// `figure * part / whole`, rounded down.
fn scaled(figure: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(figure) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The mean; a whole where there is nothing.
fn mean(figures: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = u64::try_from(figures.len()).unwrap_or(u64::MAX);
    if count == 0 {
        return ONE_MICRO;
    }
    figures.fold(0_u64, u64::saturating_add) / count
}
