//! What the counters of quotas count against what the books say, event by event: a difference is a defect of ours, and
//! is shown until the next start.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::BusError;
use schemas::limit::layers::Name;
use schemas::query::{QUOTA_EVENTS_MAX, QueryError, QuotasAnswer, QuotasQuery};
use schemas::subject::QUERY_QUOTAS;
use tokio::time::sleep;
use tracing::error;

use super::Limiter;

/// How often the newest settlements are compared.
const LOOK: Duration = Duration::from_secs(5);
/// How long the books may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(4);

/// Compares again and again. Never returns.
pub(super) async fn run(limiter: &Limiter) {
    let spool = &limiter.0.ports.spool;
    // What was settled before this process is not known by event.
    let mut after = spool.appended();
    let mut marked = after;
    loop {
        sleep(LOOK).await;
        // What had been in the books a look ago has been settled here since.
        let upto = std::mem::replace(&mut marked, spool.marked());
        // Under load a part is compared: the newest events.
        let from = after.max(upto.saturating_sub(QUOTA_EVENTS_MAX));
        if upto <= from {
            continue;
        }
        let Ok(booked) = booked(limiter, from, upto).await else {
            continue;
        };
        after = upto;
        let counted = limiter.0.machine.lock().holdings.counted_between(from, upto);
        let Some(counted) = counted else {
            continue;
        };
        let difference = difference(&counted, &booked);
        if difference > 0 {
            error!(
                spool.from = from + 1,
                spool.to = upto,
                difference,
                "the counters of quotas and the books differ"
            );
            limiter.0.figures.differ(difference);
        }
    }
}

/// What the books say of these places.
async fn booked(limiter: &Limiter, after: u64, upto: u64) -> Result<BTreeMap<Name, u64>, BusError> {
    let ports = &limiter.0.ports;
    let query = QuotasQuery {
        source: ports.spool.source().to_owned(),
        after,
        upto,
    };
    let unreadable = |problem: serde_json::Error| BusError::Unavailable(Box::new(problem));
    let question = serde_json::to_vec(&query).map_err(unreadable)?;
    let answer = ports.bus.ask(QUERY_QUOTAS, question.into(), ANSWER_WAIT).await?;
    let answer: Result<QuotasAnswer, QueryError> = serde_json::from_slice(&answer).map_err(unreadable)?;
    match answer {
        Ok(answer) => Ok(answer.quotas),
        Err(_) => Err(BusError::NoResponder {
            subject: QUERY_QUOTAS.to_owned(),
        }),
    }
}

/// By how much two sums differ, over all quotas.
fn difference(counted: &BTreeMap<Name, u64>, booked: &BTreeMap<Name, u64>) -> u64 {
    let of = |sums: &BTreeMap<Name, u64>, name: &Name| sums.get(name).copied().unwrap_or(0);
    let in_counted = counted
        .keys()
        .map(|name| of(counted, name).abs_diff(of(booked, name)));
    let only_booked = booked.iter().filter(|(name, _)| !counted.contains_key(*name));
    let only_booked = only_booked.map(|(_, amount)| *amount);
    in_counted.chain(only_booked).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_side_knows_is_a_difference() {
        let sums = |amounts: &[(&str, u64)]| {
            let amounts = amounts.iter();
            amounts
                .map(|(name, amount)| (Name::from(*name), *amount))
                .collect::<BTreeMap<_, _>>()
        };
        for (counted, booked, expected) in [
            (sums(&[]), sums(&[]), 0),
            (sums(&[("a", 1), ("b", 2)]), sums(&[("b", 2), ("a", 1)]), 0),
            (sums(&[("a", 5)]), sums(&[("a", 3)]), 2),
            (sums(&[("a", 5)]), sums(&[("b", 4)]), 9),
            (sums(&[("a", 0)]), sums(&[]), 0),
        ] {
            assert_eq!(difference(&counted, &booked), expected);
        }
    }
}
