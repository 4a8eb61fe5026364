//! Nodes, their spools, the books and the callers, and what must hold at every moment.

mod path;
mod wire;

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{Hash as _, Hasher as _};

use schemas::idempotency::claim::{Claim, End};
use schemas::idempotency::record::Record;
use schemas::idempotency::sightings::Sightings;
use schemas::idempotency::{Terms, Write};

use crate::bucket::Bucket;
use crate::chance::Chance;
use crate::counts::Counts;
use crate::task::{Job, Outcome, Result, Settled, Stage, Task, Work, lock, place};

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

fn terms() -> Terms {
    Terms {
        lease_ms: 6_000,
        renew_ms: 2_000,
        running_life_ms: LIFE_MS,
        done_life_ms: 1_000_000_000,
        freed_life_ms: 30_000,
        ..Terms::default()
    }
}

/// What a seed came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) violation: Option<String>,
    pub(crate) trace: u64,
    pub(crate) counts: Counts,
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
    pub(crate) fn new(seed: u64) -> Self {
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
            terms: terms(),
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

    /// The world in which a mistake is made.
    #[cfg(debug_assertions)]
    pub(crate) fn with(mut self, planted: schemas::idempotency::Planted) -> Self {
        self.terms.planted = Some(planted);
        self
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
