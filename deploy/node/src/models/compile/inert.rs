//! What of a models file loads and does nothing in this version: each that is set is named, so that nobody relies on it.

use super::Context;
use crate::models::file::Leg;
use crate::yaml::Problem;

impl Context<'_> {
    pub(super) fn note_what_has_no_effect(&self, problems: &mut Vec<Problem>) {
        let entry = self.entry;
        let inert = [
            ("router_params", !entry.router_params.is_empty()),
            (
                "router",
                entry.router.as_deref().is_some_and(|router| router != "fixed"),
            ),
        ];
        let legs = entry.route.iter().flatten().enumerate();
        let of_legs = legs.flat_map(|(n, leg)| {
            let set = inert_of(leg).into_iter().filter(|(_, set)| *set);
            set.map(move |(key, _)| format!("route[{n}].{key}"))
        });
        let of_entry = inert
            .iter()
            .filter(|(_, set)| *set)
            .map(|(key, _)| (*key).to_owned());
        for key in of_entry.chain(of_legs) {
            problems.push(self.problem(
                &key,
                "this version reads it without effect",
                "nothing, or remove it",
            ));
        }
    }
}

/// What is read of a leg without effect, and whether it is set.
fn inert_of(leg: &Leg) -> [(&'static str, bool); 10] {
    [
        ("provider_type", leg.provider_type.is_some()),
        ("quota", leg.quota.is_some()),
        ("quota_source", leg.quota_source.is_some()),
        ("quota_pool", leg.quota_pool.is_some()),
        ("concurrency", leg.concurrency.is_some()),
        ("concurrency_pool", leg.concurrency_pool.is_some()),
        ("routewise_pool", leg.routewise_pool.is_some()),
        ("algorithm", leg.algorithm.is_some() && !has_choice(leg)),
        ("health_check", leg.health_check.is_some()),
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
