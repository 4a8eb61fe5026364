//! Whom to ask, in which order: the pure decision over a snapshot of the catalogue, an offer, the circuits
//! and one random number. Priority groups in rising order; within a group the first by weighted draw, the
//! others as declared; the backends of an endpoint from a drawn one on.
//!
//! Asking takes no claim: only a candidate that is really attempted takes a circuit's probe slot.

use std::sync::Arc;

use schemas::catalog::{Catalog, Endpoint, Modalities, Model, Origin, Route};
use schemas::command::Offer;
use schemas::failure::{Failure, FailureCode};
use schemas::id::BackendId;
use schemas::parameter::Takes;

/// One backend of one endpoint, by one route.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The endpoint.
    pub(crate) endpoint: Arc<Endpoint>,
    /// Which of its backends; `None` for one without any, which answers in process.
    pub(crate) backend: Option<usize>,
    /// The upstream's name of the model.
    pub(crate) upstream_model: Arc<str>,
    /// Tokens of prompt and answer together.
    pub(crate) context_length: u64,
    /// Which parameters the model takes there.
    pub(crate) takes: Arc<Takes>,
    /// Attempted whatever its circuit says.
    pub(crate) bypass: bool,
}

impl Candidate {
    /// The backend's id; the endpoint's own where it has no backends.
    pub(crate) fn backend_id(&self) -> BackendId {
        self.backend
            .and_then(|index| self.endpoint.backends.get(index))
            .map_or_else(
                || BackendId::new(Arc::clone(&self.endpoint.id.0)),
                |backend| backend.id.clone(),
            )
    }
}

/// Why a route or backend is not among the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// The endpoint is not in the catalogue.
    Unknown,
    /// Its provider is switched off.
    Disabled,
    /// Its weight is 0.
    Weightless,
    /// It does not take a kind of input of the prompt.
    Modality,
    /// It is not the pinned one.
    NotPinned,
    /// Its circuit is open for so many milliseconds more.
    CircuitOpen {
        /// 0 when another request is probing it.
        retry_in_ms: u64,
    },
}

/// Candidates in the order of their attempts, never none.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) candidates: Vec<Candidate>,
    /// What was left out, by the place of its route in the model, and why.
    pub(crate) excluded: Vec<(usize, Exclusion)>,
}

impl Plan {
    /// True when a circuit keeps somebody out who might serve.
    pub(crate) fn is_barred(&self) -> bool {
        let is_circuit = |reason: &Exclusion| matches!(reason, Exclusion::CircuitOpen { .. });
        self.excluded.iter().any(|(_, reason)| is_circuit(reason))
    }
}

/// What the plan may know of circuits.
pub(crate) trait Admission {
    /// `Ok` when a request could pass now, else the milliseconds until one might.
    fn admits(&self, backend: &BackendId) -> Result<(), u64>;
}

/// Orders the candidates of an offer. `draw` is any 64 bits, every one as likely.
pub(crate) fn plan(
    catalog: &Catalog,
    offer: &Offer,
    circuits: &impl Admission,
    draw: u64,
) -> Result<Plan, Failure> {
    let Some(model) = catalog.model(offer.model.as_str()) else {
        return Err(none_available());
    };
    let mut survey = Survey {
        legs: Vec::with_capacity(model.routes.len()),
        excluded: Vec::new(),
    };
    survey.routes(catalog, model, offer);
    let mut draws = Draws(draw);
    if let Some(pin) = &offer.pin {
        return survey.pinned(pin, &mut draws);
    }
    order(&mut survey.legs, &mut draws);
    survey.admitted(circuits, &mut draws)
}

/// A route that may serve, and its endpoint.
struct Leg<'a> {
    index: usize,
    route: &'a Route,
    endpoint: &'a Arc<Endpoint>,
}

impl Leg<'_> {
    fn candidate(&self, backend: Option<usize>, bypass: bool) -> Candidate {
        Candidate {
            endpoint: Arc::clone(self.endpoint),
            backend,
            upstream_model: Arc::clone(&self.route.upstream_model),
            context_length: self.route.context_length,
            takes: Arc::clone(&self.route.takes),
            bypass,
        }
    }

    /// Every backend of the endpoint once, from a drawn one on.
    fn candidates(&self, bypass: bool, draws: &mut Draws) -> impl Iterator<Item = Candidate> + use<'_> {
        let backends = self.endpoint.backends.len();
        let first = draws.below(backends);
        let none = (backends == 0).then(|| self.candidate(None, bypass));
        let some = (0..backends).map(move |step| self.candidate(Some((first + step) % backends), bypass));
        none.into_iter().chain(some)
    }
}

struct Survey<'a> {
    legs: Vec<Leg<'a>>,
    excluded: Vec<(usize, Exclusion)>,
}

impl<'a> Survey<'a> {
    /// Sorts out the routes that the gate admitted.
    fn routes(&mut self, catalog: &'a Catalog, model: &'a Model, offer: &Offer) {
        for (index, route) in model.routes.iter().enumerate() {
            if !offer.candidates.contains(&route.endpoint_id) {
                continue;
            }
            let Some(endpoint) = catalog.endpoint(&route.endpoint_id) else {
                self.excluded.push((index, Exclusion::Unknown));
                continue;
            };
            match exclusion(model, route, endpoint, offer) {
                Some(reason) => self.excluded.push((index, reason)),
                None => self.legs.push(Leg {
                    index,
                    route,
                    endpoint,
                }),
            }
        }
    }

