//! Between nodes and bucket: what is asked, what gets there, what comes back, and when.

use schemas::idempotency::record::Record;
use schemas::idempotency::{Read, Write, Written};

use super::{At, Event, HEALED_MS, LATE_MS_MAX, TIMEOUT_MS, World};
use crate::task::{Job, Outcome, Task};

impl World {
    /// Begins what a request asks for.
    pub(super) fn begin(&mut self, at: At, task: &mut Task, job: Job) {
        if matches!(job, Job::Nothing) {
            return;
        }
        if let Job::Alarm(clock_ms) = job {
            if clock_ms != u64::MAX {
                task.alarm += 1;
                let when_ms = self.nodes[at.node].when(clock_ms);
                self.schedule(when_ms, Event::Alarm(at, task.alarm));
            }
            return;
        }
        task.operation += 1;
        let operation = task.operation;
        let there_ms = self.now_ms + self.chance.range(1, 30);
        let given_up_ms = self.now_ms + TIMEOUT_MS;
        let is_cut = self.nodes[at.node].cut_until_ms > self.now_ms;
        let fault = if is_cut || (self.has_faults() && self.chance.percent(12)) {
            Some(self.chance.one_of(3))
        } else {
            None
        };
        let is_full = self.has_faults() && self.chance.percent(3);
        match (job, fault) {
            (Job::Write(write), _) if is_full && matches!(write.record, Record::Done(_)) => {
                self.counts.note("no room");
                let outcome = Box::new(Outcome::Written(Written::Refused));
                self.schedule(there_ms, Event::Told(at, operation, outcome));
            }
            (Job::Write(write), None) => {
                self.schedule(there_ms, Event::Do(task.key, write, Some((at, operation))));
            }
            (Job::Write(write), Some(fault)) => {
                let outcome = Box::new(Outcome::Written(Written::Unknown));
                self.schedule(given_up_ms, Event::Told(at, operation, outcome));
                if fault == 0 && !is_cut {
                    self.counts.note("answer lost");
                    self.schedule(there_ms, Event::Do(task.key, write, None));
                } else if fault == 1 {
                    let late_ms = given_up_ms + self.chance.range(0, LATE_MS_MAX);
                    self.schedule(late_ms, Event::Do(task.key, write, None));
                }
            }
            (Job::Read | Job::Ask(_), Some(0 | 1)) if is_cut => {
                let outcome = Box::new(Outcome::Read(Read::Failed));
                self.schedule(given_up_ms, Event::Told(at, operation, outcome));
            }
            (Job::Read, _) => self.schedule(there_ms, Event::Look(task.key, at, operation)),
            (Job::Ask(held), _) => {
                let outcome = Box::new(Outcome::Told(held));
                self.schedule(there_ms, Event::Told(at, operation, outcome));
            }
            (Job::Nothing | Job::Alarm(_), _) => {}
        }
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.healed && self.now_ms < HEALED_MS
    }

    pub(super) fn write(&mut self, key: usize, write: &Write, told: Option<(At, u64)>) {
        let written = self.bucket.apply(key, write, self.now_ms);
        match told {
            Some((at, operation)) => {
                let back_ms = self.now_ms + self.chance.range(1, 30);
                let outcome = Box::new(Outcome::Written(written));
                self.schedule(back_ms, Event::Told(at, operation, outcome));
            }
            None if matches!(written, Written::At(_)) => self.counts.note("late write done"),
            None => {}
        }
    }

    pub(super) fn look(&mut self, key: usize, at: At, operation: u64) {
        let is_behind = self.has_faults() && self.chance.percent(20);
        let behind = if is_behind { self.chance.one_of(3) } else { 0 };
        if behind > 0 {
            self.counts.note("behind");
        }
        let found = self.bucket.read(key, self.now_ms, behind);
        let read = match found {
            None => Read::Nothing,
            Some((record, revision)) => Read::Found {
                record: Some(Box::new(record)),
                revision,
                // Set by the node when it hears of it.
                seen_ms: 0,
            },
        };
        let back_ms = self.now_ms + self.chance.range(1, 30);
        self.schedule(back_ms, Event::Told(at, operation, Box::new(Outcome::Read(read))));
    }
}
