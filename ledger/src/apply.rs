//! From the log into the books: reads batches at its own cursor, folds them, applies them, and tells spools and
//! log how far they may forget. An event is never skipped: what the database does not take is tried again.

mod tell;

use std::sync::Arc;
use std::time::Duration;

use bus::{BATCH_MESSAGES_MAX, BusError, LogState, Stored};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::book::book;
use crate::coverage::Coverage;
use crate::record::{Fact, Record};
use crate::state::State;
use crate::store::{Cursor, StoreError};
use crate::{Config, Error, Ports};
use tell::Marks;

/// How long a read waits for the first event.
const READ_WAIT: Duration = Duration::from_secs(1);
/// How often a batch is let grow while events keep coming.
const GATHER_ROUNDS_MAX: u32 = 4;
/// First pause after a failure; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Longest pause after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How long a ledger that was overtaken leaves the other one alone.
const STAND_BY: Duration = Duration::from_secs(1);

/// The one who applies.
pub(crate) struct Applier {
    config: Config,
    ports: Ports,
    state: Arc<State>,
    /// The cursor as the store has it.
    cursor: Option<Cursor>,
    /// Birth of the stream that is read.
    stream_created: i64,
    /// The highest sequence of this stream that is applied.
    reached: u64,
    /// Where reading goes on.
    from: u64,
    /// The end of the log when reading began: what is read beyond it came later.
    backlog_end: u64,
    coverage: Coverage,
    marks: Marks,
    warned_unreadable: bool,
}

impl Applier {
    pub(crate) fn new(config: Config, ports: Ports, state: Arc<State>) -> Self {
        Self {
            config,
            ports,
            state,
            cursor: None,
            stream_created: 0,
            reached: 0,
            from: 1,
            backlog_end: 0,
            coverage: Coverage::default(),
            marks: Marks::default(),
            warned_unreadable: false,
        }
    }

