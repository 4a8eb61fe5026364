//! Limits under a bad network, simulated: many nodes of the machines of `schemas::limit` under a seeded scheduler. Never is
//! more taken than the limit, at no instant; at rest nothing is held, and what the records count is what the waybills
//! say. Each fault that was planted is found, so the checks can fail.
//!
//! `WAYBILL_SEEDS=n` runs n seeds instead of 200. Faults can be planted only in builds with debug assertions.

#![expect(clippy::expect_used, reason = "a test suite")]

mod bus;
mod callers;
mod checks;
mod event;
mod node;
mod random;
mod world;

#[cfg(debug_assertions)]
use schemas::limit::planted::Bug;
use schemas::limit::planted::Planted;

/// Seeds of the usual run.
const SEEDS: u64 = 200;
/// Within how many seeds every planted fault is found.
#[cfg(debug_assertions)]
const BUG_SEEDS: u64 = 1_000;

#[expect(clippy::disallowed_methods, reason = "a test that can be made longer")]
fn seeds() -> u64 {
    let told = std::env::var("WAYBILL_SEEDS").ok();
    told.map_or(SEEDS, |text| {
        text.parse().expect("WAYBILL_SEEDS is a number of seeds")
    })
}

/// Runs every fourth seed from `first` on, twice each.
fn run_seeds(first: u64) {
    for seed in (first..seeds()).step_by(4) {
        let (once, _) = world::run(seed, Planted::default(), false);
        let once = once.unwrap_or_else(|wrong| panic!("{wrong}"));
        let (again, _) = world::run(seed, Planted::default(), false);
        assert_eq!(again, Ok(once), "seed {seed} does not repeat");
    }
}

#[test]
fn limits_hold_whatever_happens_1() {
    run_seeds(0);
}

#[test]
fn limits_hold_whatever_happens_2() {
    run_seeds(1);
}

#[test]
fn limits_hold_whatever_happens_3() {
    run_seeds(2);
}

#[test]
fn limits_hold_whatever_happens_4() {
    run_seeds(3);
}

#[cfg(debug_assertions)]
#[test]
fn every_planted_fault_is_found() {
    for bug in Bug::ALL {
        let found = (0..BUG_SEEDS).find_map(|seed| world::run(seed, Planted::with(bug), false).0.err());
        let found = found.unwrap_or_else(|| panic!("{bug:?} is not found within {BUG_SEEDS} seeds"));
        eprintln!("{bug:?}: {found}");
    }
}

#[test]
#[ignore = "prints the story of one seed, for whoever looks for a fault"]
#[expect(clippy::disallowed_methods, reason = "which seed is asked for")]
fn story() {
    let seed = std::env::var("WAYBILL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0);
    let (found, story) = world::run(seed, Planted::default(), true);
    eprintln!("{}{found:?}", story.unwrap_or_default());
}
