//! The path of a request with a key at its node, as a gateway would take it.

use schemas::idempotency::answer::Body;
use schemas::idempotency::claim::{self, End};
use schemas::idempotency::hold::{self, Standing};
use schemas::idempotency::record::{Done, Running};
use schemas::idempotency::{Read, Refusal, release};

use super::{At, Entry, Event, HELD_BACK_MS, PATIENCE_MS, World};
use crate::task::{Job, Outcome, Result, Settled, Stage, Task, Work, digest, end, place};

impl World {
    pub(super) fn told(&mut self, at: At, operation: u64, outcome: Outcome) {
        self.drive(at, |world, task| {
            if task.operation != operation {
                return Job::Nothing;
            }
            let now_ms = world.nodes[at.node].clock(world.now_ms);
            let outcome = world.seen(at, task.key, outcome, now_ms);
            match &mut task.stage {
                Stage::Claiming(claim) => {
                    let step = match outcome {
                        Outcome::Written(written) => claim.wrote(written, now_ms),
                        Outcome::Read(read) => claim.read(read, now_ms),
                        Outcome::Told(held) => {
                            let end = world.end_of(&held);
                            claim.told(end, now_ms)
                        }
                    };
                    world.claimed(at, task, step)
                }
                Stage::Holding(hold, _) => {
                    let step = match outcome {
                        Outcome::Written(written) => hold.wrote(written, now_ms),
                        Outcome::Read(read) => hold.read(read, now_ms),
                        Outcome::Told(_) => return Job::Nothing,
                    };
                    world.held(at, task, step)
                }
                Stage::Releasing(release) => {
                    let step = match outcome {
                        Outcome::Written(written) => release.wrote(written, now_ms),
                        Outcome::Read(read) => release.read(read, now_ms),
                        Outcome::Told(_) => return Job::Nothing,
                    };
                    world.released(at, task, step)
                }
                Stage::Over => Job::Nothing,
            }
        });
    }

    /// What the node knows of the age of what it read.
    pub(super) fn seen(&mut self, at: At, key: usize, outcome: Outcome, now_ms: u64) -> Outcome {
        let Outcome::Read(Read::Found { record, revision, .. }) = outcome else {
            return outcome;
        };
        let sightings = &mut self.nodes[at.node].sightings;
        Outcome::Read(Read::Found {
            record,
            revision,
            seen_ms: sightings.see(&key.to_string(), revision, now_ms),
        })
    }

    /// What the books say of a request.
    pub(super) fn end_of(&mut self, held: &Running) -> End {
        let (node, boot) = place(held);
        let end = match self.books.get(&held.request_id.0.as_u128()) {
            Some(end) => *end,
            // Its spool was read to its end, and does not know it.
            None if self.nodes[node].replayed > boot => End::Void,
            None => End::Open,
        };
        self.counts.note(match end {
            End::Open => "asked: open",
            End::Void => "asked: void",
            End::Settled { .. } => "asked: settled",
        });
        end
    }

    pub(super) fn claimed(&mut self, at: At, task: &mut Task, step: claim::Step) -> Job {
        match step {
            claim::Step::Read => Job::Read,
            claim::Step::Write(write) => Job::Write(write),
            claim::Step::Ask(held) => Job::Ask(held),
            claim::Step::Replay(done) => {
                self.replayed(task, &done);
                task.stage = Stage::Over;
                Job::Nothing
            }
            claim::Step::Refuse(refusal, release) => {
                self.refused(task, refusal);
                task.stage = release.map_or(Stage::Over, Stage::Releasing);
                match &task.stage {
                    Stage::Releasing(release) => {
                        let step = release.tick();
                        self.released(at, task, step)
                    }
                    _ => Job::Nothing,
                }
            }
            claim::Step::Run(hold) => {
                let entry = Entry {
                    key: task.key,
                    sent: false,
                    refused: false,
                    lost: false,
                    end: None,
                };
                self.nodes[at.node].spool.insert(task.number, entry);
                let pause_ms = if self.has_faults() && self.chance.percent(10) {
                    self.chance.range(1, 8_000)
                } else {
                    self.chance.range(1, 20)
                };
                self.schedule(self.now_ms + pause_ms, Event::Send(at));
                let ready = Work::Ready {
                    since_ms: self.now_ms,
                };
                task.stage = Stage::Holding(hold, ready);
                self.tick(at, task)
            }
        }
    }

    pub(super) fn refused(&mut self, task: &Task, refusal: Refusal) {
        self.counts.note(match refusal {
            Refusal::InProgress => "in progress",
            Refusal::Mismatch => "mismatch",
            Refusal::NotReplayable => "not replayable",
            Refusal::StoreUnavailable => "store unavailable",
        });
        if matches!(refusal, Refusal::InProgress | Refusal::StoreUnavailable) {
            self.again(task.send);
        }
    }

