//! Who of a group of equals is asked first: the backend where the session is, unless it has too much to do; else one by
//! weight, of two that were drawn the one with less to read.

use schemas::affinity::choice::{Candidate as Choosable, Verdict, choose};
use schemas::id::BackendId;

use super::{Admission, Draws, Seat, Sight};

/// Puts the one that is asked first to the front, the other backends of its leg behind it. `is_first`: this is the group
/// in which the session counts. Gives how the session decided.
pub(super) fn arrange(
    group: &mut [Seat],
    sight: &Sight<'_, impl Admission>,
    is_first: bool,
    draws: &mut Draws,
) -> Option<Verdict> {
    let session = sight.session.filter(|_| is_first && !group.is_empty());
    let choosable: Vec<Choosable<'_>> = match session {
        Some(_) => group.iter().map(|seat| burden(seat, sight)).collect(),
        None => Vec::new(),
    };
    let verdict = session.map(|session| choose(session.found, &choosable, sight.margins));
    let first = match verdict {
        Some(Verdict::Hit { candidate, .. }) => Some(candidate),
        Some(Verdict::Overload { candidate, .. }) => {
            let others = roomier(&choosable, candidate, sight);
            draw(group, &others, sight, draws)
        }
        Some(Verdict::Stale { .. } | Verdict::Miss) | None => {
            let all: Vec<usize> = (0..group.len()).collect();
            draw(group, &all, sight, draws)
        }
    };
    if let Some(first) = first {
        to_front(group, first);
    }
    verdict
}

/// What a backend has to do.
fn burden<'s>(seat: &'s Seat, sight: &Sight<'_, impl Admission>) -> Choosable<'s> {
    let backend = &seat.backend;
    Choosable {
        backend,
        load: (sight.calls)(backend),
        backlog_tokens: sight
            .reading
            .map_or(0, |reading| reading.prefill.load(backend).tokens),
    }
}

/// Those to which a session may be moved that is at `left`: others that have not too much to do themselves.
fn roomier(choosable: &[Choosable<'_>], left: usize, sight: &Sight<'_, impl Admission>) -> Vec<usize> {
    let least = choosable.iter().map(|one| one.load).min().unwrap_or(0);
    let fits = |one: &Choosable<'_>| !sight.margins.exceeds(one.load, least);
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

/// One of the places by weight; `None` when there is nothing to choose. What has much to read gets no more, if another
/// one can be drawn.
fn draw(
    group: &[Seat],
    places: &[usize],
    sight: &Sight<'_, impl Admission>,
    draws: &mut Draws,
) -> Option<usize> {
    let Some(reading) = sight.reading.filter(|_| places.len() > 1) else {
        return weighted(group, places, draws);
    };
    let of = |place: &usize| group.get(*place).map(|seat| seat.backend.clone());
    let backends: Vec<BackendId> = places.iter().filter_map(of).collect();
    let eligible: Vec<usize> = match reading.prompt {
        Some(prompt) => reading
            .prefill
            .eligible(prompt, &backends, reading.now_ms)
            .into_iter()
            .filter_map(|place| places.get(place).copied())
            .collect(),
        None => places.to_vec(),
    };
    let first = weighted(group, &eligible, draws)?;
    let second = weighted(group, &eligible, draws)?;
    let (one, other) = (group.get(first)?, group.get(second)?);
    let lighter = reading.prefill.lighter(&one.backend, &other.backend);
    Some(if *lighter == one.backend { first } else { second })
}

/// One of the places by the weights of their legs, which the backends of a leg share; `None` when there is nothing to
/// choose.
fn weighted(group: &[Seat], places: &[usize], draws: &mut Draws) -> Option<usize> {
    if places.len() < 2 {
        return places.first().copied();
    }
    let seats = || {
        places
            .iter()
            .filter_map(|place| Some((*place, group.get(*place)?)))
    };
    let weight = |seat: &Seat| {
        let shares = seats().filter(|(_, other)| other.leg == seat.leg).count();
        // As wide as the share of the smallest weight needs, and narrow enough for a sum of all there can be.
        (u128::from(seat.weight_micro) << 32) / u128::try_from(shares.max(1)).unwrap_or(1)
    };
    let weights: Vec<(usize, u128)> = seats().map(|(place, seat)| (place, weight(seat))).collect();
    let total: u128 = weights.iter().map(|(_, weight)| weight).sum();
    if total == 0 {
        return None;
    }
    // A product of a draw and the sum fits when the sum is halved until it is below 2^64; the bits that are lost are of
    // no weight.
    let spare = 64_u32.saturating_sub(total.leading_zeros());
    let mut point = (u128::from(draws.next()) * (total >> spare)) >> (64 - spare);
    weights
        .iter()
        .find(|(_, weight)| {
            let hit = point < *weight;
            point = point.saturating_sub(*weight);
            hit
        })
        .map(|(place, _)| *place)
}

/// Brings a seat to the front, and the others of its leg behind it.
fn to_front(group: &mut [Seat], place: usize) {
    let Some(leg) = group.get(place).map(|seat| seat.leg) else {
        return;
    };
    let begin = group.iter().position(|seat| seat.leg == leg).unwrap_or(place);
    let end = begin + group.iter().filter(|seat| seat.leg == leg).count();
    if let Some(own) = group.get_mut(begin..end) {
        own.rotate_left(place - begin);
    }
    if let Some(until) = group.get_mut(..end) {
        until.rotate_right(end - begin);
    }
}

#[cfg(test)]
mod tests;
