//! A mock of an engine that batches continuously. It works in steps; a step says one token of every answer under way and
//! spends what is left of its tokens on prompts, in the order in which they were taken in. A request waits until there is
//! a place and room in the cache for all of its prompt and answer, so nobody is displaced later. What was read of prompts
//! stays in the cache, block by block, until there is no room for it; what was used longest ago goes first, and of one
//! prompt its end before its beginning.

mod cache;

use std::collections::VecDeque;
use std::sync::Arc;

use schemas::engine::Sample;

use super::prefixes::cached_tokens;
use super::scenario;
use cache::Cache;

/// A request as an engine sees it.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Its place in the trace.
    pub(super) call: usize,
    /// The full blocks of its prompt.
    pub(super) blocks: Arc<[u64]>,
    /// Tokens of its prompt.
    pub(super) prompt_tokens: u64,
    /// Tokens of its answer.
    pub(super) output_tokens: u64,
}

/// What an engine did for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    /// It said the first token.
    First {
        /// The request.
        call: usize,
        /// Tokens of its prompt that were in the cache.
        cached_tokens: u64,
    },
    /// It said the last one.
    Last {
        /// The request.
        call: usize,
    },
}

/// A request that was taken in.
#[derive(Debug)]
struct Run {
    job: Job,
    /// Leading blocks that were in the cache.
    known: usize,
    /// Blocks of the cache that it uses.
    held: Vec<u64>,
    /// Blocks that it has for itself.
    own: u64,
    /// Tokens of its prompt that are still to be read.
    unread: u64,
    /// Tokens of its answer that are still to be said.
    unsaid: u64,
    /// Tokens of its prompt that this step reads.
    reads: u64,
}

/// An engine.
#[derive(Debug)]
pub(super) struct Engine {
    kind: scenario::Engine,
    speed_percent: u64,
    block_tokens: u64,
    queue: VecDeque<Job>,
    running: Vec<Run>,
    cache: Cache,
    works: bool,
}

impl Engine {
    pub(super) fn new(kind: &scenario::Engine, speed_percent: u64, block_tokens: u64) -> Self {
        let block_tokens = block_tokens.max(1);
        Self {
            kind: kind.clone(),
            speed_percent: speed_percent.max(1),
            block_tokens,
            queue: VecDeque::new(),
            running: Vec::new(),
            cache: Cache::new(kind.kv_tokens / block_tokens),
            works: false,
        }
    }

    /// A request arrives.
    pub(super) fn take(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// Begins a step, unless one is under way or there is nothing to do: the microseconds that it takes.
    pub(super) fn begin(&mut self) -> Option<u64> {
        if self.works {
            return None;
        }
        while self.running.len() < self.kind.sequences_max && self.admit() {}
        if self.running.is_empty() {
            return None;
        }
        self.works = true;
        let says = self.running.iter().filter(|run| run.unread == 0).count();
        let says = u64::try_from(says).unwrap_or(u64::MAX);
        let mut left = self.kind.step_tokens_max.saturating_sub(says);
        for run in &mut self.running {
            run.reads = run.unread.min(left);
            left -= run.reads;
        }
        let reads: u64 = self.running.iter().map(|run| run.reads).sum();
        let reading_us = reads.saturating_mul(self.kind.prefill_ns_per_token) / 1_000;
        let saying_us = says.saturating_mul(self.kind.decode_us_per_token);
        let whole_us = self
            .kind
            .step_us
            .saturating_add(reading_us)
            .saturating_add(saying_us);
        Some((whole_us.saturating_mul(100) / self.speed_percent).max(1))
    }

    /// Ends the step: what was done in it.
    pub(super) fn end(&mut self) -> Vec<Did> {
        self.works = false;
        let mut did = Vec::new();
        for run in &mut self.running {
            let says = if run.unread == 0 {
                true
            } else {
                run.unread -= run.reads;
                run.unread == 0
            };
            if !says {
                continue;
            }
            if run.unsaid == run.job.output_tokens {
                run.read(&mut self.cache);
                let tokens = run.job.prompt_tokens;
                did.push(Did::First {
                    call: run.job.call,
                    cached_tokens: cached_tokens(run.known, self.block_tokens, tokens),
                });
            }
            run.unsaid = run.unsaid.saturating_sub(1);
            if run.unsaid == 0 {
                self.cache.give_back(&run.held, run.own);
                did.push(Did::Last { call: run.job.call });
            }
        }
        self.running.retain(|run| run.unsaid > 0);
        did
    }

    /// What it says of itself when it is asked.
    pub(super) fn sample(&self) -> Sample {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Sample {
            running: Some(count(self.running.len())),
            waiting: Some(count(self.queue.len())),
            kv_percent_milli: Some(self.cache.used_percent_milli()),
            ..Sample::default()
        }
    }

    /// Takes in the request that has waited longest; false when there is none, or no room for it.
    fn admit(&mut self) -> bool {
        let Some(job) = self.queue.front() else {
            return false;
        };
        let known = self.cache.known(&job.blocks);
        let held = job.blocks.get(..known).unwrap_or_default().to_vec();
        let whole = job.prompt_tokens.saturating_add(job.output_tokens);
        let blocks = whole.div_ceil(self.block_tokens);
        let own = blocks.saturating_sub(u64::try_from(known).unwrap_or(0));
        if !self.cache.reserve(&held, own) {
            return false;
        }
        let Some(job) = self.queue.pop_front() else {
            return false;
        };
        let cached = cached_tokens(known, self.block_tokens, job.prompt_tokens);
        self.running.push(Run {
            known,
            held,
            own,
            unread: job.prompt_tokens.saturating_sub(cached),
            unsaid: job.output_tokens,
            reads: 0,
            job,
        });
        true
    }
}

impl Run {
    /// The prompt was read: others may use its blocks from now on.
    fn read(&mut self, cache: &mut Cache) {
        let fresh = self.job.blocks.iter().skip(self.known);
        for block in fresh {
            // Another request may have read the same meanwhile: this one keeps its own copy.
            if cache.keep(*block) {
                self.own = self.own.saturating_sub(1);
                self.held.push(*block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
