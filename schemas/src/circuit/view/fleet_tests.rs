//! Several nodes before one bucket, each with a clock of its own, in any order: answers get lost, writes are
//! applied late, watches lag, nodes die. Whatever happens, there is one live probe at most, and every failure
//! counts once.

use proptest::prelude::*;

use super::writing::{Outcome, Write};
use super::*;
use crate::id::{BackendId, EndpointId};

const NODES: usize = 3;
const COOLDOWN_MS: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// Done, but the answer is lost.
    Unanswered,
    /// Not done yet, and taken for lost.
    Late,
}

#[derive(Debug, Clone)]
enum Act {
    Advance(u64),
    Begin(usize),
    End(usize, Verdict),
    Start(usize),
    Finish(usize, Fate),
    Watch(usize),
    Read(usize),
    GiveUp(usize),
    Apply,
    Restart(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let node = 0..NODES;
    let fate = prop_oneof![
        3 => Just(Fate::Answered),
        1 => Just(Fate::Unanswered),
        1 => Just(Fate::Late)
    ];
    let verdict = prop_oneof![
        3 => Just(Verdict::Faulty),
        1 => Just(Verdict::Healthy),
        1 => Just(Verdict::Neutral)
    ];
    prop_oneof![
        2 => (1..600_u64).prop_map(Act::Advance),
        4 => node.clone().prop_map(Act::Begin),
        3 => (node.clone(), verdict).prop_map(|(node, verdict)| Act::End(node, verdict)),
        4 => node.clone().prop_map(Act::Start),
        4 => (node.clone(), fate).prop_map(|(node, fate)| Act::Finish(node, fate)),
        3 => node.clone().prop_map(Act::Watch),
        2 => node.clone().prop_map(Act::Read),
        1 => node.clone().prop_map(Act::GiveUp),
        1 => Just(Act::Apply),
        1 => node.prop_map(Act::Restart),
    ]
}

struct Node {
    circuit: Circuit,
    offset_ms: u64,
    rate_permille: u64,
    boots: u32,
    watched: usize,
    flight: Option<Write>,
    asked: Vec<u64>,
    passes: Vec<Pass>,
}

impl Node {
    fn now_ms(&self, true_ms: u64) -> u64 {
        self.offset_ms + true_ms * self.rate_permille / 1_000
    }

    /// Turns granted questions into passes.
    fn collect(&mut self) {
        let circuit = &self.circuit;
        let passes = &mut self.passes;
        self.asked.retain(|id| match circuit.claim(*id) {
            Claim::Waiting => true,
            Claim::Granted(pass) => {
                passes.push(pass);
                false
            }
            Claim::Refused => false,
        });
    }
}

struct World {
    now_ms: u64,
    /// The bucket's history; a record's place, counted from 1, is its revision.
    history: Vec<Record>,
    late: Vec<Write>,
    nodes: Vec<Node>,
    told: Vec<Transition>,
}

fn boot(node: usize, boots: u32) -> Circuit {
    let parameters = Parameters {
        cooldown_ms: COOLDOWN_MS,
        availability_min: 0.0,
        ..Parameters::default()
    };
    let record = Record::new(EndpointId::from("e"), BackendId::from("e#0"));
    Circuit::new(parameters, record, format!("boot-{node}-{boots}").into(), true)
}

impl World {
    fn new() -> Self {
        let node = |index: usize| Node {
            circuit: boot(index, 0),
            offset_ms: 1_000_000 * index as u64,
            rate_permille: 980 + 20 * index as u64,
            boots: 0,
            watched: 0,
            flight: None,
            asked: Vec::new(),
            passes: Vec::new(),
        };
        Self {
            now_ms: 0,
            history: Vec::new(),
            late: Vec::new(),
            nodes: (0..NODES).map(node).collect(),
            told: Vec::new(),
        }
    }

    fn apply(&mut self, write: Write) -> Option<u64> {
        let revision = self.history.len() as u64;
        if write.expected.unwrap_or(0) != revision {
            return None;
        }
        self.history.push(write.record);
        Some(revision + 1)
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Advance(ms) => self.now_ms += ms,
            Act::Finish(index, fate) => self.finish(index, fate),
            Act::Apply => {
                if !self.late.is_empty() {
                    let write = self.late.remove(0);
                    self.apply(write);
                }
            }
            Act::Begin(index)
            | Act::End(index, _)
            | Act::Start(index)
            | Act::Watch(index)
            | Act::Read(index)
            | Act::GiveUp(index)
            | Act::Restart(index) => self.of_node(index, act),
        }
        for node in &mut self.nodes {
            node.collect();
            self.told.extend(node.circuit.transitions());
        }
    }

