//! Writing a batch: one transaction, a few statements however many rows. The cursor comes first: it is the one
//! lock that two ledgers meet at.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::TryStreamExt as _;
use schemas::id::RequestId;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use uuid::Uuid;

use super::copy::Copy;
use super::session::sort;
use super::{row as value, text};
use crate::fold::{self, Changes, Group, Opened, Standing, Sums};
use crate::record::{Adjustment, Record, Waybill};
use crate::store::row::{self, COLUMNS, FIGURES, STANDING_COLUMNS, Sink as _, capped};
use crate::store::{Applied, Batch, Cursor, StoreError, adjustment};

/// The stream that the cursor belongs to; there is one.
pub(super) const STREAM: &str = schemas::subject::EVENTS_STREAM;

/// Envelopes of which none is kept already.
const NEW_EVENTS: &str = "COPY event_log \
     (source, source_sequence, event_id, type, subject, time, stream_sequence, envelope) \
     FROM STDIN (FORMAT binary)";
/// The columns of an envelope.
const EVENT_COLUMNS: usize = 8;

/// Envelopes of which some may be kept already, at about twice the price.
const EVENTS: &str = "INSERT INTO event_log \
     (source, source_sequence, event_id, type, subject, time, stream_sequence, envelope) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], \
     $7::bigint[], $8::bytea[]) ON CONFLICT DO NOTHING";

const MARKS: &str = "INSERT INTO ledger_marks AS held (source, sequence) \
     SELECT * FROM unnest($1::text[], $2::bigint[]) \
     ON CONFLICT (source) DO UPDATE SET sequence = excluded.sequence WHERE held.sequence < excluded.sequence";

/// The dimensions of a sum, as arrays of one length.
const GROUPS: &str = "$1::timestamptz[], $2::date[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
     $8::text[]";
/// Their columns.
const GROUP_COLUMNS: &str = "bucket, billing_day, tenant, \"user\", key_id, model, endpoint_id, provider";

/// The statements that fill the projections of one schema.
#[derive(Debug)]
pub(super) struct Projection {
    existing: Arc<str>,
    superseded: Arc<str>,
    rows: String,
    sums: Arc<str>,
    sums_gone: Arc<str>,
    closed: Arc<str>,
    opened: Arc<str>,
    adjustments: Arc<str>,
}

/// The statements of a batch.
#[derive(Debug)]
pub(super) struct Writes {
    projection: Projection,
}

impl Writes {
    pub(super) fn new() -> Self {
        Self {
            projection: Projection::new(""),
        }
    }

    /// Writes the batch in one transaction, beginning with the cursor: what is read after it stays as it is. Envelopes
    /// are first taken for new ones; where one turns out to be kept already, the transaction is begun again.
    pub(super) async fn apply(
        &self,
        connection: &mut PgConnection,
        batch: &Batch<'_>,
    ) -> Result<Applied, StoreError> {
        match self.try_apply(connection, batch, Repeats::Unlikely).await {
            Err(StoreError::Refused(error)) if is_repetition(&error) => {
                self.try_apply(connection, batch, Repeats::Possible).await
            }
            result => result,
        }
    }

    async fn try_apply(
        &self,
        connection: &mut PgConnection,
        batch: &Batch<'_>,
        repeats: Repeats,
    ) -> Result<Applied, StoreError> {
        let mut transaction = connection.begin().await.map_err(sort)?;
        move_cursor(&mut transaction, batch.expected, batch.next).await?;
        let requests = fold::requests(batch.records);
        let existing = self.projection.existing(&mut transaction, &requests).await?;
        let changes = (batch.fold)(batch.records, &existing);
        // An event of a request that has its row is most likely told again.
        let events = if repeats == Repeats::Unlikely && existing.is_empty() {
            keep_new(&mut transaction, batch.records).await
        } else {
            keep(&mut transaction, batch.records).await
        };
        let events = events.map_err(sort)?;
        self.projection
            .write(&mut transaction, &changes)
            .await
            .map_err(sort)?;
        mark(&mut transaction, &batch.marks).await.map_err(sort)?;
        transaction.commit().await.map_err(sort)?;
        Ok(Applied { events })
    }
}

/// Whether envelopes of a batch are kept already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Unlikely,
    Possible,
}

