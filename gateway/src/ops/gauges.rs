//! Figures that are read off when somebody asks for the metrics.

use schemas::subject::{CATALOG_BUCKET, QUOTA_BUCKET, SLOT_BUCKET};

use crate::state::Shared;

/// Where the kernel tells the pages of this process.
const STATM: &str = "/proc/self/statm";
/// Bytes of a page on the machines we run on.
const PAGE_BYTES: i64 = 4_096;

/// Brings the gauges up to date.
pub(super) fn refresh(state: &Shared) {
    let gauges = &state.metrics.gauges;
    let spool = state.ports.spool.gauges();
    gauges.requests_open.set(count(state.open.count()));
    gauges.connections_open.set(count(state.connections.count()));
    let limits = state.ports.limits.figures();
    gauges
        .reservations_open
        .set(wide(spool.reservations_open.max(limits.reservations_open)));
    gauges.leases_held.set(wide(limits.leases_held));
    gauges
        .counter_ledger_difference
        .set(wide(limits.counter_ledger_difference));
    let [of_quotas, of_slots] = limits.watch_ages_ms;
    gauges.watch_age(QUOTA_BUCKET, wide(of_quotas / 1_000));
    gauges.watch_age(SLOT_BUCKET, wide(of_slots / 1_000));
    gauges.spool_bytes.set(wide(spool.bytes));
    gauges.spool_bytes_max.set(wide(spool.bytes_max));
    gauges
        .spool_nearly_full
        .set(i64::from(state.pulse.fill.is_nearly_full()));
    gauges.spool_oldest_seconds.set(wide(spool.oldest_seconds));
    gauges.body_bytes.set(wide(state.bodies.bytes()));
    gauges.bus_connected.set(i64::from(state.pulse.bus_connected()));
    gauges
        .ledger_lag_events
        .set(wide(state.pulse.ledger_lag_events()));
    gauges
        .config_revision
        .set(wide(state.ports.catalog.peek().revision));
    gauges.watch_age(CATALOG_BUCKET, wide(state.view_age_ms() / 1_000));
    if let Some(pages) = resident_pages() {
        gauges.resident_bytes.set(pages.saturating_mul(PAGE_BYTES));
    }
}

/// Pages in memory: the second figure of the file. `None` where there is no such file.
fn resident_pages() -> Option<i64> {
    let text = std::fs::read_to_string(STATM).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn wide(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}

fn count(figure: usize) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}
