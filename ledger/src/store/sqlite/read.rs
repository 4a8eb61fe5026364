//! Reads: pages of the request log, one request, sums, and what a writer has to know before it writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::NaiveDate;
use futures_util::TryStreamExt as _;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::outcome::Outcome;
use schemas::query::{LogAnswer, LogFilter, LogQuery, LogsAnswer, LogsQuery, UsageQuery, UsageRow};
use schemas::subject;
use serde_json::value::RawValue;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::statement::Values;
use super::write::STREAM;
use super::{Schema, sort};
use crate::coverage::Coverage;
use crate::fold::Standing;
use crate::record::{self, Record, Waybill};
use crate::store::row::{self, FIGURES, STANDING_COLUMNS};
use crate::store::sums::{Summed, ids_of_day, least_id};
use crate::store::{AuditRange, Cursor, StoreError};
use crate::usage::{Span, Tally, is_of_rows};

/// Requests asked about in one statement.
const EXISTING_IDS: usize = 64;
/// How far a request's admission may be from the moment inside its id, in microseconds. Only narrows a scan.
const MINTED_APART_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// How far the stream is applied.
pub(super) async fn cursor(connection: &mut SqliteConnection) -> Result<Option<Cursor>, StoreError> {
    let query =
        sqlx::query("SELECT stream_created, sequence FROM ledger_cursor WHERE stream = ?").bind(STREAM);
    let row = query.fetch_optional(connection).await.map_err(sort)?;
    row.map(|row| {
        Ok(Cursor {
            stream_created: row::integer(&row, "stream_created")?,
            sequence: row::count(&row, "sequence")?,
        })
    })
    .transpose()
}

/// Which events of each source are kept: the marks, what is kept beyond them, what was declared lost.
pub(super) async fn coverage(connection: &mut SqliteConnection) -> Result<Coverage, StoreError> {
    let mut coverage = Coverage::default();
    let mut marks = sqlx::query("SELECT source, sequence FROM ledger_marks").fetch(&mut *connection);
    while let Some(row) = marks.try_next().await.map_err(sort)? {
        coverage.cover(&row::text(&row, "source")?, 1, row::count(&row, "sequence")?);
    }
    drop(marks);
    let beyond = "SELECT event_log.source AS source, source_sequence FROM ledger_marks \
         JOIN event_log ON event_log.source = ledger_marks.source AND source_sequence > sequence";
    let mut beyond = sqlx::query(beyond).fetch(&mut *connection);
    while let Some(row) = beyond.try_next().await.map_err(sort)? {
        let sequence = row::count(&row, "source_sequence")?;
        coverage.cover(&row::text(&row, "source")?, sequence, sequence);
    }
    drop(beyond);
    // The type as a literal: only then is the partial index used.
    let kind = subject::SPOOL_LOST;
    let lost = format!("SELECT event_id, envelope FROM event_log WHERE type = '{kind}'");
    let lost = sqlx::query(AssertSqlSafe(lost));
    let mut lost = lost.fetch(connection);
    while let Some(row) = lost.try_next().await.map_err(sort)? {
        record(&row)?.cover(&mut coverage);
    }
    Ok(coverage)
}

/// The record of an `event_log` row with columns `event_id` and `envelope`.
pub(super) fn record(row: &SqliteRow) -> Result<Record, StoreError> {
    let unreadable = |_| StoreError::Unreadable { column: "envelope" };
    let envelope: &[u8] = row.try_get_unchecked("envelope").map_err(unreadable)?;
    Ok(Record::read_again(
        &row::text(row, "event_id")?,
        Bytes::copy_from_slice(envelope),
    ))
}

/// What the books of one schema hold about these requests.
pub(super) async fn existing(
    connection: &mut SqliteConnection,
    schema: Schema,
    ids: &[RequestId],
) -> Result<BTreeMap<RequestId, Standing>, StoreError> {
    let places = vec!["?"; EXISTING_IDS].join(",");
    let schema = schema.name();
    let text = format!("SELECT {STANDING_COLUMNS} FROM {schema}.api_logs WHERE request_id IN ({places})");
    let text: std::sync::Arc<str> = text.into();
    let mut existing = BTreeMap::new();
    for chunk in ids.chunks(EXISTING_IDS) {
        let mut values = Values::default();
        for id in chunk {
            values.put(id.to_string());
        }
        // Places without a value are NULL and match nothing.
        let query = sqlx::query_with(AssertSqlSafe(text.clone()), values.finish().map_err(sort)?);
        let mut rows = query.fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(sort)? {
            let (id, standing) = row::standing(&row)?;
            existing.insert(id, standing);
        }
    }
    Ok(existing)
}

