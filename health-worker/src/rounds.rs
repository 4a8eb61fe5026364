//! The rounds of whoever leads: asks everybody who is due, a bounded number at once, and writes what was found out. What is
//! due and what follows is decided in [`crate::asked`]; here it meets the wire, the buckets and the log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use bus::Expected;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use schemas::engine::{self, FiguresAnswer, FiguresQuery, SAMPLE_AGE_MS_MAX};
use schemas::event::health::{Cause, EndpointChanged};
use schemas::health::{
    HOST_AGE_MS_MAX, Host, RECOVERED_AGE_MS_MAX, Recovered, decode, encode, host_key, probed_key,
    recovered_key,
};
use schemas::id::{BackendId, DEFAULT_TENANT, EndpointId, TenantId};
use schemas::subject::{HEALTH_BUCKET, QUERY_FIGURES};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, error, info, warn};

use crate::asked::{Asked, Figures, Wanted};
use crate::engine::sample;
use crate::http::{Client, Question};
use crate::seen::{Known, Seen};
use crate::target::targets;
use crate::thermometer::{Thermometer, accelerators};
use crate::{Config, FIGURES_BYTES_MAX, Ports};

/// How often it is looked who is due.
const TICK: Duration = Duration::from_millis(100);
/// How long a server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a router may take that asks instead: a moment more than it gives the server.
const ROUTER_WITHIN: Duration = Duration::from_millis(2_500);
/// Servers that are asked for their figures at once.
const FIGURES_AT_ONCE: usize = 10;
/// Servers that are asked at once whether they live.
const PROBES_AT_ONCE: usize = 32;
/// How often an exporter of temperatures is asked, in milliseconds.
const TEMPERATURES_EVERY_MS: u64 = 10_000;
/// How long a write may take.
const WRITE_WITHIN: Duration = Duration::from_secs(1);

/// What a process needs to lead.
pub(crate) struct Rounds<'a> {
    config: &'a Config,
    ports: &'a Ports,
    client: Client,
}

/// Whose figures are asked for.
struct Whom {
    query: FiguresQuery,
    /// Whoever calls it proves that.
    is_closed: bool,
}

/// How something that was begun ended.
enum Done {
    Figures {
        backend: BackendId,
        began_ms: u64,
        said: Figures,
    },
    Probe {
        backend: BackendId,
        began_ms: u64,
        passed: bool,
    },
    Written {
        backend: BackendId,
        /// What is written now, where that is known.
        known: Option<Known>,
    },
    /// Nothing is written of a backend any more, if that is sure.
    Forgotten {
        backend: BackendId,
        sure: bool,
    },
    Temperature,
    Told,
}

impl<'a> Rounds<'a> {
    pub(crate) const fn new(config: &'a Config, ports: &'a Ports, client: Client) -> Self {
        Self {
            config,
            ports,
            client,
        }
    }

    /// Goes round until it is dropped.
    pub(crate) async fn run(&self) {
        let seen = Seen::default();
        let mut round = Round {
            rounds: self,
            seen: &seen,
            asked: HashMap::new(),
            revision: None,
            figures: 0,
            probes: 0,
            temperatures_due_ms: 0,
            temperatures: 0,
            forgetting: Vec::new(),
            running: FuturesUnordered::new(),
        };
        tokio::select! {
            () = seen.follow(&self.ports.kv) => {}
            () = round.go() => {}
        }
    }

    fn now_ms(&self) -> u64 {
        self.ports.clock.monotonic_ms()
    }

    /// Writes a record that lives so long, and tells whether that is sure.
    async fn put_for(&self, key: &str, bytes: Vec<u8>, life_ms: u64) {
        let put = self.ports.kv.put_for(
            (HEALTH_BUCKET, key),
            Bytes::from(bytes),
            Expected::Any,
            Duration::from_millis(life_ms),
        );
        if let Ok(Err(problem)) = timeout(WRITE_WITHIN, put).await {
            debug!(
                error = &problem as &dyn std::error::Error,
                "what was found out cannot be shared"
            );
        }
    }

