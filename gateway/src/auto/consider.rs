//! What each model that a caller may see would be like for his call: pure.

use std::sync::Arc;

use dialects::skim::Skim;
use schemas::auto::ANSWER_TOKENS;
use schemas::auto::choice::{Considered, Offered};
use schemas::auto::record::Exclusion;
use schemas::catalog::modality::Modalities;
use schemas::catalog::policy::ModelPolicy;
use schemas::catalog::{Catalog, Key, Model, Origin, Route};
use schemas::event::request::Surface;
use schemas::id::{DEFAULT_TENANT, EndpointId};
use schemas::money;
use schemas::time::Timestamp;
use schemas::usage::Usage;

use crate::gate::{self, Unfit};

/// What is known of models and endpoints from calls before.
pub(crate) trait Known {
    /// Milliseconds to the first token at an endpoint.
    fn ttft_ms(&self, endpoint: &EndpointId) -> Option<u64>;
    /// Tokens that answers of a model have in the mean.
    fn answer_tokens(&self, model: &Model) -> Option<u64>;
}

/// A model with the prices that hold for the call.
pub(crate) struct Seen {
    /// The model.
    pub(crate) model: Arc<Model>,
    /// Since when its prices hold, where they change with time.
    pub(crate) priced_since: Option<Timestamp>,
}

/// All models that `key` may see, in the order of the listing, and what each would be like for a call at `at`.
pub(crate) fn consider(
    (catalog, key): (&Catalog, &Key),
    (surface, skim): (Surface, &Skim),
    at: Timestamp,
    known: &dyn Known,
) -> (Vec<Seen>, Vec<Considered>) {
    let mut models = gate::all_visible(catalog, Some(key));
    // What another tenant made is for an operator who names it: his prompts go to nobody's servers unsaid.
    models.retain(|model| model.owner == key.tenant || model.owner.as_str() == DEFAULT_TENANT);
    let known = Lengths::of(known, &models);
    let each = models.into_iter().map(|model| {
        let (model, priced_since) = model.priced(at);
        let policy = catalog.model_policy(&model.id);
        let considered = Considered {
            policy: policy.map_or_else(
                || ModelPolicy::new(model.id.clone()),
                |stored| ModelPolicy::clone(&stored.record),
            ),
            offered: offered(catalog, &model, (surface, skim), &known),
        };
        (Seen { model, priced_since }, considered)
    });
    each.unzip()
}

/// What is known, and how long answers are of models of which nothing is: as those of the others are.
struct Lengths<'a> {
    known: &'a dyn Known,
    typical: u64,
}

impl<'a> Lengths<'a> {
    fn of(known: &'a dyn Known, models: &[&Arc<Model>]) -> Self {
        let lengths: Vec<u64> = models
            .iter()
            .filter_map(|model| known.answer_tokens(model))
            .collect();
        let sum = lengths
            .iter()
            .fold(0_u64, |sum, length| sum.saturating_add(*length));
        let count = u64::try_from(lengths.len()).unwrap_or(u64::MAX);
        Self {
            known,
            typical: sum.checked_div(count).unwrap_or(ANSWER_TOKENS),
        }
    }

    fn answer_tokens(&self, model: &Model) -> u64 {
        self.known.answer_tokens(model).unwrap_or(self.typical)
    }
}

fn offered(
    catalog: &Catalog,
    model: &Model,
    (surface, skim): (Surface, &Skim),
    known: &Lengths<'_>,
) -> Result<Offered, Exclusion> {
    if !gate::serves(model, surface) {
        return Err(Exclusion::Purpose);
    }
    if let Some(unfit) = gate::unfit(catalog, model, skim) {
        return Err(match unfit {
            Unfit::Tools => Exclusion::Tools,
            Unfit::Format => Exclusion::StructuredOutput,
            Unfit::Parameter(_) => Exclusion::Parameter,
            Unfit::Modality(_) => Exclusion::Modality,
        });
    }
    let routes: Vec<&Route> = model
        .routes
        .iter()
        .filter(|route| is_open(catalog, model, route))
        .collect();
    if routes.is_empty() {
        return Err(Exclusion::NoEndpoint);
    }
    let asked = skim.modalities.without(Modalities::TEXT);
    let taking = |route: &&Route| asked.without(route.input_modalities).is_empty();
    let routes: Vec<&Route> = routes.into_iter().filter(taking).collect();
    if routes.is_empty() {
        return Err(Exclusion::Modality);
    }
    let tokens = skim
        .prompt_tokens_estimate
        .saturating_add(skim.max_tokens.unwrap_or(0));
    let holds = |route: &Route| route.context_length == 0 || tokens <= route.context_length;
    if !routes.iter().any(|route| holds(route)) {
        return Err(Exclusion::ContextLength);
    }
    let usage = usage(model, (surface, skim), known);
    let first = first(&routes);
    Ok(Offered {
        cost_nano_usd: mean(&first, |route| {
            let cost = money::cost(&route.price?, &usage, skim.images)?;
            u64::try_from(cost.0).ok()
        }),
        ttft_ms: mean(&first, |route| known.known.ttft_ms(&route.endpoint_id)),
        endpoints: routes.iter().map(|route| route.endpoint_id.clone()).collect(),
    })
}

/// Whether a route leads to an endpoint that takes calls.
fn is_open(catalog: &Catalog, model: &Model, route: &Route) -> bool {
    let is_used = route.weight_micro > 0 || route.origin == Origin::Runtime;
    let endpoint = catalog.endpoint_for(&model.owner, &route.endpoint_id);
    is_used && endpoint.is_some_and(|endpoint| !catalog.is_off(endpoint))
}

/// Those of which one serves unless it fails: the first priority, and of that the routes that have a weight.
fn first<'a>(routes: &[&'a Route]) -> Vec<&'a Route> {
    let priority = routes.iter().map(|route| route.priority).min();
    let group = routes
        .iter()
        .filter(|route| Some(route.priority) == priority)
        .copied();
    let (weighted, weightless): (Vec<&Route>, Vec<&Route>) = group.partition(|route| route.weight_micro > 0);
    if weighted.is_empty() { weightless } else { weighted }
}

/// The mean of a figure over routes by their weights, of those that have it.
fn mean(routes: &[&Route], figure: impl Fn(&Route) -> Option<u64>) -> Option<u64> {
    let known = routes
        .iter()
        .filter_map(|route| Some((route.weight_micro.max(1), figure(route)?)));
    let (weights, sum) = known.fold((0_u128, 0_u128), |(weights, sum), (weight, figure)| {
        let weight = u128::from(weight);
        (weights + weight, sum + weight * u128::from(figure))
    });
    let mean = sum.checked_div(weights)?;
    u64::try_from(mean).ok()
}

/// What the call is taken to use: its answer as long as its caller allows, else as answers of the model are.
fn usage(model: &Model, (surface, skim): (Surface, &Skim), known: &Lengths<'_>) -> Usage {
    let most = if model.max_output_length == 0 {
        u64::MAX
    } else {
        model.max_output_length
    };
    let allowed = skim.max_tokens.filter(|tokens| *tokens > 0);
    let learned = || known.answer_tokens(model);
    let each = match surface {
        Surface::Embeddings => 0,
        _ => allowed.unwrap_or_else(learned).min(most),
    };
    Usage {
        input_tokens: skim.prompt_tokens_estimate,
        output_tokens: each.saturating_mul(skim.n.max(1)),
        ..Usage::default()
    }
}
