//! The algorithms: each one of some places among the candidates of a snapshot, `None` for none.

use super::draws::{Draws, mixed};
use super::snapshot::{Candidate, Prefix, Snapshot, Terms};
use crate::id::BackendId;

/// By how much the load of a backend may exceed the mean before prompts that belong there go elsewhere, in quarters of
/// the mean.
const BOUND_QUARTERS: u64 = 5;
/// Thousandths of one.
const MILLI: u64 = 1_000;

/// The candidates at some places.
fn at<'s>(
    snapshot: &'s Snapshot,
    places: &'s [usize],
) -> impl Iterator<Item = (usize, &'s Candidate)> + Clone {
    places
        .iter()
        .filter_map(|place| Some((*place, snapshot.candidates.get(*place)?)))
}

/// The mean of some numbers, rounded down; `None` of none.
pub(super) fn mean(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    let (count, sum) = numbers.fold((0_u64, 0_u64), |(count, sum), number| {
        (count + 1, sum.saturating_add(number))
    });
    sum.checked_div(count)
}

/// One of those that have the least; of several that have it one by luck.
fn least<K: Ord>(scored: impl Iterator<Item = (usize, K)> + Clone, draws: &mut Draws) -> Option<usize> {
    let mut best: Option<K> = None;
    let mut tied: Vec<usize> = Vec::new();
    for (place, score) in scored {
        match best.as_ref().map(|best| score.cmp(best)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Equal) => tied.push(place),
            Some(std::cmp::Ordering::Less) | None => {
                best = Some(score);
                tied = vec![place];
            }
        }
    }
    tied.get(draws.below(tied.len())).copied()
}

/// One by the weights of their legs; of two draws the one with less to read, once the other has much.
pub(super) fn weighted(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    let first = draw(snapshot, places, draws)?;
    let Some(much) = snapshot.terms.intervene_tokens.filter(|_| places.len() > 1) else {
        return Some(first);
    };
    let second = draw(snapshot, places, draws)?;
    let unread = |place: usize| snapshot.candidates.get(place).map_or(0, |one| one.unread_tokens);
    let is_heavier = unread(first) > unread(second) && unread(first) >= much;
    Some(if is_heavier { second } else { first })
}

