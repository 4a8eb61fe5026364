//! Reads: pages of the request log, one request, sums, and what a writer has to know before it writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use chrono::NaiveDate;
use futures_util::TryStreamExt as _;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::outcome::Outcome;
use schemas::query::{LogAnswer, LogFilter, LogQuery, LogsAnswer, LogsQuery, Row, UsageQuery, UsageRow};
use schemas::subject;
use serde_json::value::RawValue;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Encode, Postgres, Row as _, Type};
use uuid::Uuid;

use super::row as value;
use super::session::sort;
use super::text;
use super::write::{STREAM, capped_sum};
use crate::coverage::Coverage;
use crate::record::{self, Record, Waybill};
use crate::store::row::{self, COLUMNS, FIGURES, capped, unreadable};
use crate::store::sums::{Summed, ids_of_day};
use crate::store::{AuditRange, Cursor, StoreError};
use crate::usage::{Span, Tally, is_of_rows};

/// How far a request's admission may be from the moment inside its id, in microseconds. Only narrows a scan.
const MINTED_APART_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// How far the stream is applied.
pub(super) async fn cursor(connection: &mut PgConnection) -> Result<Option<Cursor>, StoreError> {
    let query =
        sqlx::query("SELECT stream_created, sequence FROM ledger_cursor WHERE stream = $1").bind(STREAM);
    let found = query.fetch_optional(connection).await.map_err(sort)?;
    found
        .map(|found| {
            Ok(Cursor {
                stream_created: row::integer(&found, "stream_created")?,
                sequence: row::count(&found, "sequence")?,
            })
        })
        .transpose()
}

/// Which events of each source are kept: the marks, what is kept beyond them, what was declared lost; all as of one
/// moment, as another ledger may move marks meanwhile.
pub(super) async fn coverage(connection: &mut PgConnection) -> Result<Coverage, StoreError> {
    let moment = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let mut transaction = connection.begin_with(moment).await.map_err(sort)?;
    let coverage = coverage_of(&mut transaction).await?;
    transaction.commit().await.map_err(sort)?;
    Ok(coverage)
}

async fn coverage_of(connection: &mut PgConnection) -> Result<Coverage, StoreError> {
    let mut coverage = Coverage::default();
    let mut marks = sqlx::query("SELECT source, sequence FROM ledger_marks").fetch(&mut *connection);
    while let Some(found) = marks.try_next().await.map_err(sort)? {
        let mark = row::count(&found, "sequence")?;
        coverage.cover(&row::text(&found, "source")?, 1, mark);
    }
    drop(marks);
    // The inner query is not worked into the outer one: per source the end of its key's range is read, no more.
    let beyond = "SELECT held.source, kept.source_sequence FROM ledger_marks AS held CROSS JOIN LATERAL \
         (SELECT source_sequence FROM event_log \
          WHERE event_log.source = held.source AND event_log.source_sequence > held.sequence \
          ORDER BY source_sequence OFFSET 0) AS kept";
    let mut beyond = sqlx::query(beyond).fetch(&mut *connection);
    while let Some(found) = beyond.try_next().await.map_err(sort)? {
        let sequence = row::count(&found, "source_sequence")?;
        coverage.cover(&row::text(&found, "source")?, sequence, sequence);
    }
    drop(beyond);
    // The type as a literal: only then is the partial index used.
    let kind = subject::SPOOL_LOST;
    let lost = format!("SELECT event_id, envelope FROM event_log WHERE type = '{kind}'");
    let mut lost = sqlx::query(AssertSqlSafe(lost)).fetch(connection);
    while let Some(found) = lost.try_next().await.map_err(sort)? {
        read_record(&found)?.cover(&mut coverage);
    }
    Ok(coverage)
}

/// The record of an `event_log` row with columns `event_id` and `envelope`.
pub(super) fn read_record(found: &PgRow) -> Result<Record, StoreError> {
    let event_id = row::text(found, "event_id")?;
    Ok(Record::read_again(
        &event_id,
        Bytes::copy_from_slice(envelope(found)?),
    ))
}

