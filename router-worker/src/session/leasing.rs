//! The credentials of a request's attempts: taken from the endpoint's pool, and judged by how the attempts end.

use crate::attempt::Ending;
use crate::fault::Fault;
use crate::keypool::{Asker, Declared, Lack, Lease};
use crate::metrics::KeyEvent;
use crate::plan::Candidate;
use crate::state::Shared;

use super::Request;

impl Request {
    fn asker(&self) -> Asker {
        Asker {
            tenant: self.offer.tenant.clone(),
            role: self.offer.role,
        }
    }

    /// The credential of the first attempt at a candidate, none for endpoints without.
    pub(super) fn lease(
        &self,
        shared: &Shared,
        candidate: &Candidate,
        tried: &[Lease],
    ) -> Result<Option<Lease>, Fault> {
        if candidate.endpoint.credentials.is_empty() {
            return Ok(None);
        }
        let book = (&candidate.endpoint, shared.credentials.as_ref());
        match shared
            .pools
            .acquire(book, &self.asker(), tried, shared.clock.monotonic_ms())
        {
            Declared::Keyless => Ok(None),
            Declared::Key(lease) => Ok(Some(lease)),
            Declared::Unknown => Err(Fault::Misconfigured),
            Declared::Lacking(Lack::Reserved) => Err(Fault::Reserved),
            Declared::Lacking(Lack::Muted) => {
                shared.metrics.key(&candidate.endpoint.id, KeyEvent::Exhausted);
                Err(Fault::Exhausted)
            }
        }
    }

    /// Another credential, where there is one and the budget has a repetition left.
    pub(super) fn next_lease(
        &self,
        shared: &Shared,
        candidate: &Candidate,
        tried: &[Lease],
    ) -> Option<Lease> {
        let (endpoint, asker, now_ms) = (&candidate.endpoint.id, self.asker(), shared.clock.monotonic_ms());
        let open = shared.pools.has_other(endpoint, &asker, tried, now_ms) && self.may_go_on(shared);
        let next = open
            .then(|| self.lease(shared, candidate, tried))
            .and_then(Result::ok)??;
        shared.metrics.key(endpoint, KeyEvent::Rotated);
        Some(next)
    }

    /// Notes what the ending of an attempt says about its credential, the last of those `tried`.
    pub(super) fn judge(&self, shared: &Shared, candidate: &Candidate, (tried, ending): (&[Lease], &Ending)) {
        let Some(lease) = tried.last() else {
            return;
        };
        let endpoint = &candidate.endpoint.id;
        match ending {
            Ending::Whole { .. } => shared.pools.succeeded(endpoint, *lease),
            Ending::Failed(fault) => {
                if let Some(flaw) = fault.flaw() {
                    let now_ms = shared.clock.monotonic_ms();
                    let asker = self.asker();
                    shared
                        .pools
                        .failed((endpoint, &shared.metrics), &asker, tried, (flaw, now_ms));
                }
            }
            Ending::Stopped(_) => {}
        }
    }
}
