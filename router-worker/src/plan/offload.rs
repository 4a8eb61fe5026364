//! Legs that are kept for calls that have waited too long at another one.

use std::time::Duration;

use schemas::balance::decision::{Excluded, Exclusion};
use schemas::balance::snapshot::Engine;
use schemas::catalog::router;
use schemas::id::EndpointId;

use super::outlook::Outlook;
use super::{Seat, Survey};

/// Where a call goes that waits too long.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    /// The leg.
    pub(crate) endpoint: EndpointId,
    /// How long another one may keep the call waiting.
    pub(crate) wait: Duration,
}

/// The seats of a leg that is kept, and of those that are not waited for.
#[derive(Default)]
pub(super) struct Kept {
    /// Those of the leg.
    pub(super) seats: Vec<Seat>,
    /// Where the call goes that waits, if it may.
    pub(super) offload: Option<Offload>,
}

impl Survey<'_> {
    /// Takes the seats out that are kept for calls that wait, unless there are no others.
    pub(super) fn keep(&mut self, seats: &mut Vec<Seat>) -> Kept {
        let Some(offload) = self.fixed.and_then(|fixed| fixed.offload.as_ref()) else {
            return Kept::default();
        };
        let is_kept = |seat: &Seat| seat.candidate.endpoint.id == offload.endpoint;
        if !seats.iter().any(is_kept) || seats.iter().all(is_kept) {
            return Kept::default();
        }
        let kept: Vec<Seat> = seats.extract_if(.., |seat| is_kept(seat)).collect();
        self.leave_out(&kept, Exclusion::KeptForWaiting);
        Kept {
            seats: kept,
            offload: self.may_go(offload).then(|| Offload {
                endpoint: offload.endpoint.clone(),
                wait: Duration::from_millis(offload.wait_ms),
            }),
        }
    }

    /// Takes those out whose engines have so much to do that they are not waited for: they are asked after those that are
    /// kept.
    pub(super) fn overfull(
        &mut self,
        seats: &mut Vec<Seat>,
        (kept, outlook): (&Kept, &dyn Outlook),
    ) -> Vec<Seat> {
        let offload = self.fixed.and_then(|fixed| fixed.offload.as_ref());
        let most = offload.and_then(|offload| offload.engine_queue_max);
        let Some(most) = most.filter(|_| kept.offload.is_some()) else {
            return Vec::new();
        };
        let queue = |seat: &Seat| outlook.engine(&seat.backend).as_ref().map(Engine::queue);
        let is_full = |seat: &Seat| queue(seat).is_some_and(|queue| queue >= most);
        let full: Vec<Seat> = seats.extract_if(.., |seat| is_full(seat)).collect();
        self.leave_out(&full, Exclusion::EngineWait { after_ms: 0 });
        full
    }

    fn leave_out(&mut self, seats: &[Seat], reason: Exclusion) {
        self.excluded.extend(seats.iter().map(|seat| Excluded {
            endpoint: seat.candidate.endpoint.id.clone(),
            backend: Some(seat.backend.clone()),
            reason,
        }));
    }

    /// Whether the call may go there before everything else has failed.
    fn may_go(&self, offload: &router::Offload) -> bool {
        let most = offload.input_tokens_max;
        most.is_none_or(|most| self.prompt_tokens <= most)
    }
}
