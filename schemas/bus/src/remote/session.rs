//! The session of a request that is run elsewhere: a state that is polled by the response body, and one timer. What
//! it has to say goes to the gateway's outbox; what it hears, the gateway's one task puts into its state.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use schemas::command::Offer;
use schemas::failure::{Failure, FailureCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::code;
use super::gateway::{Call, Config, Shared, Target};
use super::request::{Facts, Patience, Request, Step, Stop, Trouble};
use super::{BODY_BYTES_MAX, INLINE_BYTES_MAX, POOL_ABSENCE, POOL_WAIT};
use crate::dispatch::{Dispatch, Frame, Session};

/// A session whose router is elsewhere.
pub(super) struct RemoteSession {
    shared: Arc<Shared>,
    call: Arc<Call>,
    offer: Offer,
    /// What the router must know of the catalogue, as it is sent.
    part: Bytes,
    timer: Option<Pin<Box<Sleep>>>,
    /// Its place among those that wait for a router.
    place: Option<OwnedSemaphorePermit>,
    ended: bool,
}

impl RemoteSession {
    /// A session that is offered when it is first polled.
    pub(super) fn new(shared: Arc<Shared>, target: Target, dispatch: Dispatch) -> Self {
        let Dispatch { offer, body, .. } = dispatch;
        let part = target
            .part
            .as_deref()
            .map_or_else(|| Ok(Bytes::new()), code::part);
        let mut request = Request::new(Facts {
            started_at: offer.started_at,
            endpoint: match &offer.candidates[..] {
                [only] => Some(only.clone()),
                _ => None,
            },
            attempts_max: offer.attempts_max,
            patience: patience(&shared.config, &target),
            body_bytes: body.len(),
        });
        if body.len() > BODY_BYTES_MAX {
            request.refuse(Failure::new(
                FailureCode::NoBackendsAvailable,
                "a body of this size needs a router in the gateway's own node",
            ));
        }
        if part.is_err() {
            request.refuse(unwritten());
        }
        Self {
            call: Arc::new(Call::new(request, target.pool, body)),
            shared,
            offer,
            part: part.unwrap_or_default(),
            timer: None,
            place: None,
            ended: false,
        }
    }

    /// Offers the request on a new lane.
    fn offer(&mut self) {
        let now = self.shared.now();
        let mut request = self.call.request.lock();
        let old = request.lane();
        if !self.shared.is_connected() {
            request.trouble(Trouble::BusAway, now);
            return;
        }
        self.offer.attempts_max = request.attempts_max();
        let body = &self.call.body;
        let is_inline = body.len() <= INLINE_BYTES_MAX;
        let Ok(payload) = code::offer(&self.offer, &self.part, body, is_inline) else {
            request.refuse(unwritten());
            return;
        };
        if payload.len() > self.shared.payload_bytes_max() {
            request.refuse(Failure::new(
                FailureCode::NoBackendsAvailable,
                "the bus carries no request of this size to a router elsewhere",
            ));
            return;
        }
        let lane = self.shared.next_lane();
        request.offered(lane, now);
        drop(request);
        self.shared.replace_lane(old, lane, &self.call);
        if !self.shared.send_offer((&self.call.pool, lane), payload) {
            self.call.request.lock().unsent(lane, now);
        }
    }

    /// Holds a place among those that wait as long as it waits. False when there is none: then it is refused.
    fn keep_place(&mut self) -> bool {
        let mut request = self.call.request.lock();
        if !request.waits() {
            self.place = None;
        } else if self.place.is_none() {
            self.place = self.shared.wait();
            if self.place.is_none() {
                request.refuse_waiting();
                return false;
            }
        }
        true
    }

    /// Ready when the moment has come.
    fn poll_timer(&mut self, context: &mut Context<'_>, until: Option<Instant>) -> Poll<()> {
        let Some(until) = until else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
    }

    fn stop(&self, stop: Stop) {
        let directive = self.call.request.lock().stop(stop, self.shared.now());
        self.shared.direct(&self.call.pool, directive);
        self.call.waker.wake();
    }

    fn close(&mut self) {
        self.ended = true;
        self.place = None;
        self.shared.close_lane(self.call.request.lock().lane());
    }
}

/// How long a request waits for a router of its target.
fn patience(config: &Config, target: &Target) -> Patience {
    if !target.is_last {
        return Patience {
            absent: Duration::ZERO,
            hindered: POOL_WAIT,
        };
    }
    let absent = if target.pool == config.pool {
        config.admit_wait
    } else {
        config.admit_wait.min(POOL_ABSENCE)
    };
    Patience {
        absent,
        hindered: config.admit_wait,
    }
}

fn unwritten() -> Failure {
    Failure::new(FailureCode::Internal, "the request cannot be written")
}

impl Session for RemoteSession {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        self.call.waker.register(context.waker());
        loop {
            let now = self.shared.now();
            let step = self.call.request.lock().step(now);
            match step {
                Step::Hand(frame, directive) => {
                    self.shared.direct(&self.call.pool, directive);
                    if matches!(frame, Frame::End(_)) {
                        self.close();
                    }
                    return Poll::Ready(frame);
                }
                Step::Offer => self.offer(),
                Step::Wait(until) => {
                    if self.keep_place() && self.poll_timer(context, until).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn cancel(&mut self) {
        self.stop(Stop::CallerGone);
    }

    fn interrupt(&mut self) {
        self.stop(Stop::Interrupted);
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let directive = self.call.request.lock().leave(self.shared.now());
        self.shared.direct(&self.call.pool, directive);
        self.close();
    }
}
