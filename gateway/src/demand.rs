//! What a call needs of its limits, pure: all that bounds it, and the most that it may use. What its caller leaves to
//! the model is bounded by his key, where that says how much, else by the model.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use dialects::dialect::Dialect;
use dialects::passage::request::choices_asked;
use dialects::profile;
use dialects::skim::Skim;
use parking_lot::RwLock;
use schemas::catalog::{Catalog, Key, Model};
use schemas::event::request::Surface;
use schemas::id::{KeyId, ModelName};
use schemas::limit::layers::{Bound, Scope, Subjects};
use schemas::limit::limits::{Kind, Unit};
use schemas::money;

use crate::responses::object::Object;

/// Pairs of key and model whose bounds are kept.
const KEPT_MAX: usize = 10_000;

/// The most that a call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    /// Tokens of all its answers.
    pub(crate) output_tokens: u64,
    /// Tokens of prompt and answers.
    pub(crate) tokens: u64,
    /// Nano-dollars, at the dearest of its routes.
    pub(crate) nano_usd: u64,
}

/// The most that a call may use.
pub(crate) fn most(model: &Model, surface: Surface, skim: &Skim, body: &[u8]) -> Most {
    let each = match surface {
        Surface::Embeddings | Surface::Proxy => 0,
        _ => answer_tokens(model, skim),
    };
    let choices = match surface {
        // One of each prompt: counted anew, because prompts mostly come alone.
        Surface::Completions => u64::try_from(choices_asked(Dialect::Completions, body)).unwrap_or(u64::MAX),
        _ => skim.n,
    };
    let made = choices.saturating_mul(skim.choices_most).div_ceil(skim.n.max(1));
    let output_tokens = each.saturating_mul(made.max(1));
    let unread = skim.prompts_embedded.saturating_mul(model.context_length);
    let prompt_tokens = skim.prompt_tokens_estimate.saturating_add(unread);
    let prices = model.routes.iter().filter_map(|route| route.price);
    let costs = prices.map(|price| money::cost_most(&price, (prompt_tokens, output_tokens), skim.images));
    Most {
        output_tokens,
        tokens: prompt_tokens.saturating_add(output_tokens),
        nano_usd: costs.max().unwrap_or(0),
    }
}

/// The most tokens of one answer: never more than the model has room for.
fn answer_tokens(model: &Model, skim: &Skim) -> u64 {
    let room = if model.context_length == 0 {
        u64::MAX
    } else {
        model.context_length
    };
    let of_model = if model.max_output_length == 0 {
        model.context_length
    } else {
        model.max_output_length
    };
    // A maximum of 0 is no end to some servers.
    let told = skim.max_tokens.filter(|most| *most > 0).unwrap_or(of_model);
    told.max(skim.max_tokens_otherwise).min(room)
}

/// The most tokens of its answers, after which a call is ended; `None` where no bound counts what is answered. Answers
/// that repeat their prompts may have as many more as the body has bytes: no prompt has more tokens.
pub(crate) fn held_of_answers(bounds: &[Bound], skim: &Skim, body: &[u8], most: u64) -> Option<u64> {
    let counts = bounds.iter().any(|bound| match bound.key.kind() {
        Kind::Rate(_, unit) | Kind::Quota(_, unit) => unit != Unit::Calls,
        Kind::Concurrency => false,
    });
    let repeated = if skim.echoes {
        u64::try_from(body.len())
            .unwrap_or(u64::MAX)
            .saturating_mul(skim.choices_most)
    } else {
        0
    };
    counts.then(|| most.saturating_add(repeated))
}

/// The body of a call that names no maximum, with that of its key; `None` where it stays as it is.
pub(crate) fn bounded(
    key: &Key,
    (catalog, model): (&Catalog, &Model),
    (surface, skim): (Surface, &Skim),
    body: &Bytes,
) -> Option<Bytes> {
    let most = key.output_default_max.filter(|_| skim.max_tokens.is_none())?;
    if surface == Surface::Embeddings {
        return None;
    }
    let object = Object::read(body)?;
    let member = maximum((catalog, model), surface, &object);
    let most = if model.max_output_length == 0 {
        most
    } else {
        most.min(model.max_output_length)
    };
    Some(object.with(&[(member, &most.to_string())]).into())
}