/// True for an envelope that was taken for a new one and is kept already.
fn is_repetition(error: &sqlx::Error) -> bool {
    const SOURCE_KEY: &str = "event_log_source";
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation() && error.constraint() == Some(SOURCE_KEY))
}

impl Projection {
    /// `schema` is empty or ends with a dot.
    pub(super) fn new(schema: &str) -> Self {
        let mut moves = String::new();
        for figure in FIGURES {
            // Computed wide and cut to the column: a sum stops at its end, it never wraps around.
            let _ = write!(
                moves,
                "{}{figure} = {}",
                if moves.is_empty() { "" } else { ", " },
                capped_sum(&format!("held.{figure}::numeric + excluded.{figure}"))
            );
        }
        let figures = FIGURES.join(", ");
        let values: Vec<String> = adjustment::COLUMNS
            .iter()
            .enumerate()
            .map(|(place, (_, kind))| format!("(value->>{place})::{kind}"))
            .collect();
        Self {
            adjustments: format!(
                "INSERT INTO {schema}adjustments AS held ({}) SELECT {} FROM json_array_elements($1::text::json) AS \
                 told (value) {}",
                adjustment::columns(),
                values.join(", "),
                adjustment::least_stands("held")
            )
            .into(),
            // One look into the key's index per request: `ANY` would look at every row of the day.
            existing: format!(
                "SELECT {STANDING_COLUMNS} FROM unnest($2::uuid[]) AS asked (id) CROSS JOIN LATERAL \
                 (SELECT * FROM {schema}api_logs WHERE day = $1 AND request_id = asked.id LIMIT 1) AS held"
            )
            .into(),
            superseded: format!(
                "DELETE FROM {schema}api_logs USING unnest($2::uuid[]) AS gone (id) \
                 WHERE day = $1 AND request_id = gone.id"
            )
            .into(),
            rows: format!(
                "COPY {schema}api_logs (day, {}) FROM STDIN (FORMAT binary)",
                COLUMNS.join(", ")
            ),
            sums: format!(
                "INSERT INTO {schema}usage_rollup AS held ({GROUP_COLUMNS}, {figures}) \
                 SELECT * FROM unnest({GROUPS}, $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], \
                 $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[]) \
                 ON CONFLICT ({GROUP_COLUMNS}) DO UPDATE SET {moves}"
            )
            .into(),
            sums_gone: format!(
                "DELETE FROM {schema}usage_rollup WHERE requests = 0 AND ({GROUP_COLUMNS}) IN \
                 (SELECT * FROM unnest({GROUPS}))"
            )
            .into(),
            closed: format!("DELETE FROM {schema}open_requests WHERE request_id = ANY($1)").into(),
            opened: format!(
                "INSERT INTO {schema}open_requests AS held (request_id, source, source_sequence, event_id) \
                 SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[]) \
                 ON CONFLICT (request_id) DO UPDATE SET source = excluded.source, \
                 source_sequence = excluded.source_sequence, event_id = excluded.event_id \
                 WHERE (excluded.source, excluded.source_sequence, excluded.event_id) \
                 < (held.source, held.source_sequence, held.event_id)"
            )
            .into(),
        }
    }

