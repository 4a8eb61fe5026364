//! Writing a batch: one transaction, a few statements.

use std::sync::Arc;

use schemas::id::RequestId;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use super::statement::{Bulk, Values};
use super::{Schema, read, sort};
use crate::fold::{self, Changes, Group, Opened, Sums};
use crate::record::Record;
use crate::store::row::{self, COLUMNS, Sink as _};
use crate::store::{Applied, Batch, Cursor, StoreError, adjustment};

/// The stream that the cursor belongs to; there is one.
pub(super) const STREAM: &str = schemas::subject::EVENTS_STREAM;

/// The statements that fill the projections of one schema.
#[derive(Debug)]
pub(super) struct Projection {
    superseded: Bulk,
    rows: Bulk,
    sums: Bulk,
    sums_gone: Arc<str>,
    opened: Bulk,
    closed: Bulk,
    any_open: Arc<str>,
    adjustments: Bulk,
}

/// The statements of a batch.
#[derive(Debug)]
pub(super) struct Writes {
    events: Bulk,
    marks: Bulk,
    projection: Projection,
}

impl Writes {
    pub(super) fn new() -> Self {
        Self {
            events: Bulk::new(
                "INSERT OR IGNORE INTO event_log \
                 (source, source_sequence, event_id, type, subject, time, stream_sequence, envelope) VALUES",
                8,
                "",
            ),
            marks: Bulk::new(
                "INSERT INTO ledger_marks (source, sequence) VALUES",
                2,
                "ON CONFLICT DO UPDATE SET sequence = max(sequence, excluded.sequence)",
            ),
            projection: Projection::new(Schema::Main),
        }
    }

    /// Writes the batch in one transaction.
    pub(super) async fn apply(
        &self,
        connection: &mut SqliteConnection,
        batch: &Batch<'_>,
    ) -> Result<Applied, StoreError> {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(sort)?;
        move_cursor(&mut transaction, batch.expected, batch.next).await?;
        let requests = fold::requests(batch.records);
        let existing = read::existing(&mut transaction, Schema::Main, &requests).await?;
        let changes = (batch.fold)(batch.records, &existing);
        let events = self
            .events
            .run(&mut transaction, batch.records, put_event)
            .await
            .map_err(sort)?;
        self.projection
            .write(&mut transaction, &changes)
            .await
            .map_err(sort)?;
        self.marks
            .run(&mut transaction, &batch.marks, put_mark)
            .await
            .map_err(sort)?;
        transaction.commit().await.map_err(sort)?;
        Ok(Applied { events })
    }
}

impl Projection {
    pub(super) fn new(schema: Schema) -> Self {
        let schema = schema.name();
        Self {
            superseded: Bulk::new(
                &format!("DELETE FROM {schema}.api_logs WHERE request_id IN (VALUES"),
                1,
                ")",
            ),
            rows: Bulk::new(
                // What fails rolls the whole transaction back: a statement needs no way back of its own.
                &format!("INSERT OR FAIL INTO {schema}.api_logs ({}) VALUES", COLUMNS.join(",")),
                COLUMNS.len(),
                "",
            ),
            sums: Bulk::new(
                &format!("INSERT INTO {schema}.usage_rollup VALUES"),
                16,
                // A sum beyond 64 bits becomes a float; the cast makes it the largest integer again.
                "ON CONFLICT DO UPDATE SET requests = CAST(requests + excluded.requests AS INTEGER), \
                 ok = CAST(ok + excluded.ok AS INTEGER), errors = CAST(errors + excluded.errors AS INTEGER), \
                 input_tokens = CAST(input_tokens + excluded.input_tokens AS INTEGER), \
                 cached_tokens = CAST(cached_tokens + excluded.cached_tokens AS INTEGER), \
                 cache_write_tokens = CAST(cache_write_tokens + excluded.cache_write_tokens AS INTEGER), \
                 output_tokens = CAST(output_tokens + excluded.output_tokens AS INTEGER), \
                 cost_nano_usd = CAST(cost_nano_usd + excluded.cost_nano_usd AS INTEGER)",
            ),
            sums_gone: format!(
                "DELETE FROM {schema}.usage_rollup WHERE bucket = ? AND billing_day = ? AND tenant = ? \
                 AND \"user\" = ? AND key_id = ? AND model = ? AND endpoint_id = ? AND provider = ? AND requests = 0"
            )
            .into(),
            opened: Bulk::new(
                &format!("INSERT INTO {schema}.open_requests VALUES"),
                4,
                "ON CONFLICT DO UPDATE SET source = excluded.source, source_sequence = excluded.source_sequence, \
                 event_id = excluded.event_id WHERE (excluded.source, excluded.source_sequence, excluded.event_id) \
                 < (source, source_sequence, event_id)",
            ),
            closed: Bulk::new(
                &format!("DELETE FROM {schema}.open_requests WHERE request_id IN (VALUES"),
                1,
                ")",
            ),
            any_open: format!("SELECT 1 FROM {schema}.open_requests LIMIT 1").into(),
            adjustments: Bulk::new(
                &format!(
                    "INSERT INTO {schema}.adjustments ({}) VALUES",
                    adjustment::columns()
                ),
                adjustment::COLUMNS.len(),
                &adjustment::least_stands("adjustments"),
            ),
        }
    }

