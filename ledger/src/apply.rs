//! From the log into the books: reads batches at its own cursor, folds them, applies them, and tells spools and
//! log how far they may forget. An event is never skipped: what the database does not take is tried again, and what
//! is missing is looked for in the log. Of two ledgers one applies and the other stands by.

mod again;
mod contest;
mod gaps;
mod reading;
mod stand_by;
mod tell;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{BATCH_MESSAGES_MAX, BusError, LogState};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::book::book;
use crate::coverage::Coverage;
use crate::record::{Fact, Record};
use crate::state::State;
use crate::store::{Cursor, StoreError};
use crate::{Config, Error, Ports};
use again::Again;
use contest::Contests;
use gaps::Gaps;
use reading::Ahead;
use stand_by::Patience;
use tell::Marks;

/// First pause after a failure; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Longest pause after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often is looked whether log and cursor are what they were.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Holes that are looked for at the same time; the next come when these are filled.
const HOLES_MAX: usize = 256;

/// Whether this ledger goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    On,
    /// Another ledger has moved the cursor.
    Overtaken,
}

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
    /// By source, the place in the log at which it went on last without a hole.
    places: HashMap<Arc<str>, u64>,
    again: Option<Again>,
    /// What was read while the batch before it was written.
    ahead: Option<Ahead>,
    gaps: Gaps,
    contests: Contests,
    marks: Marks,
    patience: Patience,
    standing_by: bool,
    next_check: Instant,
    /// The end of the log at the last look, when nothing could be read up to it.
    empty_end: Option<u64>,
    warned_unreadable: bool,
    warned_away: bool,
}

impl Applier {
    pub(crate) fn new(config: Config, ports: Ports) -> Self {
        Self {
            patience: Patience::new(Duration::from_millis(config.patience_ms.max(1))),
            state: Arc::clone(&ports.state),
            config,
            ports,
            cursor: None,
            stream_created: 0,
            reached: 0,
            from: 1,
            backlog_end: 0,
            coverage: Coverage::default(),
            places: HashMap::new(),
            again: None,
            ahead: None,
            gaps: Gaps::default(),
            contests: Contests::default(),
            marks: Marks::default(),
            standing_by: false,
            next_check: Instant::now(),
            empty_end: None,
            warned_unreadable: false,
            warned_away: false,
        }
    }

