//! A ledger that froze in the middle of a batch holds the cursor. The server ends such a session by itself while it
//! waits for the next statement, but not while it waits for the rows of a `COPY`: no timeout is looked at there. So
//! the ledger that was held off by a session like this ends it, and what was half done is undone.

use sqlx::postgres::PgConnection;

use super::session::sort;
use crate::store::StoreError;

/// How long a session that holds the cursor may be silent. As long as the server itself waits for the next statement.
pub(super) const SILENT_SECONDS_MAX: i32 = 60;

/// Ends the sessions of this user that hold the cursor and have not been heard for `silent_seconds`. Returns how many.
pub(super) async fn end(connection: &mut PgConnection, silent_seconds: i32) -> Result<i64, StoreError> {
    let text = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity AS session \
         WHERE usename = current_user AND wait_event = 'ClientRead' \
         AND state_change < clock_timestamp() - make_interval(secs => $1) \
         AND EXISTS (SELECT 1 FROM pg_locks AS held WHERE held.pid = session.pid AND granted \
         AND relation = 'ledger_cursor'::regclass AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock'))";
    let ended = sqlx::query_scalar(text).bind(f64::from(silent_seconds));
    ended.fetch_one(connection).await.map_err(sort)
}
