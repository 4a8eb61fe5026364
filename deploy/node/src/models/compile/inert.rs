//! What of a models file loads and does nothing in this version: each that is set is named, so that nobody relies on it.

use super::Context;
use crate::models::file::Leg;
use crate::yaml::Problem;

impl Context<'_> {
    pub(super) fn note_what_has_no_effect(&self, problems: &mut Vec<Problem>) {
        let entry = self.entry;
        let by_cost = entry.router.as_deref() == Some("routewise");
        let legs = entry.route.iter().flatten().enumerate();
        let of_legs = legs.flat_map(|(n, leg)| {
            let set = inert_of(leg, by_cost).into_iter().filter(|(_, set)| *set);
            set.map(move |(key, _)| format!("route[{n}].{key}"))
        });
        for key in of_legs {
            problems.push(self.problem(
                &key,
                "this version reads it without effect",
                "nothing, or remove it",
            ));
        }
    }
}

/// What is read of a leg without effect, and whether it is set. `by_cost`: legs are chosen by what they cost.
fn inert_of(leg: &Leg, by_cost: bool) -> [(&'static str, bool); 9] {
    [
        ("provider_type", leg.provider_type.is_some() && !by_cost),
        ("quota", leg.quota.is_some()),
        ("quota_source", leg.quota_source.is_some()),
        ("quota_pool", leg.quota_pool.is_some()),
        ("concurrency", leg.concurrency.is_some() && !by_cost),
        ("concurrency_pool", leg.concurrency_pool.is_some() && !by_cost),
        ("routewise_pool", leg.routewise_pool.is_some()),
        ("algorithm", leg.algorithm.is_some() && !has_choice(leg)),
        (
            "null_cache_details_means_miss",
            leg.null_cache_details_means_miss.is_some(),
        ),
    ]
}

/// Whether a leg has backends to choose from.
fn has_choice(leg: &Leg) -> bool {
    leg.backends.as_ref().is_some_and(|backends| backends.len() > 1)
}
