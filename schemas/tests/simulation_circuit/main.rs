//! The circuit of one backend on several nodes before one bad bus, run by a seeded scheduler: answers are lost, writes
//! are done late, watches lag, nodes are killed or cut off, clocks run differently. Whatever happens, no two nodes that
//! the fleet gave leave may probe at once, and once all is well every circuit is closed. Each mistake that was planted
//! is found, so the checks can fail.
//!
//! `WAYBILL_SEEDS=n` runs n seeds instead of 200. Mistakes can be planted only in builds with debug assertions.

#![expect(clippy::expect_used, reason = "a test suite")]

#[path = "../simulation/random.rs"]
mod random;
mod world;

use schemas::circuit::planted::Planted;

/// Seeds of the usual run.
const SEEDS: u64 = 200;
/// Within how many seeds every planted mistake is found.
#[cfg(debug_assertions)]
const BUG_SEEDS: u64 = 1_000;

#[expect(clippy::disallowed_methods, reason = "a test that can be made longer")]
fn seeds() -> u64 {
    let told = std::env::var("WAYBILL_SEEDS").ok();
    told.map_or(SEEDS, |text| {
        text.parse().expect("WAYBILL_SEEDS is a number of seeds")
    })
}

#[test]
fn one_node_probes_whatever_happens() {
    let mut probes = 0;
    for seed in 0..seeds() {
        let once = world::run(seed, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(
            world::run(seed, None).as_ref(),
            Ok(&once),
            "seed {seed} does not repeat"
        );
        probes += once.probes;
    }
    // What is never tried proves nothing.
    assert!(probes > seeds(), "{probes} probes");
}

#[cfg(debug_assertions)]
#[test]
fn every_planted_mistake_is_found() {
    for planted in Planted::ALL {
        let found = (0..BUG_SEEDS).find_map(|seed| world::run(seed, Some(planted)).err());
        let found = found.unwrap_or_else(|| panic!("{planted:?} is not found within {BUG_SEEDS} seeds"));
        eprintln!("{planted:?}: {found}");
    }
}
