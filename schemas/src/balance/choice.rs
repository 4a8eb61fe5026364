//! The choice itself: the session's backend, unless it has too much to do; else a leg by weight, and of its backends one
//! by its algorithm.

use super::draws::Draws;
use super::pick;
use super::routewise::{self, Chosen, Way};
use super::snapshot::{Candidate, Engine, Snapshot};
use super::{Algorithm, pick::mean};
use crate::affinity::choice::{self, Verdict};

/// Who is asked first, and how the session decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choice {
    /// The place among the candidates; `None` where nothing decides, so that the first is as good as any.
    pub chosen: Option<usize>,
    /// How the session decided; `None` where none is looked for.
    pub verdict: Option<Verdict>,
    /// The place of the leg whose turn was taken, where its backends are chosen in turn.
    pub turned: Option<usize>,
    /// Why its leg was chosen, where legs are chosen by what they cost.
    pub way: Option<Way>,
}

/// By how much the choice changes what there is to spend, in nano-dollars; 0 where weights decide.
pub fn change(snapshot: &Snapshot, choice: &Choice) -> i64 {
    let chosen = snapshot.candidates.get(choice.chosen.unwrap_or(0));
    let market = snapshot.market.as_ref();
    market
        .zip(chosen)
        .map_or(0, |(market, chosen)| market.change(chosen.leg))
}

/// Chooses. The same snapshot gives the same choice, whenever and wherever it is asked.
pub fn decide(snapshot: &Snapshot) -> Choice {
    let mut draws = Draws::new(snapshot.draw);
    let all = || (0..snapshot.candidates.len()).collect::<Vec<_>>();
    let Some(session) = &snapshot.session else {
        return among(snapshot, &all(), &mut draws);
    };
    let choosable = choosable(snapshot);
    let found = session.found.as_ref().map(|found| (found.level, &found.backend));
    let verdict = choice::choose(found, &choosable, &snapshot.terms.margins);
    let chosen = match verdict {
        Verdict::Hit { candidate, .. } => Choice {
            chosen: Some(candidate),
            ..Choice::default()
        },
        Verdict::Overload { candidate, .. } => {
            let others = roomier(snapshot, &choosable, candidate);
            among(snapshot, &others, &mut draws)
        }
        Verdict::Stale { .. } | Verdict::Miss => among(snapshot, &all(), &mut draws),
    };
    Choice {
        verdict: Some(verdict),
        ..chosen
    }
}

/// What the backends have to do: requests in their queues where all are chosen by what engines say and any does, else
/// calls of the fleet.
fn choosable(snapshot: &Snapshot) -> Vec<choice::Candidate<'_>> {
    let by_engines = snapshot
        .legs
        .iter()
        .all(|leg| leg.algorithm == Algorithm::EngineAware);
    let queue = |candidate: &Candidate| candidate.engine.as_ref().map(Engine::queue);
    let filling = mean(snapshot.candidates.iter().filter_map(queue)).filter(|_| by_engines);
    let load = |candidate: &Candidate| match filling {
        Some(filling) => queue(candidate).unwrap_or(filling),
        None => candidate.calls,
    };
    let candidates = snapshot.candidates.iter();
    candidates
        .map(|candidate| choice::Candidate {
            backend: &candidate.backend,
            load: load(candidate),
            backlog_tokens: candidate.unread_tokens,
        })
        .collect()
}

/// Those to which a session may be moved that is at `left`: others that have not too much to do themselves.
fn roomier(snapshot: &Snapshot, choosable: &[choice::Candidate<'_>], left: usize) -> Vec<usize> {
    let least = choosable.iter().map(|one| one.load).min().unwrap_or(0);
    let fits = |one: &choice::Candidate<'_>| !snapshot.terms.margins.exceeds(one.load, least);
    let others = || (0..choosable.len()).filter(move |place| *place != left);
    let roomy: Vec<usize> = others()
        .filter(|place| choosable.get(*place).is_some_and(fits))
        .collect();
    if roomy.is_empty() {
        others().collect()
    } else {
        roomy
    }
}

/// One of the places: a leg by what it costs or by weight, of its backends one by its algorithm. What reads long prompts gets no more of
/// them, if another one can be asked.
fn among(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Choice {
    let at = |place: &usize| snapshot.candidates.get(*place);
    let is_free = |place: &usize| at(place).is_some_and(|candidate| !candidate.crowded);
    let free: Vec<usize> = places.iter().copied().filter(is_free).collect();
    let eligible = if free.is_empty() { places } else { &free };
    let Some(first) = eligible.first().and_then(at) else {
        return Choice::default();
    };
    let is_one_leg = eligible
        .iter()
        .filter_map(at)
        .all(|candidate| candidate.leg == first.leg);
    let algorithm = |leg: usize| {
        snapshot
            .legs
            .get(leg)
            .map_or(Algorithm::Weighted, |leg| leg.algorithm)
    };
    let of_leg = |leg: usize| {
        let is_of_leg = move |place: &usize| at(place).is_some_and(|candidate| candidate.leg == leg);
        eligible.iter().copied().filter(is_of_leg).collect::<Vec<_>>()
    };
    if let Some(found) = by_cost(snapshot, eligible, draws) {
        let own = of_leg(found.leg);
        return Choice {
            way: Some(found.way),
            ..within(snapshot, (&own, found.leg, algorithm(found.leg)), draws)
        };
    }
    let by_weight = if is_one_leg && !algorithm(first.leg).is_weighted() {
        None
    } else {
        pick::weighted(snapshot, eligible, draws)
    };
    let leg = by_weight
        .as_ref()
        .and_then(at)
        .map_or(first.leg, |drawn| drawn.leg);
    if algorithm(leg).is_weighted() {
        return Choice {
            chosen: by_weight,
            ..Choice::default()
        };
    }
    within(snapshot, (&of_leg(leg), leg, algorithm(leg)), draws)
}

/// The leg that what legs cost decides for, where it does.
fn by_cost(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<Chosen> {
    let market = snapshot.market.as_ref()?;
    let legs = places.iter().filter_map(|place| snapshot.candidates.get(*place));
    let mut legs: Vec<usize> = legs.map(|candidate| candidate.leg).collect();
    legs.dedup();
    routewise::choose(market, &legs, draws)
}

/// One of the backends of a leg, by its algorithm.
fn within(
    snapshot: &Snapshot,
    (own, leg, algorithm): (&[usize], usize, Algorithm),
    draws: &mut Draws,
) -> Choice {
    let chosen = match algorithm {
        Algorithm::Weighted => pick::weighted(snapshot, own, draws).or_else(|| own.first().copied()),
        Algorithm::RoundRobin => pick::in_turn(snapshot, own, leg),
        Algorithm::LeastConnections => pick::least_calls(snapshot, own, draws),
        Algorithm::EngineAware => pick::idlest(snapshot, own, draws),
        Algorithm::PowerOfTwo => pick::quicker(snapshot, own, draws),
        Algorithm::PrefixAware => pick::by_prefix(snapshot, own, draws),
    };
    Choice {
        chosen,
        turned: (algorithm == Algorithm::RoundRobin).then_some(leg),
        ..Choice::default()
    }
}
