//! What the legs of a model cost a call and how soon they answer, where that decides among them.

use schemas::balance::decision::Decision;
use schemas::balance::profile::Profile;
use schemas::balance::routewise::{Market, Offered};
use schemas::balance::snapshot;
use schemas::catalog::router::RouteWise;
use schemas::catalog::{Model, Route};
use schemas::command::Offer;
use schemas::id::{EndpointId, ModelName};
use schemas::money::{Price, cost};
use schemas::time::Timestamp;
use schemas::usage::Usage;

use super::outlook::Outlook;

/// What is known of a call and of its model.
pub(super) struct Desk<'a> {
    terms: &'a RouteWise,
    model: &'a ModelName,
    profile: std::sync::Arc<Profile>,
    streamed: bool,
    expected: Usage,
    at: Timestamp,
}

/// What is left to settle of a choice that was made by costs.
#[derive(Debug, Clone)]
pub(crate) struct Wager {
    /// Whose budget it is.
    pub(crate) model: ModelName,
    /// The prices of the legs, in the order of the snapshot's; `None` where there is none.
    pub(crate) prices: Vec<Option<Price>>,
}

impl Wager {
    /// By how much the balance of the budget is to be corrected once it is known which leg served the call that was
    /// decided so, if any did, and what it used; `None` where it stays at what was supposed: a leg served that tells no
    /// usage, or there was nothing to choose by costs. One of a lower priority spent nothing of this budget.
    pub(crate) fn correction(
        &self,
        decision: &Decision,
        served: Option<&EndpointId>,
        usage: Option<&Usage>,
    ) -> Option<i64> {
        let snapshot = decision.snapshot.as_ref()?;
        let market = snapshot.market.as_ref()?;
        let first = decision.order.first();
        let chosen = snapshot
            .candidates
            .iter()
            .find(|one| Some(&one.backend) == first)?;
        let place = |served: &EndpointId| snapshot.legs.iter().position(|leg| leg.endpoint == *served);
        let served = served.and_then(place);
        if served.is_some() && usage.is_none() {
            return None;
        }
        let usage = usage.copied().unwrap_or_default();
        let prices = self.prices.iter();
        let costs: Vec<Option<u64>> = prices.map(|price| nano_usd(price.as_ref()?, &usage)).collect();
        Some(market.correction(chosen.leg, served, &costs))
    }
}

impl<'a> Desk<'a> {
    /// `None` where weights decide.
    pub(super) fn of(model: &'a Model, offer: &Offer, outlook: &dyn Outlook) -> Option<Self> {
        let terms = model.router.as_ref()?.routewise()?;
        let profile = outlook
            .profile(&model.id)
            .unwrap_or_else(|| Profile::new(model.id.clone()).into());
        let requirements = &offer.requirements;
        let most = requirements
            .output_tokens_max
            .map_or(model.max_output_length, |most| most.min(model.max_output_length));
        let prompt_tokens = requirements.prompt_tokens;
        Some(Self {
            terms,
            model: &model.id,
            streamed: offer.splice.stream,
            expected: Usage {
                input_tokens: prompt_tokens,
                output_tokens: profile.answer_tokens(terms, prompt_tokens, Some(most)),
                ..Usage::default()
            },
            profile,
            at: offer.started_at,
        })
    }

    /// What a leg charges; nothing while it has a slot.
    pub(super) fn price(&self, route: &Route) -> Option<Price> {
        if self.terms.slots.contains_key(&route.endpoint_id) {
            return Some(Price::default());
        }
        let timed = route.rates.as_ref().and_then(|rates| rates.at(self.at));
        timed.map_or(route.price, |timed| timed.price)
    }

    /// What legs offer. `prices` are theirs.
    pub(super) fn market(
        &self,
        (legs, prices): (&[snapshot::Leg], &[Option<Price>]),
        candidates: &[snapshot::Candidate],
        outlook: &dyn Outlook,
    ) -> Market {
        let offered = legs.iter().zip(prices).enumerate().map(|(place, (leg, price))| {
            let calls = candidates.iter().filter(|candidate| candidate.leg == place);
            let calls = calls.fold(0_u64, |sum, one| sum.saturating_add(one.calls));
            let mean = self.profile.times(&leg.endpoint, self.streamed);
            let slots = self.terms.slots.get(&leg.endpoint);
            Offered {
                cost_nano_usd: price.and_then(|price| nano_usd(&price, &self.expected)),
                ttft_us: (mean.count > 0).then_some(mean.mean),
                samples: mean.count,
                calls,
                full: slots.is_some_and(|slots| calls >= *slots),
            }
        });
        Market {
            legs: offered.collect(),
            ..Market::new(self.terms, outlook.balance(self.model))
        }
    }

    /// Notes what a choice takes of the budget, and what is left to settle of it.
    pub(super) fn take(&self, change: i64, prices: Vec<Option<Price>>, outlook: &dyn Outlook) -> Wager {
        outlook.spend(self.model, change);
        Wager {
            model: self.model.clone(),
            prices,
        }
    }
}

/// What a call costs, in nano-dollars.
pub(crate) fn nano_usd(price: &Price, usage: &Usage) -> Option<u64> {
    u64::try_from(cost(price, usage, 0)?.0).ok()
}
