//! The numbers of the spool's events, as spool and books know them: where either of them was lost or put back from a
//! copy, they are brought into agreement before the first new event.

use anyhow::Context as _;
use bus::spool::Spool;
use bus::{Expected, Kv};
use bytes::Bytes;
use ledger::store::Store;
use schemas::subject::MARK_BUCKET;
use tracing::warn;

/// Sees to it that no number is given away twice, and that books made anew do not wait for events that the spool has
/// forgotten: it would never be trimmed again.
pub(crate) async fn agree(spool: &Spool, kv: &dyn Kv, store: &dyn Store) -> anyhow::Result<()> {
    let forgotten = spool.marked();
    let marked = marked(spool, kv).await.unwrap_or(0);
    if marked < forgotten {
        let mark = Bytes::from(forgotten.to_string());
        kv.put(MARK_BUCKET, spool.id().as_str(), mark, Expected::Any)
            .await
            .context("cannot write the mark of the spool")?;
    }
    spool.begin_after(held(spool, store).await.max(marked))?;
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
    let entry = kv.get(MARK_BUCKET, spool.id().as_str()).await.ok()??;
    std::str::from_utf8(entry.value.as_deref()?).ok()?.parse().ok()
}
