//! How many calls run at once with one credential: as many as its provider bears, which is found out by trying. A call
//! that is answered with 429 lowers the limit by one, a row of calls that went well raises it by one; whoever finds no
//! room waits for his turn, first come first served.
//!
//! Guarantees: no more calls run than the limit, unless it was lowered while they ran; a slot is given back exactly
//! once, whatever becomes of the request; nobody passes by those who wait. Engines in one's own network have no limit:
//! they have a queue of their own.

use std::collections::VecDeque;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::catalog::{CredentialRef, Endpoint};
use schemas::secret::Secret;
use tokio::sync::oneshot;
use tracing::info;

use crate::config::Concurrency;
use crate::metrics::Metrics;

mod local;

pub(crate) use local::is_local;

/// Credentials that are remembered; beyond, all are forgotten.
const BUCKETS_MAX: usize = 10_000;
/// Requests that wait for one credential; beyond, there is no waiting.
const WAITERS_MAX: usize = 4_096;

/// What the status of an answer says about the number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    /// It is borne.
    Fine,
    /// It is too high.
    TooMany,
}

impl Hint {
    const fn of(status: Option<u16>) -> Option<Self> {
        match status {
            Some(200) => Some(Self::Fine),
            Some(429) => Some(Self::TooMany),
            _ => None,
        }
    }
}

/// The limit of one credential: pure.
#[derive(Debug)]
struct Limit {
    settings: Concurrency,
    /// Calls that may run at once now.
    most: u32,
    running: u32,
    /// Calls that went well since the limit was last changed.
    fine: u32,
}

impl Limit {
    const fn new(settings: Concurrency) -> Self {
        Self {
            settings,
            most: settings.initial,
            running: 0,
            fine: 0,
        }
    }

    const fn has_room(&self) -> bool {
        self.running < self.most
    }

    /// Takes a hint; gives the limit before, where it is another now.
    fn hear(&mut self, hint: Hint) -> Option<u32> {
        let before = self.most;
        match hint {
            Hint::TooMany => {
                self.fine = 0;
                self.most = self.most.saturating_sub(1).max(1);
            }
            Hint::Fine => {
                self.fine += 1;
                if self.fine >= self.settings.raise_after {
                    self.fine = 0;
                    self.most = self.most.saturating_add(1).min(self.settings.max);
                }
            }
        }
        (self.most != before).then_some(before)
    }
}

/// The calls of one credential.
#[derive(Debug)]
struct Bucket {
    name: Arc<str>,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl State {
    /// Lets in who waits, as far as there is room.
    fn admit(&mut self) {
        while self.limit.has_room() {
            let Some(turn) = self.waiting.pop_front() else {
                return;
            };
            if turn.send(()).is_ok() {
                self.limit.running += 1;
            }
        }
    }
}

impl Bucket {
    fn hear(&self, hint: Hint) {
        let mut state = self.state.lock();
        let Some(before) = state.limit.hear(hint) else {
            return;
        };
        let limit = state.limit.most;
        info!(
            credential.name = %self.name,
            before,
            limit,
            running = state.limit.running,
            waiting = state.waiting.len(),
            reason = if limit < before { "429" } else { "probe" },
            "the limit of concurrent calls with a credential changed"
        );
        self.metrics.concurrency(&self.name, limit);
        state.admit();
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.limit.running = state.limit.running.saturating_sub(1);
        state.admit();
    }
}

/// The limits of all credentials.
#[derive(Debug)]
pub(crate) struct Limiter {
    settings: Option<Concurrency>,
    metrics: Metrics,
    /// Makes keys of secrets that are worth nothing to others.
    hasher: RandomState,
    /// By provider and credential: what two endpoints of one provider share counts for both.
    buckets: DashMap<(Arc<str>, u64), Arc<Bucket>>,
}

impl Limiter {
    /// `settings`: `None` for no limits at all.
    pub(crate) fn new(settings: Option<Concurrency>, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            hasher: RandomState::new(),
            buckets: DashMap::new(),
        }
    }

    /// Longest wait for a slot.
    pub(crate) fn wait_max(&self) -> Option<std::time::Duration> {
        self.settings.map(|settings| settings.wait)
    }

