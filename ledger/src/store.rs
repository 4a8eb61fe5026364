//! The Store port: where the books are kept. Adapters differ in the database, never in what they promise;
//! `conformance` has one function per promise and every adapter runs it.

mod adjustment;
pub mod postgres;
mod row;
pub mod sqlite;
pub(crate) mod sums;

#[cfg(test)]
mod conformance;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::NaiveDate;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::query::{
    Adjustments, LogAnswer, LogQuery, LogsAnswer, LogsQuery, RebuildAnswer, UsageQuery, UsageRow,
};

use crate::coverage::Coverage;
use crate::fold::{Changes, Standing};
use crate::record::{Adjustment, Record, Waybill};

pub(crate) use adjustment::day_of;

/// Where the books are kept. Rows are unique by request id, sums move by differences, and both move in one
/// transaction with the raw envelopes and the cursor: delivery that repeats or reorders leaves exact books.
#[async_trait]
pub trait Store: Send + Sync {
    /// How far the stream is applied: where reading resumes, never whether an event counts.
    async fn cursor(&self) -> Result<Option<Cursor>, StoreError>;

    /// Which events of each source are kept.
    async fn coverage(&self) -> Result<Coverage, StoreError>;

    /// Writes a batch, all of it or nothing. The cursor moves by compare-and-set: a writer who was overtaken
    /// gets [`StoreError::Superseded`] and has changed nothing. An envelope that is kept already is not kept again.
    /// What the batch changes is decided in the same transaction, once the cursor is taken: a batch may leave the
    /// cursor where it is, so that it does not show whether another writer was here since the books were read.
    async fn apply(&self, batch: &Batch<'_>) -> Result<Applied, StoreError>;

    /// Once it returns, everything applied before the call survives the loss of the machine.
    async fn sync(&self) -> Result<(), StoreError>;

    /// A page of rows, newest first. Following `next` walks every row once, also while rows are added.
    async fn logs(&self, query: &LogsQuery) -> Result<LogsAnswer, StoreError>;

    /// One row and its envelope.
    async fn log(&self, query: &LogQuery) -> Result<LogAnswer, StoreError>;

    /// Sums by group and bucket, oldest bucket first, of exactly the time that is asked for.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError>;

    /// Computes rows and sums from the raw envelopes and puts them in the place of what was there, at once.
    async fn rebuild(&self) -> Result<RebuildAnswer, StoreError>;

    /// The sources that have requests which were accepted and have no row, in order.
    async fn open_sources(&self) -> Result<Vec<Arc<str>>, StoreError>;

    /// Requests of a source that were accepted and have no row, by request id and so oldest first, at most
    /// `requests_max`.
    async fn open_requests(
        &self,
        source: &str,
        requests_max: usize,
    ) -> Result<Vec<RequestAccepted>, StoreError>;

    /// The ids of the events that are kept under one place of a source: more than one is a place given twice.
    async fn event_ids(&self, source: &str, source_sequence: u64) -> Result<Vec<Arc<str>>, StoreError>;

    /// The events of a source beyond a place, in the order of their places, at most `events_max`.
    async fn events_after(
        &self,
        source: &str,
        source_sequence: u64,
        events_max: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Events of requests that ended, booked after a place, in the order in which they were booked, at most `events_max`;
    /// of one tenant or of all. Places rise and are not dense; what is booked later has a higher one.
    async fn booked(
        &self,
        tenant: Option<&str>,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, Record)>, StoreError>;

    /// The last place that was given, 0 in empty books.
    async fn last_place(&self) -> Result<u64, StoreError>;

    /// Events of type `waybill.audit.v1`, the highest id first, each once although it may be kept at several places;
    /// at most `events_max`.
    async fn audits(&self, range: &AuditRange, events_max: usize) -> Result<Vec<Record>, StoreError>;

    /// Events of type `waybill.ledger.sealed.v1`, in the order in which they were booked, of one tenant or of all.
    async fn seals(&self, tenant: Option<&str>) -> Result<Vec<Record>, StoreError>;

    /// How many rows each tenant has whose ids are of a UTC day and which are not provisional, by tenant.
    async fn rows_of_day(&self, day: NaiveDate) -> Result<Vec<(Arc<str>, u64)>, StoreError>;

    /// Rows of a tenant whose ids are of a UTC day, by request id, beyond `after`; at most `rows_max`.
    async fn day_rows(
        &self,
        of: (&str, NaiveDate),
        after: Option<RequestId>,
        rows_max: usize,
    ) -> Result<Vec<Waybill>, StoreError>;

    /// How far these requests were adjusted; those that were not are left out.
    async fn adjusted(&self, ids: &[RequestId]) -> Result<BTreeMap<RequestId, Adjustments>, StoreError>;

    /// How many adjustments there are by day and tenant, the days being those inside the ids of their requests.
    async fn adjusted_days(&self) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError>;

    /// Adjustments of a tenant's rows of a UTC day, by request id and number, beyond `after`; at most `most`.
    async fn day_adjustments(
        &self,
        of: (&str, NaiveDate),
        after: Option<(RequestId, u32)>,
        most: usize,
    ) -> Result<Vec<Adjustment>, StoreError>;

    /// True when the database answers.
    async fn healthy(&self) -> bool;
}

/// Which events of changes are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRange {
    /// Of records of this tenant.
    pub tenant: Option<Arc<str>>,
    /// With an id below this one.
    pub below: Option<Arc<str>>,
    /// With this id or a higher one.
    pub least: Option<Arc<str>>,
}

/// A place in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Birth of the stream, microseconds since the epoch: another birth is another stream.
    pub stream_created: i64,
    /// The last sequence applied, 0 before the first.
    pub sequence: u64,
}

