//! A fleet on paper: mock engines, several gateways and a trace of requests, under one policy after the other. What is
//! simulated is only what lies around a router: engines, the bus and the clock. Whom a request goes to is decided by
//! what decides it in a router that runs (`plan`, `affinity`, `plan::memory`), from figures that are as old and as
//! incomplete as they would be there.
//!
//! Guarantees: the same scenario and trace give the same report, on every machine; no clock is read, nothing is sent.

mod engine;
mod fleet;
mod gateway;
pub mod generate;
mod prefixes;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod trace;
mod world;

use report::{Outcome, Report};
use scenario::Scenario;
use trace::Trace;

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No line of the trace is of the scenario's model.
    #[error("the trace has no request of the model")]
    Empty,
    /// A request that no engine can ever take in.
    #[error("request {number} of the trace has {tokens} tokens, which is more than {endpoint} keeps at once")]
    TooLong {
        /// Its place in the trace, from 1.
        number: usize,
        /// Tokens of prompt and answer.
        tokens: u64,
        /// The endpoint whose cache is too small.
        endpoint: String,
    },
    /// A record of the simulated catalogue is not what a router reads: a mistake of ours.
    #[error("the simulated catalogue cannot be read")]
    Catalog(#[source] schemas::catalog::RecordError),
    /// A record of the simulated catalogue cannot be written: a mistake of ours.
    #[error("the simulated catalogue cannot be written")]
    Record(#[source] serde_json::Error),
    /// The plan has nobody for a request: a mistake of ours.
    #[error("nobody could be asked for request {number}")]
    Nobody {
        /// Its place in the trace, from 1.
        number: usize,
    },
}

/// Runs a trace under every policy of a scenario that was checked.
pub fn run(scenario: &Scenario, trace: &Trace) -> Result<Report, Error> {
    let trace = trace.of_model(scenario.model.as_deref());
    if trace.lines.is_empty() {
        return Err(Error::Empty);
    }
    fits(scenario, &trace)?;
    let ideal_tokens = prefixes::ideal_tokens(&trace, scenario.trace.block_tokens);
    let mut outcomes = Vec::with_capacity(scenario.policies.len());
    for policy in &scenario.policies {
        let served = world::run(scenario, policy, &trace)?;
        outcomes.push(Outcome::of(policy, &served, (scenario, ideal_tokens)));
    }
    Ok(Report::new(scenario, &trace, ideal_tokens, outcomes))
}

/// Every request fits into every engine: one that does not would wait for ever.
fn fits(scenario: &Scenario, trace: &Trace) -> Result<(), Error> {
    let kept = scenario.endpoints.iter().filter_map(|endpoint| {
        let engine = scenario.engines.get(&endpoint.engine)?;
        Some((engine.kv_tokens, endpoint))
    });
    let Some((kv_tokens, endpoint)) = kept.min_by_key(|(kv_tokens, _)| *kv_tokens) else {
        return Ok(());
    };
    // Blocks at the ends of prompt and answer are not full.
    let spare = scenario.trace.block_tokens.saturating_mul(2);
    let mut lines = trace.lines.iter().zip(1_usize..);
    let long = lines.find(|(line, _)| line.tokens().saturating_add(spare) > kv_tokens);
    long.map_or(Ok(()), |(line, number)| {
        Err(Error::TooLong {
            number,
            tokens: line.tokens(),
            endpoint: endpoint.name.clone(),
        })
    })
}

#[cfg(test)]
mod tests;
