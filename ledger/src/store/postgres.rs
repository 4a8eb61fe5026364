//! The PostgreSQL adapter: one database that all ledgers of a cluster share. One connection writes; reads have their
//! own. Every transaction that writes takes the cursor first, so that two ledgers wait for each other and never
//! lock each other out. A connection on which the database failed is dropped and opened anew.

mod adjustments;
mod copy;
mod frozen;
mod migrate;
mod partition;
mod read;
mod rebuild;
mod row;
mod session;
mod text;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::query::{
    Adjustments, LogAnswer, LogQuery, LogsAnswer, LogsQuery, RebuildAnswer, UsageQuery, UsageRow,
};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::{Applied, AuditRange, Batch, Cursor, Store, StoreError};
use crate::coverage::Coverage;
use crate::record::{Adjustment, Record, Waybill};
use session::{Purpose, bounded, sort};
use write::Writes;

/// How often partitions are made ahead; with days in hand one that fails is of no harm.
const MAINTENANCE_EVERY: Duration = Duration::from_hours(1);
/// The least pause between two attempts to make partitions.
const MAINTENANCE_AGAIN: Duration = Duration::from_mins(1);

/// How the books are opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bring older tables up to date, instead of refusing them.
    pub migrate: bool,
    /// Most reads at the same time, each on its own connection.
    pub readers_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            migrate: false,
            readers_max: 4,
        }
    }
}

/// What became of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before, 0 for a database without tables.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

/// The books in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    options: Options,
    server: PgConnectOptions,
    writes: Writes,
    writer: Mutex<Writer>,
    readers: PgPool,
    /// The tables were seen to be of this program's version.
    prepared: AtomicBool,
    /// Held by the one rebuild that this process runs.
    rebuilding: Mutex<()>,
}

/// The one connection that writes.
#[derive(Debug, Default)]
struct Writer {
    connection: Option<PgConnection>,
    /// When partitions are to be made ahead; `None`: now.
    maintenance: Option<Instant>,
}

impl PostgresStore {
    /// Books at `url` (`postgres://user:password@host:port/database?sslmode=…`), without connecting: the tables are
    /// looked at by [`Self::prepare`] or before the first write.
    pub fn new(url: &str, options: Options) -> Result<Self, StoreError> {
        let server = session::server(url)?;
        let readers = session::pool(&server, options.readers_max);
        Ok(Self {
            options,
            server,
            writes: Writes::new(),
            writer: Mutex::new(Writer::default()),
            readers,
            prepared: AtomicBool::new(false),
            rebuilding: Mutex::new(()),
        })
    }

    /// Opens the books at `url`. Tables of another version are refused: older ones with [`StoreError::Outdated`]
    /// unless they are to be migrated, newer ones with [`StoreError::Newer`] in any case.
    pub async fn connect(url: &str, options: Options) -> Result<Self, StoreError> {
        let store = Self::new(url, options)?;
        store.prepare().await?;
        Ok(store)
    }

    /// Brings the tables at `url` up to date, which changes nothing when they are. Newer ones are refused before
    /// anything is changed. Waits for readers in small bounded steps, so that nobody queues behind it for long.
    pub async fn migrate(url: &str) -> Result<Migrated, StoreError> {
        migrate::run(&session::server(url)?, migrate::known()).await
    }

