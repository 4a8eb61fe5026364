//! `waybill migrate`: brings the tables of the books up to date.

use anyhow::Context as _;
use ledger::store::postgres::PostgresStore;

use crate::UsageError;
use crate::config::{Config, cluster::Store};

/// Migrates and returns what to print.
pub async fn run(config: &Config) -> anyhow::Result<String> {
    let Store::Postgres { url, .. } = &config.store else {
        if config.bus.is_shared() {
            let text = "a cluster keeps its books in Postgres, and none is named; set DATABASE_URL, or write store.url";
            return Err(UsageError(text.to_owned()).into());
        }
        let text = "nothing to do: SQLite's tables are brought up to date when they are opened\n";
        return Ok(text.to_owned());
    };
    let done = PostgresStore::migrate(url.reveal())
        .await
        .context("the tables are as they were")?;
    Ok(if done.from == done.to {
        format!("the tables are of version {} already\n", done.to)
    } else {
        format!("the tables went from version {} to {}\n", done.from, done.to)
    })
}
