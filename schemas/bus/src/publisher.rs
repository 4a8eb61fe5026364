//! Carries the spool's events to the log, and trims the spool by the ledger's mark.
//!
//! Every event is published under its own id in the order of its sequences and again until the log has taken
//! it; nothing is skipped. Only what survives the machine is published, so a sequence never gets two ids.
//! That the log has an event is not the end: it leaves the spool when the ledger's mark has passed it. What the
//! log took and lost again is published once more as `<id>:r<n>`, since the log would take the old id for a
//! repetition: when the ledger has read past its place without a mark, or when the log is another or a shorter one.

mod unmarked;

use std::sync::Arc;
use std::time::Duration;

use schemas::subject::{MARK_BUCKET, mark as keys};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::spool::Spool;
use crate::{Bus, BusError, Change, Entry, Kv, Message};
use unmarked::Unmarked;

/// Most events in one publish.
const BATCH_EVENTS_MAX: usize = 256;
/// Once there is something to publish, so long is waited for more of it.
const GATHER: Duration = Duration::from_millis(2);
/// The first and the longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a shutdown waits for the log to take what is left.
const FAREWELL: Duration = Duration::from_secs(2);

/// How far the ledger has read the log: the record at `schemas::subject::mark::CURSOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerCursor {
    /// Birth of the log, microseconds since the epoch.
    pub stream_created: i64,
    /// The last sequence of it that is in the books.
    pub sequence: u64,
}

/// How patient a publisher is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long the ledger may take to mark what it has read.
    pub grace: Duration,
    /// How often is looked whether the log still is what it was.
    pub look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(5),
            look: Duration::from_secs(2),
        }
    }
}

/// Publishes until `shutdown`, then what is left within two seconds: when it returns, readers of the log see
/// what was published. Failures of the bus are retried without
/// end; what a shutdown leaves behind is published at the next start.
pub async fn run(
    spool: Spool,
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    run_at(Pace::default(), spool, bus, kv, shutdown).await
}