fn envelope(found: &PgRow) -> Result<&[u8], StoreError> {
    found.try_get("envelope").map_err(|_| unreadable("envelope"))
}

/// The sources that have open requests.
pub(super) async fn open_sources(connection: &mut PgConnection) -> Result<Vec<Arc<str>>, StoreError> {
    let query = sqlx::query("SELECT DISTINCT source FROM open_requests ORDER BY source");
    let found = query.fetch_all(connection).await.map_err(sort)?;
    let source = |found: &PgRow| Ok(Arc::from(row::text(found, "source")?));
    found.iter().map(source).collect()
}

/// The open requests of a source, oldest first. An event that cannot be read is left out.
pub(super) async fn open_requests(
    connection: &mut PgConnection,
    source: &str,
    requests_max: usize,
) -> Result<Vec<RequestAccepted>, StoreError> {
    let text = "SELECT event_log.envelope AS envelope FROM open_requests \
         JOIN event_log USING (source, source_sequence, event_id) \
         WHERE open_requests.source = $1 ORDER BY open_requests.request_id LIMIT $2";
    let query = sqlx::query(text)
        .bind(text::kept(source).into_owned())
        .bind(i64::try_from(requests_max).unwrap_or(i64::MAX));
    let found = query.fetch_all(connection).await.map_err(sort)?;
    let mut open = Vec::new();
    for found in &found {
        open.extend(record::accepted(envelope(found)?));
    }
    Ok(open)
}

/// The ids of the events at one place of a source.
pub(super) async fn event_ids(
    connection: &mut PgConnection,
    source: &str,
    source_sequence: u64,
) -> Result<Vec<Arc<str>>, StoreError> {
    let text = "SELECT event_id FROM event_log WHERE source = $1 AND source_sequence = $2 ORDER BY event_id";
    let query = sqlx::query(text)
        .bind(text::kept(source).into_owned())
        .bind(capped(source_sequence));
    let found = query.fetch_all(connection).await.map_err(sort)?;
    let event_id = |found: &PgRow| Ok(Arc::from(row::text(found, "event_id")?));
    found.iter().map(event_id).collect()
}

/// The events of a source beyond a place.
pub(super) async fn events_after(
    connection: &mut PgConnection,
    (source, source_sequence): (&str, u64),
    events_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let text = "SELECT event_id, envelope FROM event_log WHERE source = $1 AND source_sequence > $2 \
         ORDER BY source_sequence LIMIT $3";
    let query = sqlx::query(text)
        .bind(text::kept(source).into_owned())
        .bind(capped(source_sequence))
        .bind(i64::try_from(events_max).unwrap_or(i64::MAX));
    let found = query.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(read_record).collect()
}

/// Events of requests that ended beyond a place of the books.
pub(super) async fn booked(
    connection: &mut PgConnection,
    (tenant, after): (Option<&str>, u64),
    events_max: usize,
) -> Result<Vec<(u64, Record)>, StoreError> {
    let mut clause = Clause::default();
    // The types as literals: only then is the partial index used.
    clause.fragment(&row::ended());
    clause.add_text("subject =", tenant);
    clause.add("position >", capped(after));
    clause.text.push_str(" ORDER BY position LIMIT");
    clause.place(i64::try_from(events_max).unwrap_or(i64::MAX));
    let statement = format!(
        "SELECT position, event_id, envelope FROM event_log{}",
        clause.text
    );
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    let placed = |found: &PgRow| Ok((row::count(found, "position")?, read_record(found)?));
    found.iter().map(placed).collect()
}

/// The last place of the books.
pub(super) async fn last_place(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let query = sqlx::query("SELECT COALESCE(MAX(position), 0) AS position FROM event_log");
    let found = query.fetch_one(connection).await.map_err(sort)?;
    row::count(&found, "position")
}

