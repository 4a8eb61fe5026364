//! A rebuild without a running ledger: first the stream is read from its oldest for what the books do not have,
//! then rows and sums are computed from the raw envelopes in the books. The order makes no difference to the result.

use std::sync::Arc;

use schemas::query::RebuildAnswer;

use crate::apply::Applier;
use crate::state::State;
use crate::{Config, Error, Ports};

/// Rebuilds rows and sums and returns when all is done. No other ledger should be running on these books.
pub async fn rebuild(config: Config, ports: Ports) -> Result<RebuildAnswer, Error> {
    let store = Arc::clone(&ports.store);
    Applier::new(config, ports, Arc::new(State::default()))
        .read_all()
        .await?;
    Ok(store.rebuild().await?)
}
