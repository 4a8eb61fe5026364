//! From one model to the next, where the choice was left to the gateway: when a model has failed before anything of an
//! answer left, what the call holds of its limits is given back, what the next one needs is taken, and the call is sent
//! there as if it had just come. What is billed is the model that serves, at its price when the call was admitted; one
//! that has come since, at its price from then on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bus::dispatch::{End, Frame};
use schemas::auto::moves_on;
use schemas::event::request::RequestSettled;
use schemas::failure::Failure;
use schemas::frame::Report;

use super::{Live, Routed};
use crate::dispatch::{Sending, Taken, dispatched, offer, take};
use crate::limits::Held;

/// A call on its way to another model.
pub(crate) struct Changing {
    taking: Pin<Box<dyn Future<Output = Result<Taken, Failure>> + Send>>,
    /// What the model before came to: the last word, if nobody else can be asked.
    last: Box<End>,
}

impl Live {
    /// The frame, or nothing when the call goes on to another model instead.
    pub(super) fn heard(&mut self, frame: Frame) -> Option<Frame> {
        let mut end = match frame {
            Frame::End(end) if self.auto.is_some() => end,
            frame => {
                if let Some(walk) = &mut self.auto {
                    walk.stay_here();
                }
                return Some(frame);
            }
        };
        let moves = moves_on(&end.report) && self.may_move();
        if let Some(walk) = &mut self.auto {
            walk.note(&mut end.report);
        }
        if moves {
            end = self.set_out(end)?;
        }
        self.conclude(&mut end.report, moves);
        Some(Frame::End(end))
    }

    /// Goes on to another model. Ready with nothing once the call runs there, or where it is not on its way; with the
    /// end of the call when nobody else can be asked.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        while let Some(changing) = &mut self.changing {
            let taken = ready!(changing.taking.as_mut().poll(context));
            let Some(changing) = self.changing.take() else {
                break;
            };
            match taken {
                Ok(taken) => {
                    self.arrive(taken);
                    break;
                }
                Err(failure) => {
                    if let Some(walk) = &mut self.auto {
                        walk.barred(failure);
                    }
                    if let Some(mut last) = self.set_out(changing.last) {
                        self.conclude(&mut last.report, true);
                        return Poll::Ready(Some(Frame::End(last)));
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    /// True once the call is, or was, sent to another model than the first.
    pub(super) fn has_moved(&self) -> bool {
        self.auto.as_ref().is_some_and(|walk| walk.moved)
    }

    /// Nothing of the answer has left, nobody ended the call, and it may still be sent.
    fn may_move(&self) -> bool {
        self.progress.sent.is_none()
            && !self.progress.interrupted
            && !self.slot.interrupted()
            && self.key.as_ref().is_none_or(|key| key.may_send(&self.state))
    }

    /// Begins to take what the next model needs. Gives `last` back when there is none.
    fn set_out(&mut self, last: Box<End>) -> Option<Box<End>> {
        let Some(walk) = &mut self.auto else {
            return Some(last);
        };
        walk.renew(&self.state.ports.catalog.load(), &self.state.profiles);
        let (Some(call), Some(way)) = (walk.call.clone(), walk.next().cloned()) else {
            return Some(last);
        };
        walk.moved = true;
        std::mem::replace(&mut self.held, Held::nothing()).release();
        let state = self.state.clone();
        let taking = async move {
            let sent = (call.surface, &call.skim, &call.body);
            take(&state, (&call.caller, call.at), (&way.catalog, &way.model), sent).await
        };
        self.changing = Some(Changing {
            taking: Box::pin(taking),
            last,
        });
        None
    }

    /// Sends the call to the model whose turn it is.
    fn arrive(&mut self, taken: Taken) {
        let going = self.auto.as_mut().and_then(|walk| {
            let (call, way) = (walk.call.clone()?, walk.current().cloned()?);
            walk.stay.go(&self.state, &way.model.id);
            Some((call, way, (walk.attempts(), walk.passes_sleepers())))
        });
        let Some((call, way, (attempts, passes_sleepers))) = going else {
            taken.held.release();
            return;
        };
        let (body, skim) = match &taken.body {
            Some((body, skim)) => (body.clone(), skim),
            None => (call.body.clone(), &call.skim),
        };
        let sending = Sending {
            skim,
            wishes: &call.wishes,
            told: &call.told,
            output_tokens_held: taken.output_tokens_held,
            role: call.caller.key.counts(),
            named: Some(way.model.id.0.clone()),
            attempts,
            passes_sleepers,
            raw: None,
        };
        let offer = offer(&self.slot.accepted, (&way.catalog, &way.model), sending);
        self.public_model = offer.public_model.clone();
        self.routed = Some(Routed::of(&way));
        self.held = taken.held;
        self.terms.output_tokens_held = taken.output_tokens_held;
        let sent = dispatched(&self.state, (&way.catalog, &way.model), (offer, body));
        self.terms.model = way.model;
        self.session = self.state.ports.dispatcher.dispatch(sent);
    }

    /// The report as that of the whole call, where it was left to the gateway whom it goes to.
    pub(super) fn concluded(&mut self, mut report: Report) -> Report {
        if let Some(walk) = &mut self.auto {
            walk.note(&mut report);
        }
        self.conclude(&mut report, false);
        report
    }

    /// The same of one that was noted. `moves`: it failed in a way in which another model would have been asked.
    fn conclude(&mut self, report: &mut Report, moves: bool) {
        let begun = self.progress.sent.is_some();
        if let Some(walk) = &mut self.auto
            && !walk.conclude(report, (begun, moves))
        {
            walk.stay.forget(&self.state);
            self.routed = None;
        }
    }

    /// Enters how the model was chosen, and at which prices it is billed.
    pub(super) fn tell_of_choice(&self, settled: &mut RequestSettled) {
        let Some(walk) = &self.auto else {
            return;
        };
        let record = walk.record();
        self.state
            .metrics
            .auto_routed(walk.outcome(settled.outcome), record.strategy);
        settled.auto = Some(Box::new(record.clone()));
        if let Some(way) = walk.current() {
            settled.price_version = way.price_version.clone();
        }
    }
}
