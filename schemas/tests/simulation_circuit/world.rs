//! The scheduler: one queue of what happens when, and nodes whose calls find out how the backend is. What a node writes
//! arrives late, twice as late, or never; what it is answered gets lost.

use std::collections::BTreeMap;

use schemas::circuit::planted::Planted;
use schemas::circuit::record::Record;
use schemas::circuit::view::writing::{Outcome, Write};
use schemas::circuit::view::{Begin, Circuit, Claim, Pass};
use schemas::circuit::{Parameters, Verdict};
use schemas::id::{BackendId, EndpointId};

use crate::random::{Random, mix};

/// How long there is trouble.
const BUSY_MS: u64 = 40_000;
/// When the run ends.
const REST_MS: u64 = 60_000;
/// How long a backend is left alone, and a probe may take.
const COOLDOWN_MS: u64 = 1_500;
/// How long a node waits for an answer.
const ANSWER_MS: u64 = 500;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// The hash of all that happened.
    pub(crate) trace: u64,
    /// Probes to which the fleet gave leave.
    pub(crate) probes: u64,
}

#[derive(Debug, Clone)]
enum Event {
    /// A call comes to a node.
    Call(usize),
    /// It ends as this run of the node sent it.
    End(usize, u64, Pass),
    /// A write arrives at the bucket, is answered after so many milliseconds or never.
    Arrive(At, Write, Option<u64>),
    Answered(At, Outcome),
    /// The answer is not waited for any longer.
    Overdue(At),
    /// A node is told what was in the bucket at this revision.
    Watch(usize, u64, u64),
    Cut(usize),
    Heal(usize),
    Kill(usize),
    Start(usize),
    /// The backend gets well, or ill.
    Backend(bool),
}

/// A write of one run of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    node: usize,
    boots: u64,
    write: u64,
}

struct Node {
    boots: u64,
    up: bool,
    cut: bool,
    circuit: Circuit,
    offset_ms: u64,
    permille: u64,
    flight: Option<u64>,
    asked: Vec<u64>,
    /// Probes under way, and whether the node took them without the fleet.
    probes: Vec<(Pass, bool)>,
}

struct World {
    random: Random,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    /// The bucket's history; a record's place, counted from 1, is its revision.
    history: Vec<Record>,
    nodes: Vec<Node>,
    is_well: bool,
    planted: Option<Planted>,
    report: Report,
}

/// Runs one seed; what it came to, or what went wrong.
pub(crate) fn run(seed: u64, planted: Option<Planted>) -> Result<Report, String> {
    let mut world = World::new(seed, planted);
    let run = world.run();
    let at_ms = world.now_ms;
    run.map_err(|wrong| format!("seed {seed}, {at_ms} ms: {wrong}"))?;
    Ok(world.report)
}

