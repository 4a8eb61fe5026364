//! Whom to ask, in which order: the pure decision over a snapshot of the catalogue, an offer, the circuits, the
//! session, what is known of backends and one random number. Priority groups in rising order; within a group the first
//! as [`pick`] says, the others as declared. Whoever could not be connected to a moment ago is asked after all others.
//!
//! Asking takes no claim: only a candidate that is really attempted takes a circuit's probe slot.

pub(crate) mod market;
pub(crate) mod memory;
pub(crate) mod offload;
pub(crate) mod outlook;
mod pick;

use std::sync::Arc;

use schemas::affinity::Level;
use schemas::affinity::choice::Verdict;
use schemas::affinity::prefill::{Prefill, Prompt};
use schemas::affinity::record::Record;
use schemas::balance::decision::{Decision, Excluded, Exclusion};
use schemas::balance::draws::Draws;
use schemas::balance::snapshot::{Prefix, Snapshot, Terms};
use schemas::catalog::modality::Modalities;
use schemas::catalog::router::Fixed;
use schemas::catalog::{Catalog, Endpoint, Model, Origin, Route};
use schemas::command::Offer;
use schemas::failure::{Failure, FailureCode};
use schemas::health::Spared;
use schemas::id::BackendId;
use schemas::money::Price;
use schemas::parameter::Takes;

use crate::limiter::is_local;

use market::{Desk, Wager};
use offload::Offload;
use outlook::Outlook;

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

/// Candidates in the order of their attempts, never none.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) candidates: Vec<Candidate>,
    /// The first that probes or its circuit keep out and that may only be asleep: nobody would ask it, so that it is
    /// woken without.
    pub(crate) sleeper: Option<Candidate>,
    /// What is told of it: nothing where there was one way and nobody was left out.
    pub(crate) decision: Option<Box<Decision>>,
    /// How the session decided; `None` where none is looked for.
    pub(crate) verdict: Option<Verdict>,
    /// What is left to settle, where legs were chosen by what they cost.
    pub(crate) wager: Option<Wager>,
    /// Where the call goes when it waits too long.
    pub(crate) offload: Option<Offload>,
}

impl Plan {
    fn new(candidates: Vec<Candidate>, verdict: Option<Verdict>, told: Told) -> Self {
        let decision = (candidates.len() > 1 || !told.excluded.is_empty()).then(|| {
            Box::new(Decision {
                order: candidates.iter().map(Candidate::backend_id).collect(),
                snapshot: told.snapshot,
                excluded: told.excluded,
            })
        });
        Self {
            candidates,
            sleeper: None,
            decision,
            verdict,
            wager: told.wager,
            offload: None,
        }
    }

    /// True when something that passes keeps somebody out who might serve.
    pub(crate) fn is_barred(&self) -> bool {
        let passes = |one: &Excluded| {
            matches!(
                one.reason,
                Exclusion::CircuitOpen { .. } | Exclusion::Unhealthy | Exclusion::HotGpu
            )
        };
        let decision = self.decision.as_ref();
        decision.is_some_and(|decision| decision.excluded.iter().any(passes))
    }
}

/// Nobody can be asked.
#[derive(Debug)]
pub(crate) struct Nobody {
    /// What the caller is told.
    pub(crate) failure: Failure,
    /// Who was left out.
    pub(crate) decision: Option<Box<Decision>>,
}

impl Nobody {
    fn new(failure: Failure, excluded: Vec<Excluded>) -> Self {
        let decision = (!excluded.is_empty()).then(|| {
            Box::new(Decision {
                excluded,
                ..Decision::default()
            })
        });
        Self { failure, decision }
    }
}

/// What is told of a plan beside its order.
#[derive(Default)]
struct Told {
    snapshot: Option<Snapshot>,
    wager: Option<Wager>,
    excluded: Vec<Excluded>,
}

