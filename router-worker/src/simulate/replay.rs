//! Recorded decisions, made again under another policy. What was known when they were made is in their events
//! (`schemas::balance::snapshot`); a policy that looks at something else finds what was recorded of it, which may be
//! nothing, and decides as it would have with that.

use std::collections::BTreeMap;

use schemas::balance::Algorithm;
use schemas::balance::choice::decide;
use schemas::balance::decision::Decision;
use schemas::balance::snapshot::Snapshot;
use schemas::id::EndpointId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Decisions of one replay.
const DECISIONS_MAX: u64 = 10_000_000;

/// Another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How backends are chosen; as it was recorded where it is absent.
    pub algorithm: Option<Algorithm>,
    /// Sessions do not decide.
    pub without_sessions: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Replayed {
    /// Lines that were read.
    pub lines: u64,
    /// Those without a decision among several.
    pub without_choice: u64,
    /// Decisions that were made again.
    pub decisions: u64,
    /// Those of them that come out as they were recorded when nothing is changed: all of them, unless an event is not
    /// whole.
    pub as_recorded: u64,
    /// Those that come out otherwise under the policy.
    pub differ: u64,
    /// Those of whose candidates something is not recorded that the policy looks at.
    pub incomplete: u64,
    /// Requests and tokens, by backend.
    pub backends: BTreeMap<String, Moved>,
}

/// What a backend had and would have had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Moved {
    /// Requests that were sent there first.
    pub requests: u64,
    /// Requests that would have been.
    pub requests_then: u64,
    /// Tokens of their prompts and answers.
    pub tokens: u64,
    /// And then.
    pub tokens_then: u64,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub message: String,
}

/// What is read of a line: an event, the answer of `GET /api/v1/logs/{id}`, or the fact alone.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Fact {
    #[serde(default)]
    decision: Option<Decision>,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    cached_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

impl Fact {
    fn tokens(&self) -> u64 {
        [self.cached_tokens, self.cache_write_tokens, self.output_tokens]
            .iter()
            .fold(self.input_tokens, |sum, tokens| sum.saturating_add(*tokens))
    }
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    policy: Policy,
    /// Turns that were taken so far: what was recorded of them belongs to other choices.
    turns: BTreeMap<EndpointId, u64>,
    replayed: Replayed,
}

impl Replay {
    /// Nothing read yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            turns: BTreeMap::new(),
            replayed: Replayed::default(),
        }
    }

    /// One line more; an empty one is passed over.
    pub fn line(&mut self, text: &str) -> Result<(), Error> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.replayed.lines += 1;
        let line = self.replayed.lines;
        let wrong = |message: String| Error { line, message };
        if line > DECISIONS_MAX {
            return Err(wrong(format!("there are more than {DECISIONS_MAX} lines")));
        }
        let fact = fact(text).map_err(|error| wrong(error.to_string()))?;
        let tokens = fact.tokens();
        let Some(decision) = fact.decision.filter(|decision| decision.snapshot.is_some()) else {
            self.replayed.without_choice += 1;
            return Ok(());
        };
        self.decision(&decision, tokens);
        Ok(())
    }

    /// What came of it.
    pub fn end(self) -> Replayed {
        self.replayed
    }

    fn decision(&mut self, decision: &Decision, tokens: u64) {
        let Some(snapshot) = &decision.snapshot else {
            return;
        };
        self.replayed.decisions += 1;
        let recorded = decision.order.first();
        if decision.replay().1 == recorded {
            self.replayed.as_recorded += 1;
        }
        let changed = self.changed(snapshot);
        if is_incomplete(&changed) {
            self.replayed.incomplete += 1;
        }
        let choice = decide(&changed);
        if let Some(leg) = choice.turned.and_then(|leg| changed.legs.get(leg)) {
            *self.turns.entry(leg.endpoint.clone()).or_default() += 1;
        }
        let then = changed.candidates.get(choice.chosen.unwrap_or(0));
        let then = then.map(|candidate| &candidate.backend);
        if then != recorded {
            self.replayed.differ += 1;
        }
        if let Some(backend) = recorded {
            let moved = self.replayed.backends.entry(backend.to_string()).or_default();
            moved.requests += 1;
            moved.tokens = moved.tokens.saturating_add(tokens);
        }
        if let Some(backend) = then {
            let moved = self.replayed.backends.entry(backend.to_string()).or_default();
            moved.requests_then += 1;
            moved.tokens_then = moved.tokens_then.saturating_add(tokens);
        }
    }

    /// What was known, for the policy.
    fn changed(&self, snapshot: &Snapshot) -> Snapshot {
        let mut changed = snapshot.clone();
        for leg in &mut changed.legs {
            let Some(algorithm) = self.policy.algorithm.filter(|one| *one != leg.algorithm) else {
                continue;
            };
            leg.algorithm = algorithm;
            leg.turn = self.turns.get(&leg.endpoint).copied().unwrap_or(0);
        }
        if self.policy.without_sessions {
            changed.session = None;
        }
        changed
    }
}

fn fact(text: &str) -> Result<Fact, serde_json::Error> {
    let told: Told<'_> = serde_json::from_str(text)?;
    let event = match told.event {
        Some(event) => serde_json::from_str(event.get())?,
        None => told,
    };
    serde_json::from_str(event.data.map_or(text, RawValue::get))
}

/// Something is not recorded that the algorithms look at: a router records what its own look at.
fn is_incomplete(snapshot: &Snapshot) -> bool {
    let lacks = |algorithm: Algorithm, leg: usize| {
        let mut own = snapshot
            .candidates
            .iter()
            .filter(move |candidate| candidate.leg == leg);
        match algorithm {
            Algorithm::Weighted | Algorithm::RoundRobin | Algorithm::LeastConnections => false,
            Algorithm::EngineAware => own.any(|candidate| candidate.engine.is_none()),
            Algorithm::PowerOfTwo => own.any(|candidate| candidate.ttft_us.is_none()),
            Algorithm::PrefixAware => snapshot.prefix.is_none(),
        }
    };
    let mut legs = snapshot.legs.iter().enumerate();
    legs.any(|(place, leg)| lacks(leg.algorithm, place))
}

#[cfg(test)]
mod tests;
