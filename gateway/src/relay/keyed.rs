//! A request with an idempotency key, as far as its answer goes: what leaves is heard, and what is over is left under
//! the key before the end of the answer leaves.

use schemas::event::request::RequestSettled;
use schemas::failure::Failure;
use schemas::frame::Head;
use schemas::id::ModelName;
use schemas::idempotency::answer::{Answer, Disposition, Ending, Keeper};
use schemas::idempotency::hold::Standing;
use schemas::idempotency::record::Done;

use super::ROUTED_MODEL;
use super::voice::Voice;
use crate::idempotency::{Ended, Held};
use crate::state::State;

/// The key of a request that runs.
pub(crate) struct Keyed {
    held: Held,
    /// What has left so far, once anything has.
    left: Option<Left>,
}

/// An answer that has begun to leave.
struct Left {
    keeper: Keeper,
    /// What the gateway would say in it.
    voice: Voice,
    /// A stream of events, which an error event can end.
    events: bool,
}

impl Keyed {
    pub(crate) fn new(held: Held) -> Self {
        Self { held, left: None }
    }

    /// Whether what came back may be charged.
    pub(super) fn may_charge(&self, state: &State) -> bool {
        self.held.charging(state) == Standing::Held
    }

    /// True once the head has left.
    pub(super) fn has_begun(&self) -> bool {
        self.left.is_some()
    }

    /// The head of the answer leaves.
    pub(super) fn begin(&mut self, head: &Head, events: bool, (routed, voice): (Option<&ModelName>, Voice)) {
        self.left = Some(Left {
            keeper: keeper(head, events, routed),
            voice,
            events,
        });
    }

    /// A piece of it leaves.
    pub(super) fn piece(&mut self, piece: &[u8]) {
        if let Some(left) = &mut self.left {
            left.keeper.piece(piece);
            left.voice.heard(piece);
        }
    }

    /// The request is over. `settled` is its waybill with the envelope, if it is recorded.
    pub(super) fn close(self, settled: Option<(&RequestSettled, Vec<u8>)>) -> Closing {
        Closing {
            held: Some(self.held),
            left: self.left,
            recorded: settled.map(|(settled, envelope)| Recorded {
                disposition: [false, true].map(|heard_out| disposition(settled, heard_out)),
                status: settled.status,
                envelope,
            }),
        }
    }
}

fn keeper(head: &Head, events: bool, routed: Option<&ModelName>) -> Keeper {
    let routed = routed.map(|model| (ROUTED_MODEL.as_str(), model.as_str()));
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
    Keeper::new(head.status, events, headers.chain(routed))
}

fn disposition(settled: &RequestSettled, heard_out: bool) -> Disposition {
    let ending = Ending {
        outcome: settled.outcome,
        attempts: &settled.attempts,
        heard_out,
    };
    ending.disposition()
}

/// The key of a request that is over. Dropped before the end of its answer is known, it is closed.
pub(super) struct Closing {
    held: Option<Held>,
    left: Option<Left>,
    recorded: Option<Recorded>,
}

struct Recorded {
    /// What becomes of the key if the answer was not heard out, and if it was.
    disposition: [Disposition; 2],
    status: u16,
    envelope: Vec<u8>,
}

impl Closing {
    /// The answer had begun: `rest` leaves last, and nothing if it breaks off.
    pub(super) fn last(mut self, rest: Option<&[u8]>) -> Option<Ended> {
        let answer = rest.and_then(|rest| {
            let mut keeper = self.left.take()?.keeper;
            keeper.piece(rest);
            Some(keeper.finish())
        });
        self.leave(answer)
    }

    /// The same in a way that has no end of its own: the gateway says what is to be said.
    pub(super) fn told(self, failure: Option<&Failure>, tail: &[u8]) -> Option<Ended> {
        let rest = match (failure, &self.left) {
            (None, _) => Some(tail.to_vec()),
            (Some(failure), Some(left)) if left.events => Some(left.voice.failure(failure).to_vec()),
            (Some(_), _) => None,
        };
        self.last(rest.as_deref())
    }

    /// The answer is one piece.
    pub(super) fn whole(
        mut self,
        head: &Head,
        events: bool,
        routed: Option<&ModelName>,
        body: &[u8],
    ) -> Option<Ended> {
        let mut keeper = keeper(head, events, routed);
        keeper.piece(body);
        self.leave(Some(keeper.finish()))
    }

    fn leave(&mut self, answer: Option<Answer>) -> Option<Ended> {
        let held = self.held.take()?;
        let Some(recorded) = self.recorded.take() else {
            // What is not in the books is charged to nobody.
            return Some(held.free());
        };
        let [not_heard, heard] = recorded.disposition;
        let (disposition, answer) = match answer {
            Some(answer) => (heard, answer),
            None => (not_heard, Answer::gone(recorded.status)),
        };
        if disposition == Disposition::Free {
            return Some(held.free());
        }
        let (request_id, digest) = held.of();
        Some(held.finish(Done {
            request_id,
            digest,
            answer,
            envelope: recorded.envelope,
        }))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.leave(None);
    }
}
