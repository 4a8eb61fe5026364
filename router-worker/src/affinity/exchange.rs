//! What routers exchange over the bus about sessions and loads, taken and given by hand: for a fleet that is simulated,
//! whose bus is nothing but a delay.

use std::sync::Arc;

use schemas::affinity::load::Calls;
use schemas::affinity::record::Record;

use super::Affinity;
use super::places::Write;

impl Affinity {
    /// Writes what waits to be written of sessions: gives every record that others have to hear of. `revision` makes
    /// the next revision of the bucket.
    pub(crate) fn write_sessions(&self, mut revision: impl FnMut() -> u64) -> Vec<(Arc<str>, u64, Record)> {
        let mut written = Vec::new();
        let mut queued = self.queued.lock();
        let Some(queued) = queued.as_mut() else {
            return written;
        };
        while let Ok(key) = queued.try_recv() {
            let mut places = self.places.lock();
            let begun = places.begin(&key);
            let revision = revision();
            places.wrote(&key, Some(revision));
            if let Some(Write::Put { record, .. }) = begun {
                written.push((key, revision, record));
            }
        }
        written
    }

    /// Hears where a session is.
    pub(crate) fn hear_session(&self, key: &str, revision: u64, record: Record) {
        self.places.lock().learn(key, revision, Some(record));
    }

    /// Calls that this router runs, as it tells them.
    pub(crate) fn told_calls(&self) -> Calls {
        self.own_calls()
    }

    /// Hears the calls of another router, as it wrote them under a key.
    pub(crate) fn hear_calls(&self, (key, revision): (&str, u64), calls: &[u8]) {
        let now_ms = self.clock.monotonic_ms();
        self.others.write().apply((key, revision), Some(calls), now_ms);
    }
}