/// The sources that have open requests.
pub(super) async fn open_sources(connection: &mut SqliteConnection) -> Result<Vec<Arc<str>>, StoreError> {
    let query = sqlx::query("SELECT DISTINCT source FROM open_requests ORDER BY source");
    let rows = query.fetch_all(connection).await.map_err(sort)?;
    rows.iter()
        .map(|row| Ok(Arc::from(&*row::text(row, "source")?)))
        .collect()
}

/// The open requests of a source, oldest first. An event that cannot be read is left out.
pub(super) async fn open_requests(
    connection: &mut SqliteConnection,
    source: &str,
    requests_max: usize,
) -> Result<Vec<RequestAccepted>, StoreError> {
    let text = "SELECT event_log.envelope AS envelope FROM open_requests \
         JOIN event_log USING (source, source_sequence, event_id) \
         WHERE open_requests.source = ? ORDER BY open_requests.request_id LIMIT ?";
    let query = sqlx::query(text)
        .bind(source)
        .bind(i64::try_from(requests_max).unwrap_or(i64::MAX));
    let mut rows = query.fetch(connection);
    let mut open = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(sort)? {
        open.extend(record::accepted(row::text(&row, "envelope")?.as_bytes()));
    }
    Ok(open)
}

/// The ids of the events at one place of a source.
pub(super) async fn event_ids(
    connection: &mut SqliteConnection,
    source: &str,
    source_sequence: u64,
) -> Result<Vec<Arc<str>>, StoreError> {
    let text = "SELECT event_id FROM event_log WHERE source = ? AND source_sequence = ? ORDER BY event_id";
    let query = sqlx::query(text)
        .bind(source)
        .bind(i64::try_from(source_sequence).unwrap_or(i64::MAX));
    let rows = query.fetch_all(connection).await.map_err(sort)?;
    rows.iter()
        .map(|row| Ok(Arc::from(&*row::text(row, "event_id")?)))
        .collect()
}

/// The events of a source beyond a place.
pub(super) async fn events_after(
    connection: &mut SqliteConnection,
    (source, source_sequence): (&str, u64),
    events_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let text = "SELECT event_id, envelope FROM event_log WHERE source = ? AND source_sequence > ? \
         ORDER BY source_sequence LIMIT ?";
    let query = sqlx::query(text)
        .bind(source)
        .bind(i64::try_from(source_sequence).unwrap_or(i64::MAX))
        .bind(i64::try_from(events_max).unwrap_or(i64::MAX));
    let rows = query.fetch_all(connection).await.map_err(sort)?;
    rows.iter().map(record).collect()
}

/// Events of requests that ended beyond a place of the books.
pub(super) async fn booked(
    connection: &mut SqliteConnection,
    (tenant, after): (Option<&str>, u64),
    events_max: usize,
) -> Result<Vec<(u64, Record)>, StoreError> {
    let mut clause = Clause::default();
    // The types as literals: only then is the partial index used.
    clause.fragment(&row::ended());
    clause.add_if("subject = ?", tenant.map(str::to_owned));
    clause.add("position > ?", i64::try_from(after).unwrap_or(i64::MAX));
    let text = format!(
        "SELECT position, event_id, envelope FROM event_log{} ORDER BY position LIMIT ?",
        clause.text
    );
    clause.values.put(i64::try_from(events_max).unwrap_or(i64::MAX));
    let values = clause.values.finish().map_err(sort)?;
    let rows = sqlx::query_with(AssertSqlSafe(text), values);
    let rows = rows.fetch_all(connection).await.map_err(sort)?;
    let placed = |row: &SqliteRow| Ok((row::count(row, "position")?, record(row)?));
    rows.iter().map(placed).collect()
}

