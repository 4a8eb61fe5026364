//! Events to changes, as a pure function: which rows to write and by how much the sums move, given what the
//! books already hold. Of all events about a request one stands, whatever the order they come in: the admitting
//! node's own word before `request.lost`, then the one with the least place of origin.

mod planted;

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::id::RequestId;
use schemas::outcome::Outcome;
use schemas::time::Timestamp;

use crate::record::{Adjustment, Fact, Record, Waybill};

use planted::Planted;

/// Width of a bucket of the sums, in microseconds: every time zone is off UTC by a multiple of it.
pub const BUCKET_MICROS: i64 = 15 * 60 * 1_000_000;
/// Most tokens of one kind that a single row adds to the sums; the row itself keeps its figure.
pub(crate) const TOKENS_SUMMED_MAX: u64 = 1_000_000_000_000;
/// Most money that a single row adds to the sums, in nano-dollars: a million dollars.
pub(crate) const COST_SUMMED_MAX: i64 = 1_000_000_000_000_000;

/// What the books hold about one request: enough to decide whether an event supersedes it, and what it added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where its row came from.
    pub origin: Origin,
    /// Which sums it is part of.
    pub group: Group,
    /// What it added to them.
    pub sums: Sums,
}

/// Where a row came from. Of several for one request the least stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// `request.lost` rather than `request.settled`.
    pub provisional: bool,
    /// The event's source.
    pub source: Arc<str>,
    /// Its place there.
    pub source_sequence: u64,
    /// Its id.
    pub event_id: Arc<str>,
}

/// The dimensions of a sum. What a row does not have is the empty text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Start of the 15 minutes in which the request was admitted.
    pub bucket: Timestamp,
    /// The day in the billing time zone.
    pub billing_day: NaiveDate,
    /// The tenant.
    pub tenant: Arc<str>,
    /// The member.
    pub user: Arc<str>,
    /// The key, by id.
    pub key_id: Arc<str>,
    /// The model asked for.
    pub model: Arc<str>,
    /// The endpoint that served.
    pub endpoint_id: Arc<str>,
    /// The provider that served.
    pub provider: Arc<str>,
}

/// Sums, or a difference between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Requests that ended.
    pub requests: i64,
    /// Those that ended well.
    pub ok: i64,
    /// Those that did not.
    pub errors: i64,
    /// Fresh input tokens.
    pub input_tokens: i64,
    /// Cached input tokens.
    pub cached_tokens: i64,
    /// Input tokens written to a cache.
    pub cache_write_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// What callers pay, in nano-dollars.
    pub cost_nano_usd: i64,
    /// By how much that was adjusted afterwards. Kept with the adjustments, not with the sums of rows.
    pub adjusted_nano_usd: i64,
}

/// What to write.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Requests whose row goes, because another one stands.
    pub superseded: Vec<RequestId>,
    /// Rows to insert, by request id.
    pub rows: Vec<Arc<Waybill>>,
    /// By how much sums move; none of them is nought.
    pub sums: BTreeMap<Group, Sums>,
    /// Requests that run, by request id: accepted, and without a row.
    pub opened: Vec<Opened>,
    /// Requests that run no more, by request id: these have their first row.
    pub closed: Vec<RequestId>,
    /// Adjustments, by request and number, each place once. One that is kept stands before one of a greater origin.
    pub adjustments: Vec<Arc<Adjustment>>,
}

/// A request that was accepted, by the event that says so. Of several for one request the least stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opened {
    /// The request.
    pub request_id: RequestId,
    /// The event's source.
    pub source: Arc<str>,
    /// Its place there.
    pub source_sequence: u64,
    /// Its id.
    pub event_id: Arc<str>,
}