/// What the plan may know beside the catalogue and the offer.
pub(crate) struct Sight<'a, C> {
    /// Whom circuits let pass.
    pub(crate) circuits: &'a C,
    /// Where the session is.
    pub(crate) session: Option<Session<'a>>,
    /// How the prompt begins, where that is looked at.
    pub(crate) prefix: Option<Prefix>,
    /// What holds for all choices.
    pub(crate) terms: &'a Terms,
    /// What is known of backends.
    pub(crate) outlook: &'a dyn Outlook,
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
        let admitted = model.routes.iter().filter(|route| offer.leads_by(route));
        let mut led = admitted.filter_map(|route| {
            let endpoint = catalog.endpoint_for(&model.owner, &route.endpoint_id)?;
            Some((route, endpoint))
        });
        led.any(|(route, endpoint)| {
            let is_meant = offer.pin.as_deref().is_none_or(|pin| is_pinned(endpoint, pin));
            let is_off = |reason| matches!(reason, Exclusion::EndpointDisabled | Exclusion::ProviderDisabled);
            is_meant && exclusion((route, endpoint), catalog, offer).is_none_or(is_off)
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
) -> Result<Plan, Box<Nobody>> {
    let Some(model) = catalog.model_of(&offer.owner, offer.model.as_str()) else {
        return Err(Box::new(Nobody::new(none_available(), Vec::new())));
    };
    let mut survey = Survey {
        legs: Vec::with_capacity(model.routes.len()),
        excluded: Vec::new(),
        desk: Desk::of(model, offer, sight.outlook),
        fixed: model.router.as_ref().and_then(|router| router.fixed()),
        prompt_tokens: offer.requirements.prompt_tokens,
    };
    survey.routes(catalog, model, offer);
    let mut draws = Draws::new(draw);
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

    /// Every backend of the endpoint once: from a drawn one on where they are drawn, else as declared.
    fn candidates(&self, bypass: bool, draws: &mut Draws) -> impl Iterator<Item = Candidate> + use<'_> {
        let backends = self.endpoint.backends.len();
        let first = if self.endpoint.balancing().is_weighted() {
            draws.below(backends)
        } else {
            0
        };
        let none = (backends == 0).then(|| self.candidate(None, bypass));
        let some = (0..backends).map(move |step| self.candidate(Some((first + step) % backends), bypass));
        none.into_iter().chain(some)
    }
}

struct Survey<'a> {
    legs: Vec<Leg<'a>>,
    excluded: Vec<Excluded>,
    /// What the call costs at legs, where that decides.
    desk: Option<Desk<'a>>,
    /// What there is to say of weights.
    fixed: Option<&'a Fixed>,
    /// Estimated tokens of the prompt.
    prompt_tokens: u64,
}

impl<'a> Survey<'a> {
    /// Sorts out the routes that the gate admitted.
    fn routes(&mut self, catalog: &'a Catalog, model: &'a Model, offer: &Offer) {
        for (index, route) in model.routes.iter().enumerate() {
            if !offer.leads_by(route) {
                continue;
            }
            let endpoint = catalog.endpoint_for(&model.owner, &route.endpoint_id);
            let leg = endpoint.ok_or(Exclusion::UnknownEndpoint).and_then(|endpoint| {
                match exclusion((route, endpoint), catalog, offer) {
                    Some(reason) => Err(reason),
                    None => Ok(endpoint),
                }
            });
            match leg {
                Ok(endpoint) => self.legs.push(Leg {
                    index,
                    route,
                    endpoint,
                }),
                Err(reason) => self.excluded.push(Excluded {
                    endpoint: route.endpoint_id.clone(),
                    backend: None,
                    reason,
                }),
            }
        }
    }