    /// Where calls to a backend of an endpoint with a credential enter.
    pub(crate) fn door(
        &self,
        endpoint: &Endpoint,
        base_url: &str,
        credential: Option<(&CredentialRef, &Secret<String>)>,
    ) -> Door {
        match self.settings {
            Some(settings) if settings.local || !is_local(base_url) => {
                Door(Some(self.bucket(settings, endpoint, credential)))
            }
            _ => Door(None),
        }
    }

    fn bucket(
        &self,
        settings: Concurrency,
        endpoint: &Endpoint,
        credential: Option<(&CredentialRef, &Secret<String>)>,
    ) -> Arc<Bucket> {
        let (name, secret) = credential
            .map_or((endpoint.id.as_str(), endpoint.id.as_str()), |(name, secret)| {
                (name.0.as_str(), secret.reveal().as_str())
            });
        let key = (Arc::clone(&endpoint.provider), self.hasher.hash_one(secret));
        if let Some(bucket) = self.buckets.get(&key) {
            return Arc::clone(&bucket);
        }
        if self.buckets.len() >= BUCKETS_MAX {
            self.buckets.clear();
        }
        let bucket = self.buckets.entry(key).or_insert_with(|| {
            let name: Arc<str> = name.into();
            self.metrics.concurrency(&name, settings.initial);
            Arc::new(Bucket {
                name,
                metrics: self.metrics.clone(),
                state: Mutex::new(State {
                    limit: Limit::new(settings),
                    waiting: VecDeque::new(),
                }),
            })
        });
        Arc::clone(&bucket)
    }
}

/// Where calls with a credential enter.
#[derive(Debug)]
pub(crate) struct Door(Option<Arc<Bucket>>);

impl Door {
    /// One that everybody may pass.
    pub(crate) const fn open() -> Self {
        Self(None)
    }

    /// A slot, where there is room and nobody waits.
    pub(crate) fn enter(&self) -> Option<Slot> {
        let Some(bucket) = &self.0 else {
            return Some(Slot(None));
        };
        let mut state = bucket.state.lock();
        if !state.waiting.is_empty() || !state.limit.has_room() {
            return None;
        }
        state.limit.running += 1;
        Some(Slot(Some(Arc::clone(bucket))))
    }

    /// A place among those who wait; `None` where too many do.
    pub(crate) fn queue(self) -> Option<Waiter> {
        let bucket = self.0?;
        let (turn, my_turn) = oneshot::channel();
        {
            let mut state = bucket.state.lock();
            if state.waiting.len() >= WAITERS_MAX {
                return None;
            }
            state.waiting.push_back(turn);
            state.admit();
        }
        Some(Waiter {
            bucket,
            turn: Some(my_turn),
        })
    }
}

/// Leave to make one call at a time, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot(Option<Arc<Bucket>>);

impl Slot {
    /// The status that a call was answered with, `None` for one without an answer.
    pub(crate) fn answered(&self, status: Option<u16>) {
        if let (Some(bucket), Some(hint)) = (&self.0, Hint::of(status)) {
            bucket.hear(hint);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(bucket) = &self.0 {
            bucket.leave();
        }
    }
}

/// Who waits for a slot. Dropped, he has left.
#[derive(Debug)]
pub(crate) struct Waiter {
    bucket: Arc<Bucket>,
    turn: Option<oneshot::Receiver<()>>,
}

impl Waiter {
    /// The slot, once it is this one's turn. Not polled again afterwards.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Slot> {
        let Some(turn) = &mut self.turn else {
            return Poll::Pending;
        };
        match Pin::new(turn).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(called) => {
                self.turn = None;
                // Whoever is not called is not counted; the bucket outlives its waiters, so this does not happen.
                Poll::Ready(Slot(called.is_ok().then(|| Arc::clone(&self.bucket))))
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        turn.close();
        if turn.try_recv().is_ok() {
            self.bucket.leave();
            return;
        }
        let mut state = self.bucket.state.lock();
        state.waiting.retain(|turn| !turn.is_closed());
    }
}

#[cfg(test)]
mod tests;
