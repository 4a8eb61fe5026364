//! Who of a group of equals is asked first: the snapshot of what is known of them, and what is chosen from it.

use std::ops::Range;

use schemas::affinity::choice::{self, Verdict};
use schemas::balance::Algorithm;
use schemas::balance::choice::{Choice, change, decide};
use schemas::balance::draws::{Draws, shortened};
use schemas::balance::routewise::Market;
use schemas::balance::snapshot::{Candidate, Found, Leg, Snapshot, Sought};
use schemas::id::BackendId;
use schemas::money::Price;

use super::market::{Desk, Wager};
use super::{Admission, Seat, Sight};

/// How a group was arranged.
#[derive(Default)]
pub(super) struct Arranged {
    /// How the session decided.
    pub(super) verdict: Option<Verdict>,
    /// What the first was chosen from; `None` for a group of one.
    pub(super) snapshot: Option<Snapshot>,
    /// What is left to settle, where legs were chosen by what they cost.
    pub(super) wager: Option<Wager>,
}

/// Puts the one that is asked first to the front, the other backends of its leg behind it. `is_first`: this is the group
/// in which the session counts. `desk`: what legs cost decides among them.
pub(super) fn arrange(
    group: &mut [Seat],
    (sight, desk): (&Sight<'_, impl Admission>, Option<&Desk<'_>>),
    is_first: bool,
    draws: &mut Draws,
) -> Arranged {
    if let [only] = group {
        return Arranged {
            verdict: alone(&only.backend, sight, is_first),
            ..Arranged::default()
        };
    }
    let mut snapshot = snapshot(group, sight, is_first, draws);
    let prices: Vec<Option<Price>> = legs(group).map(|leg| leg.price).collect();
    let desk = desk.filter(|_| snapshot.legs.len() > 1);
    if let Some(desk) = desk {
        let of_legs = (snapshot.legs.as_slice(), prices.as_slice());
        snapshot.market = Some(desk.market(of_legs, &snapshot.candidates, sight.outlook));
    }
    let choice = chosen(&mut snapshot, sight);
    let places: Vec<usize> = legs(group).map(|leg| leg.leg).collect();
    if let Some(first) = choice.chosen {
        to_front(group, first);
    }
    if let Some(market) = &snapshot.market {
        rank(group, (market, &places));
    }
    Arranged {
        verdict: choice.verdict,
        wager: desk.map(|desk| desk.take(change(&snapshot, &choice), prices, sight.outlook)),
        snapshot: Some(snapshot),
    }
}

/// Puts those behind the first that are as near as it: legs in one's own network and legs elsewhere are two pools, and a
/// call leaves the one that was drawn when nobody there serves.
pub(super) fn compose(group: &mut [Seat]) {
    let Some(is_near) = group.first().map(Seat::is_near) else {
        return;
    };
    group.sort_by_key(|seat| seat.is_near() != is_near);
}

/// The first seat of each leg.
fn legs(group: &[Seat]) -> impl Iterator<Item = &Seat> {
    let legs = group.chunk_by(|one, other| one.leg == other.leg);
    legs.filter_map(<[Seat]>::first)
}

/// Puts the legs behind the first into the order in which they are asked when it has failed. `places`: the legs, in the
/// order of the market's.
fn rank(group: &mut [Seat], (market, places): (&Market, &[usize])) {
    let Some(first) = group.first().map(|seat| seat.leg) else {
        return;
    };
    let own = group.iter().filter(|seat| seat.leg == first).count();
    let place = |seat: &Seat| places.iter().position(|leg| *leg == seat.leg).unwrap_or(0);
    if let Some(others) = group.get_mut(own..) {
        others.sort_by_key(|seat| (market.rank(place(seat)), place(seat)));
    }
}

/// The verdict where there is no choice.
fn alone(backend: &BackendId, sight: &Sight<'_, impl Admission>, is_first: bool) -> Option<Verdict> {
    let session = sight.session.filter(|_| is_first)?;
    let found = session.found.map(|(level, record)| (level, &record.backend));
    let only = choice::Candidate {
        backend,
        load: 0,
        backlog_tokens: 0,
    };
    Some(choice::choose(found, &[only], &sight.terms.margins))
}

