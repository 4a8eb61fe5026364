//! Calls that wait too long for a turn or for their first token go to the leg that is kept for such calls, once; when that
//! fails too, the one that kept them waiting is asked again, for as long as it takes.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use schemas::balance::decision::Exclusion;
use schemas::id::BackendId;
use tokio::time::timeout;

use crate::affinity::Visit;
use crate::attempt::Ending;
use crate::fault::{Fault, Waited};
use crate::plan::Candidate;
use crate::plan::offload::Offload;

use super::Request;

/// What a request knows of the leg for calls that wait.
#[derive(Debug, Default)]
pub(super) struct Offloading {
    /// Where it may go; `None` where it may not, or did.
    to: Option<Offload>,
    /// Whom it left.
    left: Option<BackendId>,
}

impl Offloading {
    pub(super) const fn new(to: Option<Offload>) -> Self {
        Self { to, left: None }
    }

    /// How long a candidate may keep the request waiting; `None` for as long as any.
    pub(super) fn patience(&self, candidate: &Candidate) -> Option<Duration> {
        let to = self.to.as_ref()?;
        (to.endpoint != candidate.endpoint.id).then_some(to.wait)
    }
}

impl Request {
    /// Notes a fault of a candidate. What comes of one that is asked again counts in the place of its first fault.
    pub(super) fn note_fault(&mut self, fault: Fault, candidate: &Candidate) {
        if self.offloading.left.as_ref() == Some(&candidate.backend_id()) {
            self.trail.note_again(fault, candidate.context_length);
        } else {
            self.trail.note(fault, candidate.context_length);
        }
    }

    /// After a candidate failed: when it only kept the request waiting, those of the leg for such calls are next, and
    /// then it once more.
    pub(super) fn turn_aside<'c>(&mut self, candidate: &'c Candidate, ahead: &mut VecDeque<&'c Candidate>) {
        let Some(reason) = self.trail.waited() else {
            return;
        };
        let Some(to) = self.offloading.to.take() else {
            return;
        };
        self.offloading.left = Some(candidate.backend_id());
        let wait_ms = u64::try_from(to.wait.as_millis()).unwrap_or(u64::MAX);
        let reason = match reason {
            Waited::Queue => Exclusion::QueueWait { after_ms: wait_ms },
            Waited::Engine => Exclusion::EngineWait { after_ms: wait_ms },
        };
        self.pass_over(candidate, reason);
        let (mut next, others): (VecDeque<_>, VecDeque<_>) = ahead
            .drain(..)
            .partition(|candidate| candidate.endpoint.id == to.endpoint);
        next.push_back(candidate);
        next.extend(others);
        *ahead = next;
    }
}

/// Runs an attempt, at most for so long until its first token.
pub(super) async fn within(
    patience: Duration,
    visit: &Visit<'_>,
    mut running: impl Future<Output = Ending> + Unpin,
) -> Ending {
    match timeout(patience, &mut running).await {
        Ok(ending) => ending,
        Err(_) if visit.has_begun() => running.await,
        Err(_) => Ending::Failed(Fault::Waited(Waited::Engine)),
    }
}