/// Events of changes, the highest id first, each once.
pub(super) async fn audits(
    connection: &mut PgConnection,
    range: &AuditRange,
    events_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let mut clause = Clause::default();
    // The type as a literal: only then are the partial indexes used.
    clause.fragment(&format!("type = '{}'", subject::AUDIT));
    clause.add_text("subject =", range.tenant.as_deref());
    clause.add_text("event_id <", range.below.as_deref());
    clause.add_text("event_id >=", range.least.as_deref());
    clause.text.push_str(" ORDER BY event_id DESC LIMIT");
    clause.place(i64::try_from(events_max).unwrap_or(i64::MAX));
    let statement = format!(
        "SELECT DISTINCT ON (event_id) event_id, envelope FROM event_log{}",
        clause.text
    );
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(read_record).collect()
}

/// Events that seal rows, as they were booked.
pub(super) async fn seals(
    connection: &mut PgConnection,
    tenant: Option<&str>,
) -> Result<Vec<Record>, StoreError> {
    let mut clause = Clause::default();
    // The type as a literal: only then is the partial index used.
    clause.fragment(&format!("type = '{}'", subject::LEDGER_SEALED));
    clause.add_text("subject =", tenant);
    let statement = format!(
        "SELECT event_id, envelope FROM event_log{} ORDER BY position",
        clause.text
    );
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(read_record).collect()
}

/// How many rows of a day are not provisional, by tenant.
pub(super) async fn rows_of_day(
    connection: &mut PgConnection,
    day: NaiveDate,
) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
    let mut clause = Clause::of_day(day);
    clause.fragment("NOT provisional");
    let statement = format!(
        "SELECT tenant, count(*) AS requests FROM api_logs{} GROUP BY tenant ORDER BY tenant",
        clause.text
    );
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    let counted = |found: &PgRow| {
        Ok((
            Arc::from(row::text(found, "tenant")?),
            row::count(found, "requests")?,
        ))
    };
    found.iter().map(counted).collect()
}

/// Rows of a tenant and a day beyond an id.
pub(super) async fn day_rows(
    connection: &mut PgConnection,
    (tenant, day): (&str, NaiveDate),
    (after, rows_max): (Option<RequestId>, usize),
) -> Result<Vec<Waybill>, StoreError> {
    let mut clause = Clause::of_day(day);
    clause.add_text("tenant =", Some(tenant));
    if let Some(after) = after {
        clause.add("request_id >", after.0);
    }
    clause.text.push_str(" ORDER BY request_id LIMIT");
    clause.place(i64::try_from(rows_max).unwrap_or(i64::MAX));
    let statement = format!("{}{}", select(), clause.text);
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(row::waybill).collect()
}

/// A page of rows, newest first: by the day inside the id, then by the id.
pub(super) async fn logs(connection: &mut PgConnection, query: &LogsQuery) -> Result<LogsAnswer, StoreError> {
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut data = Vec::new();
    let mut ranges = match query.after {
        Some(after) => {
            let day = value::partition_day(after);
            vec![Range::Before(day), Range::Within(day, after.0)]
        }
        None => vec![Range::All],
    };
    // One statement per range, as the planner knows the bounds of each and takes an index for both.
    while let Some(range) = ranges.pop()
        && data.len() <= limit
    {
        let rows_max = i64::from(query.limit) + 1 - i64::try_from(data.len()).unwrap_or(i64::MAX);
        read_range(connection, &query.filter, (range, rows_max), &mut data).await?;
    }
    let more = data.len() > limit;
    data.truncate(limit);
    let last = data.last().filter(|_| more);
    let next = last.map(|row| row.settled.request_id);
    Ok(LogsAnswer {
        data,
        next,
        adjustments: BTreeMap::new(),
    })
}

/// Which rows a page goes on with.
#[derive(Debug, Clone, Copy)]
enum Range {
    /// Any.
    All,
    /// Of this day, with an id below this one.
    Within(NaiveDate, Uuid),
    /// Of a day before this one.
    Before(NaiveDate),
}

