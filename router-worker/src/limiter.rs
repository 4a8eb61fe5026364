//! How many calls run at once with one credential: as many as its provider bears, which is found out by trying. A call
//! that is answered with 429 lowers the limit by one, a row of calls that went well raises it by one; whoever finds no
//! room waits for his turn, first come first served. The limit is one for all routers ([`fleet`]).
//!
//! Guarantees: no more calls run here than the limit leaves to this router, unless it was lowered while they ran; a slot
//! is given back exactly once, whatever becomes of the request; nobody passes by those who wait. Engines in one's own
//! network have no limit: they have a queue of their own.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::catalog::{CredentialRef, Endpoint};
use schemas::ceiling::{self, Ceiling, Hint, Others, allowance};
use schemas::secret::Secret;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tracing::info;

use crate::config::Concurrency;
use crate::metrics::Metrics;

pub(crate) mod fleet;
mod local;

pub(crate) use local::is_local;

/// Credentials that are remembered; beyond, all are forgotten.
const BUCKETS_MAX: usize = 10_000;
/// Requests that wait for one credential; beyond, there is no waiting.
const WAITERS_MAX: usize = 4_096;

/// What the status of an answer says about the number of calls.
const fn hint(status: Option<u16>) -> Option<Hint> {
    match status {
        Some(200) => Some(Hint::Fine),
        Some(429) => Some(Hint::TooMany),
        _ => None,
    }
}

/// The limit of one credential.
#[derive(Debug)]
struct Limit {
    ceiling: Ceiling,
    running: u32,
    /// What other routers do with it.
    others: Others,
}

impl Limit {
    fn has_room(&self) -> bool {
        self.running < allowance(self.ceiling.most(), &self.others)
    }
}

/// The calls of one credential.
#[derive(Debug)]
struct Bucket {
    name: Arc<str>,
    /// Names it among routers, and tells nothing of the secret.
    fingerprint: Arc<str>,
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
        let Some(before) = state.limit.ceiling.hear(hint) else {
            return;
        };
        let limit = state.limit.ceiling.most();
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

    /// Changes what is known of other routers, and lets in who may run by that.
    fn learn(&self, change: impl FnOnce(&mut Limit)) {
        let mut state = self.state.lock();
        let before = state.limit.ceiling.most();
        change(&mut state.limit);
        let most = state.limit.ceiling.most();
        if most != before {
            self.metrics.concurrency(&self.name, most);
        }
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
    /// The limits that routers share, by fingerprint: revisions and numbers, for credentials that come to be used.
    shared: Mutex<HashMap<Arc<str>, (u64, u32)>>,
}

impl Limiter {
    /// `settings`: `None` for no limits at all.
    pub(crate) fn new(settings: Option<Concurrency>, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            hasher: RandomState::new(),
            buckets: DashMap::new(),
            shared: Mutex::default(),
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
            let fingerprint = fingerprint(&endpoint.provider, secret);
            let mut ceiling = Ceiling::new(settings.terms());
            if let Some((revision, most)) = self.shared.lock().get(&fingerprint) {
                ceiling.agree(*revision, *most);
            }
            self.metrics.concurrency(&name, ceiling.most());
            Arc::new(Bucket {
                name,
                fingerprint,
                metrics: self.metrics.clone(),
                state: Mutex::new(State {
                    limit: Limit {
                        ceiling,
                        running: 0,
                        others: Others::default(),
                    },
                    waiting: VecDeque::new(),
                }),
            })
        });
        Arc::clone(&bucket)
    }
}

/// A name of a secret of a provider that is the same on all routers, and from which nobody tells the secret.
fn fingerprint(provider: &str, secret: &str) -> Arc<str> {
    let mut hasher = Sha256::new();
    for part in [provider, "\n", secret] {
        hasher.update(part);
    }
    ceiling::fingerprint(&hasher.finalize().into())
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
        if let (Some(bucket), Some(hint)) = (&self.0, hint(status)) {
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
