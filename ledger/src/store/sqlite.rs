//! The SQLite adapter: one file, `ledger.db`, in write-ahead mode. One connection writes; reads have their own, so
//! that a page never waits for a batch. A connection that failed is dropped and opened anew.

mod adjustments;
mod read;
mod rebuild;
mod row;
mod statement;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::query::{
    Adjustments, LogAnswer, LogQuery, LogsAnswer, LogsQuery, RebuildAnswer, UsageQuery, UsageRow,
};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Sqlite, SqlitePool};
use tokio::sync::Mutex;

use super::{Applied, AuditRange, Batch, Cursor, Store, StoreError};
use crate::coverage::Coverage;
use crate::record::{Adjustment, Record, Waybill};
use write::Writes;

/// Name of the database's file.
pub const FILE_NAME: &str = "ledger.db";
/// Reads at the same time.
const READERS_MAX: u32 = 4;
/// How long a statement waits for a lock before the database counts as busy.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Kibibytes of pages that a connection keeps in memory: a whole batch fits.
const CACHE_KIB: u32 = 8 * 1024;
/// Pages in the write-ahead log after which it is worked into the file: a page that changes often goes once.
const LOG_PAGES: u32 = 4 * 1024;
/// Bytes of a page: envelopes are a page's half at most, and fewer pages are fewer writes.
const PAGE_BYTES: u32 = 8 * 1024;
/// How long a reader that nobody uses stays open.
const READER_IDLE: Duration = Duration::from_secs(30);

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/sqlite");

/// The books in one file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    options: SqliteConnectOptions,
    writes: Writes,
    writer: Mutex<Option<SqliteConnection>>,
    readers: SqlitePool,
    /// Held by the one rebuild there may be.
    rebuilding: Mutex<()>,
}

/// A database that a statement is about: the file, or the connection's own temporary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schema {
    Main,
    Temporary,
}

impl Schema {
    const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Temporary => "temp",
        }
    }
}

impl SqliteStore {
    /// Opens `ledger.db` in `dir`, which is made if it does not exist, and brings its tables up to date.
    pub async fn open(dir: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(dir).map_err(StoreError::Directory)?;
        let path = dir.join(FILE_NAME);
        let options = options(&path);
        let mut connection = options.connect().await.map_err(sort)?;
        MIGRATIONS
            .run(&mut connection)
            .await
            .map_err(StoreError::Migration)?;
        // The writer is opened by the thread that writes: the database's own thread has its priority then.
        connection.close().await.map_err(sort)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .min_connections(0)
            .idle_timeout(READER_IDLE)
            .acquire_timeout(BUSY_WAIT)
            .connect_lazy_with(options.clone().read_only(true));
        Ok(Self {
            path,
            options,
            writes: Writes::new(),
            writer: Mutex::new(None),
            readers,
            rebuilding: Mutex::new(()),
        })
    }

    async fn reader(&self) -> Result<PoolConnection<Sqlite>, StoreError> {
        self.readers.acquire().await.map_err(sort)
    }

