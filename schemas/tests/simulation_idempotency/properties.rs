//! What must hold for every seed, and the planted mistakes that must not stay hidden.

use schemas::idempotency::Planted;

use crate::counts::Counts;
use crate::world::{Report, World};

/// Seeds that a normal run takes.
const SEEDS: u64 = 200;
/// Seeds within which a planted mistake must be found.
const SEEDS_PLANTED: u64 = 1_000;

fn seeds() -> u64 {
    let asked = option_env!("WAYBILL_SIMULATION_SEEDS");
    asked.map_or(SEEDS, |text| text.parse().expect("a number of seeds"))
}

fn run(seed: u64, planted: Option<Planted>) -> Report {
    World::new(seed, planted).run()
}

#[test]
fn a_key_is_charged_once_whatever_gets_lost() {
    let mut counts = Counts::default();
    for seed in 0..seeds() {
        let report = run(seed, None);

        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.trace, run(seed, None).trace, "seed {seed} does not repeat");
        counts.add(&report.counts);
    }
    // What is never tried proves nothing.
    if seeds() >= SEEDS {
        counts.assert_all_happened();
    }
}

fn is_found(planted: Planted) {
    let found = (0..SEEDS_PLANTED).find(|seed| run(*seed, Some(planted)).violation.is_some());
    assert!(found.is_some(), "{planted:?} is not found");
}

#[test]
fn a_lost_compare_and_set_that_counts_as_won_is_found() {
    is_found(Planted::LostIsWon);
}

#[test]
fn an_unknown_compare_and_set_that_counts_as_lost_is_found() {
    is_found(Planted::UnknownIsLost);
}

#[test]
fn a_lease_that_is_used_after_its_end_is_found() {
    is_found(Planted::LeaseOutlived);
}

#[test]
fn a_read_that_admits_is_found() {
    is_found(Planted::ReadAdmits);
}
