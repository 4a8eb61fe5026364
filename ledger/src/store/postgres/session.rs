//! Connections: how they are opened, what every session is told, and which failures may pass.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use crate::store::StoreError;

/// How long a call may take, connecting included, before the database counts as away. Longer than a statement may.
const CALL_WAIT: Duration = Duration::from_mins(2);
/// How long a read waits for one of the readers' connections.
const READER_WAIT: Duration = Duration::from_secs(5);
/// How long a reader that nobody uses stays open.
const READER_IDLE: Duration = Duration::from_secs(30);
/// How long opening a connection may take.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// What every session is told: a commit is durable, a session whose process froze or vanished lets go of its locks.
const SETTINGS: &str = "SET synchronous_commit = on; SET client_min_messages = warning; \
     SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 30; \
     SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Answers questions.
    Read,
    /// Applies batches.
    Write,
    /// Changes tables or computes them anew, which may take long.
    Build,
}

impl Purpose {
    const fn settings(self) -> &'static str {
        match self {
            Self::Read => "SET statement_timeout = '30s'; SET default_transaction_read_only = on",
            Self::Write => "SET statement_timeout = '30s'; SET lock_timeout = '5s'",
            Self::Build => "SET statement_timeout = 0; SET lock_timeout = '5s'",
        }
    }
}

/// What a session that writes is told besides: rows are found by their keys, one after the other. A table that was
/// empty when a statement was planned may be large by now.
const BY_KEYS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET jit = off";

/// The server behind `url`.
pub(super) fn server(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options: PgConnectOptions = url.parse().map_err(StoreError::Address)?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("waybill-ledger"),
    };
    Ok(options.extra_float_digits(None).disable_statement_logging())
}

/// Opens a connection.
pub(super) async fn open(server: &PgConnectOptions, purpose: Purpose) -> Result<PgConnection, StoreError> {
    let opening = async {
        let mut connection = server.connect().await?;
        tell(&mut connection, purpose).await?;
        Ok(connection)
    };
    match tokio::time::timeout(OPEN_WAIT, opening).await {
        Ok(opened) => opened.map_err(sort),
        Err(_) => Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)),
    }
}

/// Connections for reads, opened when they are needed.
pub(super) fn pool(server: &PgConnectOptions, readers_max: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(readers_max.max(1))
        .min_connections(0)
        .idle_timeout(READER_IDLE)
        .acquire_timeout(READER_WAIT)
        .after_connect(|connection, _| Box::pin(tell(connection, Purpose::Read)))
        .connect_lazy_with(server.clone())
}

async fn tell(connection: &mut PgConnection, purpose: Purpose) -> Result<(), sqlx::Error> {
    let planning = if purpose == Purpose::Read { "" } else { BY_KEYS };
    let text = format!("{SETTINGS} {}; {planning}", purpose.settings());
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?;
    Ok(())
}

/// Waits for `call` as long as a call may take.
pub(super) async fn bounded<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(CALL_WAIT, Box::pin(call)).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)),
    }
}

/// Classes of SQLSTATE after which the same statement may succeed later: connection exception, transaction
/// rollback, insufficient resources, system error.
const RETRYABLE_CLASSES: [&str; 4] = ["08", "40", "53", "58"];
/// Single ones: read-only transaction (a server that is no longer the primary one), idle transaction, object in use,
/// lock not available, query canceled, administrator's shutdown, crash, cannot connect now, idle session.
const RETRYABLE_CODES: [&str; 9] = [
    "25006",
    "25P03",
    "55006",
    LOCK_NOT_AVAILABLE,
    "57014",
    "57P01",
    "57P02",
    "57P03",
    "57P05",
];
/// States of an address that has to be corrected: invalid authorization (a class), invalid catalog name.
const ADDRESS_STATES: [&str; 2] = ["28", "3D000"];
/// A lock was not free in time.
pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Tells what may succeed later from what never will.
pub(super) fn sort(error: sqlx::Error) -> StoreError {
    let retryable = match &error {
        sqlx::Error::Database(_) => code(&error).is_some_and(|code| retryable(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    };
    if retryable {
        StoreError::Unavailable(error)
    } else if is_of_address(&error) {
        StoreError::Address(error)
    } else {
        StoreError::Refused(error)
    }
}

fn is_of_address(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Configuration(_) => true,
        sqlx::Error::Database(_) => {
            code(error).is_some_and(|code| ADDRESS_STATES.iter().any(|state| code.starts_with(state)))
        }
        _ => false,
    }
}

fn retryable(code: &str) -> bool {
    RETRYABLE_CLASSES.iter().any(|class| code.starts_with(class)) || RETRYABLE_CODES.contains(&code)
}

/// True for a statement that was prepared for tables as they were before.
pub(super) fn is_outdated(error: &sqlx::Error) -> bool {
    const FEATURE_NOT_SUPPORTED: &str = "0A000";
    code(error).is_some_and(|code| code == FEATURE_NOT_SUPPORTED)
}

/// The SQLSTATE of an error of the database.
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error
        .as_database_error()?
        .code()
        .map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_pass_are_told_from_those_that_stay() {
        let passing = [
            "08006", "40001", "40P01", "53100", "53300", "55P03", "57P01", "57P03", "58030", "25006",
        ];
        assert!(passing.iter().all(|code| retryable(code)));
        let staying = ["42P01", "23505", "22021", "28P01", "3D000", "25P02", "0A000"];
        assert!(!staying.iter().any(|code| retryable(code)));
    }

    #[test]
    fn a_lost_connection_passes_and_a_wrong_address_stays() {
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(sort(sqlx::Error::Io(lost)).retryable());
        assert!(sort(sqlx::Error::PoolTimedOut).retryable());
        assert!(!sort(sqlx::Error::RowNotFound).retryable());
        assert!(matches!(server("mysql//"), Err(StoreError::Address(_))));
    }
}
