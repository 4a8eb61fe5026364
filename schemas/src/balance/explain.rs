//! A decision in words, made from the event alone.

use schemars::JsonSchema;
use serde::Serialize;

use super::Algorithm;
use super::decision::{Decision, Excluded, Exclusion};
use super::pick;
use super::routewise::{Market, Way};
use super::snapshot::{Candidate, Snapshot};
use crate::affinity::choice::Verdict;
use crate::id::{BackendId, EndpointId};

/// Why a call went where it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The backends in the order in which they were to be asked.
    pub order: Vec<BackendId>,
    /// Why the first of them is the first.
    pub chosen: String,
    /// Those that the first was chosen from, itself among them; none where it was the only one of its priority.
    pub candidates: Vec<Considered>,
    /// Who was left out, or asked last, and why.
    pub excluded: Vec<LeftOut>,
}

/// A backend that could be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Considered {
    /// It.
    pub backend: BackendId,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// How backends of the endpoint are chosen.
    pub algorithm: Algorithm,
    /// The share of its endpoint among those of its priority, in millionths.
    pub weight_micro: u64,
    /// What its algorithm compares, the least being the best; null where the algorithm compares nothing, and for those
    /// who may not see what others do there.
    pub score: Option<u64>,
    /// What the score is made of; null where there is none.
    pub measured: Option<String>,
}

/// Somebody who was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its backend; null where it is so of all.
    pub backend: Option<BackendId>,
    /// The reason's word.
    pub reason: &'static str,
    /// The reason in words.
    pub why: String,
}

/// Tells a decision. `figures`: with what others do at the backends.
pub fn explain(decision: &Decision, figures: bool) -> Explanation {
    let snapshot = decision.snapshot.as_ref();
    Explanation {
        order: decision.order.clone(),
        chosen: chosen(decision),
        candidates: snapshot.map_or_else(Vec::new, |snapshot| considered(snapshot, figures)),
        excluded: decision.excluded.iter().map(left_out).collect(),
    }
}

fn chosen(decision: &Decision) -> String {
    let Some(snapshot) = &decision.snapshot else {
        let told = if decision.order.is_empty() {
            "nobody could be asked"
        } else {
            "it was the only one of the first priority that could be asked"
        };
        return told.to_owned();
    };
    let (choice, _) = decision.replay();
    let place = choice.chosen.unwrap_or(0);
    let leg = snapshot
        .candidates
        .get(place)
        .map_or(0, |candidate| candidate.leg);
    let algorithm = snapshot
        .legs
        .get(leg)
        .map_or(Algorithm::Weighted, |leg| leg.algorithm);
    let by_algorithm = match (snapshot.legs.len(), choice.chosen, choice.way) {
        (_, None, _) => "no weight says otherwise, so the first in the order of the file is".to_owned(),
        (_, Some(_), Some(way)) => {
            let why = told(way);
            format!("RouteWise chose its leg, {why}, and of the leg's backends {algorithm} chose it")
        }
        (1, Some(_), None) => format!("{algorithm} chose it"),
        (_, Some(_), None) => {
            format!("its leg was drawn by weight, and of the leg's backends {algorithm} chose it")
        }
    };
    match choice.verdict {
        None => by_algorithm,
        Some(Verdict::Hit { level, .. }) => format!("its session is there, by {}", level.as_str()),
        Some(Verdict::Overload { .. }) => {
            format!("the backend of its session has too much to do; {by_algorithm}")
        }
        Some(Verdict::Stale { .. }) => format!("the backend of its session cannot be asked; {by_algorithm}"),
        Some(Verdict::Miss) => format!("it has no session that is known; {by_algorithm}"),
    }
}

/// Why a leg was chosen, in words.
const fn told(way: Way) -> &'static str {
    match way {
        Way::Within => "the quickest that the budget pays for",
        Way::Spent => "the quicker of a mix, paid for by what earlier calls left of their budgets",
        Way::Saved => "the cheaper of a mix, so that its budget pays for the quicker one later",
        Way::Tried => "of which too little is known, to learn how quick it is",
    }
}

fn considered(snapshot: &Snapshot, figures: bool) -> Vec<Considered> {
    let candidates = snapshot.candidates.iter();
    candidates
        .filter_map(|candidate| {
            let leg = snapshot.legs.get(candidate.leg)?;
            let scored = measured(snapshot, candidate, leg.algorithm).filter(|_| figures);
            let (score, mut measured) = scored.unzip();
            if let Some(market) = snapshot.market.as_ref().filter(|_| figures) {
                let offer = offer(market, candidate.leg);
                measured = Some(measured.map_or(offer.clone(), |measured| format!("{offer}; {measured}")));
            }
            Some(Considered {
                backend: candidate.backend.clone(),
                endpoint: leg.endpoint.clone(),
                algorithm: leg.algorithm,
                weight_micro: leg.weight_micro,
                score,
                measured,
            })
        })
        .collect()
}

