//! The scheduler: one queue of what happens when, seeded. Nodes are cut off, killed and started again, their clocks
//! jump; what they ask arrives late, twice as late, or never, and what they are answered gets lost. The same seed gives
//! the same history, to the last bit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use chrono::Utc;
use schemas::limit::Now;
use schemas::limit::holdings::Holdings;
use schemas::limit::holdings::demand::{Admission, Demand, Exit, Used};
use schemas::limit::holdings::steps::{Answer, Ask};
use schemas::limit::layers::{Bound, Name};
use schemas::limit::limits::Slice;
use schemas::limit::planted::Planted;
use schemas::limit::shared::{Outcome, Step};
use schemas::limit::window::Calendar;
use schemas::outcome::Outcome as Ended;

use crate::bus::{Bus, unanswered};
use crate::callers::callers;
use crate::checks::{self, Permits, Verdict};
use crate::event::Event;
use crate::node::{Node, Running};
use crate::random::{Random, mix};

/// How long requests come.
const BUSY_MS: u64 = 32_000;
/// How long it takes until everything is at rest.
const REST_MS: u64 = 130_000;
/// How long a node waits for an answer.
const ANSWER_MS: u64 = 2_000;
/// How long a request waits.
const ADMIT_MS: u64 = 8_000;

/// One run.
pub(crate) struct World {
    random: Random,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    bus: Bus,
    nodes: Vec<Node>,
    callers: Vec<Arc<[Bound]>>,
    bounds: Vec<Bound>,
    permits: Permits,
    calendars: Vec<Calendar>,
    /// Clocks jump; else the counters are lost once, which only clocks that agree survive.
    jumps: bool,
    losses: u64,
    planted: Planted,
    hash: u64,
    /// What happened, where it is asked for.
    pub(crate) story: Option<String>,
}

/// Runs one seed with one fault planted or none; the trace's hash, or what went wrong.
pub(crate) fn run(seed: u64, planted: Planted, story: bool) -> (Result<u64, String>, Option<String>) {
    let mut world = World::new(seed, planted, story);
    let found = world.run();
    let at_ms = world.now_ms;
    let found = found
        .map(|()| world.hash)
        .map_err(|wrong| format!("seed {seed}, {at_ms} ms: {wrong}"));
    (found, world.story)
}

impl World {
    fn new(seed: u64, planted: Planted, story: bool) -> Self {
        let mut random = Random::new(seed);
        let callers = callers(&mut random);
        let count = usize::try_from(random.between(2, 4)).unwrap_or(2);
        let nodes: Vec<Node> = (0..count).map(|index| Node::new(index, &mut random)).collect();
        let mut world = Self {
            bounds: callers.iter().flat_map(|bounds| bounds.iter().cloned()).collect(),
            random,
            now_ms: 0,
            queue: BTreeMap::new(),
            events: 0,
            bus: Bus::default(),
            nodes,
            callers,
            permits: Permits::default(),
            calendars: Vec::new(),
            jumps: seed.is_multiple_of(2),
            losses: 0,
            planted,
            hash: 0,
            story: story.then(String::new),
        };
        if !world.jumps {
            let at_ms = world.random.below(BUSY_MS);
            world.at(at_ms, Event::CountersAnew);
        }
        for index in 0..count {
            world.at(0, Event::Start(index));
            world.at(1, Event::Tick(index));
            world.at(10, Event::Arrive(index));
            // In the end a node is told of everything, also of what the dead wrote late.
            world.at(BUSY_MS + 20_000, Event::Survey(index));
            world.troubles(index);
        }
        world
    }

    /// Decides what befalls a node.
    fn troubles(&mut self, index: usize) {
        for _ in 0..self.random.below(3) {
            let at_ms = self.random.below(BUSY_MS);
            self.at(at_ms, Event::Partition(index));
        }
        for permille in [400, 300] {
            if self.random.chance(permille) {
                let at_ms = self.random.below(BUSY_MS);
                self.at(at_ms, Event::Kill(index));
            }
        }
        if self.jumps && self.random.chance(600) {
            let at_ms = self.random.below(BUSY_MS);
            self.at(at_ms, Event::Jump(index));
        }
    }

