//! The course of a simulation: what happens when. Events are taken in the order of their moments, and those of one moment
//! in the order in which they were foreseen, so that everything is decided by the scenario, the trace and the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::affinity::load::{Calls, record_key};
use schemas::affinity::record::Record;
use schemas::balance::draws::Draws;
use schemas::balance::profile::{self, Learned, Profile};
use schemas::catalog::Catalog;
use schemas::catalog::router::RouteWise;
use schemas::command::Offer;
use schemas::engine::Sample;
use schemas::id::{BackendId, EndpointId, ModelName};
use schemas::usage::Usage;

use super::Error;
use super::engine::{Did, Engine, Job};
use super::fleet;
use super::gateway::{Gateway, Sent, Time};
use super::scenario::{Policy, Scenario};
use super::trace::{Line, Trace};

/// When the first request arrives, in microseconds: clocks have run for a while.
const BEGIN_US: u64 = 60_000_000;

/// A request that was served.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Served {
    /// The place of the replica among all.
    pub(super) replica: usize,
    /// When it arrived, in microseconds.
    pub(super) arrived_us: u64,
    /// From there to its first token, in microseconds.
    pub(super) ttft_us: u64,
    /// From there to its last token, in microseconds.
    pub(super) whole_us: u64,
    /// Tokens of its prompt.
    pub(super) prompt_tokens: u64,
    /// Those of them that were in the engine's cache.
    pub(super) cached_tokens: u64,
    /// Tokens of its answer.
    pub(super) output_tokens: u64,
}

impl Served {
    /// What it used.
    pub(super) const fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.prompt_tokens.saturating_sub(self.cached_tokens),
            cached_tokens: self.cached_tokens,
            cache_write_tokens: 0,
            output_tokens: self.output_tokens,
            reasoning_tokens: 0,
        }
    }
}

/// What happens.
enum Event {
    /// A request of the trace arrives.
    Arrival(usize),
    /// An engine ends a step.
    Step(usize),
    /// The engines are read.
    Reading,
    /// Gateways hear what was read.
    Read(Vec<Sample>),
    /// A gateway looks whether it has calls to tell of.
    Telling(usize),
    /// The others hear of a gateway's calls.
    Told(usize, u64, Arc<[u8]>),
    /// The others hear where a session is.
    Session(usize, Arc<str>, u64, Record),
    /// What was learned of the model is told.
    Learning,
    /// Gateways hear of it.
    Learned(Arc<Profile>),
}

/// A request that is under way, or over.
#[derive(Default)]
struct Call<'g> {
    gateway: usize,
    sent: Option<Sent<'g>>,
    served: Served,
}

struct World<'g> {
    scenario: &'g Scenario,
    trace: &'g Trace,
    catalog: Catalog,
    /// What all offers have in common.
    offered: Offer,
    time: Arc<Time>,
    gateways: &'g [Gateway],
    replicas: Vec<BackendId>,
    /// The endpoint of each of them.
    endpoints: Vec<EndpointId>,
    engines: Vec<Engine>,
    calls: Vec<Call<'g>>,
    /// Requests that are not over.
    open: usize,
    events: BTreeMap<(u64, u64), Event>,
    foreseen: u64,
    revision: u64,
    /// What each gateway told last.
    told: Vec<Calls>,
    /// How endpoints are chosen by what they cost, where they are.
    terms: Option<RouteWise>,
    learned: Learned,
    draws: Draws,
}

/// Runs a trace under a policy.
pub(super) fn run(scenario: &Scenario, policy: &Policy, trace: &Trace) -> Result<Vec<Served>, Error> {
    let time = Arc::new(Time::default());
    time.advance(BEGIN_US);
    let gateways: Vec<Gateway> = (0..scenario.gateways).map(|_| Gateway::new(&time)).collect();
    let mut world = World {
        scenario,
        trace,
        catalog: fleet::catalog(scenario, policy)?,
        offered: fleet::offered(scenario)?,
        time,
        gateways: &gateways,
        replicas: replicas(scenario),
        endpoints: endpoints(scenario),
        engines: engines(scenario),
        calls: Vec::with_capacity(trace.lines.len()),
        open: trace.lines.len(),
        events: BTreeMap::new(),
        foreseen: 0,
        revision: 0,
        told: vec![Calls::default(); scenario.gateways],
        terms: policy.routewise.map(super::scenario::RouteWise::terms),
        learned: Learned::default(),
        draws: Draws::new(scenario.seed),
    };
    world.calls.resize_with(trace.lines.len(), Call::default);
    world.course()?;
    Ok(world.calls.iter().map(|call| call.served).collect())
}