async fn read_range(
    connection: &mut PgConnection,
    filter: &LogFilter,
    (range, rows_max): (Range, i64),
    data: &mut Vec<Row>,
) -> Result<(), StoreError> {
    let mut clause = Clause::default();
    clause.filter(filter);
    match range {
        Range::All => {}
        Range::Within(day, id) => {
            clause.add("day =", day);
            clause.add("request_id <", id);
        }
        Range::Before(day) => clause.add("day <", day),
    }
    clause.text.push_str(" ORDER BY day DESC, request_id DESC LIMIT");
    clause.place(rows_max);
    let statement = format!("{} {}", select(), clause.text);
    let mut found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?).fetch(connection);
    while let Some(found) = found.try_next().await.map_err(sort)? {
        data.push(row::read(&found)?);
    }
    Ok(())
}

/// Whole rows. Columns by name: one that a newer program adds meanwhile changes no statement that is prepared.
fn select() -> String {
    format!("SELECT {} FROM api_logs", COLUMNS.join(", "))
}

/// One row and its envelope.
pub(super) async fn log(connection: &mut PgConnection, query: &LogQuery) -> Result<LogAnswer, StoreError> {
    let mut clause = Clause::default();
    clause.add("day =", value::partition_day(query.request_id));
    clause.add("request_id =", query.request_id.0);
    clause.add_text("tenant =", query.tenant.as_ref().map(|tenant| &*tenant.0));
    clause.add_text("key_id =", query.key.as_ref().map(|key| &*key.0));
    let statement = format!("{} {}", select(), clause.text);
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?)
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
    let kept = sqlx::query(
        "SELECT envelope FROM event_log WHERE source = $1 AND source_sequence = $2 AND event_id = $3",
    )
    .bind(text::kept(&row.source).into_owned())
    .bind(capped(row.source_sequence))
    .bind(text::kept(&row::text(&found, "event_id")?).into_owned());
    let kept = kept.fetch_optional(connection).await.map_err(sort)?;
    let event = match kept {
        Some(kept) => {
            let json = String::from_utf8(envelope(&kept)?.to_vec()).ok();
            json.and_then(|json| RawValue::from_string(json).ok())
        }
        None => None,
    };
    Ok(LogAnswer {
        row: Some(row),
        event,
    })
}

/// The start of the 15 minutes that a row is of.
const BUCKET: &str = "to_timestamp(floor(extract(epoch FROM started_at) / 900) * 900)";

/// Sums by group and bucket.
pub(super) async fn usage(
    connection: &mut PgConnection,
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
        if let Some(from) = whole.from {
            clause.add("bucket >=", value::time(from));
        }
        if let Some(to) = whole.to {
            clause.add("bucket <", value::time(to));
        }
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
        if let Some(least) = least {
            clause.add("request_id >=", least);
        }
        if let Some(beyond) = beyond {
            clause.add("request_id <", beyond);
        }
        add_sums(connection, (Summed::Rows(edge), clause), &mut tally).await?;
    }
    Ok(tally.finish())
}

/// Adds what was adjusted of the rows that a filter selects.
async fn add_adjustments(
    connection: &mut PgConnection,
    (bucket, filter): (Option<&'static str>, &LogFilter),
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let summed = Summed::Adjustments { bucket };
    let mut clause = Clause::default();
    clause.parties(filter);
    clause.endpoint(filter);
    if let Some(from) = filter.from {
        clause.add("started_at >=", value::time(from));
    }
    if let Some(to) = filter.to {
        clause.add("started_at <", value::time(to));
    }
    let figure = capped_sum(&summed.figure("adjusted_nano_usd"));
    let figure = format!("{figure} AS adjusted_nano_usd");
    let statement = summed.statement(&[figure], &clause.text, tally.group_by());
    let mut found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?).fetch(connection);
    while let Some(found) = found.try_next().await.map_err(sort)? {
        let names = row::names(&found, tally.group_by())?;
        tally.add(summed.start(&found)?, names, row::adjusted(&found)?)?;
    }
    Ok(())
}

