//! `waybill replay --rebuild`: asks the running node to rebuild its books, or does it here. In a cluster a ledger that
//! runs is asked over the bus; without one the database is opened here.

use std::sync::Arc;
use std::time::Duration;

use bus::clock::SystemClock;
use bus::embedded::Embedded;
use bus::{Bus, BusError};
use bytes::Bytes;
use reqwest::Method;
use schemas::query::{QueryError, RebuildAnswer};
use schemas::subject::QUERY_REBUILD;

use crate::command_line::Flags;
use crate::config::{Config, cluster};
use crate::data::{self, DataDirectory};
use crate::management::{OPERATOR, RunningNode};
use crate::{UsageError, adapters, joining};

/// How long a ledger may take.
const REBUILD_WITHIN: Duration = Duration::from_mins(10);

/// The ledger does not rebuild the books.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is there to do it.
    #[error("no ledger runs; start one, or name the database with --database-url to rebuild it from here")]
    NoLedger,
    /// The ledger says no.
    #[error("the ledger does not rebuild the books: {0}")]
    Refused(QueryError),
    /// Its answer does not parse.
    #[error("the ledger's answer does not parse")]
    Answer(#[from] serde_json::Error),
}

/// Rebuilds and returns what to print.
pub async fn run(rebuild: bool, config: &Config, flags: &Flags) -> anyhow::Result<String> {
    if !rebuild {
        let text = "say what to do with the log: waybill replay --rebuild, or waybill replay --spool DIR";
        return Err(UsageError(text.to_owned()).into());
    }
    let answer = if config.bus.is_shared() {
        in_cluster(config).await?
    } else {
        alone(config, flags).await?
    };
    Ok(format!(
        "read {} events, the request log has {} rows\n",
        answer.events, answer.rows
    ))
}

async fn alone(config: &Config, flags: &Flags) -> anyhow::Result<RebuildAnswer> {
    match DataDirectory::hold(&config.data_dir) {
        Ok(directory) => {
            let embedded = Embedded::open(
                &directory.path().join("bus"),
                bus::embedded::Options::default(),
                Arc::new(SystemClock::new()),
            )?;
            let store = adapters::open_store(config, directory.path()).await?;
            Ok(ledger::rebuild::run(&*store, &*embedded).await?)
        }
        Err(data::Error::Held { .. }) => {
            let node = RunningNode::find(config, flags, OPERATOR)?;
            let answer = node.call(Method::POST, "/api/v1/system/rebuild", None).await?;
            Ok(serde_json::from_value(answer)?)
        }
        Err(error) => Err(error.into()),
    }
}

async fn in_cluster(config: &Config) -> anyhow::Result<RebuildAnswer> {
    let carrier = joining::connect(config).await?;
    let rebuilt = match ask(&*carrier.bus()).await {
        Err(error)
            if error
                .downcast_ref::<Error>()
                .is_some_and(|error| matches!(error, Error::NoLedger)) =>
        {
            here(config, &*carrier.bus()).await
        }
        asked => asked,
    };
    carrier.close().await;
    rebuilt
}

async fn ask(bus: &dyn Bus) -> anyhow::Result<RebuildAnswer> {
    let question = Bytes::from_static(b"null");
    let answer = match bus.ask(QUERY_REBUILD, question, REBUILD_WITHIN).await {
        Err(BusError::NoResponder { .. }) => return Err(Error::NoLedger.into()),
        answered => answered?,
    };
    let answer: Result<RebuildAnswer, QueryError> = serde_json::from_slice(&answer).map_err(Error::Answer)?;
    Ok(answer.map_err(Error::Refused)?)
}

/// Rebuilds where no ledger runs.
async fn here(config: &Config, bus: &dyn Bus) -> anyhow::Result<RebuildAnswer> {
    if config.store == cluster::Store::Sqlite {
        return Err(Error::NoLedger.into());
    }
    let store = adapters::open_store(config, &config.data_dir).await?;
    Ok(ledger::rebuild::run(&*store, bus).await?)
}