/// The requests that `records` are about, each once, in order.
pub fn requests(records: &[Record]) -> Vec<RequestId> {
    let mut ids: Vec<RequestId> = records
        .iter()
        .filter_map(|record| match &record.fact {
            Fact::Waybill(waybill) => Some(waybill.row.settled.request_id),
            Fact::Accepted(request_id) => Some(*request_id),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What `records` change in books that hold `existing` about their requests.
pub fn fold(records: &[Record], existing: &BTreeMap<RequestId, Standing>) -> Changes {
    fold_with(records, existing, Planted::default())
}

fn fold_with(records: &[Record], existing: &BTreeMap<RequestId, Standing>, planted: Planted) -> Changes {
    let mut again = Vec::new();
    let mut winners: BTreeMap<RequestId, (&Arc<Waybill>, Standing)> = BTreeMap::new();
    for waybill in waybills(records) {
        let id = waybill.row.settled.request_id;
        let standing = waybill.standing();
        let held = winners
            .get(&id)
            .map(|(_, held)| held)
            .or_else(|| existing.get(&id));
        if held.is_none_or(|held| standing.origin < held.origin) {
            winners.insert(id, (waybill, standing));
        } else if planted.moves_sums_again() {
            again.extend(held.filter(|held| held.origin == standing.origin).cloned());
        }
    }

    let mut changes = Changes {
        opened: opened(records, |id| {
            existing.contains_key(id) || winners.contains_key(id)
        }),
        adjustments: adjustments(records),
        ..Changes::default()
    };
    for (id, (waybill, standing)) in winners {
        if let Some(old) = existing.get(&id) {
            *changes.sums.entry(old.group.clone()).or_default() -= old.sums;
            changes.superseded.push(id);
        } else {
            changes.closed.push(id);
        }
        *changes.sums.entry(standing.group).or_default() += standing.sums;
        changes.rows.push(Arc::clone(waybill));
    }
    for Standing { group, sums, .. } in again {
        *changes.sums.entry(group).or_default() += sums;
    }
    changes.sums.retain(|_, sums| *sums != Sums::default());
    changes
}

/// The adjustments in `records`: of several for one request and number the one of the least origin.
fn adjustments(records: &[Record]) -> Vec<Arc<Adjustment>> {
    let origin = |of: &Adjustment| {
        (
            Arc::clone(&of.source),
            of.source_sequence,
            Arc::clone(&of.event_id),
        )
    };
    let mut least: BTreeMap<(RequestId, u32), &Arc<Adjustment>> = BTreeMap::new();
    for record in records {
        let Fact::Adjusted(adjustment) = &record.fact else {
            continue;
        };
        let place = (adjustment.adjusted.request_id, adjustment.adjusted.number);
        let held = least.entry(place).or_insert(adjustment);
        if origin(adjustment) < origin(held) {
            *held = adjustment;
        }
    }
    least.into_values().cloned().collect()
}

/// Which requests `records` accept, without those that have a row.
fn opened(records: &[Record], has_row: impl Fn(&RequestId) -> bool) -> Vec<Opened> {
    let mut opened: Vec<Opened> = records
        .iter()
        .filter_map(|record| match &record.fact {
            Fact::Accepted(request_id) if !has_row(request_id) => Some(Opened {
                request_id: *request_id,
                source: Arc::clone(&record.source),
                source_sequence: record.source_sequence,
                event_id: Arc::clone(&record.event_id),
            }),
            _ => None,
        })
        .collect();
    opened.sort_unstable();
    opened.dedup_by_key(|opened| opened.request_id);
    opened
}

fn waybills(records: &[Record]) -> impl Iterator<Item = &Arc<Waybill>> {
    records.iter().filter_map(|record| match &record.fact {
        Fact::Waybill(waybill) => Some(waybill),
        _ => None,
    })
}

impl Waybill {
    /// What the books hold once this is the request's row.
    pub fn standing(&self) -> Standing {
        let settled = &self.row.settled;
        let none = || Arc::<str>::from("");
        Standing {
            origin: Origin {
                provisional: self.provisional,
                source: self.row.source.as_str().into(),
                source_sequence: self.row.source_sequence,
                event_id: Arc::clone(&self.event_id),
            },
            group: Group {
                bucket: bucket(settled.started_at),
                billing_day: settled.billing_day,
                tenant: Arc::clone(&settled.tenant.0),
                user: settled
                    .user
                    .as_ref()
                    .map_or_else(none, |user| Arc::clone(&user.0)),
                key_id: Arc::clone(&settled.key_id.0),
                model: Arc::clone(&settled.model.0),
                endpoint_id: settled
                    .endpoint_id
                    .as_ref()
                    .map_or_else(none, |endpoint| Arc::clone(&endpoint.0)),
                provider: settled.provider.clone().unwrap_or_else(none),
            },
            sums: Sums::of_row(
                settled.outcome,
                [
                    settled.input_tokens,
                    settled.cached_tokens,
                    settled.cache_write_tokens,
                    settled.output_tokens,
                ],
                settled.cost_nano_usd.0,
            ),
        }
    }
}

/// The start of the 15 minutes that `time` is in.
pub fn bucket(time: Timestamp) -> Timestamp {
    let micros = time.micros();
    Timestamp::from_micros(micros.saturating_sub(micros.rem_euclid(BUCKET_MICROS)))
}

impl Sums {
    /// What one row adds: `tokens` are fresh, cached, written, output.
    pub fn of_row(outcome: Outcome, tokens: [u64; 4], cost_nano_usd: i64) -> Self {
        let ok = i64::from(outcome == Outcome::Ok);
        let [input_tokens, cached_tokens, cache_write_tokens, output_tokens] =
            tokens.map(|count| i64::try_from(count.min(TOKENS_SUMMED_MAX)).unwrap_or(i64::MAX));
        Self {
            requests: 1,
            ok,
            errors: 1 - ok,
            input_tokens,
            cached_tokens,
            cache_write_tokens,
            output_tokens,
            cost_nano_usd: cost_nano_usd.clamp(-COST_SUMMED_MAX, COST_SUMMED_MAX),
            adjusted_nano_usd: 0,
        }
    }

    fn combine(&mut self, other: &Self, operation: impl Fn(i64, i64) -> i64) {
        let pairs = [
            (&mut self.requests, other.requests),
            (&mut self.ok, other.ok),
            (&mut self.errors, other.errors),
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.cached_tokens, other.cached_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cost_nano_usd, other.cost_nano_usd),
            (&mut self.adjusted_nano_usd, other.adjusted_nano_usd),
        ];
        for (mine, theirs) in pairs {
            *mine = operation(*mine, theirs);
        }
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.combine(&other, i64::saturating_add);
    }
}

impl SubAssign for Sums {
    fn sub_assign(&mut self, other: Self) {
        self.combine(&other, i64::saturating_sub);
    }
}

#[cfg(test)]
pub(crate) mod tests;
