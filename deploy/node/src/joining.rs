//! How a command of the command line joins a cluster without being a node of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::clock::SystemClock;

use crate::adapters::Carrier;
use crate::config::Config;

/// How long a command waits for the bus.
const JOIN_WAIT: Duration = Duration::from_secs(5);

/// Connects to the bus of a cluster.
pub(crate) async fn connect(config: &Config) -> anyhow::Result<Carrier> {
    let nowhere = Path::new("");
    Carrier::open(config, nowhere, Arc::new(SystemClock::new()), JOIN_WAIT).await
}