    /// What the projections hold about these requests.
    pub(super) async fn existing(
        &self,
        connection: &mut PgConnection,
        ids: &[RequestId],
    ) -> Result<BTreeMap<RequestId, Standing>, StoreError> {
        let mut existing = BTreeMap::new();
        for (day, ids) in by_day(ids) {
            let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.existing)));
            let mut rows = query.bind(day).bind(ids).fetch(&mut *connection);
            while let Some(found) = rows.try_next().await.map_err(sort)? {
                let (id, standing) = row::standing(&found)?;
                existing.insert(id, standing);
            }
        }
        Ok(existing)
    }

    /// Writes rows and moves sums.
    pub(super) async fn write(
        &self,
        connection: &mut PgConnection,
        changes: &Changes,
    ) -> Result<(), sqlx::Error> {
        for (day, ids) in by_day(&changes.superseded) {
            let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.superseded)));
            query.bind(day).bind(ids).execute(&mut *connection).await?;
        }
        self.close(connection, &changes.closed).await?;
        self.open(connection, &changes.opened).await?;
        if !changes.rows.is_empty() {
            copied(&changes.rows).send(connection, &self.rows).await?;
        }
        self.adjust(connection, &changes.adjustments).await?;
        let moves: Vec<(&Group, &Sums)> = changes.sums.iter().collect();
        self.move_sums(connection, &moves).await?;
        let gone: Vec<&Group> = moves
            .iter()
            .filter(|(_, sums)| sums.requests < 0)
            .map(|(group, _)| *group)
            .collect();
        if !gone.is_empty() {
            let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.sums_gone)));
            Dimensions::of(&gone).bind(query).execute(connection).await?;
        }
        Ok(())
    }

    /// Few at a time and with many columns, so they go as JSON.
    async fn adjust(
        &self,
        connection: &mut PgConnection,
        adjustments: &[Arc<Adjustment>],
    ) -> Result<(), sqlx::Error> {
        if adjustments.is_empty() {
            return Ok(());
        }
        let row = |adjustment| {
            let mut row = value::JsonRow::default();
            adjustment::put(&mut row, adjustment);
            serde_json::Value::Array(row.0)
        };
        let told = serde_json::Value::Array(adjustments.iter().map(row).collect());
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.adjustments)));
        query.bind(told.to_string()).execute(connection).await?;
        Ok(())
    }

    async fn close(&self, connection: &mut PgConnection, closed: &[RequestId]) -> Result<(), sqlx::Error> {
        if closed.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = closed.iter().map(|id| id.0).collect();
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.closed)));
        query.bind(ids).execute(connection).await?;
        Ok(())
    }

    async fn open(&self, connection: &mut PgConnection, opened: &[Opened]) -> Result<(), sqlx::Error> {
        if opened.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = opened.iter().map(|opened| opened.request_id.0).collect();
        let sources: Vec<Cow<'_, str>> = opened.iter().map(|opened| text::kept(&opened.source)).collect();
        let sequences: Vec<i64> = opened
            .iter()
            .map(|opened| capped(opened.source_sequence))
            .collect();
        let events: Vec<Cow<'_, str>> = opened.iter().map(|opened| text::kept(&opened.event_id)).collect();
        sqlx::query(AssertSqlSafe(Arc::clone(&self.opened)))
            .bind(ids)
            .bind(sources)
            .bind(sequences)
            .bind(events)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn move_sums(
        &self,
        connection: &mut PgConnection,
        moves: &[(&Group, &Sums)],
    ) -> Result<(), sqlx::Error> {
        if moves.is_empty() {
            return Ok(());
        }
        let groups: Vec<&Group> = moves.iter().map(|(group, _)| *group).collect();
        let mut query = Dimensions::of(&groups).bind(sqlx::query(AssertSqlSafe(Arc::clone(&self.sums))));
        for figure in 0..FIGURES.len() {
            let column: Vec<i64> = moves.iter().map(|(_, sums)| row::figures(sums)[figure]).collect();
            query = query.bind(column);
        }
        query.execute(connection).await?;
        Ok(())
    }
}

/// `expression`, which is `NUMERIC`, as a `BIGINT`: what is beyond its range is cut to its ends.
pub(super) fn capped_sum(expression: &str) -> String {
    format!(
        "least(greatest({expression}, {}), {})::bigint",
        i64::MIN,
        i64::MAX
    )
}

/// Requests by the day whose partition they are in.
fn by_day(ids: &[RequestId]) -> BTreeMap<NaiveDate, Vec<Uuid>> {
    let mut days: BTreeMap<NaiveDate, Vec<Uuid>> = BTreeMap::new();
    for id in ids {
        days.entry(value::partition_day(*id)).or_default().push(id.0);
    }
    days
}

