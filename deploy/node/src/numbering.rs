//! The numbers of the spool's events, as spool and books know them: where either of them was lost or put back from a
//! copy, they are brought into agreement before the first new event.

use anyhow::Context as _;
use bus::spool::Spool;
use bus::{Expected, Kv};
use bytes::Bytes;
use ledger::store::Store;
use schemas::subject::MARK_BUCKET;
use tracing::warn;

use crate::patience::{self, START_WAIT};

/// In a cluster, whose ledgers alone write marks: goes on behind what the ledger has of this spool, so that a spool
/// that was put back from a copy gives no number away twice.
pub(crate) async fn begin(spool: &Spool, kv: &dyn Kv) -> anyhow::Result<()> {
    let entry = patience::until("the mark of the spool cannot be read", START_WAIT, || {
        kv.get(MARK_BUCKET, spool.id().as_str())
    });
    let entry = entry.await.context("cannot read the mark of the spool")?;
    spool.begin_after(entry.and_then(|entry| number(&entry)).unwrap_or(0))?;
    Ok(())
}

/// Sees to it that no number is given away twice, and that books made anew do not wait for events that the spool has
/// forgotten: it would never be trimmed again.
pub(crate) async fn agree(spool: &Spool, kv: &dyn Kv, store: Option<&dyn Store>) -> anyhow::Result<()> {
    let forgotten = spool.marked();
    let marked = marked(spool, kv).await.unwrap_or(0);
    if marked < forgotten {
        let mark = Bytes::from(forgotten.to_string());
        kv.put(MARK_BUCKET, spool.id().as_str(), mark, Expected::Any)
            .await
            .context("cannot write the mark of the spool")?;
    }
    let held = match store {
        Some(store) => held(spool, store).await,
        None => 0,
    };
    spool.begin_after(held.max(marked))?;
    Ok(())
}

/// The newest number of this spool that is in the books.
async fn held(spool: &Spool, store: &dyn Store) -> u64 {
    match store.coverage().await {
        Ok(coverage) => coverage.newest(spool.source()),
        Err(problem) => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the books cannot say which numbers of the spool they hold"
            );
            0
        }
    }
}

/// The mark in the bucket.
async fn marked(spool: &Spool, kv: &dyn Kv) -> Option<u64> {
    number(&kv.get(MARK_BUCKET, spool.id().as_str()).await.ok()??)
}

/// A mark is a number in decimal.
fn number(entry: &bus::Entry) -> Option<u64> {
    std::str::from_utf8(entry.value.as_deref()?).ok()?.parse().ok()
}