    /// The one leg of a pin: whatever its circuit says, and without fallback.
    fn pinned(mut self, pin: &str, draws: &mut Draws) -> Result<Plan, Box<Nobody>> {
        let matches = |leg: &Leg<'_>| leg.route.weight_micro > 0 && is_pinned(leg.endpoint, pin);
        let place = self.legs.iter().position(matches);
        let others = self.legs.iter().enumerate();
        let others = others.filter(|(other, _)| Some(*other) != place);
        self.excluded.extend(others.map(|(_, leg)| Excluded {
            endpoint: leg.endpoint.id.clone(),
            backend: None,
            reason: Exclusion::NotPinned,
        }));
        let Some(leg) = place.and_then(|place| self.legs.get(place)) else {
            let failure = Failure::new(
                FailureCode::PinNotFound,
                "the pinned provider does not serve this model",
            );
            return Err(Box::new(Nobody::new(failure, self.excluded)));
        };
        let candidates = leg.candidates(true, draws).take(1).collect();
        let told = Told {
            excluded: self.excluded,
            ..Told::default()
        };
        Ok(Plan::new(candidates, None, told))
    }

    /// The legs in their order, as far as circuits let requests pass. The session counts in the first group from which
    /// anybody may be asked: what has a lower priority is a way out, not a place to stay.
    fn admitted(mut self, sight: &Sight<'_, impl Admission>, draws: &mut Draws) -> Result<Plan, Box<Nobody>> {
        let mut barred = Barred::default();
        let mut seats: Vec<Seat> = Vec::with_capacity(self.legs.len());
        let legs = std::mem::take(&mut self.legs);
        for leg in &legs {
            self.open(leg, (sight, draws), (&mut seats, &mut barred));
        }
        let kept = self.keep(&mut seats);
        let full = self.overfull(&mut seats, (&kept, sight.outlook));
        let last = self.asked_last(&mut seats);
        let mut first = pick::Arranged::default();
        for (place, group) in seats.chunk_by_mut(Seat::is_beside).enumerate() {
            let is_first = place == 0;
            let desk = self.desk.as_ref().filter(|_| is_first);
            let arranged = pick::arrange(group, (sight, desk), is_first, draws);
            if is_first {
                first = arranged;
            }
            if self.fixed.is_some_and(|fixed| fixed.hybrid_composition) {
                pick::compose(group);
            }
        }
        let (before, behind) = if full.is_empty() {
            (last, kept.seats)
        } else {
            (kept.seats, last)
        };
        let in_order = seats.into_iter().chain(before).chain(full).chain(behind);
        let mut candidates: Vec<Candidate> = in_order.map(|seat| seat.candidate).collect();
        let sleeper = barred.sleeper.filter(|_| !candidates.is_empty());
        if candidates.is_empty() {
            candidates.extend(barred.rescue);
        }
        match (candidates.is_empty(), barred.soonest_ms) {
            (false, _) => {
                let told = Told {
                    snapshot: first.snapshot,
                    wager: first.wager,
                    excluded: self.excluded,
                };
                let verdict = first.verdict.or_else(|| sight.nowhere());
                Ok(Plan {
                    sleeper,
                    offload: kept.offload,
                    ..Plan::new(candidates, verdict, told)
                })
            }
            (true, Some(soonest_ms)) => Err(Box::new(Nobody::new(all_open(soonest_ms), self.excluded))),
            (true, None) => Err(Box::new(Nobody::new(none_available(), self.excluded))),
        }
    }

