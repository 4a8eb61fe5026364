//! Counters in one process: a map in memory. They count rates, so nothing of them survives the process, and a counter
//! goes when nothing was added to it for the life of its slice.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::BusError;
use crate::clock::Clock;
use crate::counter::Slice;

/// Most counters at once; beyond it adding to a new one answers [`BusError::Full`].
const COUNTERS_MAX: usize = 200_000;
/// How long a counter lives without additions, in milliseconds.
const SECOND_MS: u64 = 30_000;
const MINUTE_MS: u64 = 150_000;
/// How often dead counters are looked for, in milliseconds.
const SWEEP_MS: u64 = 5_000;

/// All counters.
pub(super) struct Table {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By slice and name.
    counters: [HashMap<String, Counter>; 2],
    swept_at_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    total: u64,
    ends_at_ms: u64,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// See [`crate::counter::Counters::add`].
    pub(super) fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
        let now_ms = self.clock.monotonic_ms();
        self.state.lock().add(slice, name, amount, now_ms)
    }
}

impl State {
    fn add(&mut self, slice: Slice, name: &str, amount: u64, now_ms: u64) -> Result<u64, BusError> {
        if now_ms.saturating_sub(self.swept_at_ms) >= SWEEP_MS {
            self.sweep(now_ms);
        }
        let (index, life_ms) = match slice {
            Slice::Second => (0, SECOND_MS),
            Slice::Minute => (1, MINUTE_MS),
        };
        let ends_at_ms = now_ms.saturating_add(life_ms);
        let count: usize = self.counters.iter().map(HashMap::len).sum();
        let of_slice = &mut self.counters[index];
        if let Some(counter) = of_slice.get_mut(name) {
            let before = if counter.ends_at_ms > now_ms {
                counter.total
            } else {
                0
            };
            *counter = Counter {
                total: before.saturating_add(amount),
                ends_at_ms,
            };
            return Ok(counter.total);
        }
        if count >= COUNTERS_MAX {
            return Err(BusError::Full);
        }
        let counter = Counter {
            total: amount,
            ends_at_ms,
        };
        of_slice.insert(name.to_owned(), counter);
        Ok(amount)
    }

    fn sweep(&mut self, now_ms: u64) {
        self.swept_at_ms = now_ms;
        for of_slice in &mut self.counters {
            of_slice.retain(|_, counter| counter.ends_at_ms > now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_lives_as_long_as_its_slice_after_the_last_addition() {
        let mut state = State::default();
        for (slice, life_ms) in [(Slice::Second, SECOND_MS), (Slice::Minute, MINUTE_MS)] {
            let mut add = |now_ms| state.add(slice, "a.1", 1, now_ms).expect("room");
            assert_eq!(add(1_000), 1);
            assert_eq!(add(1_000 + life_ms - 1), 2);
            assert_eq!(add(1_000 + life_ms * 2 - 2), 3);
            assert_eq!(add(1_000 + life_ms * 3 - 2), 1, "it begins again");
        }
    }

    #[test]
    fn dead_counters_make_room() {
        let mut state = State::default();
        for number in 0..COUNTERS_MAX {
            let added = state.add(Slice::Second, &number.to_string(), 1, 0);
            assert_eq!(added.expect("room"), 1);
        }
        let refused = state.add(Slice::Minute, "new", 1, SWEEP_MS);
        assert!(matches!(refused, Err(BusError::Full)));
        assert_eq!(
            state.add(Slice::Second, "7", 1, SWEEP_MS).expect("it is there"),
            2
        );
        let added = state.add(Slice::Minute, "new", 1, SECOND_MS + SWEEP_MS - 1);
        assert_eq!(added.expect("room"), 1);
    }

    #[test]
    fn a_total_stops_at_the_largest_number() {
        let mut state = State::default();
        state.add(Slice::Minute, "a", u64::MAX, 0).expect("room");
        assert_eq!(state.add(Slice::Minute, "a", 1, 0).expect("room"), u64::MAX);
    }
}
