//! Partitions of `api_logs`: one per day, made ahead. A day whose rows are in the default partition already stays
//! there, and so does one whose partition cannot have its locks now: rows always have a place.

use chrono::NaiveDate;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use super::migrate::{self, LOCK_WAIT};
use super::session::{self, LOCK_NOT_AVAILABLE, sort};
use crate::store::StoreError;

/// Days ahead that have a partition.
const DAYS_AHEAD: i32 = 7;

/// Days from yesterday on that have no partition and no rows in the default one. The day is the database's.
const MISSING: &str = "SELECT day FROM (SELECT (now() AT TIME ZONE 'UTC')::date + ahead AS day \
     FROM generate_series(-1, $1) AS ahead) AS days \
     WHERE to_regclass('api_logs_' || to_char(day, 'YYYYMMDD')) IS NULL \
     AND NOT EXISTS (SELECT 1 FROM api_logs_default WHERE api_logs_default.day = days.day) ORDER BY day";

/// Makes the partitions of the coming days. Nothing when another process changes tables.
pub(super) async fn maintain(connection: &mut PgConnection) -> Result<(), StoreError> {
    let missing = missing(connection).await?;
    if missing.is_empty() || !migrate::try_lock(connection).await? {
        return Ok(());
    }
    let made = make_all(connection, &missing).await;
    migrate::unlock(connection).await?;
    made
}

async fn missing(connection: &mut PgConnection) -> Result<Vec<NaiveDate>, StoreError> {
    sqlx::query_scalar(MISSING)
        .bind(DAYS_AHEAD)
        .fetch_all(connection)
        .await
        .map_err(sort)
}

async fn make_all(connection: &mut PgConnection, days: &[NaiveDate]) -> Result<(), StoreError> {
    for day in days {
        match make(connection, *day).await {
            Ok(()) => {}
            Err(error) if may_wait(&error) => return Ok(()),
            Err(error) if belongs_to_default(&error) => {}
            Err(error) => return Err(sort(error)),
        }
    }
    Ok(())
}

/// Whoever holds the locks holds them for every day: later is soon enough.
fn may_wait(error: &sqlx::Error) -> bool {
    const QUERY_CANCELED: &str = "57014";
    session::code(error).is_some_and(|code| code == LOCK_NOT_AVAILABLE || code == QUERY_CANCELED)
}

/// The default partition got rows of the day meanwhile, or somebody made its partition.
fn belongs_to_default(error: &sqlx::Error) -> bool {
    const CHECK_VIOLATION: &str = "23514";
    const DUPLICATE_TABLE: &str = "42P07";
    session::code(error).is_some_and(|code| code == CHECK_VIOLATION || code == DUPLICATE_TABLE)
}

/// Made beside the table and then attached, which does not lock those out who read and write other partitions.
async fn make(connection: &mut PgConnection, day: NaiveDate) -> Result<(), sqlx::Error> {
    let Some(end) = day.succ_opt() else {
        return Ok(());
    };
    let name = format!("api_logs_{}", day.format("%Y%m%d"));
    let text = format!(
        "{LOCK_WAIT}; CREATE TABLE {name} (LIKE api_logs INCLUDING ALL); \
         ALTER TABLE api_logs ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{end}')"
    );
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(AssertSqlSafe(text))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}
