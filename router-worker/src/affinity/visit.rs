//! A call at a backend: it counts there until it ends, and what the backend has to read of it until its first token.
//! Both are given back on every way out, because dropping a visit does so.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use schemas::affinity::prefill::{Lease, Prefill};
use schemas::id::BackendId;

use super::Affinity;

/// A call at a backend.
pub(crate) struct Visit<'a> {
    affinity: &'a Affinity,
    backend: BackendId,
    lease: Option<Lease>,
    /// The first token came.
    begun: AtomicBool,
}

impl<'a> Visit<'a> {
    pub(super) const fn new(affinity: &'a Affinity, backend: BackendId, lease: Option<Lease>) -> Self {
        Self {
            affinity,
            backend,
            lease,
            begun: AtomicBool::new(false),
        }
    }

    /// Whether the first token came.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// The first token came: the prompt is read. May be said more than once.
    pub(crate) fn first_token(&self) {
        self.begun.store(true, Ordering::Relaxed);
        if let Some((prefill, lease)) = self.prefill().zip(self.lease.as_ref()) {
            prefill.lock().first_token(lease);
        }
    }

    /// The call was answered, so the backend has the prompt in its cache.
    pub(crate) fn whole(&mut self) {
        self.end(true);
    }

    fn end(&mut self, whole: bool) {
        if let Some(lease) = self.lease.take()
            && let Some(prefill) = self.prefill()
        {
            let now_ms = self.affinity.clock.monotonic_ms();
            prefill.lock().end(&lease, whole, now_ms);
        }
    }

    const fn prefill(&self) -> Option<&'a Mutex<Prefill>> {
        self.affinity.prefill.as_ref()
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.end(false);
        self.affinity.leave(&self.backend);
    }
}
