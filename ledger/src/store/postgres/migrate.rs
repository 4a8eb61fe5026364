//! Tables of the right version. What the database has is read before anything is changed. One process at a time
//! changes tables. A change that does not get its locks within a second lets the others go first and tries again:
//! whoever reads is never held up for longer.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Row as _};
use tracing::info;

use super::session::{self, LOCK_NOT_AVAILABLE, Purpose, sort};
use super::{Migrated, partition};
use crate::store::StoreError;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/postgres");

/// Who changes tables (a migration, a rebuild, the making of partitions) holds this advisory lock of the database.
const TABLES_LOCK: i64 = 0x7761_7962_696c_6c01;
/// How often the advisory lock is tried.
const LOCK_TRIES_MAX: u32 = 100;
/// The pause between two tries of it.
const LOCK_PAUSE: Duration = Duration::from_millis(200);
/// How often a change is tried that does not get its locks.
const CHANGE_TRIES_MAX: u32 = 60;
/// The pause after such a try: those who queued behind it go first.
const CHANGE_PAUSE: Duration = Duration::from_millis(500);
/// How long such a try waits for a lock.
pub(super) const LOCK_WAIT: &str = "SET LOCAL lock_timeout = '1s'";

/// The form of this table is the one of the `sqlx` program, which can show it.
const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (version BIGINT PRIMARY KEY, \
     description TEXT NOT NULL, installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, \
     checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL)";

/// The migrations that this program knows, by version.
pub(super) fn known() -> &'static [Migration] {
    &MIGRATIONS.migrations
}

/// Refuses tables that are not of the version of `known`.
pub(super) async fn check(server: &PgConnectOptions, known: &[Migration]) -> Result<(), StoreError> {
    let mut connection = session::open(server, Purpose::Build).await?;
    let database = compare(&mut connection, known).await?;
    connection.close().await.map_err(sort)?;
    let program = latest(known);
    if database < program {
        return Err(StoreError::Outdated { database, program });
    }
    Ok(())
}

/// Applies what the tables lack of `known` and makes partitions ahead.
pub(super) async fn run(server: &PgConnectOptions, known: &[Migration]) -> Result<Migrated, StoreError> {
    let mut connection = session::open(server, Purpose::Build).await?;
    if compare(&mut connection, known).await? == latest(known) {
        let to = latest(known);
        return Ok(Migrated { from: to, to });
    }
    lock(&mut connection).await?;
    // Somebody may have migrated while this one waited.
    let from = compare(&mut connection, known).await?;
    for migration in known.iter().filter(|migration| migration.version > from) {
        apply(&mut connection, migration).await?;
        info!(
            version = migration.version,
            "the database's tables were brought up to date"
        );
    }
    unlock(&mut connection).await?;
    partition::maintain(&mut connection).await?;
    connection.close().await.map_err(sort)?;
    Ok(Migrated {
        from,
        to: latest(known),
    })
}

/// Waits, for a bounded time, until nobody else changes tables. Closing the connection unlocks as well.
pub(super) async fn lock(connection: &mut PgConnection) -> Result<(), StoreError> {
    for _ in 0..LOCK_TRIES_MAX {
        if try_lock(connection).await? {
            return Ok(());
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(StoreError::Occupied)
}

/// True when nobody else changes tables, and now nobody can.
pub(super) async fn try_lock(connection: &mut PgConnection) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
        .bind(TABLES_LOCK)
        .fetch_one(connection)
        .await
        .map_err(sort)
}

/// Lets others change tables.
pub(super) async fn unlock(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_unlock($1)")
        .bind(TABLES_LOCK)
        .execute(connection)
        .await
        .map_err(sort)?;
    Ok(())
}

fn latest(known: &[Migration]) -> i64 {
    known.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The version of the tables, 0 for none; an error when they are newer than `known` or came from other files.
async fn compare(connection: &mut PgConnection, known: &[Migration]) -> Result<i64, StoreError> {
    let applied = applied(connection).await?;
    let (database, program) = (
        applied.iter().map(|(version, _)| *version).max().unwrap_or(0),
        latest(known),
    );
    if database > program {
        return Err(StoreError::Newer { database, program });
    }
    for (version, checksum) in &applied {
        let same = |migration: &&Migration| migration.version == *version;
        let problem = match known.iter().find(same) {
            Some(migration) if migration.checksum == *checksum => continue,
            Some(_) => MigrateError::VersionMismatch(*version),
            None => MigrateError::VersionMissing(*version),
        };
        return Err(StoreError::Migration(problem));
    }
    Ok(database)
}

/// What was applied: versions with the checksums of their files.
async fn applied(connection: &mut PgConnection) -> Result<Vec<(i64, Cow<'static, [u8]>)>, StoreError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(sort)?;
    if !exists {
        return Ok(Vec::new());
    }
    let applied = sqlx::query("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")
        .fetch_all(connection)
        .await
        .map_err(sort)?;
    let read = |row: &sqlx::postgres::PgRow| {
        let checksum: Vec<u8> = row.try_get("checksum")?;
        Ok((row.try_get("version")?, Cow::Owned(checksum)))
    };
    applied.iter().map(read).collect::<Result<_, _>>().map_err(sort)
}

/// Applies one migration, all of it or nothing.
async fn apply(connection: &mut PgConnection, migration: &Migration) -> Result<(), StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(connection, migration).await {
            Err(error) if tries < CHANGE_TRIES_MAX && lock_was_taken(&error) => {
                tokio::time::sleep(CHANGE_PAUSE).await;
            }
            result => return result.map_err(sort),
        }
    }
}

/// True for an error after which the same change may get its locks.
pub(super) fn lock_was_taken(error: &sqlx::Error) -> bool {
    const DEADLOCK: &str = "40P01";
    session::code(error).is_some_and(|code| code == LOCK_NOT_AVAILABLE || code == DEADLOCK)
}

async fn attempt(connection: &mut PgConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(LOCK_WAIT).execute(&mut *transaction).await?;
    sqlx::raw_sql(VERSIONS).execute(&mut *transaction).await?;
    sqlx::raw_sql(migration.sql.clone())
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES ($1, $2, TRUE, $3, 0)",
    )
    .bind(migration.version)
    .bind(&*migration.description)
    .bind(&*migration.checksum)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was applied is known by its highest number: one that came later with a lower number would never be.
    #[test]
    fn numbers_follow_one_another_without_a_gap() {
        let numbers: Vec<i64> = known().iter().map(|migration| migration.version).collect();
        let expected: Vec<i64> = (1..).take(numbers.len()).collect();

        assert_eq!(numbers, expected);
    }
}