    fn at(&mut self, delay_ms: u64, event: Event) {
        self.events += 1;
        self.queue.insert((self.now_ms + delay_ms, self.events), event);
    }

    fn run(&mut self) -> Verdict {
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            self.now_ms = at_ms;
            self.trace(&event);
            self.happen(event)?;
        }
        let rest = format!("{:?}", self.bus);
        for byte in rest.bytes() {
            self.fold(u64::from(byte));
        }
        checks::at_rest(&self.bus, &self.nodes)
    }

    /// Folds what happens into the hash of the run.
    fn trace(&mut self, event: &Event) {
        let (kind, numbers) = event.numbers();
        self.fold(kind);
        self.fold(self.now_ms);
        for number in numbers {
            self.fold(number);
        }
        if let Some(story) = &mut self.story
            && !matches!(event, Event::Tick(_))
        {
            let _ = writeln!(story, "{:>6} {event:?}", self.now_ms);
        }
    }

    const fn fold(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number).wrapping_add(number);
    }

    fn happen(&mut self, event: Event) -> Verdict {
        match event {
            Event::Tick(index) => self.tick(index)?,
            Event::Arrive(index) => self.arrive(index)?,
            Event::Asked(index, flight, ask, back_ms) => self.asked(index, flight, &ask, back_ms)?,
            Event::Answered(index, flight, answer) => self.answered(index, flight, answer)?,
            Event::Overdue(index, flight) => {
                if let Some(ask) = self.nodes[index].flights.get(&flight) {
                    let answer = unanswered(ask);
                    self.learn(index, flight, answer)?;
                }
            }
            Event::Told(index, answer) => {
                if !self.nodes[index].partitioned {
                    self.with(index, |holdings, now| holdings.answer(answer, now));
                    self.resume(index)?;
                }
            }
            Event::End(index, boots, grant) => self.end(index, boots, grant)?,
            Event::Settle(index, boots, grant) => self.settle(index, boots, grant),
            Event::Partition(index) => self.partition(index),
            Event::Cut(index) => {
                if self.nodes[index].partitioned {
                    self.nodes[index].told = true;
                    self.with(index, Holdings::cut);
                }
            }
            Event::Heal(index) => {
                self.nodes[index].partitioned = false;
                self.nodes[index].told = false;
                self.restore(index);
                self.survey(index);
            }
            Event::Kill(index) => self.kill(index),
            Event::Start(index) => {
                let planted = self.planted;
                self.nodes[index].start(&mut self.random, planted);
                if !self.nodes[index].partitioned {
                    self.restore(index);
                }
                self.survey(index);
            }
            Event::Forget(index) => self.forget(index),
            Event::Survey(index) => self.survey(index),
            Event::CountersAnew => self.counters_anew(),
            Event::Jump(index) => {
                let far = i64::try_from(self.random.below(180_000_000)).unwrap_or(0);
                self.nodes[index].wall_offset_micros += far - 90_000_000;
            }
        }
        Ok(())
    }

    fn now(&self, index: usize) -> Now {
        self.nodes[index].now(self.now_ms, self.nodes.len() as u64)
    }

    fn with<T: Default>(&mut self, index: usize, act: impl FnOnce(&mut Holdings, Now) -> T) -> T {
        let now = self.now(index);
        self.nodes[index]
            .holdings
            .as_mut()
            .map(|holdings| act(holdings, now))
            .unwrap_or_default()
    }

    fn tick(&mut self, index: usize) -> Verdict {
        let busy = self.now_ms < BUSY_MS + 20_000;
        if self.now_ms < BUSY_MS + REST_MS {
            self.at(if busy { 250 } else { 2_500 }, Event::Tick(index));
        }
        self.with(index, Holdings::tick);
        self.nodes[index].trim();
        self.resume(index)
    }

    fn arrive(&mut self, index: usize) -> Verdict {
        let gap_ms = self.random.between(50, 800);
        if self.now_ms < BUSY_MS {
            self.at(gap_ms, Event::Arrive(index));
        }
        if self.nodes[index].holdings.is_none() {
            return Ok(());
        }
        let caller = usize::from(self.random.chance(400));
        let (tokens, nano_usd) = (self.random.between(1, 60), self.random.between(1, 90));
        let running = self.request(tokens, nano_usd);
        let demand = Demand {
            bounds: Arc::clone(&self.callers[caller]),
            tokens,
            nano_usd,
            calendar: self.calendar(index),
        };
        let admission = self.with(index, |holdings, now| Some(holdings.admit(demand, now)));
        if let Some(admission) = admission {
            self.admitted(index, &admission, running)?;
        }
        self.pump(index);
        Ok(())
    }

    /// The day of a node, made once for each.
    fn calendar(&mut self, index: usize) -> Calendar {
        let wall = self.now(index).wall;
        let known = self.calendars.iter().find(|calendar| calendar.holds(wall));
        known.copied().unwrap_or_else(|| {
            let calendar = Calendar::at(&Utc, wall);
            self.calendars.push(calendar);
            calendar
        })
    }

    /// How a request will go that reserves so much.
    fn request(&mut self, tokens: u64, nano_usd: u64) -> Running {
        let random = &mut self.random;
        let over = random.chance(150);
        let mut part = |reserved: u64| {
            if over {
                reserved + random.below(40)
            } else {
                random.below(reserved + 1)
            }
        };
        let used = Used {
            calls: 1,
            tokens: part(tokens),
            nano_usd: part(nano_usd),
        };
        let exit = match self.random.below(100) {
            0..70 => Some(Exit::Settled(Ended::Ok)),
            70..84 => Some(Exit::Settled(Ended::ClientGone)),
            84..92 => Some(Exit::Panicked),
            _ => None,
        };
        let long = self.random.chance(100);
        Running {
            lasts_ms: if long {
                self.random.between(8_000, 25_000)
            } else {
                self.random.between(20, 2_500)
            },
            used,
            exit,
            twice: self.random.chance(100),
            patience: 4,
            late_ms: if self.random.chance(200) {
                self.random.between(1, 400)
            } else {
                0
            },
        }
    }

    fn admitted(&mut self, index: usize, admission: &Admission, running: Running) -> Verdict {
        match admission {
            Admission::Granted(grant) => {
                checks::granted(&self.bus, &self.nodes, &self.bounds, (index, *grant))?;
                let nodes = self.nodes.len() as u64;
                self.permits
                    .note(&self.nodes[index], *grant, &self.bounds, (nodes, false))?;
                let boots = self.nodes[index].boots;
                self.at(running.lasts_ms, Event::End(index, boots, *grant));
                self.nodes[index].running.insert(*grant, running);
            }
            Admission::Waiting(id) => {
                let now_ms = self.now_ms;
                let waiting = &mut self.nodes[index].waiting;
                let since_ms = waiting.get(id).map_or(now_ms, |(since_ms, _)| *since_ms);
                waiting.insert(*id, (since_ms, running));
            }
            Admission::Refused(_) => {}
        }
        Ok(())
    }

    /// Asks again for those that may go on, gives up those that wait too long, and sends what there is to ask.
    fn resume(&mut self, index: usize) -> Verdict {
        let now_ms = self.now_ms;
        let waiting = self.nodes[index].waiting.iter();
        let overdue: Vec<u64> = waiting
            .filter(|(_, (since_ms, _))| now_ms - since_ms > ADMIT_MS)
            .map(|(id, _)| *id)
            .collect();
        for id in overdue {
            self.nodes[index].waiting.remove(&id);
            self.with(index, |holdings, now| holdings.abandon(id, now).map(|_| ()));
        }
        for id in self.with(index, |holdings, _| holdings.ready()) {
            let admission = self.with(index, |holdings, now| holdings.resume(id, now));
            let (Some(admission), Some((_, running))) =
                (admission, self.nodes[index].waiting.get(&id).cloned())
            else {
                return Err(format!("node {index} has forgotten the waiting request {id}"));
            };
            if !matches!(admission, Admission::Waiting(_)) {
                self.nodes[index].waiting.remove(&id);
            }
            self.admitted(index, &admission, running)?;
        }
        self.pump(index);
        Ok(())
    }

    /// Sends what a node has to ask.
    fn pump(&mut self, index: usize) {
        for ask in self.with(index, Holdings::steps) {
            self.events += 1;
            let flight = self.events;
            self.nodes[index].flights.insert(flight, ask.clone());
            self.at(ANSWER_MS, Event::Overdue(index, flight));
            let there_ms = self.random.between(1, 15);
            let back_ms = self.random.between(1, 15);
            let late_ms = self.random.between(1_500, 14_000);
            let fate = self.random.below(100);
            if self.nodes[index].partitioned {
                // Kept by the client, and sent although nobody waits any more.
                if fate < 20 {
                    self.at(late_ms, Event::Asked(index, flight, ask, None));
                }
                continue;
            }
            match fate {
                0..3 => {}
                3..7 => self.at(there_ms, Event::Asked(index, flight, ask, None)),
                7..11 => self.at(late_ms, Event::Asked(index, flight, ask, Some(back_ms))),
                _ => self.at(there_ms, Event::Asked(index, flight, ask, Some(back_ms))),
            }
        }
    }

    fn asked(&mut self, index: usize, flight: u64, ask: &Ask, back_ms: Option<u64>) -> Verdict {
        let lag = usize::from(self.random.chance(80));
        let answer = self.bus.apply(ask, lag);
        if let Some(back_ms) = back_ms {
            self.at(back_ms, Event::Answered(index, flight, answer.clone()));
        }
        if !matches!(answer, Answer::Wrote(_, Outcome::Won(_))) {
            return Ok(());
        }
        self.tell(ask);
        checks::written(&self.bus, &self.nodes, &self.bounds, ask)
    }

    /// Tells some nodes of a record that was written, sooner or later.
    fn tell(&mut self, ask: &Ask) {
        for index in 0..self.nodes.len() {
            if !self.random.chance(300) {
                continue;
            }
            let delay_ms = self.random.between(1, 400);
            let read = match ask {
                Ask::Slots(name, _) => Ask::Slots(name.clone(), Step::Read),
                Ask::Quota(name, _) => Ask::Quota(name.clone(), Step::Read),
                Ask::Add(..) => continue,
            };
            let told = self.bus.apply(&read, 0);
            self.at(delay_ms, Event::Told(index, told));
        }
    }

    /// Tells a node of all records that there are, as a watch does that begins.
    fn survey(&mut self, index: usize) {
        let slots = self
            .bus
            .slots
            .keys()
            .map(|name| Ask::Slots(name.clone(), Step::Read));
        let quotas = self
            .bus
            .quotas
            .keys()
            .map(|name| Ask::Quota(name.clone(), Step::Read));
        let reads: Vec<Ask> = slots.chain(quotas).collect();
        for read in reads {
            let told = self.bus.apply(&read, 0);
            let delay_ms = self.random.between(1, 50);
            self.at(delay_ms, Event::Told(index, told));
        }
    }

    fn answered(&mut self, index: usize, flight: u64, answer: Answer) -> Verdict {
        if self.nodes[index].partitioned {
            return Ok(());
        }
        self.learn(index, flight, answer)
    }

    fn learn(&mut self, index: usize, flight: u64, answer: Answer) -> Verdict {
        if self.nodes[index].flights.remove(&flight).is_none() {
            return Ok(());
        }
        self.with(index, |holdings, now| holdings.answer(answer, now));
        self.resume(index)
    }

    /// A request ends: its charge is fixed, its waybill goes into the spool, then it is settled.
    fn end(&mut self, index: usize, boots: u64, grant: u64) -> Verdict {
        let node = &self.nodes[index];
        let Some(running) = node.running.get(&grant).filter(|_| node.boots == boots).cloned() else {
            return Ok(());
        };
        self.nodes[index].running.remove(&grant);
        let Some(_) = running.exit else {
            let nodes = self.nodes.len() as u64;
            self.permits
                .note(&self.nodes[index], grant, &self.bounds, (nodes, true))?;
            self.with(index, |holdings, now| holdings.give_back(grant, now));
            if running.twice {
                self.with(index, |holdings, now| holdings.give_back(grant, now));
            }
            self.pump(index);
            return Ok(());
        };
        let lacks = self.with(index, |holdings, now| holdings.lacks(grant, running.used, now));
        if lacks && running.patience > 0 {
            let patience = running.patience - 1;
            self.nodes[index]
                .running
                .insert(grant, Running { patience, ..running });
            self.at(30, Event::End(index, boots, grant));
            self.pump(index);
            return Ok(());
        }
        let charge = self.with(index, |holdings, _| holdings.charge(grant, running.used));
        let Some(charge) = charge else {
            return Err(format!("node {index} does not know the running request {grant}"));
        };
        self.nodes[index].append(grant, charge.quotas.clone());
        for (name, _) in &charge.quotas {
            checks::charged(&self.bus, &self.nodes, &self.bounds, (index, name))?;
        }
        let late_ms = running.late_ms;
        self.nodes[index].running.insert(grant, running);
        self.at(late_ms, Event::Settle(index, boots, grant));
        Ok(())
    }

    fn settle(&mut self, index: usize, boots: u64, grant: u64) {
        let node = &mut self.nodes[index];
        if node.boots != boots {
            return;
        }
        let Some(sequence) = node.appended.remove(&grant) else {
            return;
        };
        let Some(running) = node.running.remove(&grant) else {
            return;
        };
        let (Some(exit), twice) = (running.exit, running.twice) else {
            return;
        };
        self.permits.used(&self.nodes[index], grant, running.used.tokens);
        self.with(index, |holdings, now| holdings.settle(grant, exit, sequence, now));
        if twice {
            self.with(index, |holdings, now| holdings.settle(grant, exit, sequence, now));
        }
        self.pump(index);
    }

    fn partition(&mut self, index: usize) {
        if self.nodes[index].partitioned {
            return;
        }
        self.nodes[index].partitioned = true;
        let lasts_ms = self.random.between(500, 24_000);
        self.at(1_200, Event::Cut(index));
        self.at(lasts_ms, Event::Heal(index));
    }

    fn kill(&mut self, index: usize) {
        if self.nodes[index].holdings.is_none() {
            return;
        }
        let others = self
            .nodes
            .iter()
            .filter(|node| !node.gone && node.index != index)
            .count();
        self.nodes[index].kill();
        if others > 0 && self.random.chance(250) {
            self.nodes[index].gone = true;
            let after_ms = self.random.between(5_000, 30_000);
            self.at(after_ms, Event::Forget(index));
        } else {
            let short = self.random.chance(400);
            let after_ms = if short {
                self.random.below(100)
            } else {
                self.random.between(500, 30_000)
            };
            self.at(after_ms, Event::Start(index));
            if short {
                // Started, and killed again before it has read anything.
                let again_ms = self.random.between(100, 600);
                self.at(again_ms, Event::Kill(index));
            }
        }
    }

    /// The counters are lost. Who can be told is told, and sits out what runs.
    fn counters_anew(&mut self) {
        self.bus.counters_anew();
        self.losses += 1;
        for index in 0..self.nodes.len() {
            if !self.nodes[index].partitioned {
                self.restore(index);
            }
        }
    }

    /// A node is connected, and looks whether the counters are those that it knows.
    fn restore(&mut self, index: usize) {
        let missed = self.nodes[index].noticed < self.losses;
        self.nodes[index].noticed = self.losses;
        let anew: &[Slice] = if missed {
            &[Slice::Second, Slice::Minute]
        } else {
            &[]
        };
        self.with(index, |holdings, now| holdings.restore(anew, now));
    }

    /// A node is declared gone: what it spent is what the books say.
    fn forget(&mut self, index: usize) {
        let node = &self.nodes[index];
        let (source, last) = (node.source.clone(), node.last());
        let mut names: Vec<Name> = self.bus.quotas.keys().chain(node.names()).cloned().collect();
        names.sort();
        names.dedup();
        for name in names {
            let charged = self.nodes[index].charged(&name);
            self.bus.change(&name, |record| {
                record
                    .forget(&source, charged, last)
                    .expect("the books have everything");
            });
        }
    }
}
