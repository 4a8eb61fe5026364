//! A node whose bus nobody else uses: what a process before it held, nobody holds.

use bus::{BusError, Change, Expected, Kv};
use schemas::subject::SLOT_BUCKET;

/// Frees all slots. To be called before anything is held.
pub(super) async fn free_slots(kv: &dyn Kv) -> Result<(), BusError> {
    let mut changes = kv.watch(SLOT_BUCKET).await?;
    let mut held = Vec::new();
    while let Some(Change::Entry(entry)) = changes.recv().await {
        held.push(entry.key);
    }
    drop(changes);
    for key in held {
        kv.delete(SLOT_BUCKET, &key, Expected::Any).await?;
    }
    Ok(())
}
