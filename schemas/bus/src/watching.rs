//! A bucket that is watched for good: a watch that ends is made anew, and whoever listens is told that it begins again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use crate::{Change, Entry, Kv};

/// Between two tries to watch: doubled from the first to the second.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What is told of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A watch began: all that there is follows, whether it was told before or not.
    Begin,
    /// An entry as it stands, or a change.
    Entry(Entry),
    /// All that there was has been told; changes follow.
    Current,
}

/// Tells what is in a bucket and what changes there. Never returns.
pub async fn watch_for_good(kv: &Arc<dyn Kv>, bucket: &str, mut tell: impl FnMut(Told)) {
    let mut pause = RETRY_MIN;
    loop {
        match kv.watch(bucket).await {
            Ok(mut changes) => {
                pause = RETRY_MIN;
                tell(Told::Begin);
                while let Some(change) = changes.recv().await {
                    tell(match change {
                        Change::Entry(entry) => Told::Entry(entry),
                        Change::Current => Told::Current,
                    });
                }
            }
            Err(problem) => debug!(
                bucket,
                error = &problem as &dyn std::error::Error,
                "a bucket cannot be watched"
            ),
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}