fn circuit(node: usize, boots: u64, planted: Option<Planted>) -> Circuit {
    let parameters = Parameters {
        cooldown_ms: COOLDOWN_MS,
        ..Parameters::default()
    };
    let record = Record::new(EndpointId::from("e"), BackendId::from("e#0"));
    let circuit = Circuit::new(parameters, record, format!("boot-{node}-{boots}").into(), true);
    #[cfg(debug_assertions)]
    let circuit = circuit.with(planted);
    #[cfg(not(debug_assertions))]
    let _ = planted;
    circuit
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut random = Random::new(seed);
        let count = usize::try_from(random.between(2, 4)).expect("small");
        let node = |index| Node {
            boots: 0,
            up: true,
            cut: false,
            circuit: circuit(index, 0, planted),
            offset_ms: random.below(1_000_000),
            permille: random.between(985, 1_015),
            flight: None,
            asked: Vec::new(),
            probes: Vec::new(),
        };
        let nodes: Vec<Node> = (0..count).map(node).collect();
        let mut world = Self {
            random,
            now_ms: 0,
            queue: BTreeMap::new(),
            events: 0,
            history: Vec::new(),
            nodes,
            is_well: true,
            planted,
            report: Report { trace: 0, probes: 0 },
        };
        for index in 0..count {
            world.at(10, Event::Call(index));
            for _ in 0..world.random.below(3) {
                let at_ms = world.random.below(BUSY_MS);
                world.at(at_ms, Event::Cut(index));
            }
            if world.random.chance(500) {
                let at_ms = world.random.below(BUSY_MS);
                world.at(at_ms, Event::Kill(index));
            }
        }
        let mut at_ms = 0;
        for round in 0..10 {
            at_ms += world.random.between(500, 6_000);
            world.at(at_ms.min(BUSY_MS), Event::Backend(round % 2 == 1));
        }
        world.at(BUSY_MS + 1, Event::Backend(true));
        world
    }

    fn at(&mut self, delay_ms: u64, event: Event) {
        self.events += 1;
        self.queue.insert((self.now_ms + delay_ms, self.events), event);
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(((at_ms, number), event)) = self.queue.pop_first() {
            if at_ms > REST_MS {
                return self.at_rest();
            }
            self.now_ms = at_ms;
            self.fold(number);
            self.fold(at_ms);
            self.happen(event);
            self.check()?;
        }
        Err("nothing happens any more".to_owned())
    }

    const fn fold(&mut self, number: u64) {
        self.report.trace = mix(self.report.trace ^ number).wrapping_add(number);
    }

    /// The node's own time.
    fn clock(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        node.offset_ms + self.now_ms * node.permille / 1_000
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call(index) => self.call(index),
            Event::End(index, boots, pass) => self.end(index, boots, pass),
            Event::Arrive(at, write, back_ms) => self.arrive(at, write, back_ms),
            Event::Answered(at, outcome) if !self.nodes[at.node].cut => self.learn(at, outcome),
            Event::Overdue(at) => self.learn(at, Outcome::Unknown),
            Event::Watch(index, boots, revision) if self.nodes[index].boots == boots => {
                self.watch(index, revision);
            }
            Event::Cut(index) => {
                self.nodes[index].cut = true;
                let lasts_ms = self.random.between(300, 8_000);
                self.at(lasts_ms, Event::Heal(index));
            }
            Event::Heal(index) => {
                self.nodes[index].cut = false;
                self.survey(index);
            }
            Event::Kill(index) => {
                self.nodes[index].up = false;
                let after_ms = self.random.between(10, 5_000);
                self.at(after_ms, Event::Start(index));
            }
            Event::Start(index) => self.start(index),
            Event::Backend(is_well) => self.is_well = is_well,
            Event::Answered(..) | Event::Watch(..) => {}
        }
        for index in 0..self.nodes.len() {
            self.collect(index);
            self.pump(index);
        }
    }

    fn call(&mut self, index: usize) {
        let next_ms = self.random.between(20, 400);
        self.at(next_ms, Event::Call(index));
        let now_ms = self.clock(index);
        let node = &mut self.nodes[index];
        if !node.up {
            return;
        }
        let alone = node.cut;
        match node.circuit.begin(now_ms, alone) {
            Begin::Pass(pass) => self.send(index, pass, alone),
            Begin::Asking { id } => node.asked.push(id),
            Begin::Refused => {}
        }
    }

    /// A call goes to the backend. Some take longer than a lease.
    fn send(&mut self, index: usize, pass: Pass, alone: bool) {
        let long = self.random.chance(150);
        let lasts_ms = if long {
            self.random.between(COOLDOWN_MS, COOLDOWN_MS * 3)
        } else {
            self.random.between(5, 600)
        };
        if pass != Pass::Plain {
            self.nodes[index].probes.push((pass, alone));
            self.report.probes += u64::from(!alone);
        }
        let boots = self.nodes[index].boots;
        self.at(lasts_ms, Event::End(index, boots, pass));
    }

    fn end(&mut self, index: usize, boots: u64, pass: Pass) {
        let now_ms = self.clock(index);
        let verdict = match self.random.below(10) {
            0 => Verdict::Neutral,
            _ if self.is_well => Verdict::Healthy,
            _ => Verdict::Faulty,
        };
        let node = &mut self.nodes[index];
        if node.up && node.boots == boots {
            node.probes.retain(|(probe, _)| *probe != pass);
            node.circuit.settle(pass, verdict, Some(500), now_ms);
        }
    }

    /// Turns what the fleet granted into calls. A node that is cut off decides for itself.
    fn collect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.circuit.transitions();
        let (circuit, alone) = (&node.circuit, node.cut);
        let mut granted = Vec::new();
        node.asked.retain(|id| match circuit.claim(*id) {
            Claim::Waiting => true,
            Claim::Granted(pass) => {
                granted.push(pass);
                false
            }
            Claim::Refused => false,
        });
        for pass in granted {
            self.send(index, pass, alone);
        }
    }

    /// Writes what there is to write.
    fn pump(&mut self, index: usize) {
        let now_ms = self.clock(index);
        let node = &mut self.nodes[index];
        if !node.up || node.flight.is_some() {
            return;
        }
        let Some(write) = node.circuit.write(now_ms) else {
            return;
        };
        let (boots, cut) = (node.boots, node.cut);
        let at = At {
            node: index,
            boots,
            write: self.events,
        };
        self.nodes[index].flight = Some(at.write);
        self.at(ANSWER_MS, Event::Overdue(at));
        let there_ms = self.random.between(1, 20);
        let back_ms = self.random.between(1, 20);
        let late_ms = self.random.between(ANSWER_MS, 4_000);
        match self.random.below(100) {
            // Kept by the client, and sent although nobody waits any more.
            0..6 => self.at(late_ms, Event::Arrive(at, write, None)),
            6..10 => {}
            10..16 if !cut => self.at(there_ms, Event::Arrive(at, write, None)),
            _ if !cut => self.at(there_ms, Event::Arrive(at, write, Some(back_ms))),
            _ => {}
        }
    }

    fn arrive(&mut self, at: At, write: Write, back_ms: Option<u64>) {
        let revision = self.history.len() as u64;
        let outcome = if write.expected.unwrap_or(0) == revision {
            self.history.push(write.record);
            for index in 0..self.nodes.len() {
                let delay_ms = self.random.between(1, 300);
                let boots = self.nodes[index].boots;
                self.at(delay_ms, Event::Watch(index, boots, revision + 1));
            }
            Outcome::Won(revision + 1)
        } else {
            Outcome::Lost
        };
        if let Some(back_ms) = back_ms {
            self.at(back_ms, Event::Answered(at, outcome));
        }
    }

    /// A write is answered, or given up: then the record is read, and where that fails too the node decides alone.
    fn learn(&mut self, at: At, outcome: Outcome) {
        let now_ms = self.clock(at.node);
        let node = &mut self.nodes[at.node];
        if node.boots != at.boots || node.flight != Some(at.write) {
            return;
        }
        node.flight = None;
        node.circuit.wrote(outcome, now_ms);
        if matches!(outcome, Outcome::Won(_)) {
            return;
        }
        if node.cut {
            node.circuit.decide_alone(now_ms);
        } else {
            self.watch(at.node, self.history.len() as u64);
        }
    }

    fn watch(&mut self, index: usize, revision: u64) {
        let now_ms = self.clock(index);
        let place = usize::try_from(revision).expect("small");
        let Some(record) = place.checked_sub(1).and_then(|place| self.history.get(place)) else {
            return;
        };
        let node = &mut self.nodes[index];
        if node.up && !node.cut {
            node.circuit
                .observe(revision, Some(record.clone()), false, now_ms);
        }
    }

    /// A watch begins anew.
    fn survey(&mut self, index: usize) {
        self.watch(index, self.history.len() as u64);
    }

    fn start(&mut self, index: usize) {
        let planted = self.planted;
        let node = &mut self.nodes[index];
        node.boots += 1;
        node.up = true;
        node.circuit = circuit(index, node.boots, planted);
        node.flight = None;
        node.asked.clear();
        node.probes.clear();
        self.survey(index);
    }

    /// No two nodes may send a probe to which the fleet gave leave.
    fn check(&self) -> Result<(), String> {
        let live = |index: &usize| {
            let (node, now_ms) = (&self.nodes[*index], self.clock(*index));
            let granted = node.probes.iter().filter(|(_, alone)| !alone);
            node.up
                && granted
                    .clone()
                    .any(|(pass, _)| node.circuit.may_send(*pass, now_ms))
        };
        let live: Vec<usize> = (0..self.nodes.len()).filter(live).collect();
        if live.len() > 1 {
            return Err(format!("nodes {live:?} probe at once"));
        }
        Ok(())
    }

    /// The backend has been well for a while: everybody knows.
    fn at_rest(&self) -> Result<(), String> {
        let newest = self.history.last();
        if newest.is_some_and(|record| !record.is_closed() || record.probe.is_some()) {
            return Err(format!("at rest: {newest:?}"));
        }
        let open = self
            .nodes
            .iter()
            .position(|node| !node.circuit.view().is_closed());
        open.map_or(Ok(()), |node| {
            Err(format!("at rest: node {node} holds it for open"))
        })
    }
}