/// Chooses. A turn that somebody else took meanwhile is not taken twice.
fn chosen(snapshot: &mut Snapshot, sight: &Sight<'_, impl Admission>) -> Choice {
    loop {
        let choice = decide(snapshot);
        let Some(leg) = choice.turned.and_then(|leg| snapshot.legs.get_mut(leg)) else {
            return choice;
        };
        if sight.outlook.take_turn(&leg.endpoint, leg.turn) {
            return choice;
        }
        leg.turn = sight.outlook.turn(&leg.endpoint);
    }
}

/// What is known of a group.
fn snapshot(
    group: &[Seat],
    sight: &Sight<'_, impl Admission>,
    is_first: bool,
    draws: &mut Draws,
) -> Snapshot {
    let mut legs: Vec<Leg> = Vec::new();
    let mut candidates = Vec::with_capacity(group.len());
    for of_leg in group.chunk_by(|one, other| one.leg == other.leg) {
        let Some(seat) = of_leg.first() else {
            continue;
        };
        let endpoint = &seat.candidate.endpoint;
        let algorithm = endpoint.balancing();
        let known = of_leg.iter();
        candidates.extend(known.map(|seat| candidate(&seat.backend, (legs.len(), algorithm), sight)));
        legs.push(Leg {
            endpoint: endpoint.id.clone(),
            algorithm,
            weight_micro: seat.weight_micro,
            turn: match algorithm {
                Algorithm::RoundRobin => sight.outlook.turn(&endpoint.id),
                _ => 0,
            },
        });
    }
    let looks_at_prompts = legs.iter().any(|leg| leg.algorithm == Algorithm::PrefixAware);
    let session = sight.session.filter(|_| is_first);
    Snapshot {
        terms: *sight.terms,
        legs,
        candidates,
        session: session.map(|session| Sought {
            found: session.found.map(|(level, record)| Found {
                level,
                backend: record.backend.clone(),
            }),
        }),
        prefix: sight.prefix.filter(|_| looks_at_prompts),
        market: None,
        draw: shortened(draws.next()),
    }
}

/// What is known of a backend, as far as its algorithm looks at it.
fn candidate(
    backend: &BackendId,
    (leg, algorithm): (usize, Algorithm),
    sight: &Sight<'_, impl Admission>,
) -> Candidate {
    let reading = sight.reading.as_ref();
    let outlook = sight.outlook;
    Candidate {
        backend: backend.clone(),
        leg,
        calls: outlook.calls(backend),
        engine: match algorithm {
            Algorithm::EngineAware => outlook.engine(backend),
            _ => None,
        },
        ttft_us: match algorithm {
            Algorithm::PowerOfTwo => outlook.ttft_us(backend),
            _ => None,
        },
        unread_tokens: reading.map_or(0, |reading| reading.prefill.load(backend).tokens),
        crowded: reading.is_some_and(|reading| {
            let prompt = reading.prompt;
            prompt.is_some_and(|prompt| reading.prefill.is_crowded(prompt, backend, reading.now_ms))
        }),
    }
}

/// Brings a seat to the front, and the others of its leg behind it.
fn to_front(group: &mut [Seat], place: usize) {
    let Some(own) = leg_of(group, place) else {
        return;
    };
    let (begin, end) = (own.start, own.end);
    if let Some(own) = group.get_mut(own) {
        own.rotate_left(place - begin);
    }
    if let Some(until) = group.get_mut(..end) {
        until.rotate_right(end - begin);
    }
}

/// The places of the leg of a seat.
fn leg_of(group: &[Seat], place: usize) -> Option<Range<usize>> {
    let leg = group.get(place)?.leg;
    let begin = group.iter().position(|seat| seat.leg == leg)?;
    let end = begin + group.iter().filter(|seat| seat.leg == leg).count();
    Some(begin..end)
}

#[cfg(test)]
mod tests;
