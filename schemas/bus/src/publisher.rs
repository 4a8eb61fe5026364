//! Carries the spool's events to the log, and trims the spool by the ledger's mark.
//!
//! Every event is published under its own id in the order of its sequences and again until the log has taken
//! it; nothing is skipped. Only what survives the machine is published, so a sequence never gets two ids.
//! That the log has an event is not the end: it leaves the spool when the ledger's mark has passed it.

use std::sync::Arc;
use std::time::Duration;

use schemas::subject::MARK_BUCKET;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::spool::Spool;
use crate::{Bus, BusError, Change, Entry, Kv, Message};

/// Most events in one publish.
const BATCH_EVENTS_MAX: usize = 256;
/// Once there is something to publish, so long is waited for more of it.
const GATHER: Duration = Duration::from_millis(2);
/// The first and the longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a shutdown waits for the log to take what is left.
const FAREWELL: Duration = Duration::from_secs(2);

/// Publishes until `shutdown`, then what is left within two seconds: when it returns, readers of the log see
/// what was published. Failures of the bus are retried without
/// end; what a shutdown leaves behind is published at the next start.
pub async fn run(
    spool: Spool,
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let mut publisher = Publisher {
        next: 1,
        batch_events: BATCH_EVENTS_MAX,
        stored: None,
        pause: PAUSE_MIN,
        spool,
        bus,
        kv,
    };
    let served = shutdown.run_until_cancelled(publisher.serve()).await;
    if served.is_none() {
        publisher.farewell().await;
    }
    Ok(())
}

struct Publisher {
    spool: Spool,
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    /// The next sequence to publish.
    next: u64,
    /// Most events in the next publish: fewer once the log had no room for so many.
    batch_events: usize,
    /// Where the log put the last of what was published.
    stored: Option<u64>,
    pause: Duration,
}

impl Publisher {
    /// Never returns; may be dropped at any point: an event that is published twice is stored once.
    async fn serve(&mut self) {
        let mut marks = self.watch().await;
        self.next = self.spool.marked() + 1;
        loop {
            tokio::select! {
                change = marks.recv() => match change {
                    Some(Change::Entry(entry)) => self.trim(&entry),
                    Some(Change::Current) => {}
                    None => {
                        warn!("the watch of the ledger's marks ended");
                        self.pause().await;
                        marks = self.watch().await;
                    }
                },
                () = self.spool.changed(), if !self.has_more() => sleep(GATHER).await,
                () = std::future::ready(()), if self.has_more() => self.publish().await,
            }
        }
    }

    fn has_more(&self) -> bool {
        self.spool.readable() >= self.next
    }

    /// Follows the marks; what is marked already is applied when this returns.
    async fn watch(&mut self) -> mpsc::Receiver<Change> {
        loop {
            match self.kv.watch(MARK_BUCKET).await {
                Ok(mut marks) => {
                    while let Some(change) = marks.recv().await {
                        match change {
                            Change::Entry(entry) => self.trim(&entry),
                            Change::Current => return marks,
                        }
                    }
                    warn!("the watch of the ledger's marks ended before it had told all");
                }
                Err(problem) => {
                    warn!(
                        error = &problem as &dyn std::error::Error,
                        "the ledger's marks cannot be watched"
                    );
                }
            }
            self.pause().await;
        }
    }

    fn trim(&self, entry: &Entry) {
        if entry.key != self.spool.id().as_str() {
            return;
        }
        if let Some(mark) = entry.value.as_deref().and_then(mark) {
            self.spool.trim(mark);
        } else {
            warn!(
                record.revision = entry.revision,
                "a mark of the ledger is not a number"
            );
        }
    }

    /// Publishes one batch, or pauses after a failure.
    async fn publish(&mut self) {
        if let Err(problem) = self.try_publish().await {
            warn!(
                error = &*problem,
                next = self.next,
                "events stay in the spool: they are published again"
            );
            self.pause().await;
        } else {
            self.pause = PAUSE_MIN;
        }
    }

    async fn try_publish(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let readable = self.spool.readable();
        let batch = self.spool.read(self.next, self.batch_events)?;
        let Some(last) = batch.last().map(|(sequence, _)| *sequence) else {
            // Nothing up to there is left: it was trimmed, or cannot be read any more and is declared lost at
            // the next start.
            self.next = readable + 1;
            return Ok(());
        };
        let messages: Vec<Message> = batch.into_iter().map(|(_, message)| message).collect();
        let stored = match self.bus.publish(&messages).await {
            Err(BusError::Full) => {
                // All or none is stored: a smaller batch may still have room.
                self.batch_events = (messages.len() / 2).max(1);
                return Err(BusError::Full.into());
            }
            stored => stored?,
        };
        self.batch_events = (self.batch_events * 2).min(BATCH_EVENTS_MAX);
        self.stored = stored.last().copied().max(self.stored);
        self.next = last + 1;
        Ok(())
    }

    async fn pause(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    async fn farewell(&mut self) {
        self.next = self.next.max(self.spool.marked() + 1);
        let deadline = Instant::now() + FAREWELL;
        let left = async {
            while self.next <= self.spool.appended() {
                if self.has_more() {
                    self.publish().await;
                } else {
                    self.spool.changed().await;
                }
            }
            if let Some(stored) = self.stored {
                // A log shows its readers only what it will not lose: whoever reads after this misses nothing.
                let _ = self.bus.read(stored, 1, FAREWELL).await;
            }
        };
        if timeout_at(deadline, left).await.is_err() {
            error!(
                left = self.spool.appended() + 1 - self.next,
                "events stay in the spool until the next start"
            );
        }
    }
}

/// A mark is a sequence in decimal.
fn mark(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
