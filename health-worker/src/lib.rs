//! Probes, engine metrics and temperatures will live here. For now the role only keeps its place, so that a
//! node runs the same set of roles as it always will.

use std::convert::Infallible;

use tokio_util::sync::CancellationToken;

/// Runs until `shutdown`.
pub async fn run(shutdown: CancellationToken) -> Result<(), Infallible> {
    shutdown.cancelled().await;
    Ok(())
}
