//! Runs one accepted request in a router: polls its session as far as there is credit, puts pieces that are ready
//! into one frame, keeps what has not arrived, and says the end again until it has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::code::{self, Last, Order, Piece, Place, Wish};
use super::incoming::Incoming;
use super::keep::Keep;
use super::{FRAME_BYTES_MAX, GATEWAY_SILENCE_MAX, GATHERED_BYTES, LOOK};
use crate::dispatch::{Dispatch, End, Frame, Session};
use crate::wire::Wire;

/// A request that a router has accepted.
pub(super) struct Lane {
    state: Mutex<State>,
    waker: AtomicWaker,
    /// The body, where it did not come with the offer.
    incoming: Option<Incoming>,
}

struct State {
    /// What to run, until the word to go.
    held: Option<Box<Dispatch>>,
    since: Instant,
    keep: Keep,
    stop: Option<Wish>,
    /// Frames from this number on shall be sent again.
    again: Option<u32>,
    /// The last frame has been made.
    ended: bool,
    /// Nobody is there to hear it.
    abandoned: bool,
    /// When the gateway was last heard about it.
    heard_at: Instant,
}

/// What an order did.
pub(super) enum Ordered {
    /// It is the word to go.
    Go(Box<Dispatch>),
    /// It was taken in.
    Taken,
    /// The request is not to run here.
    Forget,
}

/// What a look at a lane found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It waits for the word to go.
    Waiting,
    /// It runs, and the next frame has this number.
    Running(Place),
    /// It waited too long for the word to go.
    Expired,
    /// Its gateway has become silent.
    Silent,
}

impl Lane {
    /// Holds a request for the word to go; `incoming` takes its body, where that did not come with it.
    pub(super) fn new(dispatch: Dispatch, incoming: Option<Incoming>, now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                held: Some(Box::new(dispatch)),
                since: now,
                keep: Keep::default(),
                stop: None,
                again: None,
                ended: false,
                abandoned: false,
                heard_at: now,
            }),
            waker: AtomicWaker::new(),
            incoming,
        }
    }

    /// What takes the body, where it did not come with the offer.
    pub(super) const fn incoming(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    /// It is to end, or nobody is there to hear it.
    pub(super) fn is_stopped(&self) -> bool {
        let state = self.state.lock();
        state.stop.is_some() || state.abandoned
    }

    /// Takes an order in.
    pub(super) fn order(&self, order: &Order, now: Instant) -> Ordered {
        let mut state = self.state.lock();
        if let Some(held) = state.held.take() {
            if now >= state.since + super::ACCEPT_LIFE || matches!(order.wish, Wish::Cancel | Wish::Release) {
                return Ordered::Forget;
            }
            state.take(order, now);
            return Ordered::Go(held);
        }
        if order.wish == Wish::Release {
            return Ordered::Taken;
        }
        state.take(order, now);
        drop(state);
        self.waker.wake();
        Ordered::Taken
    }

    /// Looks whether it has waited too long, or its gateway has become silent.
    pub(super) fn look(&self, lane: u64, now: Instant) -> Seen {
        let mut state = self.state.lock();
        if state.held.is_some() {
            let expired = now >= state.since + super::ACCEPT_LIFE;
            return if expired { Seen::Expired } else { Seen::Waiting };
        }
        // The next look would come too late.
        if now + LOOK > state.heard_at + GATEWAY_SILENCE_MAX {
            return Seen::Silent;
        }
        let next = state.keep.next();
        if state.ended && state.keep.len() > 0 {
            state.again = Some(next.saturating_sub(1));
            self.waker.wake();
        }
        Seen::Running(Place { lane, next })
    }

    /// Nobody is there to hear it: its session is dropped, which closes its upstream.
    pub(super) fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.waker.wake();
    }

    /// Ends it at the drain limit.
    pub(super) fn interrupt(&self) {
        self.state.lock().stop.get_or_insert(Wish::Interrupt);
        self.waker.wake();
    }

    /// Frames that are kept for it.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.state.lock().keep.len()
    }
}

impl State {
    fn take(&mut self, order: &Order, now: Instant) {
        self.heard_at = now;
        self.keep.take(order);
        if order.resume {
            self.again = Some(order.received);
        }
        if matches!(order.wish, Wish::Cancel | Wish::Interrupt) {
            self.stop.get_or_insert(order.wish);
        }
    }
}

/// Runs `session` and sends its frames to `subject`, until the end has arrived or nobody is there to hear it.
pub(super) async fn drive(lane: Arc<Lane>, session: Box<dyn Session>, wire: Arc<dyn Wire>, subject: String) {
    let mut driver = Driver {
        frame_bytes_max: FRAME_BYTES_MAX
            .min(wire.payload_bytes_max().saturating_sub(64))
            .max(1),
        lane,
        session: Some(session),
        rest: VecDeque::new(),
        told: false,
    };
    while let Some(frames) = poll_fn(|context| driver.poll(context)).await {
        for frame in frames {
            if let Err(problem) = wire.send(&subject, None, frame).await {
                // It is kept, and sent again when the gateway asks.
                debug!(
                    error = &problem as &dyn std::error::Error,
                    "a frame cannot be sent"
                );
                break;
            }
        }
    }
}

