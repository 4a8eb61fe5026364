//! Prompts that engines have yet to read, as one router knows them. A long prompt occupies an engine for as long as it
//! takes to read it, which neither counted connections nor weights show; so of two backends that the weights draw, the
//! one with less to read gets the call, and the longest prompts of all, elephants, do not queue up behind each other.
//!
//! What counts is the part of a prompt that the backend has not read before: the caller's last prompt there is taken
//! off, when it belongs to the same conversation. A call counts from its start to its first token.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::id::BackendId;

/// The priority of a call for engines that schedule by it; one that differs by 10 displaces.
const PRIORITY_NORMAL: u8 = 20;
const PRIORITY_LARGE: u8 = 15;
const PRIORITY_ELEPHANT: u8 = 0;
/// Prompts whose reading is remembered.
const MEMORIES_MAX: usize = 50_000;

/// From which sizes on what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Tokens in flight at a backend below which the weights alone decide. A prompt of so many is large.
    pub intervene_tokens: u64,
    /// Tokens of an elephant.
    pub elephant_tokens: u64,
    /// Elephants that one backend reads at a time.
    pub elephants_max: u64,
    /// How long what a caller sent to a backend is taken to be cached there, in milliseconds.
    pub memory_ms: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            intervene_tokens: 50_000,
            elephant_tokens: 200_000,
            elephants_max: 1,
            memory_ms: 1_200_000,
        }
    }
}

impl Terms {
    /// The priority of a call whose backend has so many tokens of it to read.
    pub const fn priority(&self, tokens: u64) -> u8 {
        if tokens >= self.elephant_tokens {
            PRIORITY_ELEPHANT
        } else if tokens >= self.intervene_tokens {
            PRIORITY_LARGE
        } else {
            PRIORITY_NORMAL
        }
    }
}

/// A prompt as the plan knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Who sends it: his virtual key, by its id, with his tenant.
    pub caller: Arc<str>,
    /// How its conversation begins, see [`super::opening::Opening::l1`].
    pub conversation: Option<[u8; 16]>,
    /// Its estimated tokens.
    pub tokens: u64,
}

/// What a backend has to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Tokens that it has not read before.
    pub tokens: u64,
    /// Elephants among the prompts.
    pub elephants: u64,
}

/// A call that a backend reads.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease(u64);

#[derive(Debug, Clone)]
struct Reading {
    backend: BackendId,
    prompt: Prompt,
    load: Load,
    /// Its first token came.
    read: bool,
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    conversation: Option<[u8; 16]>,
    tokens: u64,
    at_ms: u64,
}

type Place = (Arc<str>, BackendId);

/// What one router's backends have to read and have read. Times are milliseconds on the router's monotonic clock.
#[derive(Debug, Clone, Default)]
pub struct Prefill {
    terms: Terms,
    loads: BTreeMap<BackendId, Load>,
    readings: BTreeMap<u64, Reading>,
    leases: u64,
    memories: BTreeMap<Place, Memory>,
    /// Memories in the order in which they were made, the oldest first.
    order: VecDeque<(Place, u64)>,
}

impl Prefill {
    /// Nothing read yet.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            ..Self::default()
        }
    }

    /// What a backend has to read.
    pub fn load(&self, backend: &BackendId) -> Load {
        self.loads.get(backend).copied().unwrap_or_default()
    }

    /// The tokens of a prompt that a backend would have to read.
    pub fn unread(&self, prompt: &Prompt, backend: &BackendId, now_ms: u64) -> u64 {
        let place = (Arc::clone(&prompt.caller), backend.clone());
        let known = self.memories.get(&place).filter(|memory| {
            let fresh = now_ms.saturating_sub(memory.at_ms) < self.terms.memory_ms;
            fresh && memory.conversation.is_some() && memory.conversation == prompt.conversation
        });
        let cached = known.map_or(0, |memory| memory.tokens);
        prompt.tokens.saturating_sub(cached)
    }

    /// The priority of a prompt at a backend.
    pub fn priority(&self, prompt: &Prompt, backend: &BackendId, now_ms: u64) -> u8 {
        self.terms.priority(self.unread(prompt, backend, now_ms))
    }

    /// Whether a backend is not to be asked for this prompt, unless all are such: it is an elephant, and the backend reads
    /// as many of those as it may.
    pub fn is_crowded(&self, prompt: &Prompt, backend: &BackendId, now_ms: u64) -> bool {
        let is_elephant = self.unread(prompt, backend, now_ms) >= self.terms.elephant_tokens;
        is_elephant && self.load(backend).elephants >= self.terms.elephants_max
    }

    /// A backend begins to read a prompt.
    pub fn begin(&mut self, prompt: Prompt, backend: &BackendId, now_ms: u64) -> Lease {
        let tokens = self.unread(&prompt, backend, now_ms);
        let load = Load {
            tokens,
            elephants: u64::from(tokens >= self.terms.elephant_tokens),
        };
        let sum = self.loads.entry(backend.clone()).or_default();
        sum.tokens = sum.tokens.saturating_add(load.tokens);
        sum.elephants += load.elephants;
        self.leases += 1;
        let reading = Reading {
            backend: backend.clone(),
            prompt,
            load,
            read: false,
        };
        self.readings.insert(self.leases, reading);
        Lease(self.leases)
    }

    /// The first token came: the prompt is read. May be said more than once.
    pub fn first_token(&mut self, lease: &Lease) {
        if let Some(reading) = self.readings.get_mut(&lease.0)
            && !reading.read
        {
            reading.read = true;
            let (backend, load) = (reading.backend.clone(), reading.load);
            self.give_back(&backend, load);
        }
    }

    /// The call is over. `whole`: it was answered, so that the backend has the prompt in its cache.
    pub fn end(&mut self, lease: &Lease, whole: bool, now_ms: u64) {
        let Some(reading) = self.readings.remove(&lease.0) else {
            return;
        };
        if !reading.read {
            self.give_back(&reading.backend, reading.load);
        }
        if whole {
            self.remember(reading, now_ms);
        }
    }

    /// A backend failed, so its cache may be gone: nothing is taken to be in it. What only waited in a queue says
    /// nothing of that kind.
    pub fn forget(&mut self, backend: &BackendId) {
        self.memories.retain(|(_, known), _| known != backend);
    }

    fn give_back(&mut self, backend: &BackendId, load: Load) {
        let Some(sum) = self.loads.get_mut(backend) else {
            return;
        };
        sum.tokens = sum.tokens.saturating_sub(load.tokens);
        sum.elephants = sum.elephants.saturating_sub(load.elephants);
        if *sum == Load::default() {
            self.loads.remove(backend);
        }
    }

    fn remember(&mut self, reading: Reading, now_ms: u64) {
        let place = (reading.prompt.caller, reading.backend);
        let memory = Memory {
            conversation: reading.prompt.conversation,
            tokens: reading.prompt.tokens,
            at_ms: now_ms,
        };
        self.memories.insert(place.clone(), memory);
        self.order.push_back((place, now_ms));
        while self.order.len() > MEMORIES_MAX {
            let Some((place, at_ms)) = self.order.pop_front() else {
                return;
            };
            if self
                .memories
                .get(&place)
                .is_some_and(|memory| memory.at_ms == at_ms)
            {
                self.memories.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests;
