//! Reading the log: batches that grow a little while events keep coming, and, behind a full one, the next batch read
//! while that one is written: the database and this process work at the same time, not in turns.
//!
//! What was read ahead is only ever used at the place that reading comes to next; where anything else happened
//! meanwhile, it is dropped and read again.

use std::sync::Arc;
use std::time::Duration;

use bus::BusError;
use tokio::time::{Instant, timeout};
use tracing::info;

use super::{Applier, BACKOFF_MAX, Course, again};
use crate::Error;
use crate::record::Record;
use crate::store::Cursor;

/// How long a read waits for the first event.
const READ_WAIT: Duration = Duration::from_secs(1);
/// How often a batch is let grow while events keep coming.
const GATHER_ROUNDS_MAX: u32 = 4;
/// How long a batch that is read ahead may keep the one before it waiting.
const AHEAD_WAIT: Duration = Duration::from_millis(500);
/// Events that are parsed ahead before the database is looked at again: some tens of microseconds of work.
const PARSED_AT_ONCE: usize = 8;

/// Events that were read before their time.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Where they were read from.
    from: u64,
    records: Vec<Record>,
}

impl Applier {
    /// The next events: waits for the first, then a little for more while more keep coming.
    pub(super) async fn gather(&mut self) -> Result<Vec<Record>, Error> {
        let mut records = match self.read(self.wait()).await {
            Ok(records) => {
                if std::mem::take(&mut self.warned_away) {
                    info!("the log can be read again");
                }
                records
            }
            Err(problem) => {
                self.mend(problem, BACKOFF_MAX / 4).await?;
                return Ok(Vec::new());
            }
        };
        for _ in 0..GATHER_ROUNDS_MAX {
            let room = self.batch_max().saturating_sub(records.len());
            let Some(last) = records.last().filter(|_| room > 0) else {
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
            records.extend(more.iter().map(Record::read));
        }
        Ok(records)
    }

    /// What is where reading goes on, ahead of its time or now; waits up to `wait` for the first event.
    pub(super) async fn read(&mut self, wait: Duration) -> Result<Vec<Record>, BusError> {
        if let Some(ahead) = self.ahead.take().filter(|ahead| ahead.from == self.from) {
            return Ok(ahead.records);
        }
        let stored = self.ports.bus.read(self.from, self.batch_max(), wait).await?;
        Ok(stored.iter().map(Record::read).collect())
    }

    /// How long the next read may wait: while there is something to tell or to read again, not for long.
    fn wait(&self) -> Duration {
        if self.again.is_some() {
            return again::PAUSE;
        }
        let next = self.marks.next.filter(|_| self.marks.due);
        next.map_or(READ_WAIT, |next| {
            next.saturating_duration_since(Instant::now()).min(READ_WAIT)
        })
    }

    /// Applies a batch, however long it takes, and reads the next one meanwhile if there seems to be more.
    pub(super) async fn take(&mut self, records: &[Record]) -> Result<Course, Error> {
        let Some(last) = records.last().map(|record| record.sequence) else {
            return Ok(Course::On);
        };
        let next = Cursor {
            stream_created: self.stream_created,
            sequence: self.reached.max(last),
        };
        let ahead = self.read_ahead(last + 1, records.len() >= self.batch_max());
        let (course, ahead) = tokio::join!(self.book(records, next), ahead);
        let course = course?;
        if course == Course::On {
            self.reached = next.sequence;
            self.from = last + 1;
            self.ahead = ahead;
        }
        Ok(course)
    }

    /// What is at `from` now, parsed in small steps; nothing unless it is `wanted`, and after any failure: who reads
    /// there next meets it again.
    fn read_ahead(&self, from: u64, wanted: bool) -> impl Future<Output = Option<Ahead>> + use<> {
        let bus = Arc::clone(&self.ports.bus);
        let batch_max = self.batch_max();
        async move {
            if !wanted {
                return None;
            }
            let stored = timeout(AHEAD_WAIT, bus.read(from, batch_max, Duration::ZERO))
                .await
                .ok()?
                .ok()
                .filter(|stored| !stored.is_empty())?;
            let mut records = Vec::with_capacity(stored.len());
            for some in stored.chunks(PARSED_AT_ONCE) {
                records.extend(some.iter().map(Record::read));
                tokio::task::yield_now().await;
            }
            Some(Ahead { from, records })
        }
    }
}

#[cfg(test)]
mod tests;