    /// The one leg of a pin: whatever its circuit says, and without fallback.
    fn pinned(mut self, pin: &str, draws: &mut Draws) -> Result<Plan, Failure> {
        let matches = |leg: &Leg<'_>| {
            leg.route.weight_micro > 0
                && (leg.endpoint.id.as_str() == pin || leg.endpoint.provider.as_ref() == pin)
        };
        let Some(place) = self.legs.iter().position(matches) else {
            return Err(Failure::new(
                FailureCode::PinNotFound,
                "the pinned provider does not serve this model",
            ));
        };
        let others = self.legs.iter().filter(|leg| leg.index != self.legs[place].index);
        self.excluded
            .extend(others.map(|leg| (leg.index, Exclusion::NotPinned)));
        let candidates = self.legs[place].candidates(true, draws).take(1).collect();
        Ok(Plan {
            candidates,
            excluded: self.excluded,
        })
    }

    /// The legs in their order, as far as circuits let requests pass.
    fn admitted(mut self, circuits: &impl Admission, draws: &mut Draws) -> Result<Plan, Failure> {
        let mut candidates = Vec::with_capacity(self.legs.len());
        let mut rescue = None;
        let mut soonest_ms = None;
        for leg in &self.legs {
            for candidate in leg.candidates(false, draws) {
                match circuits.admits(&candidate.backend_id()) {
                    Ok(()) => candidates.push(candidate),
                    Err(retry_in_ms) => {
                        self.excluded
                            .push((leg.index, Exclusion::CircuitOpen { retry_in_ms }));
                        soonest_ms =
                            Some(soonest_ms.map_or(retry_in_ms, |soonest: u64| soonest.min(retry_in_ms)));
                        if rescue.is_none() && leg.endpoint.single_backend_rescue {
                            rescue = Some(Candidate {
                                bypass: true,
                                ..candidate
                            });
                        }
                    }
                }
            }
        }
        if candidates.is_empty() {
            candidates.extend(rescue);
        }
        match (candidates.is_empty(), soonest_ms) {
            (false, _) => Ok(Plan {
                candidates,
                excluded: self.excluded,
            }),
            (true, Some(soonest_ms)) => Err(all_open(soonest_ms)),
            (true, None) => Err(none_available()),
        }
    }
}

/// Why a route cannot serve an offer, circuits apart.
fn exclusion(model: &Model, route: &Route, endpoint: &Endpoint, offer: &Offer) -> Option<Exclusion> {
    if endpoint.disabled {
        return Some(Exclusion::Disabled);
    }
    if route.weight_micro == 0 && model.origin == Origin::File {
        return Some(Exclusion::Weightless);
    }
    // Text is what every chat model takes, told or not.
    let missing = offer
        .requirements
        .modalities
        .without(Modalities::TEXT)
        .without(route.input_modalities);
    (!missing.is_empty()).then_some(Exclusion::Modality)
}

/// Sorts legs by priority; in each group the drawn one comes first, those of weight 0 last.
fn order(legs: &mut [Leg<'_>], draws: &mut Draws) {
    legs.sort_by_key(|leg| (leg.route.priority, leg.route.weight_micro == 0, leg.index));
    let mut rest = legs;
    while let Some(first) = rest.first() {
        let priority = first.route.priority;
        let size = rest
            .iter()
            .take_while(|leg| leg.route.priority == priority)
            .count();
        let (group, others) = rest.split_at_mut(size);
        if let Some(chosen) = choose(group, draws) {
            group[..=chosen].rotate_right(1);
        }
        rest = others;
    }
}

/// The place of the leg that a weighted draw hits; `None` when there is nothing to choose.
fn choose(group: &[Leg<'_>], draws: &mut Draws) -> Option<usize> {
    let total: u128 = group.iter().map(|leg| u128::from(leg.route.weight_micro)).sum();
    if group.len() < 2 || total == 0 {
        return None;
    }
    // Weights are at most 2^64 each, so the product of a draw and the sum fits when the sum is halved until
    // it is below 2^64; the bits that are lost are of no weight.
    let spare = 64_u32.saturating_sub(total.leading_zeros());
    let mut point = (u128::from(draws.next()) * (total >> spare)) >> (64 - spare);
    group.iter().position(|leg| {
        let weight = u128::from(leg.route.weight_micro);
        let hit = point < weight;
        point = point.saturating_sub(weight);
        hit
    })
}

/// Draws made from one draw: a splitmix64 sequence.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A place among `count`, 0 for none.
    fn below(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let count = u128::try_from(count).unwrap_or(1);
        usize::try_from((u128::from(self.next()) * count) >> 64).unwrap_or(0)
    }
}

/// Every circuit is open; `soonest_ms` until the first may be probed.
pub(crate) fn all_open(soonest_ms: u64) -> Failure {
    let failure = Failure::new(
        FailureCode::AllCircuitsOpen,
        "every provider of this model is failing at the moment",
    );
    failure.retry_after(soonest_ms.div_ceil(1_000).max(1))
}

/// Nothing that is configured could serve the request.
pub(crate) fn none_available() -> Failure {
    Failure::new(
        FailureCode::NoBackendsAvailable,
        "no provider is available for this request",
    )
    .retry_after(RETRY_AFTER_SECONDS)
}

/// When to try again where nothing says it better, in seconds.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 1;

#[cfg(test)]
mod tests;
