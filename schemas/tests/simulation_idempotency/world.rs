//! Nodes, their spools, the books and the callers, and what must hold at every moment.

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{Hash as _, Hasher as _};

use schemas::idempotency::answer::Body;
use schemas::idempotency::claim::{self, Claim, End};
use schemas::idempotency::hold::{self, Standing};
use schemas::idempotency::record::{Done, Record, Running};
use schemas::idempotency::release;
use schemas::idempotency::sightings::Sightings;
use schemas::idempotency::{Planted, Read, Refusal, Terms, Write, Written};

use crate::bucket::Bucket;
use crate::chance::Chance;
use crate::task::{Job, Outcome, Result, Settled, Stage, Task, Work, digest, end, lock, place};

const NODES: usize = 3;
const KEYS: usize = 3;
/// When the faults stop.
const HEALED_MS: u64 = 150_000;
/// After which an operation counts as unanswered.
const TIMEOUT_MS: u64 = 1_000;
/// How long a write may be under way beyond that.
const LATE_MS_MAX: u64 = 20_000;
/// How long an end is held back for its record.
const HELD_BACK_MS: u64 = 1_000;
/// How long a request waits to learn whether its key is still its own.
const PATIENCE_MS: u64 = 8_000;
const LIFE_MS: u64 = 60_000;

fn terms(planted: Option<Planted>) -> Terms {
    Terms {
        lease_ms: 6_000,
        renew_ms: 2_000,
        running_life_ms: LIFE_MS,
        done_life_ms: 1_000_000_000,
        freed_life_ms: 30_000,
        planted,
    }
}

/// What a seed came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) violation: Option<String>,
    pub(crate) trace: u64,
    pub(crate) counts: Counts,
}

/// How often what happened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(crate) fn assert_all_happened(&self) {
        for what in [
            "replay",
            "in progress",
            "mismatch",
            "not replayable",
            "store unavailable",
            "asked: open",
            "asked: void",
            "asked: settled",
            "cleared",
            "killed while running",
            "late write done",
            "answer lost",
            "behind",
            "lost the key",
            "left before its record",
            "freed",
            "failure kept",
            "charged",
        ] {
            assert!(self.0.contains_key(what), "never: {what}; {:?}", self.0);
        }
    }
}

#[derive(Debug, Default)]
struct Node {
    boot: u32,
    up: bool,
    offset_ms: u64,
    rate_permille: u64,
    paused_until_ms: u64,
    cut_until_ms: u64,
    tasks: BTreeMap<u64, Task>,
    sightings: Sightings,
    spool: BTreeMap<u128, Entry>,
    /// Everything of boots before this one is in the books.
    replayed: u32,
}

impl Node {
    const fn clock(&self, true_ms: u64) -> u64 {
        self.offset_ms + true_ms * self.rate_permille / 1_000
    }

    /// When its clock will show this.
    const fn when(&self, clock_ms: u64) -> u64 {
        clock_ms.saturating_sub(self.offset_ms).saturating_mul(1_000) / self.rate_permille + 1
    }
}

/// What a spool holds of a request.
#[derive(Debug)]
struct Entry {
    key: usize,
    /// Sent upstream, and whether it refused the work.
    sent: bool,
    refused: bool,
    /// Its process died.
    lost: bool,
    end: Option<Settled>,
}

#[derive(Debug, Clone)]
struct Send {
    key: usize,
    body: u8,
    /// How often its caller tries again.
    retries: u32,
    /// Where it must go.
    node: Option<usize>,
}

/// A request at one boot of a node.
#[derive(Debug, Clone, Copy)]
struct At {
    node: usize,
    boot: u32,
    task: u64,
}

#[derive(Debug)]
enum Event {
    Arrive(usize),
    /// A write reaches the bucket; `told` gets the result.
    Do(usize, Box<Write>, Option<(At, u64)>),
    /// A reader looks.
    Look(usize, At, u64),
    Told(At, u64, Box<Outcome>),
    Alarm(At, u64),
    /// The request is to be sent upstream.
    Send(At),
    Back(At, Result),
    /// The end is not held back any longer.
    Leave(At),
    Publish(usize),
    Kill(usize, u64),
    Start(usize),
    Pause(usize, u64),
    Cut(usize, u64),
    Jump(usize, u64),
}