/// The last place of the books.
pub(super) async fn last_place(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let query = sqlx::query("SELECT COALESCE(MAX(position), 0) AS position FROM event_log");
    let row = query.fetch_one(connection).await.map_err(sort)?;
    row::count(&row, "position")
}

/// Events of changes, the highest id first, each once.
pub(super) async fn audits(
    connection: &mut SqliteConnection,
    range: &AuditRange,
    events_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut clause = Clause::default();
    // The type as a literal: only then are the partial indexes used.
    clause.fragment(&format!("type = '{}'", subject::AUDIT));
    clause.add_if("subject = ?", range.tenant.clone());
    clause.add_if("event_id < ?", range.below.clone());
    clause.add_if("event_id >= ?", range.least.clone());
    let text = format!(
        "SELECT event_id, envelope FROM event_log{} GROUP BY event_id ORDER BY event_id DESC LIMIT ?",
        clause.text
    );
    clause.values.put(i64::try_from(events_max).unwrap_or(i64::MAX));
    let values = clause.values.finish().map_err(sort)?;
    let rows = sqlx::query_with(AssertSqlSafe(text), values);
    let rows = rows.fetch_all(connection).await.map_err(sort)?;
    rows.iter().map(record).collect()
}

/// Events that seal rows, as they were booked.
pub(super) async fn seals(
    connection: &mut SqliteConnection,
    tenant: Option<&str>,
) -> Result<Vec<Record>, StoreError> {
    let mut clause = Clause::default();
    // The type as a literal: only then is the partial index used.
    clause.fragment(&format!("type = '{}'", subject::LEDGER_SEALED));
    clause.add_if("subject = ?", tenant.map(str::to_owned));
    let text = format!(
        "SELECT event_id, envelope FROM event_log{} ORDER BY position",
        clause.text
    );
    let values = clause.values.finish().map_err(sort)?;
    let rows = sqlx::query_with(AssertSqlSafe(text), values);
    let rows = rows.fetch_all(connection).await.map_err(sort)?;
    rows.iter().map(record).collect()
}

/// How many rows of a day are not provisional, by tenant.
pub(super) async fn rows_of_day(
    connection: &mut SqliteConnection,
    day: NaiveDate,
) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
    let (from, to) = ids_of_day(day);
    let text = "SELECT tenant, count(*) AS requests FROM api_logs \
         WHERE request_id >= ? AND request_id < ? AND NOT provisional GROUP BY tenant ORDER BY tenant";
    let query = sqlx::query(text).bind(from.to_string()).bind(to.to_string());
    let rows = query.fetch_all(connection).await.map_err(sort)?;
    rows.iter()
        .map(|row| Ok((Arc::from(row::text(row, "tenant")?), row::count(row, "requests")?)))
        .collect()
}

/// Rows of a tenant and a day beyond an id.
pub(super) async fn day_rows(
    connection: &mut SqliteConnection,
    (tenant, day): (&str, NaiveDate),
    (after, rows_max): (Option<RequestId>, usize),
) -> Result<Vec<Waybill>, StoreError> {
    let (from, to) = ids_of_day(day);
    let mut clause = Clause::default();
    clause.add("tenant = ?", tenant.to_owned());
    clause.add("request_id >= ?", from.to_string());
    clause.add("request_id < ?", to.to_string());
    clause.add_if("request_id > ?", after.map(|after| after.to_string()));
    let text = format!(
        "SELECT * FROM api_logs{} ORDER BY request_id LIMIT ?",
        clause.text
    );
    clause.values.put(i64::try_from(rows_max).unwrap_or(i64::MAX));
    let values = clause.values.finish().map_err(sort)?;
    let rows = sqlx::query_with(AssertSqlSafe(text), values);
    let rows = rows.fetch_all(connection).await.map_err(sort)?;
    rows.iter().map(row::waybill).collect()
}