/// What a leg offers a call, in words.
fn offer(market: &Market, place: usize) -> String {
    let leg = market.legs.get(place).copied().unwrap_or_default();
    let cost = market.cost(&leg);
    let price = match leg.cost_nano_usd {
        Some(_) => format!("costs {cost} nano-dollars"),
        None => format!("of unknown price, taken to cost {cost} nano-dollars"),
    };
    let expected_us = market.expected_us(&leg);
    let time = if market.is_known(&leg) {
        format!("{expected_us} µs to the first token over {} calls", leg.samples)
    } else {
        format!(
            "{} calls known, taken for {expected_us} µs to the first token",
            leg.samples
        )
    };
    let full = if leg.full { ", all its slots are taken" } else { "" };
    format!("{price}, {time}{full}")
}

/// The score of a candidate by its algorithm, and what it is made of.
fn measured(snapshot: &Snapshot, candidate: &Candidate, algorithm: Algorithm) -> Option<(u64, String)> {
    let leg: Vec<usize> = (0..snapshot.candidates.len())
        .filter(|place| {
            let other = snapshot.candidates.get(*place);
            other.is_some_and(|other| other.leg == candidate.leg)
        })
        .collect();
    let calls = || (candidate.calls, format!("{} calls", candidate.calls));
    match algorithm {
        Algorithm::Weighted => (candidate.unread_tokens > 0).then(|| {
            let unread = candidate.unread_tokens;
            (unread, format!("{unread} tokens to read"))
        }),
        Algorithm::RoundRobin => None,
        Algorithm::LeastConnections => Some(calls()),
        Algorithm::PrefixAware => {
            let bound = pick::bound(snapshot, &leg);
            let calls = candidate.calls;
            Some((calls, format!("{calls} calls, has room below {bound}")))
        }
        Algorithm::PowerOfTwo => {
            let filling_us = pick::filling_us(snapshot, &leg);
            let source = match candidate.ttft_us {
                Some(ttft_us) => format!("{ttft_us} µs to the first token"),
                None if candidate.calls == 0 => "not measured, to be tried".to_owned(),
                None => format!("not measured, taken for {filling_us} µs to the first token"),
            };
            let expected = pick::expected_us(candidate, filling_us);
            Some((expected, format!("{source}, {} calls", candidate.calls)))
        }
        Algorithm::EngineAware => {
            let Some(filling) = pick::engine_mean(snapshot, &leg) else {
                let (score, calls) = calls();
                return Some((score, format!("no engine says anything, so by calls: {calls}")));
            };
            let score = pick::engine_score(candidate, &snapshot.terms);
            let told = candidate.engine.map_or_else(
                || "no data that is fresh, taken for the mean of the others".to_owned(),
                |engine| {
                    let percent = engine.kv_percent_milli / 1_000;
                    format!(
                        "{} waiting, {} sent since, {percent} % of its cache in use",
                        engine.waiting, engine.sent
                    )
                },
            );
            Some((
                score.unwrap_or(filling),
                format!("{told}, {} calls", candidate.calls),
            ))
        }
    }
}

fn left_out(excluded: &Excluded) -> LeftOut {
    LeftOut {
        endpoint: excluded.endpoint.clone(),
        backend: excluded.backend.clone(),
        reason: excluded.reason.as_str(),
        why: why(excluded.reason),
    }
}

fn why(reason: Exclusion) -> String {
    match reason {
        Exclusion::CircuitOpen { retry_in_ms: 0 } => {
            "its circuit is open, and another call is trying it".to_owned()
        }
        Exclusion::CircuitOpen { retry_in_ms } => {
            format!("its circuit is open, and may be tried in {retry_in_ms} ms")
        }
        Exclusion::SoftBan { for_ms } => {
            format!("it could not be connected to lately, and is asked last for {for_ms} ms more")
        }
        Exclusion::UnknownEndpoint => "the endpoint is not in the catalogue".to_owned(),
        Exclusion::EndpointDisabled => "the endpoint is switched off".to_owned(),
        Exclusion::ProviderDisabled => "its provider is switched off".to_owned(),
        Exclusion::ConfiguredZero => "its weight is 0".to_owned(),
        Exclusion::Modality => "it does not take a kind of input of the prompt".to_owned(),
        Exclusion::NotPinned => "the call was for another one alone".to_owned(),
        Exclusion::Unhealthy => "its health was looked at and found wanting".to_owned(),
        Exclusion::HotGpu => "a GPU of its node is too hot".to_owned(),
        Exclusion::ContextLength => {
            "it takes no longer prompts than one that refused this one as too long".to_owned()
        }
        Exclusion::Untranslatable => "it cannot be told what was asked for".to_owned(),
        Exclusion::Asleep => "its service sleeps, and was told to wake".to_owned(),
        Exclusion::KeptForWaiting => {
            "it is kept for calls that wait too long at others, and asked last else".to_owned()
        }
        Exclusion::QueueWait { after_ms } => {
            format!("the call waited {after_ms} ms for its turn there, and went to who is kept for that")
        }
        Exclusion::EngineWait { after_ms: 0 } => {
            "its engine has too many requests in its queue to be waited for".to_owned()
        }
        Exclusion::EngineWait { after_ms } => {
            format!("no token came within {after_ms} ms, and the call went to who is kept for that")
        }
        Exclusion::PoolAway => "it is in a pool of which no router took the call".to_owned(),
    }
}
