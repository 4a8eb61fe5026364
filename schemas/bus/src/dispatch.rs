//! The Dispatch port: how a gateway has a request run by a router-worker.
//!
//! In process, the session *is* the router's state machine and the gateway's response body polls it: no
//! task, no copy of the body, no hop. Promises: exactly one [`Frame::End`], and it is the last; at most one
//! [`Frame::Head`], before any chunk; chunks never hold the end mark or the last body byte; after a cancel
//! the upstream is closed at once and `End` follows within a second; dropping a session closes its upstream.

use std::task::{Context, Poll};

use bytes::Bytes;
use schemas::command::Offer;
use schemas::frame::{Head, Report};
use schemas::pool::Way;

/// A request to run: the offer, and the body as the caller sent it.
#[derive(Debug)]
pub struct Dispatch {
    /// What to run.
    pub offer: Offer,
    /// The caller's body, byte for byte.
    pub body: Bytes,
    /// The pools that run it, one after the other; none where routers of the node's own pool run all of it.
    pub ways: Vec<Way>,
}

impl Dispatch {
    /// One that is run in the node's own pool.
    pub const fn new(offer: Offer, body: Bytes) -> Self {
        Self {
            offer,
            body,
            ways: Vec::new(),
        }
    }
}

/// One reply of a session.
#[derive(Debug)]
pub enum Frame {
    /// The answer begins; its first content follows.
    Head(Head),
    /// A piece of it, in the caller's dialect.
    Chunk(Bytes),
    /// The last word. `tail` holds the end mark or the last body bytes: they are sent after the waybill is
    /// in the spool, and only when the outcome is `ok`.
    End(Box<End>),
}

/// The end of a session.
#[derive(Debug)]
pub struct End {
    /// What happened.
    pub report: Report,
    /// The held bytes: the whole body of an unstreamed answer, or the end mark of a stream (together with
    /// whatever must not leave before it).
    pub tail: Bytes,
    /// The head, when no [`Frame::Head`] went before: an unstreamed answer is one frame.
    pub head: Option<Head>,
}

/// A request being run.
pub trait Session: Send {
    /// The next frame. After [`Frame::End`] it must not be polled again.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame>;

    /// The caller has left: close the upstream, then report.
    fn cancel(&mut self);

    /// Ends the request at the drain limit: close the upstream, then report `timeout` with
    /// `stream_interrupted`.
    fn interrupt(&mut self);
}

/// Runs requests.
pub trait Dispatcher: Send + Sync {
    /// Begins to run a request. Nothing is sent upstream before the session is first polled.
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session>;
}
