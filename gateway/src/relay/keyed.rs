//! A request with an idempotency key, as far as its answer goes: what leaves is heard, and what is over is left under
//! the key before the end of the answer leaves.

use std::sync::Arc;

use schemas::event::request::RequestSettled;
use schemas::failure::Failure;
use schemas::frame::Head;
use schemas::idempotency::answer::{Answer, Disposition, Ending, Keeper};
use schemas::idempotency::hold::Standing;
use schemas::idempotency::record::Done;

use super::Routed;
use super::voice::Voice;
use crate::body::{Bodies, Permit};
use crate::idempotency::{Ended, Held};
use crate::state::State;

/// The key of a request that runs.
pub(crate) struct Keyed {
    held: Held,
    /// Where its answer gets room from.
    answers: Arc<Bodies>,
    /// What has left so far, once anything has.
    left: Option<Left>,
}

/// An answer that has begun to leave.
struct Left {
    kept: Kept,
    /// What the gateway would say in it.
    voice: Voice,
    /// A stream of events, which an error event can end.
    events: bool,
}

/// What of an answer is kept, and the room it takes.
struct Kept {
    keeper: Keeper,
    room: Permit,
    bytes: u64,
}

impl Kept {
    fn new(answers: &Arc<Bodies>, keeper: Keeper) -> Self {
        Self {
            keeper,
            room: Permit::new(answers),
            bytes: 0,
        }
    }

    fn piece(&mut self, piece: &[u8], answers: &Arc<Bodies>) {
        if self.keeper.keeps() {
            self.bytes = self
                .bytes
                .saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if self.room.grow_to(self.bytes).is_err() {
                self.keeper.forget();
            }
        }
        self.keeper.piece(piece);
        if !self.keeper.keeps() {
            self.room = Permit::new(answers);
        }
    }
}

impl Keyed {
    pub(crate) fn new(held: Held, state: &State) -> Self {
        Self {
            held,
            answers: state.keys.answers.clone(),
            left: None,
        }
    }

    /// Whether what came back may be charged.
    pub(super) fn may_charge(&self, state: &State) -> bool {
        self.held.charging(state) == Standing::Held
    }

    /// Whether the request may be sent once more, to another model.
    pub(super) fn may_send(&self, state: &State) -> bool {
        self.held.sending(state) == Standing::Held
    }

    /// True once the head has left.
    pub(super) fn has_begun(&self) -> bool {
        self.left.is_some()
    }

    /// The head of the answer leaves.
    pub(super) fn begin(&mut self, head: &Head, events: bool, (routed, voice): (Option<&Routed>, Voice)) {
        self.left = Some(Left {
            kept: Kept::new(&self.answers, keeper(head, events, routed)),
            voice,
            events,
        });
    }

    /// A piece of it leaves.
    pub(super) fn piece(&mut self, piece: &[u8]) {
        if let Some(left) = &mut self.left {
            left.kept.piece(piece, &self.answers);
            left.voice.heard(piece);
        }
    }

    /// The request is over. `settled` is its waybill with the envelope, if it is recorded.
    pub(super) fn close(self, settled: Option<(&RequestSettled, Vec<u8>)>) -> Closing {
        Closing {
            held: Some(self.held),
            answers: self.answers,
            left: self.left,
            recorded: settled.map(|(settled, envelope)| Recorded {
                disposition: [false, true].map(|heard_out| disposition(settled, heard_out)),
                status: settled.status,
                envelope,
            }),
        }
    }
}

fn keeper(head: &Head, events: bool, routed: Option<&Routed>) -> Keeper {
    let routed = routed.into_iter().flat_map(Routed::headers);
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
    answers: Arc<Bodies>,
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
            let mut kept = self.left.take()?.kept;
            kept.piece(rest, &self.answers);
            Some(kept)
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
        routed: Option<&Routed>,
        body: &[u8],
    ) -> Option<Ended> {
        let mut kept = Kept::new(&self.answers, keeper(head, events, routed));
        kept.piece(body, &self.answers);
        self.leave(Some(kept))
    }

    fn leave(&mut self, kept: Option<Kept>) -> Option<Ended> {
        let held = self.held.take()?;
        let Some(recorded) = self.recorded.take() else {
            // What is not in the books is charged to nobody.
            return Some(held.free());
        };
        let [not_heard, heard] = recorded.disposition;
        let (disposition, answer, room) = match kept {
            Some(kept) => (heard, kept.keeper.finish(), kept.room),
            None => (
                not_heard,
                Answer::gone(recorded.status),
                Permit::new(&self.answers),
            ),
        };
        if disposition == Disposition::Free {
            return Some(held.free());
        }
        let (request_id, digest) = held.of();
        let done = Done {
            request_id,
            digest,
            answer,
            envelope: recorded.envelope,
        };
        Some(held.finish(done, room))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.leave(None);
    }
}
