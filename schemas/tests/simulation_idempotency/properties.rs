//! What must hold for every seed, and the planted mistakes that must not stay hidden.

#[cfg(debug_assertions)]
use schemas::idempotency::Planted;

use crate::counts::Counts;
use crate::world::{Report, World};

/// Seeds that a normal run takes.
const SEEDS: u64 = 200;
/// Seeds within which a planted mistake must be found.
#[cfg(debug_assertions)]
const SEEDS_PLANTED: u64 = 1_000;

#[expect(clippy::disallowed_methods, reason = "a test that can be made longer")]
fn seeds() -> u64 {
    let told = std::env::var("WAYBILL_SEEDS").ok();
    told.map_or(SEEDS, |text| {
        text.parse().expect("WAYBILL_SEEDS is a number of seeds")
    })
}

fn run(seed: u64) -> Report {
    World::new(seed).run()
}

#[test]
fn a_key_is_charged_once_whatever_gets_lost() {
    let mut counts = Counts::default();
    for seed in 0..seeds() {
        let report = run(seed);

        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.trace, run(seed).trace, "seed {seed} does not repeat");
        counts.add(&report.counts);
    }
    // What is never tried proves nothing.
    if seeds() >= SEEDS {
        counts.assert_all_happened();
    }
}

#[cfg(debug_assertions)]
fn is_found(planted: Planted) {
    let run = |seed: &u64| World::new(*seed).with(planted).run();
    let found = (0..SEEDS_PLANTED).find(|seed| run(seed).violation.is_some());
    assert!(found.is_some(), "{planted:?} is not found");
}

#[cfg(debug_assertions)]
#[test]
fn a_lost_compare_and_set_that_counts_as_won_is_found() {
    is_found(Planted::LostIsWon);
}

#[cfg(debug_assertions)]
#[test]
fn an_unknown_compare_and_set_that_counts_as_lost_is_found() {
    is_found(Planted::UnknownIsLost);
}

#[cfg(debug_assertions)]
#[test]
fn a_lease_that_is_used_after_its_end_is_found() {
    is_found(Planted::LeaseOutlived);
}

#[cfg(debug_assertions)]
#[test]
fn a_read_that_admits_is_found() {
    is_found(Planted::ReadAdmits);
}
