//! A rebuild: projections are computed from `event_log` into temporary tables of a connection of its own, while
//! batches go on being applied; then, with the writer held, what came meanwhile is added and the tables' rows
//! are exchanged in one transaction.

use schemas::query::RebuildAnswer;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::write::Projection;
use super::{Schema, SqliteStore, read, sort};
use crate::fold;
use crate::store::{StoreError, row};

/// Envelopes folded at a time.
const PAGE_EVENTS: i64 = 512;

/// The tables that are computed from the log.
const PROJECTIONS: [&str; 4] = ["api_logs", "usage_rollup", "open_requests", "adjustments"];

/// Where a rebuild is.
#[derive(Debug, Default)]
struct Pass {
    /// The last position of `event_log` that was folded.
    position: i64,
    /// Envelopes read.
    events: u64,
}

/// Computes the projections anew and puts them in the place of what was there.
pub(super) async fn run(store: &SqliteStore) -> Result<RebuildAnswer, StoreError> {
    let _alone = store.rebuilding.lock().await;
    let mut connection = store.options.connect().await.map_err(sort)?;
    let projection = Projection::new(Schema::Temporary);
    make_tables(&mut connection).await?;
    let mut pass = Pass::default();
    catch_up(&mut connection, &projection, &mut pass).await?;

    let writer = store.writer.lock().await;
    let mut exchange = connection.begin_with("BEGIN IMMEDIATE").await.map_err(sort)?;
    fold_rest(&mut exchange, &projection, &mut pass).await?;
    for table in PROJECTIONS {
        let text = format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM temp.{table}");
        sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut *exchange)
            .await
            .map_err(sort)?;
    }
    let rows = sqlx::query("SELECT count(*) AS rows FROM main.api_logs")
        .fetch_one(&mut *exchange)
        .await;
    let rows = row::count(&rows.map_err(sort)?, "rows")?;
    exchange.commit().await.map_err(sort)?;
    drop(writer);
    connection.close().await.map_err(sort)?;
    Ok(RebuildAnswer {
        events: pass.events,
        rows,
    })
}

/// Makes empty copies of the projections in the connection's temporary database: the same definitions, so the
/// same columns, types and keys.
async fn make_tables(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    for table in PROJECTIONS {
        let definition = sqlx::query("SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?")
            .bind(table)
            .fetch_one(&mut *connection)
            .await
            .map_err(sort)?;
        let text = row::text(&definition, "sql")?.replacen("CREATE TABLE", "CREATE TEMPORARY TABLE", 1);
        sqlx::query(AssertSqlSafe(text))
            .execute(&mut *connection)
            .await
            .map_err(sort)?;
    }
    Ok(())
}

/// Folds the log page by page until there is no full page left.
async fn catch_up(
    connection: &mut SqliteConnection,
    projection: &Projection,
    pass: &mut Pass,
) -> Result<(), StoreError> {
    loop {
        let mut transaction = connection.begin().await.map_err(sort)?;
        let found = fold_page(&mut transaction, projection, pass).await?;
        transaction.commit().await.map_err(sort)?;
        if found < PAGE_EVENTS {
            return Ok(());
        }
    }
}

/// Folds all that is left.
async fn fold_rest(
    connection: &mut SqliteConnection,
    projection: &Projection,
    pass: &mut Pass,
) -> Result<(), StoreError> {
    while fold_page(connection, projection, pass).await? == PAGE_EVENTS {}
    Ok(())
}

/// Folds the next page and returns how many envelopes it had.
async fn fold_page(
    connection: &mut SqliteConnection,
    projection: &Projection,
    pass: &mut Pass,
) -> Result<i64, StoreError> {
    let page = sqlx::query(
        "SELECT position, event_id, envelope FROM main.event_log WHERE position > ? ORDER BY position LIMIT ?",
    );
    let page = page
        .bind(pass.position)
        .bind(PAGE_EVENTS)
        .fetch_all(&mut *connection)
        .await
        .map_err(sort)?;
    let Some(last) = page.last() else {
        return Ok(0);
    };
    let position = row::integer(last, "position")?;
    let records = page.iter().map(read::record).collect::<Result<Vec<_>, _>>()?;
    let existing = read::existing(connection, Schema::Temporary, &fold::requests(&records)).await?;
    let changes = fold::fold(&records, &existing);
    projection.write(connection, &changes).await.map_err(sort)?;
    pass.position = position;
    pass.events += u64::try_from(page.len()).unwrap_or(u64::MAX);
    Ok(i64::try_from(page.len()).unwrap_or(i64::MAX))
}
