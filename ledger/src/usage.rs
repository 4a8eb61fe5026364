//! Sums of 15 minutes put together into the hours and days of any time zone, as a pure function. An hour or a day
//! is known by the moment it begins, so days of 23 and 25 hours come out whole and an hour shown twice stays two.

use std::collections::BTreeMap;

use chrono::offset::LocalResult;
use chrono::{DateTime, Days, NaiveDate, SecondsFormat, TimeDelta, TimeZone as _, Timelike as _};
use chrono_tz::Tz;
use schemas::query::{GroupBy, Interval, UsageQuery, UsageRow};
use schemas::time::Timestamp;

use crate::fold::{BUCKET_MICROS, Sums, bucket};
use crate::store::StoreError;

/// Most sums in an answer.
pub const USAGE_ROWS_MAX: usize = 50_000;

/// The values of the dimensions grouped by, in their order.
pub type Group = Vec<String>;

/// From the first moment on, and before the second; without bounds where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first moment in it.
    pub from: Option<Timestamp>,
    /// The first moment behind it.
    pub to: Option<Timestamp>,
}

/// What a span of time consists of: sums are kept of whole 15 minutes alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    /// The 15 minutes that are in it whole; `None` where there are none.
    pub whole: Option<Span>,
    /// What is in it of the others, at its edges: each within one 15 minutes.
    pub edges: Vec<Span>,
}

impl Span {
    /// Its parts. They have no moment in common, and together are the span.
    pub fn parts(self) -> Parts {
        let Self { from, to } = self;
        let up = from.map(|from| match bucket(from) {
            start if start == from => from,
            start => start.plus_micros(BUCKET_MICROS),
        });
        let down = to.map(bucket);
        let is_whole = up.zip(down).is_none_or(|(up, down)| up < down);
        let first = Self {
            from,
            to: up.map(|up| to.map_or(up, |to| up.min(to))),
        };
        let last = Self { from: down, to };
        let starts_in = down.zip(from).is_none_or(|(down, from)| down >= from);
        let edges = [(first, true), (last, starts_in)].into_iter();
        let lasts = |span: &Self| span.from.zip(span.to).is_some_and(|(from, to)| from < to);
        Parts {
            whole: is_whole.then_some(Self { from: up, to: down }),
            edges: edges
                .filter_map(|(edge, is_in)| (is_in && lasts(&edge)).then_some(edge))
                .collect(),
        }
    }
}

/// Whether sums are asked for that are not kept: those by the model that answered are made of the rows.
pub fn is_of_rows(query: &UsageQuery) -> bool {
    query.filter.served_model.is_some() || query.group_by.contains(&GroupBy::ServedModel)
}

/// Sums on their way into an answer.
#[derive(Debug)]
pub struct Tally {
    group_by: Vec<GroupBy>,
    interval: Option<Interval>,
    zone: Tz,
    sums: BTreeMap<(Option<DateTime<Tz>>, Group), Sums>,
}

impl Tally {
    /// An empty tally. The time zone must be one of IANA's.
    pub fn new(query: &UsageQuery) -> Result<Self, StoreError> {
        let zone = query.tz.parse().map_err(|_| StoreError::TimeZone)?;
        let mut group_by = Vec::new();
        for group in &query.group_by {
            if !group_by.contains(group) {
                group_by.push(*group);
            }
        }
        Ok(Self {
            group_by,
            interval: query.interval,
            zone,
            sums: BTreeMap::new(),
        })
    }

    /// What is grouped by: each dimension once.
    pub fn group_by(&self) -> &[GroupBy] {
        &self.group_by
    }

    /// Adds sums of the 15 minutes that begin at `bucket`.
    pub fn add(&mut self, bucket: Timestamp, group: Group, sums: Sums) -> Result<(), StoreError> {
        let start = self.interval.map(|interval| start(bucket, interval, self.zone));
        *self.sums.entry((start, group)).or_default() += sums;
        if self.sums.len() > USAGE_ROWS_MAX {
            return Err(StoreError::TooManySums {
                rows_max: USAGE_ROWS_MAX,
            });
        }
        Ok(())
    }

    /// The answer: oldest bucket first, then by group.
    pub fn finish(self) -> Vec<UsageRow> {
        let Self { group_by, sums, .. } = self;
        sums.into_iter()
            .map(|((start, group), sums)| row(&group_by, start, group, sums))
            .collect()
    }
}

/// Start of the bucket of the time zone that `at` is in.
fn start(at: Timestamp, interval: Interval, zone: Tz) -> DateTime<Tz> {
    let local = at.to_utc().with_timezone(&zone);
    match interval {
        Interval::Day => day_start(local.date_naive(), zone).unwrap_or(local),
        Interval::Hour => {
            let into_hour =
                TimeDelta::minutes(local.minute().into()) + TimeDelta::seconds(local.second().into());
            local.checked_sub_signed(into_hour).unwrap_or(local)
        }
    }
}

/// The first moment of a day: midnight, or the first that there is where clocks skip midnight.
fn day_start(day: NaiveDate, zone: Tz) -> Option<DateTime<Tz>> {
    let midnight = day.and_hms_opt(0, 0, 0)?;
    let end = day.checked_add_days(Days::new(1))?.and_hms_opt(0, 0, 0)?;
    let mut local = midnight;
    while local < end {
        match zone.from_local_datetime(&local) {
            LocalResult::Single(time) => return Some(time),
            LocalResult::Ambiguous(earliest, _) => return Some(earliest),
            LocalResult::None => local = local.checked_add_signed(TimeDelta::minutes(15))?,
        }
    }
    None
}

fn row(group_by: &[GroupBy], start: Option<DateTime<Tz>>, group: Group, sums: Sums) -> UsageRow {
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let mut row = UsageRow {
        from: start.map(|start| start.to_rfc3339_opts(SecondsFormat::Secs, true)),
        requests: count(sums.requests),
        ok: count(sums.ok),
        errors: count(sums.errors),
        input_tokens: count(sums.input_tokens),
        cached_tokens: count(sums.cached_tokens),
        cache_write_tokens: count(sums.cache_write_tokens),
        output_tokens: count(sums.output_tokens),
        cost_nano_usd: sums.cost_nano_usd,
        adjusted_nano_usd: sums.adjusted_nano_usd,
        total_nano_usd: sums.cost_nano_usd.saturating_add(sums.adjusted_nano_usd),
        ..UsageRow::default()
    };
    for (by, value) in group_by.iter().zip(group) {
        let place = match by {
            GroupBy::Tenant => &mut row.tenant,
            GroupBy::User => &mut row.user,
            GroupBy::Key => &mut row.key,
            GroupBy::Model => &mut row.model,
            GroupBy::ServedModel => &mut row.served_model,
            GroupBy::Endpoint => &mut row.endpoint,
            GroupBy::Provider => &mut row.provider,
        };
        *place = Some(value);
    }
    row
}

#[cfg(test)]
mod tests;
