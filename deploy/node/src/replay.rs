//! `waybill replay --rebuild`: asks the running node to rebuild its books, or does it in the data directory.

use std::sync::Arc;

use bus::clock::SystemClock;
use bus::embedded::Embedded;
use ledger::store::sqlite::SqliteStore;
use reqwest::Method;
use schemas::query::RebuildAnswer;

use crate::UsageError;
use crate::command_line::Flags;
use crate::config::Config;
use crate::data::{self, DataDirectory};
use crate::management::RunningNode;

/// Rebuilds and returns what to print.
pub async fn run(rebuild: bool, config: &Config, flags: &Flags) -> anyhow::Result<String> {
    if !rebuild {
        return Err(UsageError("say what to do with the log: waybill replay --rebuild".into()).into());
    }
    let answer = match DataDirectory::hold(&config.data_dir) {
        Ok(directory) => {
            let embedded = Embedded::open(
                &directory.path().join("bus"),
                bus::embedded::Options::default(),
                Arc::new(SystemClock::new()),
            )?;
            let store = SqliteStore::open(directory.path()).await?;
            ledger::rebuild::run(&store, &*embedded).await?
        }
        Err(data::Error::Held { .. }) => {
            let node = RunningNode::find(config, flags)?;
            let answer = node.call(Method::POST, "/api/v1/system/rebuild", None).await?;
            serde_json::from_value::<RebuildAnswer>(answer)?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(format!(
        "read {} events, the request log has {} rows\n",
        answer.events, answer.rows
    ))
}