fn copied(waybills: &[Arc<Waybill>]) -> Copy {
    let mut copy = Copy::new(waybills.len());
    for waybill in waybills {
        copy.row(1 + COLUMNS.len());
        copy.day(value::partition_day(waybill.row.settled.request_id));
        row::put(&mut copy, waybill);
    }
    copy
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// The dimensions of several sums, by column.
struct Dimensions<'g> {
    buckets: Vec<DateTime<Utc>>,
    billing_days: Vec<NaiveDate>,
    names: [Vec<Cow<'g, str>>; 6],
}

impl<'g> Dimensions<'g> {
    fn of(groups: &[&'g Group]) -> Self {
        let names = |name: fn(&Group) -> &str| groups.iter().map(|group| text::kept(name(group))).collect();
        Self {
            buckets: groups.iter().map(|group| value::time(group.bucket)).collect(),
            billing_days: groups.iter().map(|group| value::day(group.billing_day)).collect(),
            names: [
                names(|group| &group.tenant),
                names(|group| &group.user),
                names(|group| &group.key_id),
                names(|group| &group.model),
                names(|group| &group.endpoint_id),
                names(|group| &group.provider),
            ],
        }
    }

    fn bind<'q>(self, query: Query<'q>) -> Query<'q>
    where
        'g: 'q,
    {
        let query = query.bind(self.buckets).bind(self.billing_days);
        self.names.into_iter().fold(query, Query::bind)
    }
}

/// Moves the cursor if it stands where it is expected.
async fn move_cursor(
    connection: &mut PgConnection,
    expected: Option<Cursor>,
    next: Cursor,
) -> Result<(), StoreError> {
    let query = match expected {
        Some(cursor) => sqlx::query(
            "UPDATE ledger_cursor SET stream_created = $1, sequence = $2 \
             WHERE stream = $3 AND stream_created = $4 AND sequence = $5",
        )
        .bind(next.stream_created)
        .bind(capped(next.sequence))
        .bind(STREAM)
        .bind(cursor.stream_created)
        .bind(capped(cursor.sequence)),
        None => sqlx::query(
            "INSERT INTO ledger_cursor (stream_created, sequence, stream) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(next.stream_created)
        .bind(capped(next.sequence))
        .bind(STREAM),
    };
    let moved = query.execute(connection).await.map_err(sort)?.rows_affected();
    if moved == 0 {
        Err(StoreError::Superseded)
    } else {
        Ok(())
    }
}

/// Keeps envelopes of which none is kept already; fails where that is not so.
async fn keep_new(connection: &mut PgConnection, records: &[Record]) -> Result<u64, sqlx::Error> {
    if records.is_empty() {
        return Ok(0);
    }
    let mut copy = Copy::new(records.len());
    for record in records {
        copy.row(EVENT_COLUMNS);
        copy.text(Some(&record.source));
        copy.integer(Some(capped(record.source_sequence)));
        copy.text(Some(&record.event_id));
        copy.text(Some(&record.kind));
        copy.text(Some(&record.subject));
        copy.time(record.time);
        copy.integer(Some(capped(record.sequence)));
        copy.bytes(&record.envelope);
    }
    copy.send(connection, NEW_EVENTS).await
}

/// Keeps envelopes that are not kept already and returns how many there were.
async fn keep(connection: &mut PgConnection, records: &[Record]) -> Result<u64, sqlx::Error> {
    if records.is_empty() {
        return Ok(0);
    }
    let texts = |text: fn(&Record) -> &str| -> Vec<Cow<'_, str>> {
        records.iter().map(|record| text::kept(text(record))).collect()
    };
    let counts = |count: fn(&Record) -> u64| -> Vec<i64> {
        records.iter().map(|record| capped(count(record))).collect()
    };
    let times: Vec<DateTime<Utc>> = records.iter().map(|record| value::time(record.time)).collect();
    let envelopes: Vec<&[u8]> = records.iter().map(|record| &*record.envelope).collect();
    let kept = sqlx::query(EVENTS)
        .bind(texts(|record| &record.source))
        .bind(counts(|record| record.source_sequence))
        .bind(texts(|record| &record.event_id))
        .bind(texts(|record| &record.kind))
        .bind(texts(|record| &record.subject))
        .bind(times)
        .bind(counts(|record| record.sequence))
        .bind(envelopes)
        .execute(connection)
        .await?;
    Ok(kept.rows_affected())
}

/// Moves marks, which never go back.
async fn mark(connection: &mut PgConnection, marks: &[(Arc<str>, u64)]) -> Result<(), sqlx::Error> {
    if marks.is_empty() {
        return Ok(());
    }
    let sources: Vec<Cow<'_, str>> = marks.iter().map(|(source, _)| text::kept(source)).collect();
    let sequences: Vec<i64> = marks.iter().map(|(_, sequence)| capped(*sequence)).collect();
    sqlx::query(MARKS)
        .bind(sources)
        .bind(sequences)
        .execute(connection)
        .await?;
    Ok(())
}
