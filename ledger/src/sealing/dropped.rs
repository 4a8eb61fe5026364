//! What was dropped from a sealed day: what the log tells of it, up to where its seals cover, and the tables have not.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{NaiveDate, NaiveTime};
use schemas::id::RequestId;
use schemas::time::Timestamp;

use crate::record::{Fact, Record};
use crate::store::{Store, StoreError, day_of};

/// Events that are read at once.
const PAGE_EVENTS: usize = 1_000;
/// How far clocks may have gone back while a day began, in microseconds. Only widens what is read.
const CLOCK_MICROS: i64 = 60 * 60 * 1_000_000;

/// What the tables have of a day.
#[derive(Debug, Default)]
pub(super) struct There {
    pub(super) rows: BTreeSet<RequestId>,
    pub(super) adjustments: BTreeSet<(RequestId, u32)>,
}

impl There {
    /// Whether an event is of the day and tells what is not there.
    fn lacks(&self, event: &Record, (tenant, day): (&str, NaiveDate)) -> Option<RequestId> {
        match &event.fact {
            Fact::Waybill(told) if !told.provisional => {
                let settled = &told.row.settled;
                let id = settled.request_id;
                let is_ours = settled.tenant.as_str() == tenant && day_of(id) == day;
                (is_ours && !self.rows.contains(&id)).then_some(id)
            }
            Fact::Adjusted(told) => {
                let (id, number) = (told.adjusted.request_id, told.adjusted.number);
                let is_ours = told.adjusted.tenant.as_str() == tenant && day_of(id) == day;
                (is_ours && !self.adjustments.contains(&(id, number))).then_some(id)
            }
            _ => None,
        }
    }
}

/// The requests of what was dropped, at most so many, each once. `through` is how far seals cover each source.
pub(super) async fn dropped(
    store: &dyn Store,
    of: (&str, NaiveDate),
    (through, there): (&BTreeMap<String, u64>, &There),
    most: usize,
) -> Result<Vec<RequestId>, StoreError> {
    let mut found = BTreeSet::new();
    let start = Timestamp::from(of.1.and_time(NaiveTime::MIN).and_utc()).plus_micros(-CLOCK_MICROS);
    for (source, last) in through {
        let mut place = before(store, (source, *last), start).await?;
        while place < *last && found.len() < most {
            let events = store.events_after(source, place, PAGE_EVENTS).await?;
            let Some(reached) = events.last().map(|event| event.source_sequence) else {
                break;
            };
            place = reached;
            let covered = events.iter().filter(|event| event.source_sequence <= *last);
            found.extend(covered.filter_map(|event| there.lacks(event, of)));
        }
    }
    Ok(found.into_iter().take(most).collect())
}

/// A place of a source up to which its events were recorded before a time: the last such, as they are in the order of time.
async fn before(store: &dyn Store, (source, last): (&str, u64), time: Timestamp) -> Result<u64, StoreError> {
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        let next = store.events_after(source, middle, 1).await?;
        match next.first() {
            Some(event) if event.source_sequence <= last && event.time < time => low = event.source_sequence,
            _ => high = middle,
        }
    }
    Ok(low)
}