    async fn ask_figures(&self, whom: Whom, question: Question) -> Done {
        let began_ms = self.now_ms();
        let answer = self.client.ask(&question, FIGURES_BYTES_MAX, ANSWER_WITHIN).await;
        let backend = whom.query.backend.clone();
        let said = match answer {
            Ok(answer) => {
                let at_ms = u64::try_from(self.ports.clock.now().millis()).unwrap_or(0);
                let text = match answer.status {
                    401 | 403 if whom.is_closed => self.ask_router(&whom.query).await.map(Cow::Owned),
                    _ => answer.is_success().then(|| String::from_utf8_lossy(&answer.body)),
                };
                match text
                    .and_then(|text| sample(&text, at_ms))
                    .map(|sample| sample.encode())
                {
                    Some(Ok(bytes)) => {
                        let key = engine::record_key(&backend);
                        self.put_for(&key, bytes, SAMPLE_AGE_MS_MAX).await;
                        Figures::Told
                    }
                    _ => Figures::Others,
                }
            }
            Err(problem) => {
                debug!(
                    backend.id = %backend,
                    error = &problem as &dyn std::error::Error,
                    "{backend} does not tell its figures"
                );
                Figures::Silent
            }
        };
        Done::Figures {
            backend,
            began_ms,
            said,
        }
    }

    /// What an engine says that wants to know who asks: a router asks it, for there is no credential here.
    async fn ask_router(&self, query: &FiguresQuery) -> Option<String> {
        let question = encode(query).ok()?;
        let asked = self
            .ports
            .bus
            .ask(QUERY_FIGURES, Bytes::from(question), ROUTER_WITHIN);
        let answer: FiguresAnswer = match asked.await {
            Ok(answer) => decode(&answer)?,
            Err(problem) => {
                debug!(
                    backend.id = %query.backend,
                    error = &problem as &dyn std::error::Error,
                    "no router asks {} for its figures",
                    query.backend
                );
                return None;
            }
        };
        answer.text
    }

    async fn probe(&self, backend: BackendId, question: Question) -> Done {
        let began_ms = self.now_ms();
        let passed = match self.client.ask(&question, 0, ANSWER_WITHIN).await {
            Ok(answer) => answer.is_success(),
            Err(problem) => {
                debug!(
                    backend.id = %backend,
                    error = &problem as &dyn std::error::Error,
                    "{backend} does not answer a probe"
                );
                false
            }
        };
        Done::Probe {
            backend,
            began_ms,
            passed,
        }
    }

    async fn write(&self, wanted: Wanted) -> Done {
        let backend = wanted.record.backend.clone();
        let expected = wanted.expected.map_or(Expected::Absent, Expected::Revision);
        let (key, known) = (probed_key(&backend), |revision| Known {
            revision,
            out: wanted.record.out,
            endpoint_id: wanted.record.endpoint_id.clone(),
        });
        let written = match encode(&wanted.record) {
            Ok(bytes) => {
                let put = self
                    .ports
                    .kv
                    .put(HEALTH_BUCKET, &key, Bytes::from(bytes), expected);
                timeout(WRITE_WITHIN, put).await
            }
            // Plain data has no way to fail.
            Err(_) => return Done::Written { backend, known: None },
        };
        // What is not sure the watch tells, and it is tried again.
        let known = written.ok().and_then(Result::ok).map(known);
        Done::Written { backend, known }
    }

    async fn recovered(&self, record: Recovered) -> Done {
        info!(
            backend.id = %record.backend,
            "{} answers probes again: its circuit need not be waited for",
            record.backend
        );
        if let Ok(bytes) = encode(&record) {
            let key = recovered_key(&record.backend);
            self.put_for(&key, bytes, RECOVERED_AGE_MS_MAX).await;
        }
        Done::Told
    }

    /// Takes away what is written of a backend that nobody asks any more.
    async fn forget(&self, backend: BackendId, revision: u64) -> Done {
        let key = probed_key(&backend);
        let deletion = self
            .ports
            .kv
            .delete(HEALTH_BUCKET, &key, Expected::Revision(revision));
        let sure = matches!(timeout(WRITE_WITHIN, deletion).await, Ok(Ok(_)));
        Done::Forgotten { backend, sure }
    }