    fn of_node(&mut self, index: usize, act: &Act) {
        let newest = self.history.len();
        let node = &mut self.nodes[index];
        let now_ms = node.now_ms(self.now_ms);
        match act {
            Act::Begin(_) => match node.circuit.begin(now_ms, false) {
                Begin::Pass(pass) => node.passes.push(pass),
                Begin::Asking { id } => node.asked.push(id),
                Begin::Refused => {}
            },
            Act::End(_, verdict) if !node.passes.is_empty() => {
                let pass = node.passes.remove(0);
                node.circuit.settle(pass, *verdict, Some(500), now_ms);
            }
            Act::Start(_) if node.flight.is_none() => node.flight = node.circuit.write(now_ms),
            Act::Watch(_) if node.watched < newest => {
                node.watched += 1;
                let record = self.history[node.watched - 1].clone();
                node.circuit
                    .observe(node.watched as u64, Some(record), false, now_ms);
            }
            Act::Read(_) => {
                if let Some(record) = self.history.last() {
                    let record = Some(record.clone());
                    node.circuit.observe(newest as u64, record, false, now_ms);
                }
            }
            Act::GiveUp(_) if node.flight.is_none() => node.circuit.refuse(now_ms),
            Act::Restart(_) => {
                node.boots += 1;
                node.circuit = boot(index, node.boots);
                node.watched = 0;
                node.flight = None;
                node.asked.clear();
                node.passes.clear();
            }
            _ => {}
        }
    }

    fn finish(&mut self, index: usize, fate: Fate) {
        let Some(write) = self.nodes[index].flight.take() else {
            return;
        };
        let outcome = match fate {
            Fate::Answered => self.apply(write).map_or(Outcome::Lost, Outcome::Won),
            Fate::Unanswered => {
                self.apply(write);
                Outcome::Unknown
            }
            Fate::Late => {
                self.late.push(write);
                Outcome::Unknown
            }
        };
        let node = &mut self.nodes[index];
        let now_ms = node.now_ms(self.now_ms);
        node.circuit.wrote(outcome, now_ms);
    }

    /// The nodes that may send a probe now.
    fn live_probes(&self) -> usize {
        let live = |node: &&Node| {
            let now_ms = node.now_ms(self.now_ms);
            let probes = node.passes.iter().filter(|pass| **pass != Pass::Plain);
            let live = probes.filter(|pass| node.circuit.may_send(**pass, now_ms));
            live.count() > 0
        };
        self.nodes.iter().filter(live).count()
    }

    /// Everything that is under way ends well.
    fn calm(&mut self) {
        for round in 0..50 {
            for index in 0..NODES {
                self.act(&Act::Finish(index, Fate::Answered));
                self.act(&Act::Apply);
                self.act(&Act::Read(index));
                self.act(&Act::Start(index));
            }
            let busy = |node: &Node| node.flight.is_some() || node.circuit.is_dirty();
            if round > 3 && !self.nodes.iter().any(busy) {
                return;
            }
        }
        panic!("it does not come to rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn there_are_never_two_live_probes(acts in prop::collection::vec(act(), 1..160)) {
        let mut world = World::new();
        for index in [0, 1, 2] {
            world.act(&Act::Begin(index));
            world.act(&Act::End(index, Verdict::Faulty));
        }
        world.calm();
        world.act(&Act::Advance(COOLDOWN_MS));
        for act in &acts {
            world.act(act);
            prop_assert!(world.live_probes() <= 1, "after {act:?}");
        }
    }

    #[test]
    fn failures_count_once_each_however_they_are_split(
        acts in prop::collection::vec(act(), 0..80),
        failures in prop::collection::vec(0..NODES, 0..5),
    ) {
        let mut world = World::new();
        let mut failures = failures.into_iter();
        let mut counted = 0;
        for act in acts.iter().filter(|act| !matches!(act, Act::Begin(_) | Act::Restart(_))) {
            if let Act::End(..) = act && let Some(index) = failures.next() {
                counted += 1;
                let node = &mut world.nodes[index];
                node.circuit.settle(Pass::Plain, Verdict::Faulty, Some(500), node.offset_ms);
                continue;
            }
            world.act(act);
        }
        world.calm();
        for node in &world.nodes {
            let view = node.circuit.view();
            prop_assert_eq!(!view.is_closed(), counted >= 3);
            if counted < 3 {
                prop_assert_eq!(view.consecutive_failures, counted);
            } else {
                prop_assert_eq!(view.opening.number, 1);
            }
        }
        prop_assert_eq!(world.told.len(), usize::from(counted >= 3), "told once, by one node");
    }

    #[test]
    fn a_fleet_whose_backend_has_healed_closes_the_circuit(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
        for _ in 0..4 {
            world.calm();
            world.act(&Act::Advance(COOLDOWN_MS * 2));
            for index in 0..NODES {
                world.act(&Act::Begin(index));
                world.calm();
                while !world.nodes[index].passes.is_empty() {
                    world.act(&Act::End(index, Verdict::Healthy));
                }
            }
        }
        world.calm();
        prop_assert!(world.nodes.iter().all(|node| node.circuit.view().is_closed()));
    }
}
