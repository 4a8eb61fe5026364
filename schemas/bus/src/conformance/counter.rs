//! What every adapter of the counters must do, one function per promise. Every call of a promise needs a `prefix` of
//! its own.

use futures_util::future::try_join_all;

use crate::BusError;
use crate::counter::{Counters, Slice};

const SLICES: [Slice; 2] = [Slice::Second, Slice::Minute];

/// A counter begins at 0, grows by what is added, and tells its value after the addition; adding nothing reads it.
pub async fn additions_add_up(counters: &dyn Counters, prefix: &str) -> Result<(), BusError> {
    for slice in SLICES {
        let name = format!("{prefix}.up.1");
        let mut values = Vec::new();
        for amount in [1, 5, 0, 1_000_000_000_000] {
            values.push(counters.add(slice, &name, amount).await?);
        }
        assert_eq!(values, [1, 6, 6, 1_000_000_000_006], "{slice:?}");
    }
    Ok(())
}

/// Counters of other names and of the other slice do not meet.
pub async fn counters_are_apart(counters: &dyn Counters, prefix: &str) -> Result<(), BusError> {
    for slice in SLICES {
        for name in ["a.1", "a.2", "b.1", "a_b-c.1"] {
            let value = counters.add(slice, &format!("{prefix}.apart.{name}"), 3).await?;
            assert_eq!(value, 3, "{slice:?} {name}");
        }
    }
    Ok(())
}

/// Nothing that is added at once is lost, and no two additions see the same value.
pub async fn additions_at_once_all_count(counters: &dyn Counters, prefix: &str) -> Result<(), BusError> {
    for slice in SLICES {
        let name = format!("{prefix}.once.1");
        let additions = (0..200).map(|_| counters.add(slice, &name, 1));
        let mut values = try_join_all(additions).await?;
        values.sort_unstable();
        assert!(values.into_iter().eq(1..=200), "{slice:?}");
    }
    Ok(())
}