    async fn temperature(&self, thermometer: &Thermometer) -> Done {
        let question = Question {
            url: thermometer.url.clone(),
            // An operator of this machine wrote the address.
            guarded: false,
        };
        let answer = self.client.ask(&question, FIGURES_BYTES_MAX, ANSWER_WITHIN).await;
        match answer {
            Ok(answer) if answer.is_success() => {
                let host = Host {
                    host: thermometer.host.clone(),
                    gpus: accelerators(&String::from_utf8_lossy(&answer.body)),
                };
                if let Ok(bytes) = encode(&host) {
                    self.put_for(&host_key(&host.host), bytes, HOST_AGE_MS_MAX).await;
                }
            }
            Ok(answer) => debug!(
                host = %thermometer.host,
                status = answer.status,
                "the temperatures of {} are not told",
                thermometer.host
            ),
            Err(problem) => debug!(
                host = %thermometer.host,
                error = &problem as &dyn std::error::Error,
                "the temperatures of {} are not told",
                thermometer.host
            ),
        }
        Done::Temperature
    }

    /// Tells that a backend is left out, or is back.
    fn tell(
        &self,
        (endpoint_id, backend): (&EndpointId, &BackendId),
        (out, failures): (bool, u32),
        cause: Cause,
    ) {
        if out {
            warn!(backend.id = %backend, failures, "{backend} fails its probes and is left out");
        } else {
            info!(backend.id = %backend, "{backend} is asked again");
        }
        let changed = EndpointChanged {
            endpoint_id: endpoint_id.clone(),
            backend: backend.clone(),
            healthy: !out,
            cause,
            failures,
            at: self.ports.clock.now(),
            node: self.config.node.clone(),
        };
        let tenant = TenantId::from(DEFAULT_TENANT);
        if let Err(problem) = self.ports.spool.append(&tenant, self.ports.clock.now(), &changed) {
            error!(
                error = &problem as &dyn std::error::Error,
                "a change of {backend} is missing in the log"
            );
        }
    }
}

/// The rounds under way.
struct Round<'a> {
    rounds: &'a Rounds<'a>,
    seen: &'a Seen,
    asked: HashMap<BackendId, Asked>,
    /// The catalogue that `asked` is made of.
    revision: Option<u64>,
    /// Questions under way.
    figures: usize,
    probes: usize,
    temperatures_due_ms: u64,
    temperatures: usize,
    /// Records that are being taken away.
    forgetting: Vec<BackendId>,
    running: FuturesUnordered<BoxFuture<'a, Done>>,
}