    /// Runs `write` on the writer's connection, opening it first where it is missing. A connection on which
    /// the database failed is not used again.
    async fn writing<T>(
        &self,
        write: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut connection = match writer.take() {
            Some(connection) => connection,
            None => self.options.connect().await.map_err(sort)?,
        };
        let result = write(&mut connection).await;
        if !matches!(result, Err(StoreError::Unavailable(_) | StoreError::Refused(_))) {
            *writer = Some(connection);
        }
        result
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(false)
        .page_size(PAGE_BYTES)
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("wal_autocheckpoint", LOG_PAGES.to_string())
        .busy_timeout(BUSY_WAIT)
        .thread_name(|number| format!("ledger-db-{number}"))
        .disable_statement_logging()
}

/// Primary result codes after which the same statement may succeed later: busy, locked, out of memory, interrupted,
/// input/output error, disk full, cannot open.
const RETRYABLE_CODES: [i64; 7] = [5, 6, 7, 9, 10, 13, 14];

/// Tells what may succeed later from what never will.
fn sort(error: sqlx::Error) -> StoreError {
    let retryable = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse::<i64>().ok());
            code.is_some_and(|code| RETRYABLE_CODES.contains(&(code & 0xff)))
        }
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    };
    if retryable {
        StoreError::Unavailable(error)
    } else {
        StoreError::Refused(error)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn cursor(&self) -> Result<Option<Cursor>, StoreError> {
        read::cursor(&mut *self.reader().await?).await
    }

    async fn coverage(&self) -> Result<Coverage, StoreError> {
        read::coverage(&mut *self.reader().await?).await
    }

    async fn apply(&self, batch: &Batch<'_>) -> Result<Applied, StoreError> {
        self.writing(async |connection| self.writes.apply(connection, batch).await)
            .await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        // What is committed is in the log beside the file, or was made durable before it left the log.
        let log = PathBuf::from(format!("{}-wal", self.path.display()));
        let synced = tokio::task::spawn_blocking(move || match std::fs::File::open(log) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        synced
            .await
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(StoreError::Directory)
    }

    async fn logs(&self, query: &LogsQuery) -> Result<LogsAnswer, StoreError> {
        read::logs(&mut *self.reader().await?, query).await
    }

    async fn log(&self, query: &LogQuery) -> Result<LogAnswer, StoreError> {
        read::log(&mut *self.reader().await?, query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        read::usage(&mut *self.reader().await?, query).await
    }

    async fn rebuild(&self) -> Result<RebuildAnswer, StoreError> {
        rebuild::run(self).await
    }

    async fn open_sources(&self) -> Result<Vec<Arc<str>>, StoreError> {
        read::open_sources(&mut *self.reader().await?).await
    }

    async fn open_requests(
        &self,
        source: &str,
        requests_max: usize,
    ) -> Result<Vec<RequestAccepted>, StoreError> {
        read::open_requests(&mut *self.reader().await?, source, requests_max).await
    }

    async fn event_ids(&self, source: &str, source_sequence: u64) -> Result<Vec<Arc<str>>, StoreError> {
        read::event_ids(&mut *self.reader().await?, source, source_sequence).await
    }

    async fn events_after(
        &self,
        source: &str,
        source_sequence: u64,
        events_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        read::events_after(&mut *self.reader().await?, (source, source_sequence), events_max).await
    }

    async fn booked(
        &self,
        tenant: Option<&str>,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, Record)>, StoreError> {
        read::booked(&mut *self.reader().await?, (tenant, after), events_max).await
    }

    async fn last_place(&self) -> Result<u64, StoreError> {
        read::last_place(&mut *self.reader().await?).await
    }

    async fn audits(&self, range: &AuditRange, events_max: usize) -> Result<Vec<Record>, StoreError> {
        read::audits(&mut *self.reader().await?, range, events_max).await
    }

    async fn seals(&self, tenant: Option<&str>) -> Result<Vec<Record>, StoreError> {
        read::seals(&mut *self.reader().await?, tenant).await
    }

    async fn rows_of_day(&self, day: NaiveDate) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        read::rows_of_day(&mut *self.reader().await?, day).await
    }

    async fn day_rows(
        &self,
        of: (&str, NaiveDate),
        after: Option<RequestId>,
        rows_max: usize,
    ) -> Result<Vec<Waybill>, StoreError> {
        read::day_rows(&mut *self.reader().await?, of, (after, rows_max)).await
    }

    async fn adjusted(&self, ids: &[RequestId]) -> Result<BTreeMap<RequestId, Adjustments>, StoreError> {
        adjustments::adjusted(&mut *self.reader().await?, ids).await
    }

    async fn adjusted_days(&self) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError> {
        adjustments::days(&mut *self.reader().await?).await
    }

    async fn day_adjustments(
        &self,
        of: (&str, NaiveDate),
        after: Option<(RequestId, u32)>,
        most: usize,
    ) -> Result<Vec<Adjustment>, StoreError> {
        adjustments::of_day(&mut *self.reader().await?, of, (after, most)).await
    }

    async fn healthy(&self) -> bool {
        let Ok(mut reader) = self.reader().await else {
            return false;
        };
        sqlx::query("SELECT 1 FROM ledger_cursor")
            .fetch_optional(&mut *reader)
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests;