struct Driver {
    lane: Arc<Lane>,
    /// `None` once it has ended.
    session: Option<Box<dyn Session>>,
    /// Pieces that the session gave and that could not be sent yet.
    rest: VecDeque<Piece>,
    /// The session knows that it is to stop.
    told: bool,
    frame_bytes_max: usize,
}

impl Driver {
    /// The next frames to send, `None` when there is nothing left to do.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Bytes>>> {
        self.lane.waker.register(context.waker());
        let stop = {
            let mut state = self.lane.state.lock();
            if state.abandoned || (state.ended && state.keep.len() == 0) {
                return Poll::Ready(None);
            }
            if let Some(sequence) = state.again.take() {
                let frames = state.keep.again(sequence);
                if !frames.is_empty() {
                    return Poll::Ready(Some(frames));
                }
            }
            state.stop
        };
        if let Some(stop) = stop
            && !std::mem::replace(&mut self.told, true)
        {
            self.end_early(stop);
        }
        let mut frames = Vec::new();
        self.read(context, &mut frames);
        self.send_rest(&mut frames);
        if frames.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Some(frames))
        }
    }

    fn end_early(&mut self, stop: Wish) {
        match (&mut self.session, stop) {
            (Some(session), Wish::Interrupt) => session.interrupt(),
            (Some(session), _) => session.cancel(),
            // The caller has left: nobody needs the rest of the answer, only the report.
            (None, Wish::Cancel) => self.rest.retain(|piece| matches!(piece, Piece::End(..))),
            (None, _) => {}
        }
    }

    /// Polls the session as long as it is ready and there is room.
    fn read(&mut self, context: &mut Context<'_>, frames: &mut Vec<Bytes>) {
        let mut gathered = Vec::new();
        let mut bytes = 0;
        while bytes < GATHERED_BYTES && self.may_read() {
            let Some(session) = &mut self.session else {
                break;
            };
            match session.poll_frame(context) {
                Poll::Ready(Frame::Chunk(chunk)) => {
                    bytes += chunk.len();
                    gathered.push(chunk);
                }
                Poll::Ready(Frame::Head(head)) => self.push(&Piece::Head(head), frames),
                Poll::Ready(Frame::End(end)) => {
                    self.session = None;
                    self.gathered(&gathered, frames);
                    self.rest.extend(split(*end, self.frame_bytes_max));
                    return;
                }
                Poll::Pending => break,
            }
        }
        if bytes >= GATHERED_BYTES {
            context.waker().wake_by_ref();
        }
        self.gathered(&gathered, frames);
    }

    /// The session may be polled: there is credit, or it is to stop.
    fn may_read(&self) -> bool {
        self.told || (self.rest.is_empty() && self.lane.state.lock().keep.granted())
    }

    /// Makes a frame of the pieces that were gathered; what is too large for one waits its turn.
    fn gathered(&mut self, gathered: &[Bytes], frames: &mut Vec<Bytes>) {
        let bytes = gathered.iter().map(Bytes::len).sum::<usize>();
        if bytes == 0 {
            return;
        }
        if bytes > self.frame_bytes_max || !self.rest.is_empty() {
            let cut = gathered
                .iter()
                .flat_map(|piece| parts(piece, self.frame_bytes_max));
            self.rest.extend(cut.map(Piece::Chunk));
            return;
        }
        let mut state = self.lane.state.lock();
        if state.keep.has_room() {
            let frame = code::chunks(state.keep.next(), gathered);
            state.keep.push(frame.clone());
            frames.push(frame);
        }
    }

    /// Sends what waits as far as there is credit; the end itself needs none, and what goes before the end of a
    /// request that is to stop is left out where there is no room.
    fn send_rest(&mut self, frames: &mut Vec<Bytes>) {
        while let Some(piece) = self.rest.pop_front() {
            let last = matches!(piece, Piece::End(..));
            if !last && !self.told && !self.lane.state.lock().keep.granted() {
                self.rest.push_front(piece);
                return;
            }
            self.push(&piece, frames);
        }
    }

    /// Makes a frame of a piece and keeps it, if there is room or it is the last.
    fn push(&self, piece: &Piece, frames: &mut Vec<Bytes>) {
        let mut state = self.lane.state.lock();
        let last = matches!(piece, Piece::End(..));
        if !last && !state.keep.has_room() {
            return;
        }
        match code::frame(state.keep.next(), piece) {
            Ok(frame) => {
                state.keep.push(frame.clone());
                frames.push(frame);
            }
            Err(problem) => {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    "a frame cannot be written"
                );
                state.abandoned = true;
            }
        }
        state.ended |= last;
    }
}

/// The pieces of an end: what does not fit the last frame goes before it.
fn split(end: End, bytes_max: usize) -> VecDeque<Piece> {
    let End { report, tail, head } = end;
    let mut parts: Vec<Bytes> = parts(&tail, bytes_max).collect();
    let last = parts.pop().unwrap_or_default();
    let mut pieces: VecDeque<Piece> = parts.into_iter().map(Piece::Tail).collect();
    pieces.push_back(Piece::End(Box::new(Last { report, head }), last));
    pieces
}

/// Cuts bytes into parts that fit a frame.
fn parts(bytes: &Bytes, bytes_max: usize) -> impl Iterator<Item = Bytes> {
    let count = bytes.len().div_ceil(bytes_max);
    (0..count).map(move |part| {
        let from = part * bytes_max;
        bytes.slice(from..bytes.len().min(from + bytes_max))
    })
}

#[cfg(test)]
mod tests;