/// A page of rows, newest first.
pub(super) async fn logs(
    connection: &mut SqliteConnection,
    query: &LogsQuery,
) -> Result<LogsAnswer, StoreError> {
    let mut clause = Clause::default();
    clause.filter(&query.filter);
    if let Some(after) = query.after {
        clause.add("request_id < ?", after.to_string());
    }
    let text = format!(
        "SELECT * FROM api_logs{} ORDER BY request_id DESC LIMIT ?",
        clause.text
    );
    clause.values.put(i64::from(query.limit) + 1);
    let values = clause.values.finish().map_err(sort)?;
    let mut found = sqlx::query_with(AssertSqlSafe(text), values).fetch(connection);
    let mut data = Vec::new();
    while let Some(row) = found.try_next().await.map_err(sort)? {
        data.push(row::read(&row)?);
    }
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let more = data.len() > limit;
    data.truncate(limit);
    let next = if more {
        data.last().map(|row| row.settled.request_id)
    } else {
        None
    };
    Ok(LogsAnswer {
        data,
        next,
        adjustments: BTreeMap::new(),
    })
}

/// One row and its envelope.
pub(super) async fn log(
    connection: &mut SqliteConnection,
    query: &LogQuery,
) -> Result<LogAnswer, StoreError> {
    let mut clause = Clause::default();
    clause.add("request_id = ?", query.request_id.to_string());
    clause.add_if("tenant = ?", query.tenant.as_ref().map(|tenant| tenant.0.clone()));
    clause.add_if("key_id = ?", query.key.as_ref().map(|key| key.0.clone()));
    let text = format!("SELECT * FROM api_logs{}", clause.text);
    let values = clause.values.finish().map_err(sort)?;
    let found = sqlx::query_with(AssertSqlSafe(text), values)
        .fetch_optional(&mut *connection)
        .await
        .map_err(sort)?;
    let Some(found) = found else {
        return Ok(LogAnswer {
            row: None,
            event: None,
        });
    };
    let row = row::read(&found)?;
    let envelope = sqlx::query(
        "SELECT envelope FROM event_log WHERE source = ? AND source_sequence = ? AND event_id = ?",
    )
    .bind(row.source.as_str())
    .bind(i64::try_from(row.source_sequence).unwrap_or(i64::MAX))
    .bind(row::text(&found, "event_id")?.into_owned());
    let envelope = envelope.fetch_optional(connection).await.map_err(sort)?;
    let event = match envelope {
        Some(envelope) => RawValue::from_string(row::text(&envelope, "envelope")?.into_owned()).ok(),
        None => None,
    };
    Ok(LogAnswer {
        row: Some(row),
        event,
    })
}

/// The start of the 15 minutes that a row is of.
const BUCKET: &str = "substr(started_at, 1, 14) || printf('%02d', CAST(substr(started_at, 15, 2) AS INTEGER) / 15 * 15) \
    || ':00.000000Z'";

/// Sums by group and bucket.
pub(super) async fn usage(
    connection: &mut SqliteConnection,
    query: &UsageQuery,
) -> Result<Vec<UsageRow>, StoreError> {
    let mut tally = Tally::new(query)?;
    let filter = &query.filter;
    let bucket = query.interval.map(|_| BUCKET);
    add_adjustments(connection, (bucket, filter), &mut tally).await?;
    if is_of_rows(query) {
        let mut clause = Clause::default();
        clause.filter(filter);
        add_sums(connection, (Summed::AllRows { bucket }, clause), &mut tally).await?;
        return Ok(tally.finish());
    }
    let parts = Span::of(filter).parts();
    if let Some(whole) = parts.whole {
        let mut clause = Clause::default();
        clause.add_if("bucket >= ?", whole.from.map(|from| from.to_string()));
        clause.add_if("bucket < ?", whole.to.map(|to| to.to_string()));
        clause.parties(filter);
        clause.endpoint(filter);
        let summed = Summed::Buckets {
            apart: query.interval.is_some(),
        };
        add_sums(connection, (summed, clause), &mut tally).await?;
    }
    for edge in parts.edges {
        let mut clause = Clause::default();
        clause.filter(&edge.of_filter(filter));
        let (least, beyond) = edge.ids();
        clause.add_if("request_id >= ?", least.map(|id| id.to_string()));
        clause.add_if("request_id < ?", beyond.map(|id| id.to_string()));
        add_sums(connection, (Summed::Rows(edge), clause), &mut tally).await?;
    }
    Ok(tally.finish())
}

