//! Carries the spool's events to the log and trims the spool by the ledger's mark.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::spool::Spool;
use crate::{Bus, BusError, Kv};

/// Publishes until `shutdown`.
pub async fn run(
    spool: Spool,
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let _ = (spool, bus, kv, shutdown);
    unimplemented!()
}