/// The replicas of all endpoints, one endpoint after the other.
fn replicas(scenario: &Scenario) -> Vec<BackendId> {
    let replicas = scenario.endpoints.iter().flat_map(|endpoint| {
        let places = 0..endpoint.speeds_percent.len();
        places.map(move |replica| fleet::backend_id(endpoint, replica))
    });
    replicas.collect()
}

/// Their endpoints.
fn endpoints(scenario: &Scenario) -> Vec<EndpointId> {
    let endpoints = scenario.endpoints.iter().flat_map(|endpoint| {
        let id = EndpointId::from(endpoint.name.as_str());
        endpoint.speeds_percent.iter().map(move |_| id.clone())
    });
    endpoints.collect()
}

/// Their engines.
fn engines(scenario: &Scenario) -> Vec<Engine> {
    let kinds = scenario.endpoints.iter().filter_map(|endpoint| {
        let kind = scenario.engines.get(&endpoint.engine)?;
        Some(endpoint.speeds_percent.iter().map(move |speed| (kind, *speed)))
    });
    let block_tokens = scenario.trace.block_tokens;
    kinds
        .flatten()
        .map(|(kind, speed)| Engine::new(kind, speed, block_tokens))
        .collect()
}

impl World<'_> {
    /// From the first arrival to the end of the last answer.
    fn course(&mut self) -> Result<(), Error> {
        self.foresee(0, Event::Reading);
        let every_us = self.scenario.delays.calls_every_ms.saturating_mul(1_000);
        let gateways = u64::try_from(self.gateways.len()).unwrap_or(1).max(1);
        for (gateway, place) in (0..self.gateways.len()).zip(1..) {
            // Nodes were not started at the same moment.
            self.foresee(every_us.saturating_mul(place) / gateways, Event::Telling(gateway));
        }
        if self.terms.is_some() {
            self.foresee(0, Event::Learning);
        }
        self.arrive_next(0);
        while self.open > 0 {
            let Some(((at_us, _), event)) = self.events.pop_first() else {
                return Ok(());
            };
            self.time.advance(at_us);
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Arrival(number) => {
                self.arrive_next(number + 1);
                self.arrive(number)?;
            }
            Event::Step(replica) => self.step(replica),
            Event::Reading => {
                let samples = self.engines.iter().map(Engine::sample).collect();
                self.foresee_told(Event::Read(samples));
                let every_us = self.scenario.delays.engines_every_ms.saturating_mul(1_000);
                self.foresee(every_us, Event::Reading);
            }
            Event::Read(samples) => {
                for (backend, sample) in self.replicas.iter().zip(samples) {
                    for gateway in self.gateways {
                        gateway.hear(backend, sample);
                    }
                }
            }
            Event::Telling(gateway) => self.tell(gateway),
            Event::Told(by, revision, calls) => {
                let key = record_key(&by.to_string());
                for gateway in others(self.gateways, by) {
                    gateway.affinity.hear_calls((&key, revision), &calls);
                }
            }
            Event::Session(by, key, revision, record) => {
                for gateway in others(self.gateways, by) {
                    gateway.affinity.hear_session(&key, revision, record.clone());
                }
            }
            Event::Learning => self.learning(),
            Event::Learned(profile) => {
                for gateway in self.gateways {
                    gateway.learn(&profile);
                }
            }
        }
        Ok(())
    }

    /// An event so many microseconds from now.
    fn foresee(&mut self, in_us: u64, event: Event) {
        self.foreseen += 1;
        let at_us = self.time.now_us().saturating_add(in_us);
        self.events.insert((at_us, self.foreseen), event);
    }

    /// An event that comes over the bus.
    fn foresee_told(&mut self, event: Event) {
        self.foresee(self.scenario.delays.bus_ms.saturating_mul(1_000), event);
    }

    fn line(&self, number: usize) -> Option<&Line> {
        self.trace.lines.get(number)
    }

    fn arrive_next(&mut self, number: usize) {
        let Some(line) = self.line(number) else {
            return;
        };
        let at_us = BEGIN_US.saturating_add(line.at_ms.saturating_mul(1_000));
        let in_us = at_us.saturating_sub(self.time.now_us());
        self.foresee(in_us, Event::Arrival(number));
    }

    /// A request arrives at one of the gateways, which decides where it goes.
    fn arrive(&mut self, number: usize) -> Result<(), Error> {
        let place = self.draws.below(self.gateways.len());
        let draw = self.draws.next();
        let nobody = || Error::Nobody { number: number + 1 };
        let line = self.trace.lines.get(number).ok_or_else(nobody)?;
        let gateway = self.gateways.get(place).ok_or_else(nobody)?;
        let (offer, body) = fleet::offer(&self.offered, line, number);
        let sent = gateway.send(&self.catalog, (&offer, &body), draw);
        let sent = sent.ok_or_else(nobody)?;
        let replica = self.replicas.iter().position(|one| *one == sent.backend);
        let replica = replica.ok_or_else(nobody)?;
        let call = self.calls.get_mut(number).ok_or_else(nobody)?;
        *call = Call {
            gateway: place,
            sent: Some(sent),
            served: Served {
                replica,
                arrived_us: self.time.now_us(),
                prompt_tokens: line.prompt_tokens,
                output_tokens: line.output_tokens,
                ..Served::default()
            },
        };
        let job = Job {
            call: number,
            blocks: line.full_blocks(self.scenario.trace.block_tokens).into(),
            prompt_tokens: line.prompt_tokens,
            output_tokens: line.output_tokens,
        };
        if let Some(engine) = self.engines.get_mut(replica) {
            engine.take(job);
        }
        self.work(replica);
        let revision = &mut self.revision;
        let written = gateway.affinity.write_sessions(|| {
            *revision += 1;
            *revision
        });
        for (key, revision, record) in written {
            self.foresee_told(Event::Session(place, key, revision, record));
        }
        Ok(())
    }

    /// Lets an engine begin a step, if it does nothing and has something to do.
    fn work(&mut self, replica: usize) {
        let takes_us = self.engines.get_mut(replica).and_then(Engine::begin);
        if let Some(takes_us) = takes_us {
            self.foresee(takes_us, Event::Step(replica));
        }
    }

    fn step(&mut self, replica: usize) {
        let done = self.engines.get_mut(replica).map(Engine::end);
        for did in done.into_iter().flatten() {
            self.done(did);
        }
        self.work(replica);
    }

    fn done(&mut self, did: Did) {
        let now_us = self.time.now_us();
        let (Did::First { call, .. } | Did::Last { call }) = did;
        let Some(call) = self.calls.get_mut(call) else {
            return;
        };
        let took_us = now_us.saturating_sub(call.served.arrived_us);
        match did {
            Did::First { cached_tokens, .. } => {
                call.served.ttft_us = took_us;
                call.served.cached_tokens = cached_tokens;
                if let (Some(sent), Some(gateway)) = (&call.sent, self.gateways.get(call.gateway)) {
                    sent.visit.first_token();
                    gateway.answered(&sent.backend, took_us);
                }
            }
            Did::Last { .. } => {
                call.served.whole_us = took_us;
                self.open = self.open.saturating_sub(1);
                let (served, place, sent) = (call.served, call.gateway, call.sent.take());
                let (Some(mut sent), Some(gateway)) = (sent, self.gateways.get(place)) else {
                    return;
                };
                sent.visit.whole();
                if let Some(endpoint) = self.endpoints.get(served.replica) {
                    gateway.settle(sent.bet.take(), endpoint, &served.usage());
                }
                self.note(&served);
            }
        }
    }

    /// Learns from a request that is over, as from its event.
    fn note(&mut self, served: &Served) {
        let (Some(terms), Some(endpoint)) = (&self.terms, self.endpoints.get(served.replica)) else {
            return;
        };
        let call = profile::Call {
            model: ModelName::from(fleet::MODEL),
            at_ms: self.time.now_us() / 1_000,
            streamed: true,
            asked: vec![(endpoint.clone(), Ok(served.ttft_us))],
            tokens: Some((served.prompt_tokens, served.output_tokens)),
        };
        let legs: Vec<&EndpointId> = self.endpoints.iter().collect();
        self.learned.take(&call, terms, &legs);
    }

    /// Tells what was learned.
    fn learning(&mut self) {
        if let Some(terms) = &self.terms {
            let now_ms = self.time.now_us() / 1_000;
            let profile = self
                .learned
                .profile(&ModelName::from(fleet::MODEL), terms, now_ms);
            self.foresee_told(Event::Learned(profile.into()));
            self.foresee(
                self.scenario.delays.profiles_every_ms.saturating_mul(1_000),
                Event::Learning,
            );
        }
    }

    /// A gateway tells its calls, if they changed.
    fn tell(&mut self, by: usize) {
        let every_us = self.scenario.delays.calls_every_ms.saturating_mul(1_000);
        self.foresee(every_us, Event::Telling(by));
        let (Some(gateway), Some(told)) = (self.gateways.get(by), self.told.get_mut(by)) else {
            return;
        };
        let calls = gateway.affinity.told_calls();
        if *told == calls {
            return;
        }
        let Ok(bytes) = calls.encode() else {
            return;
        };
        *told = calls;
        self.revision += 1;
        self.foresee_told(Event::Told(by, self.revision, bytes.into()));
    }
}

fn others(gateways: &[Gateway], by: usize) -> impl Iterator<Item = &Gateway> {
    let gateways = gateways.iter().enumerate();
    gateways
        .filter(move |(place, _)| *place != by)
        .map(|(_, gateway)| gateway)
}
