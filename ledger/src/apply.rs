//! From the log into the books: reads batches at its own cursor, folds them, applies them, and tells spools and
//! log how far they may forget. An event is never skipped: what the database does not take is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::{BATCH_MESSAGES_MAX, BusError, Expected, LogState, Stored};
use bytes::Bytes;
use schemas::subject::MARK_BUCKET;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::coverage::{Coverage, Hole};
use crate::fold;
use crate::record::{Fact, Record};
use crate::state::State;
use crate::store::{Batch, Cursor, StoreError};
use crate::{Config, Error, Ports};

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
    coverage: Coverage,
    marks: Marks,
    warned_unreadable: bool,
}

/// What spools and log were told.
#[derive(Debug, Default)]
struct Marks {
    /// The last marks told, by source.
    told: BTreeMap<Arc<str>, u64>,
    /// Holes seen at the last look, and whether they were reported.
    holes: BTreeMap<(Arc<str>, u64), bool>,
    next: Option<Instant>,
    /// Batches were applied since the last telling.
    due: bool,
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
                self.tell(caught_up).await;
            }
            if caught_up {
                self.check_stream().await?;
            }
        }
    }

    /// Reads the log from its oldest to its end.
    pub(crate) async fn read_all(mut self) -> Result<(), Error> {
        self.state.ask_reread();
        self.drain().await
    }

    /// Applies what is in the log now and tells the last marks. Whatever was under way begins anew.
    async fn drain(&mut self) -> Result<(), Error> {
        self.resume().await?;
        if self.state.take_reread() {
            self.from = 1;
        }
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
        self.note(&records);
        let Some(last) = records.last().map(|record| record.sequence) else {
            return Ok(());
        };
        let reached = self.reached.max(last);
        let next = Cursor {
            stream_created: self.stream_created,
            sequence: reached,
        };
        let store = Arc::clone(&self.ports.store);
        let ids = fold::requests(&records);
        let existing = self.trying(|| store.existing(&ids)).await?;
        let changes = fold::fold(&records, &existing);
        let sources: BTreeSet<Arc<str>> = records.iter().flat_map(sources).collect();
        let marks = sources
            .into_iter()
            .map(|source| (Arc::clone(&source), self.coverage.mark(&source)))
            .collect();
        let batch = Batch {
            expected: self.cursor,
            next,
            records,
            rows: changes.rows,
            sums: changes.sums,
            marks,
        };
        match self.trying(|| store.apply(&batch)).await {
            Ok(applied) => {
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

    /// Notes which sequences are covered once these records are applied, and what cannot be understood.
    fn note(&mut self, records: &[Record]) {
        for record in records {
            if !record.source.is_empty() {
                self.coverage
                    .cover(&record.source, record.source_sequence, record.source_sequence);
            }
            match &record.fact {
                Fact::Lost { source, from, to } => {
                    warn!(source = %source, from, to, "a spool declared events lost");
                    self.coverage.cover(source, *from, *to);
                }
                Fact::Unreadable => {
                    self.state.unreadable();
                    if !self.warned_unreadable {
                        self.warned_unreadable = true;
                        warn!(sequence = record.sequence, kind = %record.kind, "an event is not understood and only kept");
                    }
                }
                Fact::Waybill(_) | Fact::Kept => {}
            }
        }
    }

    /// Tells spools and log how far the books are on disk for good. Done at intervals: it costs a flush.
    async fn tell(&mut self, caught_up: bool) {
        self.marks.next = Some(Instant::now() + Duration::from_millis(self.config.mark_interval_ms));
        let holes: Vec<Hole> = self.coverage.holes().collect();
        self.marks.look_at(&holes);
        if !self.marks.due {
            return;
        }
        if let Err(problem) = self.ports.store.sync().await {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the ledger's database cannot be flushed"
            );
            return;
        }
        let moved: Vec<(Arc<str>, u64)> = self
            .coverage
            .marks()
            .filter(|(source, mark)| self.marks.told.get(*source) != Some(mark))
            .map(|(source, mark)| (Arc::clone(source), mark))
            .collect();
        let reached = self.reached;
        self.ports
            .progress
            .send_if_modified(|applied| std::mem::replace(applied, reached) != reached);
        self.marks.due = false;
        for (source, mark) in moved {
            self.marks.due |= !self.tell_source(&source, mark, caught_up).await;
        }
    }

    /// Writes the mark of one source; false when it has to be looked at again.
    async fn tell_source(&mut self, source: &Arc<str>, mut mark: u64, caught_up: bool) -> bool {
        let Some(key) = mark_key(source) else {
            self.marks.told.insert(Arc::clone(source), mark);
            return true;
        };
        if !self.marks.told.contains_key(source) {
            let Ok(entry) = self.ports.kv.get(MARK_BUCKET, key).await else {
                return false;
            };
            let before = entry
                .and_then(|entry| entry.value)
                .and_then(|value| read_mark(&value))
                .unwrap_or(0);
            if before > mark && !caught_up {
                return false;
            }
            if before == mark {
                self.marks.told.insert(Arc::clone(source), mark);
                return true;
            }
            if before > mark {
                // These books are younger than the mark: what the spool forgot by it is not in the log either.
                error!(source = %source, from = mark + 1, to = before, "ledger gap: events are gone for good");
                self.coverage.cover(source, 1, before);
                mark = self.coverage.mark(source);
            }
        }
        let value = Bytes::from(mark.to_string());
        match self.ports.kv.put(MARK_BUCKET, key, value, Expected::Any).await {
            Ok(_) => {
                self.marks.told.insert(Arc::clone(source), mark);
                true
            }
            Err(problem) => {
                warn!(source = %source, error = &problem as &dyn std::error::Error, "a mark cannot be written");
                false
            }
        }
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

impl Marks {
    /// Reports a hole that is still there at the second look: events may arrive out of order.
    fn look_at(&mut self, holes: &[Hole]) {
        let seen = |hole: &Hole| (Arc::clone(&hole.source), hole.from);
        let mut now = BTreeMap::new();
        for hole in holes {
            let reported = self.holes.get(&seen(hole)).copied();
            if reported == Some(false) {
                warn!(source = %hole.source, from = hole.from, to = hole.to, "ledger gap");
            }
            now.insert(seen(hole), reported.is_some());
        }
        self.holes = now;
    }
}

/// Where reading goes on, and the highest sequence of this log that is applied. A log that is another one or that
/// is shorter than the cursor says is read from its oldest; so is one that may fill a hole.
fn resume_at(cursor: Option<Cursor>, log: LogState, holes: bool) -> (u64, u64) {
    match cursor {
        Some(cursor) if cursor.stream_created == log.created_at_micros && cursor.sequence <= log.last => {
            let from = if holes { log.first } else { cursor.sequence + 1 };
            (from.max(1), cursor.sequence)
        }
        _ => (log.first.max(1), 0),
    }
}

/// The sources whose marks a record may move.
fn sources(record: &Record) -> impl Iterator<Item = Arc<str>> {
    let own = Some(&record.source).filter(|source| !source.is_empty());
    let lost = match &record.fact {
        Fact::Lost { source, .. } => Some(source),
        _ => None,
    };
    own.into_iter().chain(lost).map(Arc::clone)
}

/// Longest spool id that has a mark.
const SPOOL_ID_BYTES_MAX: usize = 128;

/// The key of a source's mark, its spool's id: the last part of `/waybill/<cluster>/<spool id>`.
fn mark_key(source: &str) -> Option<&str> {
    let (_, id) = source.rsplit_once('/')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (!id.is_empty() && id.len() <= SPOOL_ID_BYTES_MAX && id.bytes().all(plain)).then_some(id)
}

fn read_mark(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
