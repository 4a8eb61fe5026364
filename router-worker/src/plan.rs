//! Whom to ask, in which order: the pure decision over a snapshot of the catalogue, an offer, the circuits, the
//! session, the loads and one random number. Priority groups in rising order; within a group the first as [`pick`] says,
//! the others as declared; the backends of an endpoint from a drawn one on.
//!
//! Asking takes no claim: only a candidate that is really attempted takes a circuit's probe slot.

mod pick;

use std::sync::Arc;

use schemas::affinity::Level;
use schemas::affinity::choice::{Margins, Verdict};
use schemas::affinity::prefill::{Prefill, Prompt};
use schemas::affinity::record::Record;
use schemas::catalog::modality::Modalities;
use schemas::catalog::{Catalog, Endpoint, Model, Origin, Route};
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
    /// How the session decided; `None` where none is looked for.
    pub(crate) verdict: Option<Verdict>,
}

impl Plan {
    /// True when a circuit keeps somebody out who might serve.
    pub(crate) fn is_barred(&self) -> bool {
        let is_circuit = |reason: &Exclusion| matches!(reason, Exclusion::CircuitOpen { .. });
        self.excluded.iter().any(|(_, reason)| is_circuit(reason))
    }
}

/// What the plan may know beside the catalogue and the offer.
pub(crate) struct Sight<'a, C> {
    /// Whom circuits let pass.
    pub(crate) circuits: &'a C,
    /// Where the session is.
    pub(crate) session: Option<Session<'a>>,
    /// When it is moved all the same.
    pub(crate) margins: &'a Margins,
    /// Calls that run at a backend.
    pub(crate) calls: &'a dyn Fn(&BackendId) -> u64,
    /// What backends have to read.
    pub(crate) reading: Option<Reading<'a>>,
}

impl<C> Sight<'_, C> {
    /// The verdict about a session for which nobody can be chosen.
    fn nowhere(&self) -> Option<Verdict> {
        let found = self.session?.found;
        Some(found.map_or(Verdict::Miss, |(level, _)| Verdict::Stale { level }))
    }
}

/// A session that was looked for.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    /// What was found, and by which of its names.
    pub(crate) found: Option<(Level, &'a Record)>,
}

/// What backends have to read, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// All of it.
    pub(crate) prefill: &'a Prefill,
    /// What there is of the request; `None` where that does not count.
    pub(crate) prompt: Option<&'a Prompt>,
    /// The moment.
    pub(crate) now_ms: u64,
}

/// What the plan may know of circuits.
pub(crate) trait Admission {
    /// `Ok` when a request could pass now, else the milliseconds until one might.
    fn admits(&self, backend: &BackendId) -> Result<(), u64>;
}

/// The snapshot that an offer is planned with: the newest, or, where that has lost all that the offer was admitted to, the
/// newest of those that were in force until a moment ago and have some of it.
pub(crate) fn snapshot(
    newest: Arc<Catalog>,
    recent: impl FnOnce() -> Vec<Arc<Catalog>>,
    offer: &Offer,
) -> Arc<Catalog> {
    if has_some(&newest, offer) {
        return newest;
    }
    let before = recent().into_iter().find(|catalog| has_some(catalog, offer));
    before.unwrap_or(newest)
}

/// A way that an offer was admitted to is there. One that an administrator switched off is: nobody takes it for another.
fn has_some(catalog: &Catalog, offer: &Offer) -> bool {
    let model = catalog.model_of(&offer.owner, offer.model.as_str());
    model.is_some_and(|model| {
        let admitted = model
            .routes
            .iter()
            .filter(|route| offer.candidates.contains(&route.endpoint_id));
        let mut led = admitted.filter_map(|route| {
            let endpoint = catalog.endpoint_for(&model.owner, &route.endpoint_id)?;
            Some((route, endpoint))
        });
        led.any(|(route, endpoint)| {
            let is_meant = offer.pin.as_deref().is_none_or(|pin| is_pinned(endpoint, pin));
            is_meant && (catalog.is_off(endpoint) || exclusion(route, false, offer).is_none())
        })
    })
}

fn is_pinned(endpoint: &Endpoint, pin: &str) -> bool {
    endpoint.id.as_str() == pin || endpoint.provider.as_ref() == pin
}