    /// The backends of a leg that may be asked.
    fn open(
        &mut self,
        leg: &Leg<'_>,
        (sight, draws): (&Sight<'_, impl Admission>, &mut Draws),
        (open, barred): (&mut Vec<Seat>, &mut Barred),
    ) {
        for candidate in leg.candidates(false, draws) {
            let backend = candidate.backend_id();
            let reason = match (sight.outlook.spared(&backend), sight.circuits.admits(&backend)) {
                (Some(Spared::HotGpu), _) => Some(Exclusion::HotGpu),
                (Some(Spared::Unhealthy), _) => Some(Exclusion::Unhealthy),
                (None, Err(retry_in_ms)) => Some(Exclusion::CircuitOpen { retry_in_ms }),
                (None, Ok(())) => None,
            };
            let Some(reason) = reason else {
                open.push(Seat {
                    banned_ms: sight.outlook.banned_ms(&backend),
                    candidate,
                    backend,
                    leg: leg.index,
                    weight_micro: leg.route.weight_micro,
                    price: self.desk.as_ref().and_then(|desk| desk.price(leg.route)),
                    rank: (leg.route.priority, leg.is_weightless()),
                });
                continue;
            };
            self.excluded.push(Excluded {
                endpoint: leg.endpoint.id.clone(),
                backend: Some(backend),
                reason,
            });
            barred.note(candidate, reason);
        }
    }

    /// Takes those out who are to be asked last, unless there are no others.
    fn asked_last(&mut self, seats: &mut Vec<Seat>) -> Vec<Seat> {
        let is_banned = |seat: &Seat| seat.banned_ms.is_some();
        if seats.iter().all(is_banned) || !seats.iter().any(is_banned) {
            return Vec::new();
        }
        let last: Vec<Seat> = seats.extract_if(.., |seat| is_banned(seat)).collect();
        self.excluded.extend(last.iter().map(|seat| Excluded {
            endpoint: seat.candidate.endpoint.id.clone(),
            backend: Some(seat.backend.clone()),
            reason: Exclusion::SoftBan {
                for_ms: seat.banned_ms.unwrap_or(0),
            },
        }));
        last
    }
}

/// A candidate among those of its group.
struct Seat {
    candidate: Candidate,
    backend: BackendId,
    /// The place of its route in the model.
    leg: usize,
    /// The weight of its route.
    weight_micro: u64,
    /// What its route charges, where that decides.
    price: Option<Price>,
    /// Its group.
    rank: (i32, bool),
    /// How long it is to be asked last.
    banned_ms: Option<u64>,
}

impl Seat {
    /// Whether it stands in one's own network.
    fn is_near(&self) -> bool {
        let backends = &self.candidate.endpoint.backends;
        let backend = self.candidate.backend.and_then(|place| backends.get(place));
        backend.is_none_or(|backend| is_local(&backend.base_url))
    }

    /// Whether both are of one group.
    fn is_beside(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

/// Those who are kept out by what may be wrong about them.
#[derive(Default)]
struct Barred {
    /// The first that may be tried anyway, if nobody else can.
    rescue: Option<Candidate>,
    /// The first that may only be asleep.
    sleeper: Option<Candidate>,
    /// Until the first circuit may be probed.
    soonest_ms: Option<u64>,
}

impl Barred {
    fn note(&mut self, candidate: Candidate, reason: Exclusion) {
        if let Exclusion::CircuitOpen { retry_in_ms } = reason {
            let soonest_ms = self.soonest_ms.unwrap_or(retry_in_ms);
            self.soonest_ms = Some(soonest_ms.min(retry_in_ms));
        }
        // What is too hot is not made hotter, whoever else is out.
        let may_work = reason != Exclusion::HotGpu;
        // What sleeps fails probes and calls, and comes when it is called.
        let may_sleep = candidate.endpoint.wake.is_some();
        let may_try = candidate.endpoint.single_backend_rescue || may_sleep;
        if may_work && may_sleep && self.sleeper.is_none() {
            self.sleeper = Some(candidate.clone());
        }
        if may_work && may_try && self.rescue.is_none() {
            self.rescue = Some(Candidate {
                bypass: true,
                ..candidate
            });
        }
    }
}

/// Why a route cannot serve an offer, whatever is known of its backends.
fn exclusion((route, endpoint): (&Route, &Endpoint), catalog: &Catalog, offer: &Offer) -> Option<Exclusion> {
    if endpoint.disabled {
        return Some(Exclusion::EndpointDisabled);
    }
    if catalog.is_off(endpoint) {
        return Some(Exclusion::ProviderDisabled);
    }
    if route.weight_micro == 0 && route.origin == Origin::File {
        return Some(Exclusion::ConfiguredZero);
    }
    // Text is what every chat model takes, told or not.
    let missing = offer
        .requirements
        .modalities
        .without(Modalities::TEXT)
        .without(route.input_modalities);
    (!missing.is_empty()).then_some(Exclusion::Modality)
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
