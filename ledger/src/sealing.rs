//! Seals of days: 48 hours after the end of a UTC day the ledger that applies puts a hash over each tenant's rows of
//! that day into the log, and `waybill verify` computes it again. What is hashed is in `schemas::merkle` and, for
//! readers without this program, in `docs/truth.md`.
//!
//! A row is of the first part of its day that covers the place of its event. Rows that come after a seal are of another
//! part; what was sealed is never sealed anew.

mod chain;
mod dropped;
pub(crate) mod sealer;
pub mod verify;

use std::collections::BTreeMap;

use chrono::{Days, NaiveDate};
use schemas::digest::Digest;
use schemas::event::ledger::Sealed;
use schemas::id::{EventId, RequestId};
use schemas::merkle::{Tree, leaf, leaf_of_adjustment};
use schemas::money::NanoUsd;
use schemas::time::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::record::{Adjustment, Fact, Record, Waybill};
use crate::store::{Store, StoreError};

/// How long after its end a day is sealed, in microseconds.
const WAIT_MICROS: i64 = 48 * 60 * 60 * 1_000_000;
/// For how many days rows that come late are sealed.
const DAYS_LOOKED_AT: u64 = 35;
/// Rows that are read at once.
const PAGE_ROWS: usize = 1_000;

/// The days that may be sealed at `now`, the oldest first.
fn due_days(now: Timestamp) -> impl Iterator<Item = NaiveDate> {
    let end = now.plus_micros(-WAIT_MICROS).day();
    let first = end.checked_sub_days(Days::new(DAYS_LOOKED_AT)).unwrap_or(end);
    first.iter_days().take_while(move |day| *day < end)
}

/// An envelope of a seal.
#[derive(Deserialize)]
struct Envelope {
    data: Sealed,
}

/// What a record says; `None` for what this version does not understand.
fn read(record: &Record) -> Option<Sealed> {
    let Envelope { data } = serde_json::from_slice(&record.envelope).ok()?;
    Some(data)
}

/// The id of the event that tells a seal: made of what it says, so that said again it is the same event.
fn event_id(digest: Digest) -> EventId {
    let mut bytes = [0; 16];
    for (byte, of_digest) in bytes.iter_mut().zip(digest.0) {
        *byte = of_digest;
    }
    EventId(uuid::Builder::from_custom_bytes(Uuid::from_bytes(bytes).into_bytes()).into_uuid())
}

/// What rows and their adjustments come to: the leaves of rows first.
#[derive(Debug, Default)]
struct Total {
    tree: Tree,
    sum_nano_usd: i64,
    adjustments: u64,
    adjusted_nano_usd: i64,
}

impl Total {
    fn add(&mut self, waybill: &Waybill) {
        self.tree.push(leaf(&waybill.row, &waybill.event_id));
        let cost = waybill.row.settled.cost_nano_usd.0;
        self.sum_nano_usd = self.sum_nano_usd.saturating_add(cost);
    }

    fn adjust(&mut self, adjustment: &Adjustment) {
        self.tree.push(leaf_of(adjustment));
        self.adjustments += 1;
        let amount = adjustment.adjusted.amount_nano_usd.0;
        self.adjusted_nano_usd = self.adjusted_nano_usd.saturating_add(amount);
    }

    /// How many rows it has.
    const fn rows(&self) -> u64 {
        self.tree.leaves().saturating_sub(self.adjustments)
    }

    /// Whether a seal says the same.
    fn is_of(&self, seal: &Sealed) -> bool {
        self.rows() == seal.rows
            && self.adjustments == seal.adjustments
            && self.tree.root() == Some(seal.root)
            && NanoUsd(self.sum_nano_usd) == seal.sum_nano_usd
            && NanoUsd(self.adjusted_nano_usd) == seal.adjusted_nano_usd
    }
}

fn leaf_of(adjustment: &Adjustment) -> Digest {
    let place = (&*adjustment.source, adjustment.source_sequence);
    leaf_of_adjustment(&adjustment.adjusted, place, &adjustment.event_id)
}

/// True when a seal that covers these places covers what came from one.
fn covers(through: &BTreeMap<String, u64>, (source, place): (&str, u64)) -> bool {
    through.get(source).is_some_and(|last| place <= *last)
}

/// Where a row came from.
fn place(waybill: &Waybill) -> (&str, u64) {
    (&waybill.row.source, waybill.row.source_sequence)
}

/// Every row of a tenant and a day, by request id.
struct Rows<'a> {
    store: &'a dyn Store,
    of: (&'a str, NaiveDate),
    after: Option<RequestId>,
    page: std::vec::IntoIter<Waybill>,
    is_last: bool,
}

impl<'a> Rows<'a> {
    fn of(store: &'a dyn Store, tenant: &'a str, day: NaiveDate) -> Self {
        Self {
            store,
            of: (tenant, day),
            after: None,
            page: Vec::new().into_iter(),
            is_last: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Waybill>, StoreError> {
        if self.page.len() == 0 && !self.is_last {
            let page = self.store.day_rows(self.of, self.after, PAGE_ROWS).await?;
            self.is_last = page.len() < PAGE_ROWS;
            self.page = page.into_iter();
        }
        let next = self.page.next();
        if let Some(waybill) = &next {
            self.after = Some(waybill.row.settled.request_id);
        }
        Ok(next)
    }
}

/// Every adjustment of a tenant's rows of a day, by request id and number.
struct Adjusted<'a> {
    store: &'a dyn Store,
    of: (&'a str, NaiveDate),
    after: Option<(RequestId, u32)>,
    page: std::vec::IntoIter<Adjustment>,
    is_last: bool,
}

impl<'a> Adjusted<'a> {
    fn of(store: &'a dyn Store, tenant: &'a str, day: NaiveDate) -> Self {
        Self {
            store,
            of: (tenant, day),
            after: None,
            page: Vec::new().into_iter(),
            is_last: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Adjustment>, StoreError> {
        if self.page.len() == 0 && !self.is_last {
            let page = self.store.day_adjustments(self.of, self.after, PAGE_ROWS).await?;
            self.is_last = page.len() < PAGE_ROWS;
            self.page = page.into_iter();
        }
        let next = self.page.next();
        if let Some(Adjustment { adjusted, .. }) = &next {
            self.after = Some((adjusted.request_id, adjusted.number));
        }
        Ok(next)
    }
}

/// Whether the log has the event that an adjustment says it is of, and it says the same.
async fn is_told_so(store: &dyn Store, adjustment: &Adjustment) -> Result<bool, StoreError> {
    let before = adjustment.source_sequence.saturating_sub(1);
    let events = store.events_after(&adjustment.source, before, 2).await?;
    Ok(events.iter().any(|event| match &event.fact {
        Fact::Adjusted(told) => leaf_of(told) == leaf_of(adjustment),
        _ => false,
    }))
}

/// Whether the log has the event that a row says it is of, and it says the same.
async fn is_told(store: &dyn Store, waybill: &Waybill) -> Result<bool, StoreError> {
    let row = &waybill.row;
    let before = row.source_sequence.saturating_sub(1);
    // Two events at one place are a source that cannot be trusted; more of them are nobody's.
    let events = store.events_after(&row.source, before, 2).await?;
    Ok(events.iter().any(|event| match &event.fact {
        Fact::Waybill(told) => {
            told.event_id == waybill.event_id
                && told.provisional == waybill.provisional
                && leaf(&told.row, &told.event_id) == leaf(row, &waybill.event_id)
        }
        _ => false,
    }))
}

#[cfg(test)]
mod tests;
