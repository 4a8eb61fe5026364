//! Reading a part of the log again, beside what is new: for events that the books lack and the log may have. What the
//! books have is passed over, and a pause between two batches leaves the machine to others.

use std::time::Duration;

use bus::BusError;
use tracing::{info, warn};

use super::{Applier, Course};
use crate::Error;
use crate::record::Record;
use crate::store::Cursor;

/// Pause between two batches.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// A part of the log that is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again {
    /// The next sequence.
    pub(super) at: u64,
    /// The last one.
    pub(super) until: u64,
}

impl Applier {
    /// Has the log read again from `from` to where it is applied.
    pub(super) fn ask_again(&mut self, from: u64) {
        let from = self.again.map_or(from, |again| again.at.min(from));
        if from <= self.reached {
            self.again = Some(Again {
                at: from.max(1),
                until: self.reached,
            });
        }
    }

    /// Reads the next batch again.
    pub(super) async fn read_again(&mut self) -> Result<Course, Error> {
        let Some(again) = self.again else {
            return Ok(Course::On);
        };
        let read = self
            .ports
            .bus
            .read(again.at, self.batch_max(), Duration::ZERO)
            .await;
        let stored = match read {
            Ok(stored) => stored,
            Err(BusError::Trimmed { first }) => {
                self.go_on_at(first.max(again.at + 1));
                return Ok(Course::On);
            }
            Err(BusError::Closed) => return Err(BusError::Closed.into()),
            // The same failure is told where the log is followed.
            Err(_) => return Ok(Course::On),
        };
        let Some(last) = stored.last().map(|stored| stored.sequence) else {
            self.go_on_at(u64::MAX);
            return Ok(Course::On);
        };
        let missing: Vec<Record> = stored
            .iter()
            .filter(|stored| stored.sequence <= again.until)
            .map(Record::read)
            .filter(|record| {
                !record.source.is_empty() && !self.coverage.covers(&record.source, record.source_sequence)
            })
            .collect();
        if !missing.is_empty() {
            info!(events = missing.len(), "the log has events that were missing");
            let next = Cursor {
                stream_created: self.stream_created,
                sequence: self.reached,
            };
            if self.book(&missing, next).await? == Course::Overtaken {
                return Ok(Course::Overtaken);
            }
        }
        self.go_on_at(last.saturating_add(1));
        Ok(Course::On)
    }

    fn go_on_at(&mut self, at: u64) {
        self.again = self
            .again
            .map(|again| Again { at, ..again })
            .filter(|again| again.at <= again.until);
        if self.again.is_none() && self.coverage.missing() > 0 {
            let missing = self.coverage.missing();
            warn!(missing, "the log was read again, and events are still missing");
        }
    }
}