/// One of the places by the weights of their legs, which the backends of a leg share; `None` when there is nothing to
/// choose.
fn draw(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    if places.len() < 2 {
        return places.first().copied();
    }
    let weight = |candidate: &Candidate| {
        let shares = at(snapshot, places)
            .filter(|(_, other)| other.leg == candidate.leg)
            .count();
        let weight_micro = snapshot.legs.get(candidate.leg).map_or(0, |leg| leg.weight_micro);
        // As wide as the share of the smallest weight needs, and narrow enough for a sum of all there can be.
        (u128::from(weight_micro) << 32) / u128::try_from(shares.max(1)).unwrap_or(1)
    };
    let weights: Vec<(usize, u128)> = at(snapshot, places)
        .map(|(place, candidate)| (place, weight(candidate)))
        .collect();
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

/// One after the other.
pub(super) fn in_turn(snapshot: &Snapshot, places: &[usize], leg: usize) -> Option<usize> {
    let turn = snapshot.legs.get(leg)?.turn;
    let count = u64::try_from(places.len()).unwrap_or(1);
    let place = usize::try_from(turn.checked_rem(count)?).unwrap_or(0);
    places.get(place).copied()
}

/// The fewest calls of the fleet.
pub(super) fn least_calls(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    let scored = at(snapshot, places).map(|(place, candidate)| (place, candidate.calls));
    least(scored, draws)
}

/// What an engine has to do, in thousandths; `None` where it does not say.
pub(super) fn engine_score(candidate: &Candidate, terms: &Terms) -> Option<u64> {
    let engine = candidate.engine?;
    let queue = engine
        .queue()
        .saturating_mul(terms.waiting_weight)
        .saturating_mul(MILLI);
    Some(queue.saturating_add(engine.kv_percent_milli.saturating_mul(terms.kv_weight)))
}

/// The engine with the least to do; of those alike the one with the fewest calls. Who does not say gets the mean of
/// those who do: he is neither favoured nor starved. When nobody says, the fewest calls decide.
pub(super) fn idlest(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    let score = |candidate: &Candidate| engine_score(candidate, &snapshot.terms);
    let Some(filling) = engine_mean(snapshot, places) else {
        return least_calls(snapshot, places, draws);
    };
    let scored = at(snapshot, places).map(|(place, candidate)| {
        let score = score(candidate).unwrap_or(filling);
        (place, (score, candidate.calls))
    });
    least(scored, draws)
}

/// What stands for engines that do not say: the mean of those that do.
pub(super) fn engine_mean(snapshot: &Snapshot, places: &[usize]) -> Option<u64> {
    mean(at(snapshot, places).filter_map(|(_, one)| engine_score(one, &snapshot.terms)))
}

/// When a backend is expected to answer: the time to its first token, for every call that it runs and this one. One
/// that was not measured is asked before all others while it runs nothing, and then gets the mean of the others.
pub(super) fn expected_us(candidate: &Candidate, filling_us: u64) -> u64 {
    let ttft_us = match candidate.ttft_us {
        Some(ttft_us) => ttft_us.max(1),
        None if candidate.calls == 0 => return 0,
        None => filling_us.max(1),
    };
    ttft_us.saturating_mul(candidate.calls.saturating_add(1))
}

/// What stands for backends that were not measured: the mean of those that were, and anything where none was, since
/// then calls decide.
pub(super) fn filling_us(snapshot: &Snapshot, places: &[usize]) -> u64 {
    mean(at(snapshot, places).filter_map(|(_, one)| one.ttft_us)).unwrap_or(1)
}

/// Of two that are drawn the one that is expected to answer first.
pub(super) fn quicker(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    let count = places.len();
    let one = draws.below(count);
    let step = draws.below(count.saturating_sub(1));
    let other = (one + 1 + step) % count.max(1);
    let filling_us = filling_us(snapshot, places);
    let two = [*places.get(one)?, *places.get(other)?];
    let scored = at(snapshot, &two).map(|(place, candidate)| (place, expected_us(candidate, filling_us)));
    scored
        .min_by_key(|(_, expected)| *expected)
        .map(|(place, _)| place)
}

/// The backend to which prompts belong that begin like this one, as long as it has not much more to do than the mean;
/// else the one to which this conversation belongs among those with room. Where nothing is known of the prompt, the
/// fewest calls decide.
pub(super) fn by_prefix(snapshot: &Snapshot, places: &[usize], draws: &mut Draws) -> Option<usize> {
    let Some(Prefix {
        instructions,
        conversation,
    }) = snapshot.prefix
    else {
        return least_calls(snapshot, places, draws);
    };
    let bound = bound(snapshot, places);
    let home =
        |number: u64| move |(_, candidate): &(usize, &Candidate)| belonging(number, &candidate.backend);
    let has_room = |candidate: &Candidate| candidate.calls < bound;
    let first = at(snapshot, places).max_by_key(home(instructions))?;
    if has_room(first.1) {
        return Some(first.0);
    }
    let roomy = at(snapshot, places).filter(|(_, candidate)| has_room(candidate));
    let chosen = roomy.max_by_key(home(conversation)).unwrap_or(first);
    Some(chosen.0)
}

/// Calls from which on a backend has too much to do for prompts to be sent there because they belong there. Somebody is
/// always below.
pub(super) fn bound(snapshot: &Snapshot, places: &[usize]) -> u64 {
    let calls = at(snapshot, places).fold(1_u64, |sum, (_, one)| sum.saturating_add(one.calls));
    let count = u64::try_from(places.len().max(1)).unwrap_or(1);
    calls
        .saturating_mul(BOUND_QUARTERS)
        .div_ceil(count.saturating_mul(4))
}

/// How much a prompt belongs to a backend: the greatest of all backends has it. Another backend that comes or goes
/// takes with it what belongs to it, and nothing else moves.
fn belonging(number: u64, backend: &BackendId) -> u64 {
    let name = backend
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    mixed(mixed(number) ^ name)
}