/// As [`run`], at another pace.
pub async fn run_at(
    pace: Pace,
    spool: Spool,
    bus: Arc<dyn Bus>,
    kv: Arc<dyn Kv>,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let mut publisher = Publisher {
        pace,
        next: 1,
        batch_events: BATCH_EVENTS_MAX,
        stored: None,
        pause: PAUSE_MIN,
        unmarked: Unmarked::new(pace.grace, 0),
        log: Log::default(),
        told: Told::default(),
        troubled: false,
        unwatched: false,
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
    pace: Pace,
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
    unmarked: Unmarked,
    log: Log,
    told: Told,
    /// The log does not take events, and that was said.
    troubled: bool,
    /// The marks cannot be watched, and that was said.
    unwatched: bool,
}

/// The log as the publisher knows it.
#[derive(Debug, Default)]
struct Log {
    /// Its birth; `None` until it was asked.
    created_at_micros: Option<i64>,
    /// The highest place it gave.
    place: u64,
    /// The highest place it had given at the last look: a log that ends before it has lost something, unless it
    /// only has not shown yet what it took.
    place_before: u64,
    /// Where it ended at the last look.
    end: u64,
    /// Looks in a row at which it ended before `place_before` and did not grow.
    short_looks: u32,
    /// How often events were published again: the number in their ids.
    round: u32,
    /// Events up to here were published before, under other ids.
    again_up_to: u64,
    /// When everything was published again for the last time.
    rewound: Option<Instant>,
}

/// Looks at an end that is too early and does not move, until it counts as what the log has.
const SHORT_LOOKS_MAX: u32 = 3;

impl Log {
    /// True when a log that ends at `end` has lost what it took.
    fn shrinks(&mut self, end: u64) -> bool {
        let before = std::mem::replace(&mut self.end, end);
        if end >= self.place_before || end > before {
            self.short_looks = 0;
            return false;
        }
        self.short_looks += 1;
        end < before || self.short_looks >= SHORT_LOOKS_MAX
    }
}

/// What the ledger has told.
#[derive(Debug, Default)]
struct Told {
    mark: u64,
    cursor: Option<LedgerCursor>,
    /// The ledger knows two events under one place of this spool.
    contested: bool,
}

impl Publisher {
    /// Never returns; may be dropped at any point: an event that is published twice is stored once.
    async fn serve(&mut self) {
        let mut marks = self.watch().await;
        self.next = self.spool.marked() + 1;
        self.unmarked.marked(self.spool.marked());
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                change = marks.recv() => if let Some(change) = change {
                    self.hear(change);
                } else {
                    warn!("the watch of the ledger's marks ended");
                    self.pause().await;
                    marks = self.watch().await;
                },
                () = sleep_until(look_at) => {
                    self.look().await;
                    look_at = Instant::now() + self.pace.look;
                }
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
                        if change == Change::Current {
                            self.unwatched = false;
                            return marks;
                        }
                        self.hear(change);
                    }
                    self.unwatchable(&BusError::Closed);
                }
                Err(problem) => self.unwatchable(&problem),
            }
            self.pause().await;
        }
    }

    fn unwatchable(&mut self, problem: &BusError) {
        if !std::mem::replace(&mut self.unwatched, true) {
            warn!(
                error = problem as &dyn std::error::Error,
                "the ledger's marks cannot be watched; the spool is not trimmed"
            );
        }
    }

    fn hear(&mut self, change: Change) {
        let Change::Entry(entry) = change else {
            return;
        };
        let id = self.spool.id().as_str();
        if entry.key == id {
            // A bucket that was made anew has no marks until the ledger tells them again.
            if entry.value.is_some() {
                self.hear_mark(&entry);
            }
        } else if entry.key == keys::CURSOR {
            let value = entry.value.as_deref();
            self.told.cursor = value.and_then(|value| serde_json::from_slice(value).ok());
            self.note_cursor();
        } else if entry.key.strip_prefix(keys::CONTESTED) == Some(id) {
            self.hear_contest(entry.value.is_some());
        }
    }

    fn hear_mark(&mut self, entry: &Entry) {
        if let Some(mark) = entry.value.as_deref().and_then(mark) {
            self.told.mark = mark;
            self.trim();
        } else {
            warn!(
                record.revision = entry.revision,
                "a mark of the ledger is not a number"
            );
        }
    }

    fn hear_contest(&mut self, contested: bool) {
        if std::mem::replace(&mut self.told.contested, contested) == contested {
            return;
        }
        self.spool.set_contested(contested);
        if contested {
            error!(
                spool.id = %self.spool.id(),
                "the ledger has two events under one place of this spool, which is not trimmed any more: does another \
                 node run on a copy of it?"
            );
        } else {
            info!("the spool is trimmed again");
            self.trim();
        }
    }

    fn trim(&mut self) {
        if self.told.contested {
            return;
        }
        self.spool.trim(self.told.mark);
        self.unmarked.marked(self.spool.marked());
    }

    /// The ledger's cursor counts as far as it is in the log that events went to.
    fn note_cursor(&mut self) {
        let cursor = self
            .told
            .cursor
            .filter(|cursor| Some(cursor.stream_created) == self.log.created_at_micros);
        self.unmarked
            .read_up_to(cursor.map_or(0, |cursor| cursor.sequence));
    }

    /// Looks whether the log still has what it took, and publishes again what it has not.
    async fn look(&mut self) {
        let known = self.log.created_at_micros.is_some();
        if known && !self.unmarked.any() {
            return;
        }
        let Ok(log) = self.bus.state().await else {
            // Who cannot reach the log cannot publish either, and says so there.
            return;
        };
        let before = self.log.created_at_micros.replace(log.created_at_micros);
        let another = before.is_some_and(|before| before != log.created_at_micros);
        let shorter = self.log.shrinks(log.last);
        if (another || shorter) && !self.rewind(if another { "another" } else { "a shorter" }) {
            self.log.created_at_micros = before;
            return;
        }
        self.log.place_before = self.log.place;
        self.note_cursor();
        if self.told.contested {
            return;
        }
        while let Some(range) = self.unmarked.overdue(Instant::now()) {
            if let Err(problem) = self.publish_again(range.clone()).await {
                warn!(
                    error = &*problem,
                    from = range.start(),
                    "events that the log has lost could not be published again"
                );
                return;
            }
        }
    }

    /// Has everything that is not marked published again; false when that was done a moment ago.
    fn rewind(&mut self, what: &'static str) -> bool {
        let now = Instant::now();
        let recently = |at: Instant| now.saturating_duration_since(at) < self.pace.grace;
        if self.log.rewound.is_some_and(recently) {
            return false;
        }
        let from = self.spool.marked() + 1;
        warn!(
            from,
            to = self.next - 1,
            "the log is {what} one than it was: events that are not in the books are published again"
        );
        self.log.rewound = Some(now);
        self.log.round += 1;
        self.log.again_up_to = self.log.again_up_to.max(self.next - 1);
        self.log.place = 0;
        self.log.place_before = 0;
        self.log.short_looks = 0;
        self.unmarked.forget();
        self.next = from;
        true
    }

    /// Publishes events again that the log has lost.
    async fn publish_again(
        &mut self,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (mut from, last) = range.clone().into_inner();
        self.log.round += 1;
        let mut place = 0;
        while from <= last {
            let room =
                usize::try_from(last - from + 1).map_or(BATCH_EVENTS_MAX, |left| left.min(BATCH_EVENTS_MAX));
            let batch = self.spool.read(from, room)?;
            let Some(end) = batch.last().map(|(sequence, _)| *sequence) else {
                break;
            };
            if batch
                .first()
                .is_some_and(|(sequence, _)| *sequence > *range.start())
                && from == *range.start()
            {
                // What cannot be read any more is declared lost at the next start, and the mark stops before it.
                break;
            }
            let messages: Vec<Message> = batch
                .into_iter()
                .take_while(|(sequence, _)| *sequence <= last)
                .map(|(_, message)| again(message, self.log.round))
                .collect();
            let stored = self.bus.publish(&messages).await?;
            place = stored.iter().copied().max().map_or(place, |new| place.max(new));
            self.spool.note_republished(messages.len());
            from = end + 1;
        }
        warn!(
            from = range.start(),
            to = last,
            round = self.log.round,
            "the books have not what the log took: published again"
        );
        self.log.place = self.log.place.max(place);
        self.unmarked.published_again(last, place);
        Ok(())
    }

    /// Publishes one batch, or pauses after a failure.
    async fn publish(&mut self) {
        if let Err(problem) = self.try_publish().await {
            if !std::mem::replace(&mut self.troubled, true) {
                warn!(
                    error = &*problem,
                    next = self.next,
                    "events stay in the spool: they are published again until the log takes them"
                );
            }
            self.pause().await;
        } else {
            self.pause = PAUSE_MIN;
            if std::mem::take(&mut self.troubled) {
                info!(next = self.next, "the log takes events again");
            }
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
        let (again_up_to, round) = (self.log.again_up_to, self.log.round);
        let messages: Vec<Message> = batch
            .into_iter()
            .map(|(sequence, message)| {
                if sequence <= again_up_to {
                    again(message, round)
                } else {
                    message
                }
            })
            .collect();
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
        let first = self.next;
        self.next = last + 1;
        if first <= again_up_to {
            self.spool.note_republished(messages.len());
        }
        let (Some(&low), Some(&high)) = (stored.iter().min(), stored.iter().max()) else {
            return Ok(());
        };
        // Places grow with sequences, also for what the log had already.
        if low <= self.log.place && self.rewind("a shorter") {
            return Ok(());
        }
        self.log.place = self.log.place.max(high);
        self.unmarked.took(last, high);
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
            if let Some(stored) = self.stored
                && self.bus.state().await.is_ok_and(|log| log.last < stored)
            {
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

/// The same message under an id that the log has not seen.
fn again(message: Message, round: u32) -> Message {
    let id = format!("{}:r{round}", message.id);
    Message { id, ..message }
}

/// A mark is a sequence in decimal.
fn mark(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