impl Round<'_> {
    /// Never returns.
    async fn go(&mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    // Before what is written is known, nobody knows who is left out.
                    if self.seen.is_current() {
                        self.look();
                    }
                }
                Some(done) = self.running.next(), if !self.running.is_empty() => self.take(done),
            }
        }
    }

    fn look(&mut self) {
        self.renew();
        let now_ms = self.rounds.now_ms();
        self.ask_figures(now_ms);
        self.probe(now_ms);
        self.ask_temperatures(now_ms);
        self.settle(now_ms);
        self.forget();
    }

    /// Asks whom the catalogue names now.
    fn renew(&mut self) {
        let catalog = self.rounds.ports.catalog.load();
        let started = self.revision.is_none();
        if self.revision.replace(catalog.revision) == Some(catalog.revision) {
            return;
        }
        let (now_ms, now) = (self.rounds.now_ms(), self.rounds.ports.clock.now());
        let mut before = std::mem::take(&mut self.asked);
        for target in targets(&catalog, self.rounds.config.engines) {
            let backend = target.backend.clone();
            let asked = before.remove(&backend).filter(|asked| asked.target == target);
            let asked = asked.unwrap_or_else(|| {
                let known = self.seen.probed(&backend);
                Asked::new(target, known.as_ref(), (now_ms, now, started))
            });
            self.asked.insert(backend, asked);
        }
    }

    fn ask_figures(&mut self, now_ms: u64) {
        let due = self.asked.values().filter_map(|asked| {
            let target = &asked.target;
            let (since_ms, question) = (asked.figures_due(now_ms)?, target.figures.clone()?);
            let query = FiguresQuery {
                endpoint: target.endpoint_id.clone(),
                backend: target.backend.clone(),
            };
            let is_closed = target.is_closed;
            Some((since_ms, Whom { query, is_closed }, question))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(since_ms, ..)| *since_ms);
        let room = FIGURES_AT_ONCE.saturating_sub(self.figures);
        for (_, whom, question) in due.into_iter().take(room) {
            if let Some(asked) = self.asked.get_mut(&whom.query.backend) {
                asked.begin_figures();
            }
            self.figures += 1;
            let rounds = self.rounds;
            self.running.push(Box::pin(rounds.ask_figures(whom, question)));
        }
    }

    fn probe(&mut self, now_ms: u64) {
        for asked in self.asked.values_mut() {
            if self.probes >= PROBES_AT_ONCE {
                return;
            }
            let backend = &asked.target.backend;
            let is_open = self.seen.opening(backend).is_some();
            let Some(question) = asked
                .target
                .alive
                .clone()
                .filter(|_| asked.is_probe_due(is_open, now_ms))
            else {
                continue;
            };
            let backend = backend.clone();
            asked.begin_probe();
            self.probes += 1;
            let rounds = self.rounds;
            self.running.push(Box::pin(rounds.probe(backend, question)));
        }
    }

    fn ask_temperatures(&mut self, now_ms: u64) {
        if self.temperatures > 0 || now_ms < self.temperatures_due_ms {
            return;
        }
        self.temperatures_due_ms = now_ms.saturating_add(TEMPERATURES_EVERY_MS);
        let rounds = self.rounds;
        for thermometer in &rounds.config.thermometers {
            self.temperatures += 1;
            self.running.push(Box::pin(rounds.temperature(thermometer)));
        }
    }

    /// Has written what is not written as it should be, and tells what has become another.
    fn settle(&mut self, now_ms: u64) {
        let rounds = self.rounds;
        let now = rounds.ports.clock.now();
        for (backend, asked) in &mut self.asked {
            let known = self.seen.probed(backend);
            if let Some(news) = asked.news(known.as_ref()) {
                let whom = (&asked.target.endpoint_id, backend);
                rounds.tell(whom, news, Cause::Probe);
            }
            let wanted = asked.wanted(known.as_ref(), (&rounds.config.node, now, now_ms));
            if let Some(wanted) = wanted {
                self.running.push(Box::pin(rounds.write(wanted)));
            }
        }
    }

    /// Takes away what is written of those whom nobody asks any more.
    fn forget(&mut self) {
        let is_asked = |backend: &BackendId| {
            let checked = |asked: &Asked| asked.target.check.is_some();
            self.forgetting.contains(backend) || self.asked.get(backend).is_some_and(checked)
        };
        let rounds = self.rounds;
        for (backend, known) in self.seen.unasked(&is_asked) {
            self.forgetting.push(backend.clone());
            if known.out && self.asked.contains_key(&backend) {
                rounds.tell((&known.endpoint_id, &backend), (false, 0), Cause::Unasked);
            }
            self.running
                .push(Box::pin(rounds.forget(backend, known.revision)));
        }
    }

    fn take(&mut self, done: Done) {
        let now_ms = self.rounds.now_ms();
        match done {
            Done::Figures {
                backend,
                began_ms,
                said,
            } => {
                self.figures = self.figures.saturating_sub(1);
                if let Some(asked) = self.asked.get_mut(&backend) {
                    asked.end_figures(said, (began_ms, now_ms));
                }
            }
            Done::Probe {
                backend,
                began_ms,
                passed,
            } => {
                self.probes = self.probes.saturating_sub(1);
                self.probed(&backend, passed, (began_ms, now_ms));
                self.settle(now_ms);
            }
            Done::Written { backend, known } => {
                if let Some(asked) = self.asked.get_mut(&backend) {
                    asked.wrote(known.as_ref().map(|known| known.revision));
                }
                if let Some(known) = known {
                    self.seen.note(&backend, known);
                }
            }
            Done::Forgotten { backend, sure } => {
                self.forgetting.retain(|other| *other != backend);
                if sure {
                    self.seen.forget(&backend);
                }
            }
            Done::Temperature => self.temperatures = self.temperatures.saturating_sub(1),
            Done::Told => {}
        }
    }

    fn probed(&mut self, backend: &BackendId, passed: bool, times: (u64, u64)) {
        let opening = self.seen.opening(backend);
        let Some(asked) = self.asked.get_mut(backend) else {
            return;
        };
        if asked.end_probe(passed, opening.as_ref(), times)
            && let Some(opening) = opening
        {
            let record = Recovered {
                backend: backend.clone(),
                endpoint_id: asked.target.endpoint_id.clone(),
                opening,
            };
            let rounds = self.rounds;
            self.running.push(Box::pin(rounds.recovered(record)));
        }
    }
}

#[cfg(test)]
mod tests;
