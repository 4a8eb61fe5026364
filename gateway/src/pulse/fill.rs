//! Tells operators that the spool fills up, in time for them to do something: at its end billable requests are refused.
//! An event, a line of the log and a gauge, once when it begins and once when it is over.

use std::sync::atomic::{AtomicBool, Ordering};

use bus::spool::Gauges;
use schemas::event::spool::SpoolFilled;
use schemas::id::{DEFAULT_TENANT, TenantId};
use tracing::{error, info, warn};

use crate::state::Shared;

/// Hundredths of the spool from which it is nearly full.
const NEARLY_FULL: u64 = 80;
/// Hundredths below which it is no longer; apart, so that one that stays about there is not told of again and again.
const RELIEVED: u64 = 70;

/// Whether operators were told that the spool is nearly full.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    nearly_full: AtomicBool,
}

impl Fill {
    /// It is nearly full.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.nearly_full.load(Ordering::Relaxed)
    }
}

/// Looks at the spool, and tells what has changed.
pub(super) fn look(state: &Shared) {
    let gauges = state.ports.spool.gauges();
    let (was, is) = {
        let fill = &state.pulse.fill.nearly_full;
        let is = nearly_full(fill.load(Ordering::Relaxed), &gauges);
        (fill.swap(is, Ordering::Relaxed), is)
    };
    if was == is {
        return;
    }
    let (bytes, bytes_max) = (taken(&gauges), gauges.bytes_max);
    if is {
        warn!(
            spool.bytes = bytes,
            spool.bytes_max = bytes_max,
            "the spool is nearly full: billable requests will be refused"
        );
    } else {
        info!(
            spool.bytes = bytes,
            spool.bytes_max = bytes_max,
            "the spool has room again"
        );
    }
    let now = state.ports.clock.now();
    let fact = SpoolFilled {
        spool: state.ports.spool.id().clone(),
        nearly_full: is,
        bytes,
        bytes_max,
        at: now,
        node: state.config.node.clone(),
    };
    let tenant = TenantId::from(DEFAULT_TENANT);
    if let Err(problem) = state.ports.spool.append(&tenant, now, &fact) {
        error!(
            error = &problem as &dyn std::error::Error,
            "how full the spool is cannot be written"
        );
    }
}

/// Bytes that count when a request asks for room.
const fn taken(gauges: &Gauges) -> u64 {
    gauges.bytes.saturating_add(gauges.reserved_bytes)
}

/// Whether it is nearly full now, given whether it `was`.
fn nearly_full(was: bool, gauges: &Gauges) -> bool {
    let from = if was { RELIEVED } else { NEARLY_FULL };
    u128::from(taken(gauges)) * 100 >= u128::from(gauges.bytes_max) * u128::from(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_nearly_full_from_four_fifths_until_seven_tenths() {
        let at = |was, bytes, reserved_bytes| {
            let gauges = Gauges {
                bytes,
                reserved_bytes,
                bytes_max: 1_000,
                ..Gauges::default()
            };
            nearly_full(was, &gauges)
        };

        assert_eq!([at(false, 799, 0), at(false, 400, 400)], [false, true]);
        assert_eq!([at(true, 700, 0), at(true, 600, 99)], [true, false]);
    }
}
