//! Statements that sum up usage, the same for every adapter: over the 15 minutes whose sums are kept, and over the rows of
//! others, of which only a part is asked for.

use chrono::{NaiveDate, NaiveTime};
use schemas::query::{GroupBy, LogFilter};
use schemas::time::Timestamp;
use uuid::Uuid;

use super::StoreError;
use super::row::{Fields, dimension};
use crate::fold::{COST_SUMMED_MAX, TOKENS_SUMMED_MAX, bucket};
use crate::usage::Span;

/// How far the moment inside an id may be from the request's admission, in microseconds: both are of one reading of the
/// clock. Only narrows a scan.
const MINTED_NEAR_MICROS: i64 = 60 * 1_000_000;

/// A UTC day in microseconds.
const DAY_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// What is summed up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Summed {
    /// Sums of 15 minutes.
    Buckets {
        /// They stay apart.
        apart: bool,
    },
    /// Rows within one 15 minutes.
    Rows(Span),
    /// Rows of any time.
    AllRows {
        /// What tells the start of the 15 minutes that a row is of, where these stay apart.
        bucket: Option<&'static str>,
    },
    /// Adjustments of rows of any time.
    Adjustments {
        /// Likewise of the row that one is of.
        bucket: Option<&'static str>,
    },
}

impl Summed {
    /// What sums up a figure: over rows as `Sums::of_row` counts each.
    pub(super) fn figure(self, figure: &str) -> String {
        match (self, figure) {
            (Self::Adjustments { .. }, _) => {
                let most = COST_SUMMED_MAX;
                format!(
                    "sum(CASE WHEN amount_nano_usd > {most} THEN {most} WHEN amount_nano_usd < -{most} THEN -{most} \
                     ELSE amount_nano_usd END)"
                )
            }
            (Self::Buckets { .. }, _) | (_, "cost_nano_usd") => format!("sum({figure})"),
            (_, "requests") => "count(*)".to_owned(),
            (_, "ok") => "sum(CASE WHEN outcome = 'ok' THEN 1 ELSE 0 END)".to_owned(),
            (_, "errors") => "sum(CASE WHEN outcome = 'ok' THEN 0 ELSE 1 END)".to_owned(),
            (_, tokens) => {
                let most = TOKENS_SUMMED_MAX;
                format!("sum(CASE WHEN {tokens} > {most} THEN {most} ELSE {tokens} END)")
            }
        }
    }

    /// The statement: what is selected beside the dimensions, and the WHERE clause.
    pub(super) fn statement(self, selected: &[String], clause: &str, group_by: &[GroupBy]) -> String {
        let mut group: Vec<&str> = group_by.iter().map(|by| dimension(*by)).collect();
        let mut selected = selected.to_vec();
        let table = match self {
            Self::Buckets { apart } => {
                group.extend(apart.then_some("bucket"));
                selected.extend(group.iter().map(|name| (*name).to_owned()));
                "usage_rollup"
            }
            Self::Rows(_) | Self::AllRows { .. } | Self::Adjustments { .. } => {
                // Sums have no NULL among their dimensions.
                selected.extend(group.iter().map(|name| format!("coalesce({name}, '') AS {name}")));
                if let Self::AllRows { bucket: Some(bucket) } | Self::Adjustments { bucket: Some(bucket) } =
                    self
                {
                    selected.push(format!("{bucket} AS bucket"));
                    group.push("bucket");
                }
                if matches!(self, Self::Adjustments { .. }) {
                    "adjustments"
                } else {
                    "api_logs"
                }
            }
        };
        let end = if group.is_empty() {
            " HAVING count(*) > 0".to_owned()
        } else {
            format!(" GROUP BY {}", group.join(", "))
        };
        format!("SELECT {} FROM {table}{clause}{end}", selected.join(", "))
    }

    /// The start of the 15 minutes that a result is of.
    pub(super) fn start(self, found: &impl Fields) -> Result<Timestamp, StoreError> {
        match self {
            Self::Buckets { apart: true }
            | Self::AllRows { bucket: Some(_) }
            | Self::Adjustments { bucket: Some(_) } => found.time("bucket"),
            Self::Buckets { apart: false }
            | Self::AllRows { bucket: None }
            | Self::Adjustments { bucket: None } => Ok(Timestamp::default()),
            Self::Rows(edge) => Ok(edge.from.map(bucket).unwrap_or_default()),
        }
    }
}

impl Span {
    /// The time that is asked for.
    pub(super) const fn of(filter: &LogFilter) -> Self {
        Self {
            from: filter.from,
            to: filter.to,
        }
    }

    /// The same filter for this time.
    pub(super) fn of_filter(self, filter: &LogFilter) -> LogFilter {
        LogFilter {
            from: self.from,
            to: self.to,
            ..filter.clone()
        }
    }

    /// Ids of its requests: the first there may be, and the first there is not.
    pub(super) fn ids(self) -> (Option<Uuid>, Option<Uuid>) {
        let near = |time: Option<Timestamp>, micros| time.map(|time| least_id(time.plus_micros(micros)));
        (
            near(self.from, -MINTED_NEAR_MICROS),
            near(self.to, MINTED_NEAR_MICROS),
        )
    }
}

/// The ids of requests of a UTC day: from the first on, below the second.
pub(super) fn ids_of_day(day: NaiveDate) -> (Uuid, Uuid) {
    let start = Timestamp::from(day.and_time(NaiveTime::MIN).and_utc());
    (least_id(start), least_id(start.plus_micros(DAY_MICROS)))
}

/// The least request id that can be minted at `time`.
pub(crate) fn least_id(time: Timestamp) -> Uuid {
    const MILLIS_MAX: u64 = (1 << 48) - 1;
    let millis = u64::try_from(time.millis()).unwrap_or(0).min(MILLIS_MAX);
    Uuid::from_u128(u128::from(millis) << 80)
}