    /// Applies until `shutdown`, then what is already in the log, for a bounded time.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        tokio::select! {
            result = self.follow() => result?,
            () = shutdown.cancelled() => {}
        }
        let drained =
            tokio::time::timeout(Duration::from_secs(self.config.drain_seconds), self.drain()).await;
        if let Ok(result) = drained {
            return result;
        }
        warn!(
            cursor = self.reached,
            "the log was not applied to its end before the shutdown"
        );
        Ok(())
    }

    /// Never ends but by an error.
    async fn follow(&mut self) -> Result<(), Error> {
        self.resume().await?;
        loop {
            if self.state.take_reread() {
                self.from = 1;
            }
            let stored = self.gather().await?;
            let caught_up = stored.is_empty();
            if !caught_up {
                self.take(&stored).await?;
            }
            if self.marks.next.is_none_or(|next| next <= Instant::now()) {
                // A log that never falls silent is caught up with as well.
                self.tell(caught_up || self.from > self.backlog_end).await;
            }
            if caught_up {
                self.check_stream().await?;
            }
        }
    }

    /// Applies what is in the log now and tells the last marks. Whatever was under way begins anew.
    async fn drain(&mut self) -> Result<(), Error> {
        self.resume().await?;
        loop {
            let stored = match self
                .ports
                .bus
                .read(self.from, self.batch_max(), Duration::ZERO)
                .await
            {
                Ok(stored) => stored,
                Err(BusError::Closed) => return Ok(()),
                Err(problem) => {
                    self.mend(problem, BACKOFF_MIN).await?;
                    continue;
                }
            };
            if stored.is_empty() {
                self.tell(true).await;
                return Ok(());
            }
            self.take(&stored).await?;
        }
    }

    /// Learns where the books are and where the log is, and decides where reading goes on.
    async fn resume(&mut self) -> Result<(), Error> {
        let store = Arc::clone(&self.ports.store);
        self.cursor = self.trying(|| store.cursor()).await?;
        self.coverage = self.trying(|| store.coverage()).await?;
        let log = self.log_state().await?;
        self.stream_created = log.created_at_micros;
        self.backlog_end = log.last;
        (self.from, self.reached) = resume_at(self.cursor, log, self.coverage.missing() > 0);
        self.marks.due = true;
        self.state.set_cursor(self.reached);
        info!(
            from = self.from,
            cursor = self.reached,
            "the ledger reads the log"
        );
        Ok(())
    }

    /// A log that is another one, or shorter than what was read, is read from its oldest.
    async fn check_stream(&mut self) -> Result<(), Error> {
        let log = self.log_state().await?;
        if log.created_at_micros != self.stream_created || log.last < self.reached {
            warn!(
                cursor = self.reached,
                last = log.last,
                "the log was made anew and is read from its oldest event"
            );
            self.resume().await?;
        }
        Ok(())
    }

    fn batch_max(&self) -> usize {
        self.config.batch_events_max.clamp(1, BATCH_MESSAGES_MAX)
    }

    /// The next events: waits for the first, then a little for more while more keep coming.
    async fn gather(&mut self) -> Result<Vec<Stored>, Error> {
        let wait = self
            .marks
            .next
            .filter(|_| self.marks.due)
            .map_or(READ_WAIT, |next| {
                next.saturating_duration_since(Instant::now()).min(READ_WAIT)
            });
        let mut stored = match self.ports.bus.read(self.from, self.batch_max(), wait).await {
            Ok(stored) => stored,
            Err(problem) => {
                self.mend(problem, BACKOFF_MAX / 4).await?;
                return Ok(Vec::new());
            }
        };
        for _ in 0..GATHER_ROUNDS_MAX {
            let room = self.batch_max().saturating_sub(stored.len());
            let Some(last) = stored.last().filter(|_| room > 0) else {
                break;
            };
            tokio::time::sleep(Duration::from_millis(self.config.gather_ms)).await;
            // What fails here fails again at the next read, with nothing lost.
            let more = self
                .ports
                .bus
                .read(last.sequence + 1, room, Duration::ZERO)
                .await
                .unwrap_or_default();
            if more.is_empty() {
                break;
            }
            stored.extend(more);
        }
        Ok(stored)
    }

    /// Applies a batch, however long it takes.
    async fn take(&mut self, stored: &[Stored]) -> Result<(), Error> {
        let records: Vec<Record> = stored.iter().map(Record::read).collect();
        let fresh = self.note(&records);
        let Some(last) = records.last().map(|record| record.sequence) else {
            return Ok(());
        };
        let reached = self.reached.max(last);
        let next = Cursor {
            stream_created: self.stream_created,
            sequence: reached,
        };
        let store = Arc::clone(&self.ports.store);
        match self
            .trying(|| book(&*store, &records, &self.coverage, (self.cursor, next)))
            .await
        {
            Ok(applied) => {
                if applied.events > fresh {
                    // All are kept; but a source gives a place to one event only, and none after it was declared lost.
                    error!(
                        events = applied.events - fresh,
                        "events came under places that were accounted for"
                    );
                }
                self.cursor = Some(next);
                self.reached = reached;
                self.from = last + 1;
                self.marks.due = true;
                self.state
                    .applied(applied.events, reached, self.coverage.missing());
                Ok(())
            }
            Err(StoreError::Superseded) => self.stand_by(next).await,
            Err(problem) => Err(problem.into()),
        }
    }

    /// Somebody moved the cursor: another ledger, or this one by a commit whose answer was lost.
    async fn stand_by(&mut self, next: Cursor) -> Result<(), Error> {
        self.resume().await?;
        if self.cursor != Some(next) {
            warn!(cursor = self.reached, "another ledger applies this log");
            tokio::time::sleep(STAND_BY).await;
        }
        Ok(())
    }

    /// Notes which sequences are covered once these records are applied, and what cannot be understood. Returns
    /// how many records at most are new.
    fn note(&mut self, records: &[Record]) -> u64 {
        let mut fresh = 0;
        for record in records {
            let taken = self.coverage.covers(&record.source, record.source_sequence);
            fresh += u64::from(record.source.is_empty() || !taken);
            record.cover(&mut self.coverage);
            match &record.fact {
                Fact::Lost { source, from, to } => {
                    warn!(source = %source, from, to, "a spool declared events lost");
                }
                Fact::Unreadable => {
                    self.state.unreadable();
                    if !self.warned_unreadable {
                        self.warned_unreadable = true;
                        warn!(sequence = record.sequence, kind = %record.kind, "an event is not understood and only kept");
                    }
                }
                Fact::Waybill(_) | Fact::Accepted(_) | Fact::Kept => {}
            }
        }
        fresh
    }

    /// Deals with a bus that did not do as asked: goes to where a trimmed log begins, waits, or gives up.
    async fn mend(&mut self, problem: BusError, pause: Duration) -> Result<(), Error> {
        match problem {
            BusError::Trimmed { first } => {
                if self.from > 1 {
                    warn!(
                        from = self.from,
                        first, "the log begins later than the ledger reads"
                    );
                }
                self.from = first;
                Ok(())
            }
            BusError::Closed => Err(problem.into()),
            problem => {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    "the log cannot be read"
                );
                tokio::time::sleep(pause).await;
                Ok(())
            }
        }
    }

    async fn log_state(&self) -> Result<LogState, Error> {
        let mut pause = BACKOFF_MIN;
        loop {
            match self.ports.bus.state().await {
                Ok(log) => return Ok(log),
                Err(BusError::Closed) => return Err(BusError::Closed.into()),
                Err(problem) => warn!(
                    error = &problem as &dyn std::error::Error,
                    "the log cannot be read"
                ),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Calls the store until it does as asked or the cursor turns out to be another's. Also what the database refuses
    /// is tried again: to skip an event is worse than to wait for somebody to repair the file.
    async fn trying<T, F>(&self, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = BACKOFF_MIN;
        loop {
            let problem = match call().await {
                done @ (Ok(_) | Err(StoreError::Superseded)) => {
                    self.state.set_connected(true);
                    return done;
                }
                Err(problem) => problem,
            };
            if self.state.set_connected(false) {
                let retryable = problem.retryable();
                error!(
                    retryable,
                    error = &problem as &dyn std::error::Error,
                    "the ledger's database does not do its work; events wait in the log"
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }
}

/// Where reading goes on, and the highest sequence of this log that is applied. A log that is another one or that
/// is shorter than the cursor says is read from its oldest; so is one that may fill a hole.
pub(crate) fn resume_at(cursor: Option<Cursor>, log: LogState, holes: bool) -> (u64, u64) {
    match cursor {
        Some(cursor) if cursor.stream_created == log.created_at_micros && cursor.sequence <= log.last => {
            let from = if holes { log.first } else { cursor.sequence + 1 };
            (from.max(1), cursor.sequence)
        }
        _ => (log.first.max(1), 0),
    }
}

#[cfg(test)]
mod tests;