    /// Writes rows and moves sums.
    pub(super) async fn write(
        &self,
        connection: &mut SqliteConnection,
        changes: &Changes,
    ) -> Result<(), sqlx::Error> {
        self.superseded
            .run(connection, &changes.superseded, |values, id| {
                values.put(id.to_string());
            })
            .await?;
        self.close(connection, &changes.closed).await?;
        self.opened.run(connection, &changes.opened, put_opened).await?;
        self.rows.run(connection, &changes.rows, row::put).await?;
        self.adjustments
            .run(connection, &changes.adjustments, adjustment::put)
            .await?;
        let moves: Vec<(&Group, &Sums)> = changes.sums.iter().collect();
        self.sums.run(connection, &moves, put_sums).await?;
        for (group, _) in moves.iter().filter(|(_, sums)| sums.requests < 0) {
            let mut values = Values::default();
            put_group(&mut values, group);
            let text = AssertSqlSafe(Arc::clone(&self.sums_gone));
            sqlx::query_with(text, values.finish()?)
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }
}

impl Projection {
    /// Takes requests out of those that are open. Mostly none is: then one look is cheaper than all the searches.
    async fn close(
        &self,
        connection: &mut SqliteConnection,
        closed: &[RequestId],
    ) -> Result<(), sqlx::Error> {
        let any = sqlx::query(AssertSqlSafe(Arc::clone(&self.any_open)));
        if closed.is_empty() || any.fetch_optional(&mut *connection).await?.is_none() {
            return Ok(());
        }
        let put = |values: &mut Values, id: &RequestId| values.put(id.to_string());
        self.closed.run(connection, closed, put).await?;
        Ok(())
    }
}

/// Moves the cursor if it stands where it is expected.
async fn move_cursor(
    connection: &mut SqliteConnection,
    expected: Option<Cursor>,
    next: Cursor,
) -> Result<(), StoreError> {
    let mut values = Values::default();
    values.put(next.stream_created);
    values.count(next.sequence);
    values.put(STREAM);
    let text = if let Some(cursor) = expected {
        values.put(cursor.stream_created);
        values.count(cursor.sequence);
        "UPDATE ledger_cursor SET stream_created = ?, sequence = ? \
         WHERE stream = ? AND stream_created = ? AND sequence = ?"
    } else {
        "INSERT INTO ledger_cursor (stream_created, sequence, stream) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    };
    let query = sqlx::query_with(text, values.finish().map_err(sort)?);
    let moved = query.execute(connection).await.map_err(sort)?.rows_affected();
    if moved == 0 {
        Err(StoreError::Superseded)
    } else {
        Ok(())
    }
}

fn put_event(values: &mut Values, record: &Record) {
    values.put(Arc::clone(&record.source));
    values.count(record.source_sequence);
    values.put(Arc::clone(&record.event_id));
    values.put(Arc::clone(&record.kind));
    values.put(Arc::clone(&record.subject));
    values.put(record.time.to_string());
    values.count(record.sequence);
    match std::str::from_utf8(&record.envelope) {
        Ok(text) => values.put(text),
        Err(_) => values.put(record.envelope.to_vec()),
    }
}

fn put_opened(values: &mut Values, opened: &Opened) {
    values.put(opened.request_id.to_string());
    values.put(Arc::clone(&opened.source));
    values.count(opened.source_sequence);
    values.put(Arc::clone(&opened.event_id));
}

fn put_mark(values: &mut Values, (source, sequence): &(Arc<str>, u64)) {
    values.put(Arc::clone(source));
    values.count(*sequence);
}

fn put_group(values: &mut Values, group: &Group) {
    values.put(group.bucket.to_string());
    values.put(group.billing_day.to_string());
    for dimension in [
        &group.tenant,
        &group.user,
        &group.key_id,
        &group.model,
        &group.endpoint_id,
        &group.provider,
    ] {
        values.put(Arc::clone(dimension));
    }
}

fn put_sums(values: &mut Values, (group, sums): &(&Group, &Sums)) {
    put_group(values, group);
    for figure in row::figures(sums) {
        values.put(figure);
    }
}