/// Adds what was adjusted of the rows that a filter selects.
async fn add_adjustments(
    connection: &mut SqliteConnection,
    (bucket, filter): (Option<&'static str>, &LogFilter),
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let summed = Summed::Adjustments { bucket };
    let mut clause = Clause::default();
    clause.parties(filter);
    clause.endpoint(filter);
    clause.add_if("started_at >= ?", filter.from.map(|from| from.to_string()));
    clause.add_if("started_at < ?", filter.to.map(|to| to.to_string()));
    let figure = format!("{} AS adjusted_nano_usd", summed.figure("adjusted_nano_usd"));
    let text = summed.statement(&[figure], &clause.text, tally.group_by());
    let values = clause.values.finish().map_err(sort)?;
    let mut found = sqlx::query_with(AssertSqlSafe(text), values).fetch(connection);
    while let Some(row) = found.try_next().await.map_err(sort)? {
        let names = row::names(&row, tally.group_by())?;
        tally.add(summed.start(&row)?, names, row::adjusted(&row)?)?;
    }
    Ok(())
}

/// Adds the sums of what a clause selects.
async fn add_sums(
    connection: &mut SqliteConnection,
    (summed, clause): (Summed, Clause),
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let figures = FIGURES.map(|figure| format!("{} AS {figure}", summed.figure(figure)));
    let text = summed.statement(&figures, &clause.text, tally.group_by());
    let values = clause.values.finish().map_err(sort)?;
    let mut found = sqlx::query_with(AssertSqlSafe(text), values).fetch(connection);
    while let Some(row) = found.try_next().await.map_err(sort)? {
        let names = row::names(&row, tally.group_by())?;
        tally.add(summed.start(&row)?, names, row::sums(&row)?)?;
    }
    Ok(())
}

/// A WHERE clause in the making: fixed fragments, and the values for their places.
#[derive(Default)]
pub(super) struct Clause {
    pub(super) text: String,
    pub(super) values: Values,
}

impl Clause {
    pub(super) fn fragment(&mut self, fragment: &str) {
        self.text
            .push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(fragment);
    }

    pub(super) fn add<'t, T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(
        &mut self,
        fragment: &str,
        value: T,
    ) {
        self.fragment(fragment);
        self.values.put(value);
    }

    fn add_if<'t, T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(
        &mut self,
        fragment: &str,
        value: Option<T>,
    ) {
        if let Some(value) = value {
            self.add(fragment, value);
        }
    }

    fn parties(&mut self, filter: &LogFilter) {
        self.add_if(
            "tenant = ?",
            filter.tenant.as_ref().map(|tenant| tenant.0.clone()),
        );
        self.add_if("\"user\" = ?", filter.user.as_ref().map(|user| user.0.clone()));
        self.add_if("key_id = ?", filter.key.as_ref().map(|key| key.0.clone()));
        self.add_if("job_id = ?", filter.job.clone());
        self.add_if("model = ?", filter.model.as_ref().map(|model| model.0.clone()));
        self.add_if("served_model = ?", filter.served_model.clone());
    }

    fn endpoint(&mut self, filter: &LogFilter) {
        self.add_if(
            "endpoint_id = ?",
            filter.endpoint.as_ref().map(|endpoint| endpoint.0.clone()),
        );
    }

    fn filter(&mut self, filter: &LogFilter) {
        self.parties(filter);
        self.endpoint(filter);
        self.add_if("status = ?", filter.status.map(i64::from));
        self.add_if("request_id = ?", filter.request_id.map(|id| id.to_string()));
        if let Some(outcome) = filter.outcome {
            self.outcome(outcome);
        }
        if let Some(from) = filter.from {
            self.add("started_at >= ?", from.to_string());
            self.add(
                "request_id >= ?",
                least_id(from.plus_micros(-MINTED_APART_MICROS)).to_string(),
            );
        }
        if let Some(to) = filter.to {
            self.add("started_at < ?", to.to_string());
            self.add(
                "request_id < ?",
                least_id(to.plus_micros(MINTED_APART_MICROS)).to_string(),
            );
        }
    }

    /// An outcome as a literal: only then is the partial index of failures used.
    fn outcome(&mut self, outcome: Outcome) {
        let word = outcome.as_str();
        self.fragment(&format!("outcome = '{word}'"));
        if outcome != Outcome::Ok {
            self.fragment("outcome <> 'ok'");
        }
    }
}