    /// Sees to it that the tables are of this program's version and makes partitions ahead.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        self.writing(async |_| Ok(())).await?;
        self.maintain_when_due().await;
        Ok(())
    }

    /// Makes the partitions of the coming days. Done at the start and, while batches come, every hour; a day that
    /// cannot have its own partition now is kept in the default one.
    pub async fn maintain(&self) -> Result<(), StoreError> {
        self.writing(async |connection| partition::maintain(connection).await)
            .await?;
        self.writer.lock().await.maintenance = Some(Instant::now() + MAINTENANCE_EVERY);
        Ok(())
    }

    /// Makes partitions when it is time. What fails is tried again later: rows have a place in any case.
    async fn maintain_when_due(&self) {
        {
            let mut writer = self.writer.lock().await;
            if writer.maintenance.is_some_and(|due| Instant::now() < due) {
                return;
            }
            writer.maintenance = Some(Instant::now() + MAINTENANCE_AGAIN);
        }
        if let Err(problem) = self.maintain().await {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the partitions of the coming days could not be made"
            );
        }
    }

    /// Runs `write` on the writer's connection, opening it first where it is missing. A connection on which
    /// the database failed, or which was given up on, is not used again.
    async fn writing<T>(
        &self,
        write: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut connection = match writer.connection.take() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let result = bounded(write(&mut connection)).await;
        let broken = |error: &StoreError| {
            matches!(
                error,
                StoreError::Unavailable(_) | StoreError::Address(_) | StoreError::Refused(_)
            )
        };
        if !result.as_ref().is_err_and(broken) {
            writer.connection = Some(connection);
        }
        result
    }

    /// Ends the session of a ledger that froze while it held the cursor, if that is what was waited for.
    async fn end_frozen(&self) {
        let end =
            async |connection: &mut PgConnection| frozen::end(connection, frozen::SILENT_SECONDS_MAX).await;
        match self.reading(end).await {
            Ok(0) => {}
            Ok(sessions) => warn!(
                sessions,
                "a ledger froze while it held the cursor; its session was ended"
            ),
            Err(problem) => warn!(
                error = &problem as &dyn std::error::Error,
                "the cursor is held, and it cannot be seen by whom"
            ),
        }
    }

    async fn open(&self) -> Result<PgConnection, StoreError> {
        if !self.prepared.load(Ordering::Acquire) {
            if self.options.migrate {
                // As long as it takes: its waits are bounded, its work is not.
                migrate::run(&self.server, migrate::known()).await?;
            } else {
                bounded(migrate::check(&self.server, migrate::known())).await?;
            }
            self.prepared.store(true, Ordering::Release);
        }
        session::open(&self.server, Purpose::Write).await
    }

    /// Runs `read` on one of the readers' connections; one on which the database failed is not used again. A connection
    /// that prepared its statements for tables as they were before prepares them anew, once, and `read` is run again.
    async fn reading<T>(
        &self,
        read: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError> + Clone,
    ) -> Result<T, StoreError> {
        let mut reader = self.readers.acquire().await.map_err(sort)?;
        let result = bounded(async {
            match read.clone()(&mut reader).await {
                Err(StoreError::Refused(error)) if session::is_outdated(&error) => {
                    reader.clear_cached_statements().await.map_err(sort)?;
                    read(&mut reader).await
                }
                result => result,
            }
        });
        let result = result.await;
        if matches!(result, Err(StoreError::Unavailable(_) | StoreError::Refused(_))) {
            reader.close_on_drop();
        }
        result
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn cursor(&self) -> Result<Option<Cursor>, StoreError> {
        self.writing(async |connection| read::cursor(connection).await)
            .await
    }

    async fn coverage(&self) -> Result<Coverage, StoreError> {
        self.writing(async |connection| read::coverage(connection).await)
            .await
    }

    async fn apply(&self, batch: &Batch<'_>) -> Result<Applied, StoreError> {
        self.maintain_when_due().await;
        let applied = self
            .writing(async |connection| self.writes.apply(connection, batch).await)
            .await;
        if let Err(StoreError::Unavailable(error)) = &applied
            && migrate::lock_was_taken(error)
        {
            self.end_frozen().await;
        }
        applied
    }

    async fn sync(&self) -> Result<(), StoreError> {
        // Every session commits with `synchronous_commit = on`: what is committed is durable.
        Ok(())
    }

    async fn logs(&self, query: &LogsQuery) -> Result<LogsAnswer, StoreError> {
        self.reading(async |connection| read::logs(connection, query).await)
            .await
    }

    async fn log(&self, query: &LogQuery) -> Result<LogAnswer, StoreError> {
        self.reading(async |connection| read::log(connection, query).await)
            .await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.reading(async |connection| read::usage(connection, query).await)
            .await
    }

    async fn rebuild(&self) -> Result<RebuildAnswer, StoreError> {
        rebuild::run(self).await
    }

    async fn open_sources(&self) -> Result<Vec<Arc<str>>, StoreError> {
        self.reading(async |connection| read::open_sources(connection).await)
            .await
    }

    async fn open_requests(
        &self,
        source: &str,
        requests_max: usize,
    ) -> Result<Vec<RequestAccepted>, StoreError> {
        self.reading(async |connection| read::open_requests(connection, source, requests_max).await)
            .await
    }

    async fn event_ids(&self, source: &str, source_sequence: u64) -> Result<Vec<Arc<str>>, StoreError> {
        self.reading(async |connection| read::event_ids(connection, source, source_sequence).await)
            .await
    }

    async fn events_after(
        &self,
        source: &str,
        source_sequence: u64,
        events_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.reading(async |connection| {
            read::events_after(connection, (source, source_sequence), events_max).await
        })
        .await
    }

    async fn booked(
        &self,
        tenant: Option<&str>,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, Record)>, StoreError> {
        self.reading(async |connection| read::booked(connection, (tenant, after), events_max).await)
            .await
    }

    async fn last_place(&self) -> Result<u64, StoreError> {
        self.reading(async |connection| read::last_place(connection).await)
            .await
    }

    async fn audits(&self, range: &AuditRange, events_max: usize) -> Result<Vec<Record>, StoreError> {
        self.reading(async |connection| read::audits(connection, range, events_max).await)
            .await
    }

    async fn seals(&self, tenant: Option<&str>) -> Result<Vec<Record>, StoreError> {
        self.reading(async |connection| read::seals(connection, tenant).await)
            .await
    }

    async fn rows_of_day(&self, day: NaiveDate) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        self.reading(async |connection| read::rows_of_day(connection, day).await)
            .await
    }

    async fn day_rows(
        &self,
        of: (&str, NaiveDate),
        after: Option<RequestId>,
        rows_max: usize,
    ) -> Result<Vec<Waybill>, StoreError> {
        self.reading(async |connection| read::day_rows(connection, of, (after, rows_max)).await)
            .await
    }

    async fn adjusted(&self, ids: &[RequestId]) -> Result<BTreeMap<RequestId, Adjustments>, StoreError> {
        self.reading(async |connection| adjustments::adjusted(connection, ids).await)
            .await
    }

    async fn adjusted_days(&self) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError> {
        self.reading(async |connection| adjustments::days(connection).await)
            .await
    }

    async fn day_adjustments(
        &self,
        of: (&str, NaiveDate),
        after: Option<(RequestId, u32)>,
        most: usize,
    ) -> Result<Vec<Adjustment>, StoreError> {
        self.reading(async |connection| adjustments::of_day(connection, of, (after, most)).await)
            .await
    }

    async fn healthy(&self) -> bool {
        let answer = self.reading(async |connection| {
            let ask = sqlx::query("SELECT 1 FROM ledger_cursor LIMIT 1");
            ask.fetch_optional(connection).await.map_err(sort)
        });
        answer.await.is_ok()
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