/// What the maximum of a request is called.
fn maximum((catalog, model): (&Catalog, &Model), surface: Surface, request: &Object<'_>) -> &'static str {
    let is_written = request.get("max_completion_tokens").is_some();
    match surface {
        Surface::Responses => "max_output_tokens",
        Surface::Chat if is_written || takes_newer_name(catalog, model) => "max_completion_tokens",
        _ => "max_tokens",
    }
}

/// What the caller can do whose call asks for more than a limit allows at all.
pub(crate) fn remedy(served: (&Catalog, &Model), surface: Surface, body: &[u8]) -> String {
    let object = Object::read(body).filter(|_| surface != Surface::Embeddings);
    object.map_or_else(
        || "send less input".to_owned(),
        |object| {
            let member = maximum(served, surface, &object);
            format!("lower '{member}', ask for fewer answers or shorten the prompt")
        },
    )
}

/// Some server of the model refuses the older name of the maximum.
fn takes_newer_name(catalog: &Catalog, model: &Model) -> bool {
    model.routes.iter().any(|route| {
        let endpoint = catalog.endpoint(&route.endpoint_id);
        let profile = endpoint.and_then(|endpoint| profile::named(&endpoint.profile));
        profile.is_some_and(|profile| profile.max_completion_tokens)
    })
}

/// All budgets of a caller, over all models.
pub(crate) fn budgets(catalog: &Catalog, key: &Key) -> Vec<Bound> {
    let mut bounds = catalog.bounds(key, &nothing());
    bounds.retain(|bound| bound.key.is_money());
    bounds
}

/// The quotas of a key itself, over all models and for single ones.
pub(crate) fn own_quotas(catalog: &Catalog, key: &Key) -> Vec<Bound> {
    let subjects = catalog.subjects(key);
    let named = subjects.key.1.per_model.keys();
    let of_role = subjects.role.per_model.keys().filter(|_| subjects.user.is_none());
    let counted = |name: &'_ ModelName| {
        let model = catalog.model_for(&key.tenant, name.as_str());
        model.map_or_else(|| name.clone(), |model| model.id.clone())
    };
    let models: BTreeSet<ModelName> = named.chain(of_role).map(counted).collect();
    let mut bounds = catalog.bounds(key, &nothing());
    for model in &models {
        let of_model = catalog.bounds(key, model).into_iter();
        bounds.extend(of_model.filter(|bound| bound.model.is_some()));
    }
    bounds.retain(|bound| bound.scope == Scope::Key && matches!(bound.key.kind(), Kind::Quota(..)));
    bounds
}

/// The name of no model.
fn nothing() -> ModelName {
    ModelName::from("")
}

/// Bounds by key and model.
type ByPair = HashMap<(KeyId, ModelName), Arc<[Bound]>>;

/// The bounds of keys and models at the newest revision of the catalogue: made once for many calls.
#[derive(Default)]
pub(crate) struct Kept {
    of: RwLock<(u64, ByPair)>,
}

impl Kept {
    /// All that bounds the calls of `key` for `model`, in order; `None` for what nothing bounds.
    pub(crate) fn bounds(&self, catalog: &Catalog, key: &Key, model: &ModelName) -> Option<Arc<[Bound]>> {
        if is_unlimited(&catalog.subjects(key)) {
            return None;
        }
        Some(self.known(catalog, key, model)).filter(|bounds| !bounds.is_empty())
    }

    fn known(&self, catalog: &Catalog, key: &Key, model: &ModelName) -> Arc<[Bound]> {
        let place = (key.id.clone(), model.clone());
        {
            let kept = self.of.read();
            if let Some(bounds) = kept.1.get(&place).filter(|_| kept.0 == catalog.revision) {
                return Arc::clone(bounds);
            }
        }
        let bounds: Arc<[Bound]> = catalog.bounds(key, model).into();
        let mut kept = self.of.write();
        if kept.0 != catalog.revision {
            *kept = (catalog.revision, HashMap::new());
        }
        if kept.1.len() < KEPT_MAX {
            kept.1.insert(place, Arc::clone(&bounds));
        }
        bounds
    }
}

fn is_unlimited(subjects: &Subjects<'_>) -> bool {
    let user = subjects.user.is_none_or(|(_, limits)| limits.is_empty());
    user && subjects.tenant.1.is_empty() && subjects.key.1.is_empty() && subjects.role.is_empty()
}

#[cfg(test)]
mod tests;
