//! A rebuild: projections are computed from `event_log` into fresh tables of a schema of their own, while batches go
//! on being applied; then, with appliers held off, what came meanwhile is added, and the fresh tables become the
//! partitions of the projections in one transaction. Readers see the old rows or the new ones. The
//! exchange is of names, not of rows: it is short, and when it does not get its locks soon it lets the others go first.

use std::fmt::Write as _;
use std::time::Duration;

use schemas::query::RebuildAnswer;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::migrate::{self, LOCK_WAIT, lock_was_taken};
use super::session::{self, Purpose, sort};
use super::write::Projection;
use super::{PostgresStore, read};
use crate::fold;
use crate::store::{StoreError, row};

/// Envelopes folded at a time.
const PAGE_EVENTS: i64 = 512;
/// How often the exchange is tried.
const EXCHANGE_TRIES_MAX: u32 = 60;
/// The pause between two tries.
const EXCHANGE_PAUSE: Duration = Duration::from_millis(500);

/// The tables that are computed from the log; each has partitions only.
const PROJECTIONS: [&str; 4] = ["api_logs", "usage_rollup", "open_requests", "adjustments"];
/// Where the fresh ones are.
const SCHEMA: &str = "waybill_rebuild";

/// Where a rebuild is.
#[derive(Debug, Default, Clone)]
struct Pass {
    /// The last position of `event_log` that was folded.
    position: i64,
    /// Envelopes read.
    events: u64,
    /// Rows written.
    rows: u64,
}

/// A partition of a projection, to be replaced by its fresh one.
#[derive(Debug)]
struct Part {
    parent: &'static str,
    /// Its name, quoted where it must be.
    name: String,
    /// `FOR VALUES …` or `DEFAULT`.
    bound: String,
    /// The same as a condition.
    condition: String,
    /// `WITH (…)`, or nothing.
    storage: String,
}

/// Computes the projections anew and puts them in the place of what was there.
pub(super) async fn run(store: &PostgresStore) -> Result<RebuildAnswer, StoreError> {
    let _alone = store.rebuilding.lock().await;
    let mut connection = session::open(&store.server, Purpose::Build).await?;
    migrate::lock(&mut connection).await?;
    let target: String = sqlx::query_scalar("SELECT quote_ident(current_schema())")
        .fetch_one(&mut connection)
        .await
        .map_err(sort)?;
    let parts = make_tables(&mut connection).await?;
    let projection = Projection::new(&format!("{SCHEMA}."));
    let mut pass = Pass::default();
    let mut tries = 0;
    loop {
        catch_up(&mut connection, &projection, &mut pass).await?;
        tries += 1;
        let mut reached = pass.clone();
        match exchange(&mut connection, &projection, &mut reached, (&parts, &target)).await {
            Ok(()) => {
                pass = reached;
                break;
            }
            Err(StoreError::Unavailable(error)) if tries < EXCHANGE_TRIES_MAX && lock_was_taken(&error) => {
                tokio::time::sleep(EXCHANGE_PAUSE).await;
            }
            Err(problem) => return Err(problem),
        }
    }
    execute(&mut connection, format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
    migrate::unlock(&mut connection).await?;
    connection.close().await.map_err(sort)?;
    Ok(RebuildAnswer {
        events: pass.events,
        rows: pass.rows,
    })
}

/// Makes empty copies of the projections with all their partitions. What an interrupted rebuild left is dropped.
async fn make_tables(connection: &mut PgConnection) -> Result<Vec<Part>, StoreError> {
    let mut text = format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};");
    let mut parts = Vec::new();
    for parent in PROJECTIONS {
        let by = partition_key(connection, parent).await?;
        let _ = write!(
            text,
            "CREATE TABLE {SCHEMA}.{parent} (LIKE {parent} INCLUDING ALL) PARTITION BY {by};"
        );
        parts.extend(partitions(connection, parent).await?);
    }
    for part in &parts {
        let Part {
            parent, name, bound, ..
        } = part;
        // The condition proves at the exchange that the rows are in their place, so that none is looked at.
        let _ = write!(
            text,
            "CREATE TABLE {SCHEMA}.{name} PARTITION OF {SCHEMA}.{parent} {bound} {};",
            part.storage
        );
        if !part.condition.is_empty() {
            let _ = write!(
                text,
                "ALTER TABLE {SCHEMA}.{name} ADD CONSTRAINT rebuilt CHECK ({});",
                part.condition
            );
        }
    }
    execute(connection, text).await?;
    Ok(parts)
}

