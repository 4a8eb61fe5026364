//! Who changed what, out of the raw envelopes: read in steps from the newest on, and filtered here, since what an
//! envelope says is in no column. A question looks at so many events at most; its answer says where to go on.

use std::sync::Arc;

use schemas::event::audit::Audited;
use schemas::id::EventId;
use schemas::query::audit::{AuditAnswer, AuditQuery};
use serde::Deserialize;
use uuid::Uuid;

use crate::query::{PAGE_BYTES_MAX, written};
use crate::record::Record;
use crate::store::sums::least_id;
use crate::store::{AuditRange, Store, StoreError};

/// Events read at once.
const STEP_EVENTS: usize = 1_000;
/// Events that one question looks at.
const SCAN_EVENTS_MAX: usize = 20_000;
/// How far a change may be from the moment inside its id, in microseconds. Only narrows a scan.
const MINTED_APART_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// An envelope of a change.
#[derive(Deserialize)]
struct Envelope {
    data: Audited,
}

/// A page of changes.
pub(crate) async fn page(store: &dyn Store, query: &AuditQuery) -> Result<AuditAnswer, StoreError> {
    looked_for(store, query, (STEP_EVENTS, SCAN_EVENTS_MAX, PAGE_BYTES_MAX)).await
}

async fn looked_for(
    store: &dyn Store,
    query: &AuditQuery,
    (step_events, scan_events_max, bytes_max): (usize, usize, usize),
) -> Result<AuditAnswer, StoreError> {
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut range = range(query);
    let mut data = Vec::new();
    let mut last_shown = None;
    let (mut scanned, mut bytes) = (0, 0);
    while scanned < scan_events_max {
        let step = store.audits(&range, step_events).await?;
        for (id, audited) in step.iter().filter_map(read) {
            if !query.filter.admits(&audited) {
                continue;
            }
            bytes += written(&audited);
            let is_full = data.len() == limit || (bytes > bytes_max && !data.is_empty());
            if is_full {
                return Ok(AuditAnswer {
                    data,
                    next: last_shown,
                });
            }
            data.push(audited);
            last_shown = Some(id);
        }
        let Some(last) = step.last().filter(|_| step.len() == step_events) else {
            return Ok(AuditAnswer { data, next: None });
        };
        scanned += step.len();
        range.below = Some(Arc::clone(&last.event_id));
    }
    // The place may be of a change that is not asked for: whoever goes on from there misses nothing.
    let next = range.below.and_then(|below| below.parse().ok()).map(EventId);
    Ok(AuditAnswer { data, next })
}

/// Where to look for what is asked for.
fn range(query: &AuditQuery) -> AuditRange {
    let filter = &query.filter;
    let text = |id: Uuid| id.to_string().into();
    let after = query.after.map(|after| after.0);
    let to = filter.to.map(|to| least_id(to.plus_micros(MINTED_APART_MICROS)));
    let least = filter
        .from
        .map(|from| least_id(from.plus_micros(-MINTED_APART_MICROS)));
    AuditRange {
        tenant: filter.tenant.as_ref().map(|tenant| tenant.0.clone()),
        below: after.into_iter().chain(to).min().map(text),
        least: least.map(text),
    }
}

/// What a record says; `None` for what this version does not understand.
fn read(record: &Record) -> Option<(EventId, Audited)> {
    let Envelope { data } = serde_json::from_slice(&record.envelope).ok()?;
    Some((EventId(record.event_id.parse().ok()?), data))
}

#[cfg(test)]
mod tests;
