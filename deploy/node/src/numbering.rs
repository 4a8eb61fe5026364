//! The numbers of the spool's events that are taken, as the books know them. A spool that lost its end, or came from
//! a copy, would give them away a second time.

use bus::Kv;
use bus::spool::Spool;
use ledger::store::Store;
use schemas::subject::MARK_BUCKET;
use tracing::warn;

/// The newest number of this spool that the ledger has marked or holds; 0 when neither can say.
pub(crate) async fn taken(spool: &Spool, kv: &dyn Kv, store: &dyn Store) -> u64 {
    let held = match store.coverage().await {
        Ok(coverage) => coverage.newest(spool.source()),
        Err(problem) => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the books cannot say which numbers of the spool they hold"
            );
            0
        }
    };
    held.max(marked(spool, kv).await.unwrap_or(0))
}

async fn marked(spool: &Spool, kv: &dyn Kv) -> Option<u64> {
    let entry = kv.get(MARK_BUCKET, spool.id().as_str()).await.ok()??;
    std::str::from_utf8(entry.value.as_deref()?).ok()?.parse().ok()
}