/// What records change in books that hold this about their requests: `fold::fold`.
pub type Fold = fn(&[Record], &BTreeMap<RequestId, Standing>) -> Changes;

/// What one transaction writes.
#[derive(Debug, Clone)]
pub struct Batch<'a> {
    /// The cursor as it must stand, `None` before the first batch.
    pub expected: Option<Cursor>,
    /// The cursor afterwards.
    pub next: Cursor,
    /// Envelopes to keep.
    pub records: &'a [Record],
    /// Decides what they change.
    pub fold: Fold,
    /// Marks of the sources, as they stand afterwards. They never go back.
    pub marks: Vec<(Arc<str>, u64)>,
}

/// What a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Envelopes that were not kept before.
    pub events: u64,
}

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away, busy or full: try again.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// Somebody else moved the cursor: read it again and go on from there.
    #[error("another ledger has moved the cursor")]
    Superseded,
    /// The database is there, and not for whoever asks so: another address, user, password or database is needed.
    #[error(
        "the database cannot be opened by its address; correct user, password and database in DATABASE_URL or store.url"
    )]
    Address(#[source] sqlx::Error),
    /// The database refused: trying again is of no use.
    #[error("the database refused")]
    Refused(#[source] sqlx::Error),
    /// The tables are not those of this version.
    #[error("the database's tables cannot be brought up to date")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// Another process changes the tables: try again.
    #[error("another process is changing the database's tables")]
    Occupied,
    /// The tables are older than this version needs, and nobody said to change them.
    #[error(
        "the database's tables are of version {database}, this program needs version {program}: run `waybill migrate`"
    )]
    Outdated {
        /// The version that the database has, 0 for one without tables.
        database: i64,
        /// The version that this program knows.
        program: i64,
    },
    /// The tables are newer than this version knows.
    #[error(
        "the database's tables are of version {database}, this program knows versions up to {program}: \
         use a newer program"
    )]
    Newer {
        /// The version that the database has.
        database: i64,
        /// The version that this program knows.
        program: i64,
    },
    /// A column holds what this version does not understand.
    #[error("column {column} of the database cannot be read")]
    Unreadable {
        /// The column.
        column: &'static str,
    },
    /// The directory or a file in it cannot be used.
    #[error("the database's directory cannot be used")]
    Directory(#[source] std::io::Error),
    /// The question names a time zone that does not exist.
    #[error("the time zone is not known")]
    TimeZone,
    /// The question asks for more than an answer may hold.
    #[error("the answer has more than {rows_max} sums")]
    TooManySums {
        /// Most sums in an answer.
        rows_max: usize,
    },
}

impl StoreError {
    /// True when the same call may succeed later.
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Occupied)
    }
}