async fn partition_key(connection: &mut PgConnection, parent: &str) -> Result<String, StoreError> {
    sqlx::query_scalar("SELECT pg_get_partkeydef($1::regclass)")
        .bind(parent)
        .fetch_one(connection)
        .await
        .map_err(sort)
}

/// The partitions of a projection, the default one last.
async fn partitions(connection: &mut PgConnection, parent: &'static str) -> Result<Vec<Part>, StoreError> {
    let text = "SELECT quote_ident(child.relname) AS name, pg_get_expr(child.relpartbound, child.oid) AS bound, \
         coalesce(pg_get_partition_constraintdef(child.oid), '') AS condition, \
         coalesce('WITH (' || array_to_string(child.reloptions, ', ') || ')', '') AS storage \
         FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid \
         WHERE inhparent = $1::regclass ORDER BY pg_get_expr(child.relpartbound, child.oid) = 'DEFAULT', 1";
    let found = sqlx::query(text)
        .bind(parent)
        .fetch_all(connection)
        .await
        .map_err(sort)?;
    let part = |found: &PgRow| {
        Ok(Part {
            parent,
            name: found.try_get("name")?,
            bound: found.try_get("bound")?,
            condition: found.try_get("condition")?,
            storage: found.try_get("storage")?,
        })
    };
    found.iter().map(part).collect::<Result<_, _>>().map_err(sort)
}

/// Folds the log page by page until there is no full page left, and tells the planner what the tables hold.
async fn catch_up(
    connection: &mut PgConnection,
    projection: &Projection,
    pass: &mut Pass,
) -> Result<(), StoreError> {
    loop {
        let mut transaction = connection.begin().await.map_err(sort)?;
        let found = fold_page(&mut transaction, projection, pass).await?;
        transaction.commit().await.map_err(sort)?;
        if found < PAGE_EVENTS {
            break;
        }
    }
    for table in PROJECTIONS {
        execute(connection, format!("ANALYZE {SCHEMA}.{table}")).await?;
    }
    Ok(())
}

/// Folds what is left and exchanges the partitions, all of it or nothing.
async fn exchange(
    connection: &mut PgConnection,
    projection: &Projection,
    pass: &mut Pass,
    (parts, target): (&[Part], &str),
) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(sort)?;
    // Whoever applies a batch takes the cursor first, and waits here.
    let appliers = format!("{LOCK_WAIT}; LOCK TABLE ledger_cursor IN SHARE ROW EXCLUSIVE MODE");
    execute(&mut transaction, appliers).await?;
    while fold_page(&mut transaction, projection, pass).await? == PAGE_EVENTS {}
    let readers = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", PROJECTIONS.join(", "));
    execute(&mut transaction, readers).await?;
    let mut text = String::new();
    for Part { parent, name, .. } in parts {
        let _ = write!(
            text,
            "ALTER TABLE {parent} DETACH PARTITION {name}; DROP TABLE {name}; \
             ALTER TABLE {SCHEMA}.{parent} DETACH PARTITION {SCHEMA}.{name}; \
             ALTER TABLE {SCHEMA}.{name} SET SCHEMA {target};"
        );
    }
    for part in parts {
        let Part {
            parent, name, bound, ..
        } = part;
        let _ = write!(text, "ALTER TABLE {parent} ATTACH PARTITION {name} {bound};");
        if !part.condition.is_empty() {
            let _ = write!(text, "ALTER TABLE {name} DROP CONSTRAINT rebuilt;");
        }
    }
    execute(&mut transaction, text).await?;
    transaction.commit().await.map_err(sort)
}

/// Folds the next page and returns how many envelopes it had.
async fn fold_page(
    connection: &mut PgConnection,
    projection: &Projection,
    pass: &mut Pass,
) -> Result<i64, StoreError> {
    let page = sqlx::query(
        "SELECT position, event_id, envelope FROM event_log WHERE position > $1 ORDER BY position LIMIT $2",
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
    let records = page
        .iter()
        .map(read::read_record)
        .collect::<Result<Vec<_>, _>>()?;
    let existing = projection.existing(connection, &fold::requests(&records)).await?;
    let changes = fold::fold(&records, &existing);
    projection.write(connection, &changes).await.map_err(sort)?;
    pass.position = position;
    pass.events += u64::try_from(page.len()).unwrap_or(u64::MAX);
    let new = changes.rows.len().saturating_sub(changes.superseded.len());
    pass.rows += u64::try_from(new).unwrap_or(u64::MAX);
    Ok(i64::try_from(page.len()).unwrap_or(i64::MAX))
}

async fn execute(connection: &mut PgConnection, text: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(text))
        .execute(connection)
        .await
        .map_err(sort)?;
    Ok(())
}