/// Adds the sums of what a clause selects.
async fn add_sums(
    connection: &mut PgConnection,
    (summed, clause): (Summed, Clause),
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let figure = |figure: &str| format!("{} AS {figure}", capped_sum(&summed.figure(figure)));
    let statement = summed.statement(&FIGURES.map(figure), &clause.text, tally.group_by());
    let mut found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?).fetch(connection);
    while let Some(found) = found.try_next().await.map_err(sort)? {
        let names = row::names(&found, tally.group_by())?;
        tally.add(summed.start(&found)?, names, row::sums(&found)?)?;
    }
    Ok(())
}

/// A WHERE clause in the making: fixed fragments, and the values for their places.
#[derive(Default)]
pub(super) struct Clause {
    pub(super) text: String,
    arguments: PgArguments,
    failure: Option<sqlx::Error>,
}

impl Clause {
    /// Rows whose ids are of a UTC day, in the partition of the day or in that of ids without one.
    fn of_day(day: NaiveDate) -> Self {
        let (from, to) = ids_of_day(day);
        let mut clause = Self::default();
        clause.fragment("day IN (");
        clause.place(day);
        clause.text.push_str(", '1970-01-01')");
        clause.add("request_id >=", from);
        clause.add("request_id <", to);
        clause
    }

    pub(super) fn fragment(&mut self, fragment: &str) {
        self.text
            .push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(fragment);
    }

    /// The place of the next value.
    pub(super) fn place<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) {
        if let Err(source) = self.arguments.add(value) {
            self.failure = Some(sqlx::Error::Encode(source));
        }
        let _ = write!(self.text, " ${}", self.arguments.len());
    }

    pub(super) fn add<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, fragment: &str, value: T) {
        self.fragment(fragment);
        self.place(value);
    }

    pub(super) fn add_text(&mut self, fragment: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(fragment, text::kept(value).into_owned());
        }
    }

    fn parties(&mut self, filter: &LogFilter) {
        self.add_text("tenant =", filter.tenant.as_ref().map(|tenant| &*tenant.0));
        self.add_text("\"user\" =", filter.user.as_ref().map(|user| &*user.0));
        self.add_text("key_id =", filter.key.as_ref().map(|key| &*key.0));
        self.add_text("job_id =", filter.job.as_deref());
        self.add_text("model =", filter.model.as_ref().map(|model| &*model.0));
        self.add_text("served_model =", filter.served_model.as_deref());
    }

    fn endpoint(&mut self, filter: &LogFilter) {
        self.add_text(
            "endpoint_id =",
            filter.endpoint.as_ref().map(|endpoint| &*endpoint.0),
        );
    }

    fn filter(&mut self, filter: &LogFilter) {
        self.parties(filter);
        self.endpoint(filter);
        if let Some(status) = filter.status {
            self.add("status =", i64::from(status));
        }
        if let Some(id) = filter.request_id {
            self.add("day =", value::partition_day(id));
            self.add("request_id =", id.0);
        }
        if let Some(outcome) = filter.outcome {
            self.outcome(outcome);
        }
        if let Some(from) = filter.from {
            self.add("started_at >=", value::time(from));
            let first = value::day(from.plus_micros(-MINTED_APART_MICROS).day());
            self.add("(day >=", first);
            self.text.push_str(" OR day =");
            self.place(value::no_day());
            self.text.push(')');
        }
        if let Some(to) = filter.to {
            self.add("started_at <", value::time(to));
            self.add("day <=", value::day(to.plus_micros(MINTED_APART_MICROS).day()));
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

    /// The values, or the first that could not be written.
    pub(super) fn finish(self) -> Result<PgArguments, StoreError> {
        self.failure
            .map_or(Ok(self.arguments), |failure| Err(sort(failure)))
    }
}