/// Everything.
pub(crate) struct World {
    terms: Terms,
    chance: Chance,
    now_ms: u64,
    /// The faults are over.
    healed: bool,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    queued: BTreeMap<u64, Event>,
    sequence: u64,
    bucket: Bucket,
    nodes: Vec<Node>,
    books: BTreeMap<u128, End>,
    sends: Vec<Send>,
    requests: u128,
    /// What is charged under each key, and by whom.
    charged: BTreeMap<usize, (u128, Vec<u8>)>,
    /// Where each request runs.
    places: BTreeMap<u128, (usize, u32)>,
    violation: Option<String>,
    trace: DefaultHasher,
    counts: Counts,
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut chance = Chance::new(seed);
        let node = |index: usize| Node {
            up: true,
            offset_ms: 1_000_000 * index as u64,
            rate_permille: 980 + 20 * index as u64,
            ..Node::default()
        };
        let nodes = (0..NODES).map(node).collect();
        let mut sends = Vec::new();
        for key in 0..KEYS {
            for _ in 0..chance.range(3, 7) {
                sends.push(Send {
                    key,
                    body: if chance.percent(90) { 1 } else { 2 },
                    retries: 4,
                    node: None,
                });
            }
        }
        let mut world = Self {
            terms: terms(planted),
            chance,
            now_ms: 0,
            healed: false,
            events: BinaryHeap::new(),
            queued: BTreeMap::new(),
            sequence: 0,
            bucket: Bucket::default(),
            nodes,
            books: BTreeMap::new(),
            sends,
            requests: 0,
            charged: BTreeMap::new(),
            places: BTreeMap::new(),
            violation: None,
            trace: DefaultHasher::new(),
            counts: Counts::default(),
        };
        world.plan();
        world
    }

    /// What callers and fate will do.
    fn plan(&mut self) {
        let begins: Vec<u64> = (0..KEYS).map(|_| self.chance.range(0, 60_000)).collect();
        for send in 0..self.sends.len() {
            let spread = if self.chance.percent(50) { 40 } else { 60_000 };
            let after_ms = begins[self.sends[send].key] + self.chance.range(0, spread);
            self.schedule(after_ms, Event::Arrive(send));
        }
        for _ in 0..self.chance.range(1, 6) {
            let node = self.chance.one_of(NODES);
            let at_ms = self.chance.range(0, HEALED_MS - 1);
            let event = match self.chance.one_of(4) {
                0 => Event::Kill(node, self.chance.range(500, 20_000)),
                1 => Event::Pause(node, self.chance.range(500, 2 * LIFE_MS)),
                2 => Event::Cut(node, self.chance.range(500, LIFE_MS / 3)),
                _ => Event::Jump(node, self.chance.range(500, 20_000)),
            };
            self.schedule(at_ms, event);
        }
    }

    fn schedule(&mut self, at_ms: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ms.max(self.now_ms), self.sequence)));
        self.queued.insert(self.sequence, event);
    }

    /// Runs to the end, and looks what is left.
    pub(crate) fn run(mut self) -> Report {
        self.drain();
        self.look_for_orphans(false);
        self.healed = true;
        for node in &mut self.nodes {
            node.paused_until_ms = 0;
            node.cut_until_ms = 0;
        }
        // Whoever was killed is taken over from: seen twice, a lease apart.
        for key in 0..KEYS {
            for after_ms in [1, 20_000] {
                self.sends.push(Send {
                    key,
                    body: 1,
                    retries: 0,
                    node: Some(0),
                });
                self.schedule(self.now_ms + after_ms, Event::Arrive(self.sends.len() - 1));
            }
        }
        self.drain();
        self.look_for_orphans(true);
        Report {
            violation: self.violation,
            trace: self.trace.finish(),
            counts: self.counts,
        }
    }

    fn drain(&mut self) {
        while let Some(Reverse((at_ms, sequence))) = self.events.pop() {
            self.now_ms = at_ms;
            let event = self.queued.remove(&sequence).expect("queued");
            (at_ms, sequence, format!("{event:?}")).hash(&mut self.trace);
            if let Some(node) = self.paused(&event) {
                let until_ms = self.nodes[node].paused_until_ms;
                self.schedule(until_ms, event);
            } else {
                self.happen(event);
            }
            if self.violation.is_some() {
                return;
            }
        }
    }

    /// The node that would have to act and cannot.
    fn paused(&self, event: &Event) -> Option<usize> {
        let node = match event {
            Event::Told(at, ..)
            | Event::Alarm(at, _)
            | Event::Send(at)
            | Event::Back(at, _)
            | Event::Leave(at) => at.node,
            Event::Publish(node) => *node,
            _ => return None,
        };
        (self.nodes[node].paused_until_ms > self.now_ms).then_some(node)
    }

    /// A lock whose request does not run, though its process does; or, at the very end, any lock.
    fn look_for_orphans(&mut self, any: bool) {
        for key in 0..KEYS {
            let Some(Record::Running(held)) = self.bucket.last(key) else {
                continue;
            };
            let (node, boot) = place(&held);
            if any || self.nodes[node].boot == boot {
                self.violate(format!("key {key} is locked and nobody runs: {held:?}"));
            }
        }
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(send) => self.arrive(send),
            Event::Do(key, write, told) => self.write(key, &write, told),
            Event::Look(key, at, operation) => self.look(key, at, operation),
            Event::Told(at, operation, outcome) => self.told(at, operation, *outcome),
            Event::Alarm(at, alarm) => self.drive(at, |world, task| {
                if task.alarm == alarm {
                    world.tick(at, task)
                } else {
                    Job::Nothing
                }
            }),
            Event::Send(at) => self.drive(at, |world, task| world.work(at, task)),
            Event::Back(at, result) => self.drive(at, |world, task| world.back(at, task, result)),
            Event::Leave(at) => self.drive(at, |world, task| {
                if matches!(task.stage, Stage::Holding(_, Work::Settled(_))) {
                    world.counts.note("left before its record");
                }
                world.leave(task);
                Job::Nothing
            }),
            Event::Publish(node) => self.publish(node),
            Event::Kill(node, down_ms) => self.kill(node, down_ms),
            Event::Start(node) => self.start(node),
            Event::Pause(node, ms) => self.pause(node, ms),
            Event::Cut(node, ms) => self.nodes[node].cut_until_ms = self.now_ms + ms,
            Event::Jump(node, ms) => self.nodes[node].offset_ms += ms,
        }
    }

    /// Lets a request act, if it is still there, and does what it asks for.
    fn drive(&mut self, at: At, act: impl FnOnce(&mut Self, &mut Task) -> Job) {
        let node = &mut self.nodes[at.node];
        if node.boot != at.boot {
            return;
        }
        let Some(mut task) = node.tasks.remove(&at.task) else {
            return;
        };
        let job = act(self, &mut task);
        self.begin(at, &mut task, job);
        if !matches!(task.stage, Stage::Over) {
            self.nodes[at.node].tasks.insert(at.task, task);
        }
    }

    fn arrive(&mut self, send: usize) {
        let node = self.sends[send].node.unwrap_or_else(|| self.chance.one_of(NODES));
        if !self.nodes[node].up || self.nodes[node].paused_until_ms > self.now_ms {
            return self.again(send);
        }
        let Send { key, body, .. } = self.sends[send];
        self.requests += 1;
        let number = self.requests;
        let boot = self.nodes[node].boot;
        self.places.insert(number, (node, boot));
        let mine = lock(number, body, node, boot, self.terms.lease_ms);
        let (claim, step) = Claim::start(mine, self.terms, self.nodes[node].clock(self.now_ms));
        let mut task = Task {
            number,
            key,
            body,
            send,
            stage: Stage::Claiming(Box::new(claim)),
            operation: 0,
            alarm: 0,
        };
        let at = At {
            node,
            boot,
            task: u64::try_from(number).expect("small"),
        };
        let job = self.claimed(at, &mut task, step);
        self.begin(at, &mut task, job);
        if !matches!(task.stage, Stage::Over) {
            self.nodes[node].tasks.insert(at.task, task);
        }
    }

    /// The caller tries again, unless he has had enough.
    fn again(&mut self, send: usize) {
        if self.sends[send].retries > 0 {
            self.sends[send].retries -= 1;
            let after_ms = self.chance.range(500, 15_000);
            self.schedule(self.now_ms + after_ms, Event::Arrive(send));
        }
    }

    fn has_faults(&self) -> bool {
        !self.healed && self.now_ms < HEALED_MS
    }

    /// Begins what a request asks for.
    fn begin(&mut self, at: At, task: &mut Task, job: Job) {
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
        match (job, fault) {
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

    fn write(&mut self, key: usize, write: &Write, told: Option<(At, u64)>) {
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

    fn look(&mut self, key: usize, at: At, operation: u64) {
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

    fn told(&mut self, at: At, operation: u64, outcome: Outcome) {
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
    fn seen(&mut self, at: At, key: usize, outcome: Outcome, now_ms: u64) -> Outcome {
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
    fn end_of(&mut self, held: &Running) -> End {
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

    fn claimed(&mut self, at: At, task: &mut Task, step: claim::Step) -> Job {
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

    fn refused(&mut self, task: &Task, refusal: Refusal) {
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

    fn replayed(&mut self, task: &Task, done: &Done) {
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
    fn answered(&mut self, task: &Task, status: u16, body: &Body) {
        let charged = self.charged.get(&task.key);
        let same = charged.is_some_and(|(_, first)| *body == Body::Kept(first.clone()));
        if status == 200 && !same {
            self.violate(format!("key {} answers {body:?}, charged {charged:?}", task.key));
        }
    }

    fn tick(&mut self, at: At, task: &mut Task) -> Job {
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

    fn released(&mut self, _: At, task: &mut Task, step: release::Step) -> Job {
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

    fn held(&mut self, at: At, task: &mut Task, step: hold::Step) -> Job {
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
    fn work(&mut self, at: At, task: &mut Task) -> Job {
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
    fn confirming(&mut self, task: &Task, step: hold::Step) -> Job {
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
    fn over(&mut self, task: &mut Task, now_ms: u64) {
        let Stage::Holding(hold, _) = &mut task.stage else {
            return;
        };
        if matches!(hold.tick(now_ms), hold::Step::Ended | hold::Step::Lost) {
            self.leave(task);
            task.stage = Stage::Over;
        }
    }

    fn send(&mut self, at: At, task: &Task) {
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

    fn back(&mut self, at: At, task: &mut Task, result: Result) -> Job {
        if let Stage::Holding(_, work) = &mut task.stage {
            let since_ms = self.now_ms;
            *work = Work::Back { result, since_ms };
        }
        self.work(at, task)
    }

    /// The waybill is written.
    fn settle(&mut self, at: At, task: &mut Task, result: Result, charged: bool) {
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
    fn has_lapsed(&self, key: usize, number: u128) -> bool {
        let (node, boot) = self.places[&number];
        self.nodes[node].boot != boot && self.bucket.has_lost(key, number, self.now_ms)
    }

    fn finish(&mut self, at: At, task: &mut Task, free: bool) -> Job {
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
    fn leave(&mut self, task: &mut Task) {
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

    fn publish(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !node.up || node.cut_until_ms > self.now_ms {
            let later_ms = self.now_ms + 1_000;
            return self.schedule(later_ms, Event::Publish(index));
        }
        for (number, entry) in &node.spool {
            if let Some(end) = &entry.end {
                let is_void = entry.lost || entry.refused;
                let settled = End::Settled { status: end.status };
                self.books
                    .insert(*number, if is_void { End::Void } else { settled });
            }
        }
        node.replayed = node.boot;
    }

    fn kill(&mut self, index: usize, down_ms: u64) {
        let node = &mut self.nodes[index];
        if !node.up {
            return;
        }
        let ran = node
            .tasks
            .values()
            .any(|task| matches!(task.stage, Stage::Holding(..)));
        node.up = false;
        node.boot += 1;
        let tasks = std::mem::take(&mut node.tasks);
        node.sightings = Sightings::default();
        node.paused_until_ms = 0;
        if ran {
            self.counts.note("killed while running");
        }
        for task in tasks.into_values() {
            if !matches!(task.stage, Stage::Releasing(_) | Stage::Holding(_, Work::Left)) {
                self.again(task.send);
            }
        }
        self.schedule(self.now_ms + down_ms, Event::Start(index));
    }

    /// A node starts: what its spool holds open is settled before it hears anybody.
    fn start(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.up = true;
        for entry in node.spool.values_mut().filter(|entry| entry.end.is_none()) {
            entry.lost = true;
            entry.end = Some(Settled {
                charged: false,
                status: 500,
                body: Vec::new(),
            });
        }
        let publish_ms = self.now_ms + self.chance.range(10, 5_000);
        self.schedule(publish_ms, Event::Publish(index));
    }

    /// A node stands still. One that has settled and not yet told so is not kept from it for as long as its lock lies
    /// there: that a node comes back within that time is what the lock's life stands for.
    fn pause(&mut self, index: usize, ms: u64) {
        let node = &mut self.nodes[index];
        let settled = |task: &Task| matches!(task.stage, Stage::Holding(_, Work::Settled(_) | Work::Left));
        let ms = if node.tasks.values().any(settled) {
            ms.min(LIFE_MS / 4)
        } else {
            ms
        };
        if node.up {
            node.paused_until_ms = self.now_ms + ms;
        }
    }
}
