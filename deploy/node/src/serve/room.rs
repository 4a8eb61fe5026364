//! Room in the log of a cluster: a ledger's node sees to it that the servers let go of what is in the books before the
//! log is full. How far the books are is what the applying ledger has told everybody, whoever asks.

use std::error::Error;
use std::time::Duration;

use bus::nats::Nats;
use bus::publisher::LedgerCursor;
use bus::{BusError, Kv as _};
use schemas::subject::{MARK_BUCKET, mark};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::patience::Passing as _;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks for ever.
pub(super) async fn keep(nats: &Nats) {
    let mut warned = false;
    loop {
        sleep(LOOK_EVERY).await;
        match look(nats).await {
            Ok(0) => warned = false,
            Ok(events) => {
                warned = false;
                info!(
                    events,
                    "the log was short of room: the oldest events, which are in the books, are let go of"
                );
            }
            // That the bus is away is told by others.
            Err(problem) if problem.passes() => {}
            Err(problem) if !std::mem::replace(&mut warned, true) => warn!(
                error = &problem as &dyn Error,
                "the log cannot be relieved of what is in the books, and takes nothing more once it is full"
            ),
            Err(_) => {}
        }
    }
}

async fn look(nats: &Nats) -> Result<u64, BusError> {
    let told = nats.get(MARK_BUCKET, mark::CURSOR).await?;
    let cursor = told.and_then(|entry| entry.value);
    match cursor.and_then(|value| serde_json::from_slice::<LedgerCursor>(&value).ok()) {
        Some(cursor) => nats.make_room(cursor).await,
        None => Ok(0),
    }
}