    pub(super) fn replayed(&mut self, task: &Task, done: &Done) {
        self.counts.note("replay");
        let number = done.request_id.0.as_u128();
        let entry = self.nodes.iter().find_map(|node| node.spool.get(&number));
        let first = entry.and_then(|entry| entry.end.as_ref());
        let same = first.is_some_and(|first| {
            done.answer.status == first.status && done.answer.body == Body::Kept(first.body.clone())
        });
        if !same || done.digest != digest(task.body) || done.envelope != number.to_be_bytes() {
            self.violate(format!(
                "request {} was replayed {done:?} for {first:?}",
                task.number
            ));
        }
        self.answered(task, done.answer.status, &done.answer.body.clone());
    }

    /// The caller has an answer: one that is charged is the one that is charged.
    pub(super) fn answered(&mut self, task: &Task, status: u16, body: &Body) {
        let charged = self.charged.get(&task.key);
        let same = charged.is_some_and(|(_, first)| *body == Body::Kept(first.clone()));
        if status == 200 && !same {
            self.violate(format!("key {} answers {body:?}, charged {charged:?}", task.key));
        }
    }

    pub(super) fn tick(&mut self, at: At, task: &mut Task) -> Job {
        let now_ms = self.nodes[at.node].clock(self.now_ms);
        match &mut task.stage {
            Stage::Holding(hold, _) => {
                let step = hold.tick(now_ms);
                self.held(at, task, step)
            }
            Stage::Releasing(release) => {
                let step = release.tick();
                self.released(at, task, step)
            }
            Stage::Claiming(_) | Stage::Over => Job::Nothing,
        }
    }

    pub(super) fn released(&mut self, _: At, task: &mut Task, step: release::Step) -> Job {
        match step {
            release::Step::Rest { until_ms } => Job::Alarm(until_ms),
            release::Step::Read => Job::Read,
            release::Step::Write(write) => Job::Write(write),
            release::Step::Ended => {
                self.counts.note("cleared");
                task.stage = Stage::Over;
                Job::Nothing
            }
        }
    }

    pub(super) fn held(&mut self, at: At, task: &mut Task, step: hold::Step) -> Job {
        let job = match step {
            hold::Step::Rest { until_ms } => Job::Alarm(until_ms),
            hold::Step::Read => Job::Read,
            hold::Step::Write(write) => Job::Write(write),
            hold::Step::Ended | hold::Step::Lost => {
                if step == hold::Step::Lost {
                    self.counts.note("lost the key");
                }
                Job::Nothing
            }
        };
        if !matches!(job, Job::Alarm(_) | Job::Nothing) {
            return job;
        }
        // News of the key may be what the work waits for.
        match self.work(at, task) {
            Job::Nothing => job,
            other => other,
        }
    }

    /// Goes on with the work, as far as the key allows.
    pub(super) fn work(&mut self, at: At, task: &mut Task) -> Job {
        let now_ms = self.nodes[at.node].clock(self.now_ms);
        let Stage::Holding(hold, work) = &mut task.stage else {
            return Job::Nothing;
        };
        match work.clone() {
            Work::Ready { since_ms } => match hold.sending(now_ms) {
                Standing::Held => {
                    *work = Work::Sent;
                    self.send(at, task);
                    Job::Nothing
                }
                Standing::Uncertain if self.now_ms < since_ms + PATIENCE_MS => {
                    let step = hold.renew(now_ms);
                    self.confirming(task, step)
                }
                Standing::Uncertain | Standing::Lost => {
                    self.settle(at, task, Result::Refused, false);
                    self.finish(at, task, true)
                }
            },
            Work::Back { result, since_ms } => match hold.charging(now_ms) {
                Standing::Held => {
                    self.settle(at, task, result, result == Result::Whole);
                    self.finish(at, task, result == Result::Refused)
                }
                Standing::Uncertain if self.now_ms < since_ms + PATIENCE_MS => {
                    let step = hold.renew(now_ms);
                    self.confirming(task, step)
                }
                Standing::Uncertain | Standing::Lost => {
                    let result = if result == Result::Whole {
                        Result::Broken
                    } else {
                        result
                    };
                    self.settle(at, task, result, false);
                    self.finish(at, task, result == Result::Refused)
                }
            },
            Work::Sent => Job::Nothing,
            Work::Settled(_) | Work::Left => {
                self.over(task, now_ms);
                Job::Nothing
            }
        }
    }

    /// The key is asked for again before the work goes on.
    pub(super) fn confirming(&mut self, task: &Task, step: hold::Step) -> Job {
        match step {
            hold::Step::Write(write) => Job::Write(write),
            hold::Step::Rest { until_ms } => Job::Alarm(until_ms),
            other => {
                self.violate(format!("request {} is confirmed by {other:?}", task.number));
                Job::Nothing
            }
        }
    }