/// Orders the candidates of an offer. `draw` is any 64 bits, every one as likely.
pub(crate) fn plan(
    catalog: &Catalog,
    offer: &Offer,
    sight: &Sight<'_, impl Admission>,
    draw: u64,
) -> Result<Plan, Failure> {
    let Some(model) = catalog.model_of(&offer.owner, offer.model.as_str()) else {
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
    survey
        .legs
        .sort_by_key(|leg| (leg.route.priority, leg.is_weightless(), leg.index));
    survey.admitted(sight, &mut draws)
}

/// A route that may serve, and its endpoint.
struct Leg<'a> {
    index: usize,
    route: &'a Route,
    endpoint: &'a Arc<Endpoint>,
}

impl Leg<'_> {
    const fn is_weightless(&self) -> bool {
        self.route.weight_micro == 0
    }

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
            let Some(endpoint) = catalog.endpoint_for(&model.owner, &route.endpoint_id) else {
                self.excluded.push((index, Exclusion::Unknown));
                continue;
            };
            match exclusion(route, catalog.is_off(endpoint), offer) {
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
        let matches = |leg: &Leg<'_>| leg.route.weight_micro > 0 && is_pinned(leg.endpoint, pin);
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
            verdict: None,
        })
    }

    /// The legs in their order, as far as circuits let requests pass. The session counts in the first group from which
    /// anybody may be asked: what has a lower priority is a way out, not a place to stay.
    fn admitted(mut self, sight: &Sight<'_, impl Admission>, draws: &mut Draws) -> Result<Plan, Failure> {
        let mut barred = Barred::default();
        let mut candidates = Vec::with_capacity(self.legs.len());
        let mut verdict = None;
        let legs = std::mem::take(&mut self.legs);
        let alike = |one: &Leg<'_>, other: &Leg<'_>| {
            one.route.priority == other.route.priority && one.is_weightless() == other.is_weightless()
        };
        for group in legs.chunk_by(alike) {
            let mut open = Vec::with_capacity(group.len());
            for leg in group {
                self.open(leg, (sight.circuits, draws), (&mut open, &mut barred));
            }
            let is_first = candidates.is_empty();
            verdict = verdict.or(pick::arrange(&mut open, sight, is_first, draws));
            candidates.extend(open.into_iter().map(|seat| seat.candidate));
        }
        if candidates.is_empty() {
            candidates.extend(barred.rescue);
        }
        match (candidates.is_empty(), barred.soonest_ms) {
            (false, _) => Ok(Plan {
                candidates,
                excluded: self.excluded,
                verdict: verdict.or_else(|| sight.nowhere()),
            }),
            (true, Some(soonest_ms)) => Err(all_open(soonest_ms)),
            (true, None) => Err(none_available()),
        }
    }

    /// The backends of a leg that may be asked.
    fn open(
        &mut self,
        leg: &Leg<'_>,
        (circuits, draws): (&impl Admission, &mut Draws),
        (open, barred): (&mut Vec<Seat>, &mut Barred),
    ) {
        for candidate in leg.candidates(false, draws) {
            let backend = candidate.backend_id();
            match circuits.admits(&backend) {
                Ok(()) => open.push(Seat {
                    candidate,
                    backend,
                    leg: leg.index,
                    weight_micro: leg.route.weight_micro,
                }),
                Err(retry_in_ms) => {
                    self.excluded
                        .push((leg.index, Exclusion::CircuitOpen { retry_in_ms }));
                    barred.note(candidate, retry_in_ms);
                }
            }
        }
    }
}

/// A candidate among those of its group.
struct Seat {
    candidate: Candidate,
    backend: BackendId,
    /// The place of its route in the model.
    leg: usize,
    /// The weight of its route, which its backends share.
    weight_micro: u64,
}

/// Those whom their circuits keep out.
#[derive(Default)]
struct Barred {
    /// The first that may be tried anyway, if nobody else can.
    rescue: Option<Candidate>,
    /// Until the first may be probed.
    soonest_ms: Option<u64>,
}

impl Barred {
    fn note(&mut self, candidate: Candidate, retry_in_ms: u64) {
        let soonest_ms = self.soonest_ms.unwrap_or(retry_in_ms);
        self.soonest_ms = Some(soonest_ms.min(retry_in_ms));
        if self.rescue.is_none() && candidate.endpoint.single_backend_rescue {
            self.rescue = Some(Candidate {
                bypass: true,
                ..candidate
            });
        }
    }
}

/// Why a route cannot serve an offer, circuits apart.
fn exclusion(route: &Route, off: bool, offer: &Offer) -> Option<Exclusion> {
    if off {
        return Some(Exclusion::Disabled);
    }
    if route.weight_micro == 0 && route.origin == Origin::File {
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
