//! What routers tell each other of credentials: how many calls each runs and has waiting, beside its counts of backends,
//! and the limit of each credential, which all have in common.

use std::sync::Arc;

use bus::{Entry, Expected, Kv};
use bytes::Bytes;
use schemas::ceiling::{Count, Others};
use schemas::id::BackendId;
use schemas::subject::{ENGINE_BUCKET, engine};
use tokio::time::timeout;

use crate::affinity::fleet::WRITE_WITHIN;

use super::{Bucket, Limiter};

impl Limiter {
    fn all(&self) -> Vec<Arc<Bucket>> {
        let buckets = self.buckets.iter();
        buckets.map(|bucket| Arc::clone(bucket.value())).collect()
    }

    /// What this router does with credentials, under the names of its counts; credentials without calls are left out.
    pub(crate) fn counts(&self) -> Vec<(BackendId, u64)> {
        let mut counts = Vec::new();
        for bucket in self.all() {
            let state = bucket.state.lock();
            let (running, waiting) = (u64::from(state.limit.running), state.waiting.len());
            drop(state);
            let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
            let told = [
                (Count::Running, running),
                (Count::Waiting, waiting),
                (Count::Wanting, u64::from(running + waiting > 0)),
            ];
            let told = told.into_iter().filter(|(_, count)| *count > 0);
            counts.extend(told.map(|(count, number)| (count.name(&bucket.fingerprint), number)));
        }
        counts
    }

    /// Takes over what other routers do, as `sum` tells of a name.
    pub(crate) fn hear_of_others(&self, sum: impl Fn(&BackendId) -> u64) {
        for bucket in self.all() {
            let count = |count: Count| sum(&count.name(&bucket.fingerprint));
            let others = Others {
                running: count(Count::Running),
                waiting: count(Count::Waiting),
                wanting: count(Count::Wanting),
            };
            bucket.learn(|limit| limit.others = others);
        }
    }

    /// Nothing that was shared is known any more.
    pub(crate) fn begin_anew(&self) {
        for bucket in self.all() {
            bucket.learn(|limit| {
                limit.others = Others::default();
                limit.ceiling.begin_anew();
            });
        }
        self.shared.lock().clear();
    }

    /// Takes over a limit that a router wrote; false for an entry of another kind.
    pub(crate) fn take(&self, entry: &Entry) -> bool {
        let Some(fingerprint) = entry.key.strip_prefix(engine::CEILING) else {
            return false;
        };
        let number = entry
            .value
            .as_deref()
            .and_then(|value| std::str::from_utf8(value).ok());
        if let Some(most) = number.and_then(|number| number.parse().ok()) {
            let mut shared = self.shared.lock();
            if shared.len() >= super::BUCKETS_MAX {
                shared.clear();
            }
            shared.insert(Arc::from(fingerprint), (entry.revision, most));
            drop(shared);
            for bucket in self.all() {
                if &*bucket.fingerprint == fingerprint {
                    bucket.learn(|limit| limit.ceiling.agree(entry.revision, most));
                }
            }
        }
        true
    }

    /// Writes the limits that this router would change. What another one changed meanwhile is tried again once it is
    /// known.
    pub(crate) async fn write(&self, kv: &Arc<dyn Kv>) {
        for bucket in self.all() {
            let proposed = bucket.state.lock().limit.ceiling.propose();
            let Some((revision, most)) = proposed else {
                continue;
            };
            let key = format!("{}{}", engine::CEILING, bucket.fingerprint);
            let expected = match revision {
                0 => Expected::Absent,
                revision => Expected::Revision(revision),
            };
            let put = kv.put(ENGINE_BUCKET, &key, Bytes::from(most.to_string()), expected);
            let written = timeout(WRITE_WITHIN, put).await.ok().and_then(Result::ok);
            bucket.learn(|limit| limit.ceiling.wrote(written.map(|revision| (revision, most))));
        }
    }
}

#[cfg(test)]
mod tests;