    /// The request is over when nothing of it is to be written any more.
    pub(super) fn over(&mut self, task: &mut Task, now_ms: u64) {
        let Stage::Holding(hold, _) = &mut task.stage else {
            return;
        };
        if matches!(hold.tick(now_ms), hold::Step::Ended | hold::Step::Lost) {
            self.leave(task);
            task.stage = Stage::Over;
        }
    }

    pub(super) fn send(&mut self, at: At, task: &Task) {
        let mut others = Vec::new();
        for node in &self.nodes {
            others.extend(node.spool.iter().filter_map(|(number, entry)| {
                let took = entry.key == task.key && entry.sent && !entry.refused && !entry.lost;
                let kept = took && !self.bucket.has_lost(task.key, *number, self.now_ms);
                (kept && *number != task.number).then_some(*number)
            }));
        }
        if !others.is_empty() {
            self.violate(format!("request {} is sent after {others:?}", task.number));
        }
        let entry = self.nodes[at.node].spool.get_mut(&task.number);
        entry.expect("an intent").sent = true;
        let result = match self.chance.range(0, 99) {
            0..70 => Result::Whole,
            70..88 => Result::Refused,
            _ => Result::Broken,
        };
        let back_ms = self.now_ms + self.chance.range(20, 15_000);
        self.schedule(back_ms, Event::Back(at, result));
    }

    pub(super) fn back(&mut self, at: At, task: &mut Task, result: Result) -> Job {
        if let Stage::Holding(_, work) = &mut task.stage {
            let since_ms = self.now_ms;
            *work = Work::Back { result, since_ms };
        }
        self.work(at, task)
    }

    /// The waybill is written.
    pub(super) fn settle(&mut self, at: At, task: &mut Task, result: Result, charged: bool) {
        let (status, text) = match result {
            Result::Whole => (200, "answer"),
            Result::Refused => (503, "refused"),
            Result::Broken => (502, "broken"),
        };
        let settled = Settled {
            charged,
            status,
            body: format!("{text} {}", task.number).into_bytes(),
        };
        if charged {
            self.counts.note("charged");
            let first = self.charged.insert(task.key, (task.number, settled.body.clone()));
            if let Some((first, _)) = first
                && !self.has_lapsed(task.key, first)
            {
                self.violate(format!(
                    "key {} is charged by {first} and {}",
                    task.key, task.number
                ));
            }
        }
        let entry = self.nodes[at.node]
            .spool
            .get_mut(&task.number)
            .expect("an intent");
        entry.refused = result == Result::Refused;
        entry.end = Some(settled.clone());
        if let Stage::Holding(_, work) = &mut task.stage {
            *work = Work::Settled(settled);
        }
        let publish_ms = self.now_ms + self.chance.range(10, 3_000);
        self.schedule(publish_ms, Event::Publish(at.node));
        self.schedule(self.now_ms + HELD_BACK_MS, Event::Leave(at));
    }

    /// Its node died between settling it and saying so, and nobody asked for it as long as its lock lay there: what
    /// comes later is another use of the key, as it is after the life of an answer.
    pub(super) fn has_lapsed(&self, key: usize, number: u128) -> bool {
        let (node, boot) = self.places[&number];
        self.nodes[node].boot != boot && self.bucket.has_lost(key, number, self.now_ms)
    }

    pub(super) fn finish(&mut self, at: At, task: &mut Task, free: bool) -> Job {
        let now_ms = self.nodes[at.node].clock(self.now_ms);
        let Stage::Holding(_, Work::Settled(settled)) = &task.stage else {
            return Job::Nothing;
        };
        let done = end(task, settled);
        self.counts.note(match (free, settled.charged) {
            (true, _) => "freed",
            (false, true) => "answer kept",
            (false, false) => "failure kept",
        });
        let Stage::Holding(hold, _) = &mut task.stage else {
            return Job::Nothing;
        };
        let step = if free {
            hold.free(now_ms)
        } else {
            hold.finish(done, now_ms)
        };
        match step {
            hold::Step::Write(write) => Job::Write(write),
            hold::Step::Rest { until_ms } => Job::Alarm(until_ms),
            hold::Step::Read => Job::Read,
            hold::Step::Ended | hold::Step::Lost => {
                self.over(task, now_ms);
                Job::Nothing
            }
        }
    }

    /// The answer leaves.
    pub(super) fn leave(&mut self, task: &mut Task) {
        let Stage::Holding(_, work) = &mut task.stage else {
            return;
        };
        if let Work::Settled(settled) = std::mem::replace(work, Work::Left) {
            self.answered(task, settled.status, &Body::Kept(settled.body.clone()));
            if settled.status != 200 {
                self.again(task.send);
            }
        }
    }
}
