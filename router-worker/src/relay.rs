//! The way of frames from a running request to whoever polls its session: one slot, no task and no queue.
//! The request's future stores a frame and yields; the session takes it out of the slot.
//!
//! Guarantees: the upstream is read only as fast as frames are taken; a stop is seen at the next poll, at
//! whatever point the request waits.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bus::dispatch::{End, Frame, Session};
use parking_lot::Mutex;

/// Why a request is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The caller has left.
    CallerGone,
    /// The node is at its drain limit.
    Interrupted,
}

const RUNNING: u8 = 0;
const CALLER_GONE: u8 = 1;
const INTERRUPTED: u8 = 2;

/// What a request and its session share.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    stop: AtomicU8,
    /// Locked by one side at a time: the future inside a poll, or the session right after it.
    slot: Mutex<Option<Frame>>,
}

impl Relay {
    /// Whether the request shall end, and why.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::Relaxed) {
            CALLER_GONE => Some(Stop::CallerGone),
            INTERRUPTED => Some(Stop::Interrupted),
            _ => None,
        }
    }

    /// Hands a frame over; returns when it was taken.
    pub(crate) async fn send(&self, frame: Frame) {
        *self.slot.lock() = Some(frame);
        let mut stored = true;
        poll_fn(|_| {
            if std::mem::take(&mut stored) {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    fn stop(&self, reason: u8) {
        // The first reason stays: the caller's leaving is not covered up by the drain.
        let _ = self
            .stop
            .compare_exchange(RUNNING, reason, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A session in this process: the request's own state machine, polled by whoever wants its frames.
pub(crate) struct LocalSession {
    relay: Arc<Relay>,
    request: Pin<Box<dyn Future<Output = Box<End>> + Send>>,
}

impl LocalSession {
    /// Runs `request`, which sends its frames to `relay`, as far as it is polled.
    pub(crate) fn new(relay: Arc<Relay>, request: impl Future<Output = Box<End>> + Send + 'static) -> Self {
        Self {
            relay,
            request: Box::pin(request),
        }
    }
}

impl Session for LocalSession {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        match self.request.as_mut().poll(context) {
            Poll::Ready(end) => Poll::Ready(Frame::End(end)),
            Poll::Pending => match self.relay.slot.lock().take() {
                Some(frame) => Poll::Ready(frame),
                None => Poll::Pending,
            },
        }
    }

    fn cancel(&mut self) {
        self.relay.stop(CALLER_GONE);
    }

    fn interrupt(&mut self) {
        self.relay.stop(INTERRUPTED);
    }
}