    /// Applies until `shutdown`, then what is already in the log, for a bounded time.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        tokio::select! {
            result = self.follow() => result?,
            () = shutdown.cancelled() => {}
        }
        if self.standing_by {
            return Ok(());
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
        loop {
            self.lead().await?;
            self.stand_by().await?;
        }
    }

    /// Applies until another ledger does.
    async fn lead(&mut self) -> Result<(), Error> {
        self.resume().await?;
        self.state.set_applying(true);
        loop {
            if self.state.take_reread() {
                self.ask_again(1);
            }
            let records = self.gather().await?;
            let caught_up = records.is_empty();
            if !caught_up && self.take(&records).await? == Course::Overtaken {
                return Ok(());
            }
            if self.read_again().await? == Course::Overtaken {
                return Ok(());
            }
            if self.marks.next.is_none_or(|next| next <= Instant::now()) {
                self.look_for_gaps();
                // A log that never falls silent is caught up with as well.
                let caught_up = caught_up || self.from > self.backlog_end;
                self.tell(caught_up && self.again.is_none()).await;
            }
            if self.next_check <= Instant::now() {
                self.next_check = Instant::now() + CHECK_EVERY;
                if self.check(caught_up).await? == Course::Overtaken {
                    return Ok(());
                }
            }
        }
    }

    /// Applies what is in the log now and tells the last marks. Whatever was under way begins anew.
    async fn drain(&mut self) -> Result<(), Error> {
        self.resume().await?;
        loop {
            let records = match self.read(Duration::ZERO).await {
                Ok(records) => records,
                Err(BusError::Closed) => return Ok(()),
                Err(problem) => {
                    self.mend(problem, BACKOFF_MIN).await?;
                    continue;
                }
            };
            if records.is_empty() {
                while self.again.is_some() {
                    if self.read_again().await? == Course::Overtaken {
                        return Ok(());
                    }
                }
                self.tell(true).await;
                return Ok(());
            }
            if self.take(&records).await? == Course::Overtaken {
                return Ok(());
            }
        }
    }

    /// Learns where the books are and where the log is, and decides where reading goes on.
    async fn resume(&mut self) -> Result<(), Error> {
        let store = Arc::clone(&self.ports.store);
        self.cursor = self.trying(|| store.cursor()).await.0?;
        self.coverage = self.trying(|| store.coverage()).await.0?;
        let log = self.log_state().await?;
        self.stream_created = log.created_at_micros;
        self.backlog_end = log.last;
        (self.from, self.reached) = resume_at(self.cursor, log);
        self.again = None;
        self.ahead = None;
        self.empty_end = None;
        self.places.clear();
        if self.coverage.missing() > 0 {
            self.ask_again(log.first);
        }
        self.marks = Marks::default();
        self.marks.due = true;
        self.state.applied(0, self.reached, self.coverage.missing());
        info!(
            from = self.from,
            cursor = self.reached,
            "the ledger reads the log"
        );
        Ok(())
    }

    /// A log that is another one, or shorter than what was read, is read from its oldest. A cursor that another
    /// ledger has moved is left to it.
    async fn check(&mut self, caught_up: bool) -> Result<Course, Error> {
        if caught_up {
            let store = Arc::clone(&self.ports.store);
            let cursor = self.trying(|| store.cursor()).await.0?;
            if cursor != self.cursor {
                return Ok(Course::Overtaken);
            }
        }
        let log = self.log_state().await?;
        if log.created_at_micros != self.stream_created || log.last < self.reached {
            warn!(
                cursor = self.reached,
                last = log.last,
                "the log was made anew or has lost its end, and is read from its oldest event"
            );
            self.resume().await?;
            return Ok(Course::On);
        }
        self.pass_lost_end(log.last, caught_up).await
    }

    /// Moves the cursor over messages at the end of the log that it has lost: nothing could be read there for as long
    /// as two looks are apart. Only then do publishers learn that their events are missing.
    async fn pass_lost_end(&mut self, last: u64, caught_up: bool) -> Result<Course, Error> {
        if !caught_up || last <= self.reached {
            self.empty_end = None;
            return Ok(Course::On);
        }
        let Some(end) = self.empty_end.filter(|end| *end > self.reached) else {
            self.empty_end = Some(last);
            return Ok(Course::On);
        };
        warn!(from = self.from, to = end, "the log has lost messages at its end");
        let next = Cursor {
            stream_created: self.stream_created,
            sequence: end,
        };
        let course = self.book(&[], next).await?;
        if course == Course::On {
            self.reached = end;
            self.from = end + 1;
            self.empty_end = None;
        }
        Ok(course)
    }

    /// Reports gaps, and has the log read again where it may fill them.
    fn look_for_gaps(&mut self) {
        let holes = self.coverage.holes().take(HOLES_MAX);
        let found = self.gaps.look(Instant::now(), holes);
        for hole in &found.opened {
            warn!(source = %hole.source, from = hole.from, to = hole.to, "ledger gap");
        }
        for hole in &found.closed {
            info!(source = %hole.source, from = hole.from, to = hole.to, "a ledger gap is filled");
        }
        if found.wanted.is_empty() {
            return;
        }
        // A source publishes in order: what is missing came after what came before it.
        let place = |(source, whole): &(Arc<str>, bool)| {
            let place = self.places.get(source).filter(|_| !whole);
            place.map_or(1, |place| place + 1)
        };
        if let Some(from) = found.wanted.iter().map(place).min() {
            self.ask_again(from);
        }
    }

    fn batch_max(&self) -> usize {
        self.config.batch_events_max.clamp(1, BATCH_MESSAGES_MAX)
    }

    /// Books records and moves the cursor to `next`.
    async fn book(&mut self, records: &[Record], next: Cursor) -> Result<Course, Error> {
        let (fresh, taken) = self.note(records);
        let store = Arc::clone(&self.ports.store);
        let (booked, failures) = self
            .trying(|| book(&*store, records, &self.coverage, (self.cursor, next)))
            .await;
        let events = match booked {
            Ok(applied) => applied.events,
            // A commit whose answer was lost is this ledger's own.
            Err(StoreError::Superseded)
                if failures > 0 && self.trying(|| store.cursor()).await.0? == Some(next) =>
            {
                fresh
            }
            Err(StoreError::Superseded) => return Ok(Course::Overtaken),
            Err(problem) => return Err(problem.into()),
        };
        self.cursor = Some(next);
        self.marks.due = true;
        self.state.applied(events, next.sequence, self.coverage.missing());
        if events > fresh {
            self.contest(&taken).await?;
        }
        Ok(Course::On)
    }

    /// Notes which sequences are covered once these records are applied, and what cannot be understood. Returns
    /// how many records at most are new, and the places of the others.
    fn note(&mut self, records: &[Record]) -> (u64, Vec<(Arc<str>, u64)>) {
        let (mut fresh, mut taken) = (0, Vec::new());
        for record in records {
            if record.source.is_empty() {
                fresh += 1;
            } else if self.coverage.covers(&record.source, record.source_sequence) {
                taken.push((Arc::clone(&record.source), record.source_sequence));
            } else {
                fresh += 1;
                self.note_place(record);
            }
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
                Fact::Waybill(_) | Fact::Adjusted(_) | Fact::Accepted(_) | Fact::Kept => {}
            }
        }
        (fresh, taken)
    }

    /// Notes where a source goes on without a hole.
    fn note_place(&mut self, record: &Record) {
        if self.coverage.mark(&record.source).checked_add(1) != Some(record.source_sequence) {
            return;
        }
        if let Some(place) = self.places.get_mut(&record.source) {
            *place = record.sequence;
        } else {
            self.places.insert(Arc::clone(&record.source), record.sequence);
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
                self.warn_away(&problem);
                tokio::time::sleep(pause).await;
                Ok(())
            }
        }
    }

    /// Says once that the log cannot be read.
    fn warn_away(&mut self, problem: &BusError) {
        if !std::mem::replace(&mut self.warned_away, true) {
            warn!(
                error = problem as &dyn std::error::Error,
                "the log cannot be read"
            );
        }
    }

    async fn log_state(&mut self) -> Result<LogState, Error> {
        let mut pause = BACKOFF_MIN;
        loop {
            match self.ports.bus.state().await {
                Ok(log) => return Ok(log),
                Err(BusError::Closed) => return Err(BusError::Closed.into()),
                Err(problem) => self.warn_away(&problem),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Calls the store until it does as asked or the cursor turns out to be another's, and counts the failures. Also
    /// what the database refuses is tried again: to skip an event is worse than to wait for somebody to repair the file.
    async fn trying<T, F>(&self, call: impl Fn() -> F) -> (Result<T, StoreError>, u64)
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = BACKOFF_MIN;
        let mut failures = 0;
        loop {
            match call().await {
                done @ (Ok(_) | Err(StoreError::Superseded)) => {
                    self.note_database(Ok(()));
                    return (done, failures);
                }
                Err(problem) => self.note_database(Err(&problem)),
            }
            failures += 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }
}

/// Where reading goes on, and the highest sequence of this log that is applied. A log that is another one or that
/// is shorter than the cursor says is read from its oldest.
pub(crate) fn resume_at(cursor: Option<Cursor>, log: LogState) -> (u64, u64) {
    match cursor {
        Some(cursor) if cursor.stream_created == log.created_at_micros && cursor.sequence <= log.last => {
            (cursor.sequence.saturating_add(1), cursor.sequence)
        }
        _ => (log.first.max(1), 0),
    }
}

#[cfg(test)]
mod tests;
