//! From frames to an answer. [`Running`] owns a request from dispatch to settlement: whoever drops it before its end
//! hands it to the gateway's own tasks, where it is canceled, heard out for a moment and settled. So the books never
//! depend on a connection.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::Response;
use bus::dispatch::{End, Frame, Session};
use bus::spool::Spool;
use bytes::Bytes;
use futures_util::FutureExt as _;
use schemas::event::request::RequestAccepted;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Head, Report};
use schemas::id::RequestId;
use schemas::idempotency;
use schemas::outcome::Outcome;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::auto::Walk;
use crate::body::Permit;
use crate::error;
use crate::idempotency::{Ended, HELD_BACK};
use crate::layers::X_CONFIG;
use crate::limits::Held;
use crate::open::{Place, Slot};
use crate::responses::{Echo, Keeping};
use crate::settle::{self, Ending, Recorded, Terms};
use crate::shape::Shape;
use crate::state::Shared;

mod head;
mod keyed;
mod moving;
mod routed;
mod stall;
mod stream;
mod told;
mod voice;
mod whole;

use keyed::Closing;
pub(crate) use keyed::Keyed;
use moving::Changing;
pub(crate) use routed::Routed;
use stall::Silence;
use voice::Voice;

/// How long a canceled session may take to report.
const FAREWELL: Duration = Duration::from_secs(1);

/// A request that was admitted and has not settled.
pub(crate) struct Running(Option<Box<Live>>);

/// What a running request is made of.
pub(crate) struct Live {
    pub(crate) state: Shared,
    /// Its place among those in flight, held to its settlement.
    pub(crate) _place: Place,
    pub(crate) slot: Arc<Slot>,
    /// In whose words it is refused.
    pub(crate) shape: Shape,
    /// The model's name as the caller wrote it.
    pub(crate) public_model: Arc<str>,
    pub(crate) terms: Terms,
    pub(crate) session: Box<dyn Session>,
    /// Room for its body; given back when the answer begins.
    pub(crate) permit: Option<Permit>,
    pub(crate) progress: Progress,
    /// What is to be kept of its answer.
    pub(crate) keeping: Option<Box<Keeping>>,
    /// What is put into its answer.
    pub(crate) echo: Option<Box<Echo>>,
    /// The model that answers, where that is another one than was asked for.
    pub(crate) routed: Option<Routed>,
    /// Whom it may go to, where that was left to the gateway.
    pub(crate) auto: Option<Box<Walk>>,
    /// On its way from a model that failed to the next one: its session has ended.
    pub(crate) changing: Option<Changing>,
    /// What it holds of its limits.
    pub(crate) held: Held,
    /// The session's last word, while what it used beyond its reservation is asked for.
    pub(crate) over: Option<Box<End>>,
    /// Its idempotency key.
    pub(crate) key: Option<Box<Keyed>>,
}

/// How far the answer is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The session was told to end at the drain limit.
    interrupted: bool,
    /// The status that was sent.
    sent: Option<u16>,
    /// A piece of the answer was handed to the caller's connection.
    handed: bool,
    /// The caller left, and the answer is heard out for when he comes again.
    alone: bool,
}

/// A request that has settled.
struct Settled {
    /// Its record, `None` when it could not be written.
    record: Option<(Spool, u64)>,
    /// What the caller is told instead of the rest of the answer.
    failure: Option<Failure>,
    /// Keeps the answer, where its caller wants that; goes on to its end also without him.
    kept: Option<JoinHandle<()>>,
    /// Its idempotency key, under which the answer is still to be left.
    key: Option<Closing>,
}

impl Settled {
    /// Waits until the record survives what it must survive, at once where that is the process, until the answer is
    /// kept, and for a moment until it is left under its idempotency key.
    async fn durable(record: Option<(Spool, u64)>, kept: Option<JoinHandle<()>>, left: Option<Ended>) {
        if let Some((spool, sequence)) = record {
            spool.durable(sequence).await;
        }
        if let Some(kept) = kept {
            // That it could not be kept is told where it is tried, and costs nobody his answer.
            let _ = kept.await;
        }
        if let Some(left) = left {
            left.within(HELD_BACK).await;
        }
    }
}

/// Answers a request: runs it to its first content, then relays.
pub(crate) async fn answer(mut running: Running) -> Response {
    let revision = running.live().and_then(Live::revision);
    let mut limits = running.live().and_then(Live::limits);
    let mut silence = running.silence();
    let first = std::future::poll_fn(|context| running.poll_first(context, silence.as_mut())).await;
    let routed = running.live().and_then(|live| live.routed.clone());
    if running.live().is_some_and(Live::has_moved) {
        limits = running.live().and_then(Live::limits).or(limits);
    }
    let mut response = match first {
        Some(Frame::Head(head)) => stream::response(&head, running, silence, None),
        Some(Frame::Chunk(chunk)) => stream::response(&head::early(), running, silence, Some(chunk)),
        Some(Frame::End(end)) => whole::response(running, end).await,
        None => stream::response(&head::early(), running, silence, Some(voice::COMMENT)),
    };
    if let Some(revision) = revision {
        response.headers_mut().insert(X_CONFIG, revision);
    }
    if let Some(limits) = limits {
        limits.tell(response.headers_mut());
    }
    if let Some(routed) = routed {
        routed.tell(response.headers_mut());
    }
    response
}

impl Running {
    /// A request that was just dispatched.
    pub(crate) fn new(live: Box<Live>) -> Self {
        Self(Some(live))
    }

    fn live(&self) -> Option<&Live> {
        self.0.as_deref()
    }

    fn request_id(&self) -> RequestId {
        self.live()
            .map_or(RequestId(uuid::Uuid::nil()), |live| live.slot.accepted.request_id)
    }

    /// What the gateway says by itself in its stream.
    fn voice(&self) -> Voice {
        Voice::new(self.live())
    }

    fn streams(&self) -> bool {
        self.live().is_some_and(Live::speaks_events)
    }

    /// In whose words its caller is told of failures.
    fn shape(&self) -> Shape {
        self.live().map_or_else(Shape::default, |live| live.shape)
    }

    /// The clock of keep-alives, for streams.
    fn silence(&self) -> Option<Silence> {
        let live = self.live().filter(|live| live.speaks_events())?;
        Silence::new(Duration::from_secs(live.state.config.keepalive_seconds))
    }

    /// The first frame, or nothing once a stream was silent for too long.
    fn poll_first(
        &mut self,
        context: &mut Context<'_>,
        silence: Option<&mut Silence>,
    ) -> Poll<Option<Frame>> {
        if let Poll::Ready(frame) = self.poll_frame(context) {
            return Poll::Ready(Some(frame));
        }
        match silence {
            Some(silence) => silence.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    }

    /// The next frame. Not to be polled after the end.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        let Some(live) = self.0.as_deref_mut() else {
            return Poll::Pending;
        };
        loop {
            if let Some(frame) = ready!(live.poll_change(context)) {
                return Poll::Ready(frame);
            }
            if !live.progress.interrupted && live.slot.interrupted() {
                live.progress.interrupted = true;
                live.session.interrupt();
            }
            let frame = match live.session.poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending if live.slot.waiting(context) && !live.progress.interrupted => {
                    live.progress.interrupted = true;
                    live.session.interrupt();
                    ready!(live.session.poll_frame(context))
                }
                Poll::Pending => return Poll::Pending,
            };
            let Some(frame) = live.heard(frame) else {
                continue;
            };
            if !matches!(frame, Frame::Chunk(_)) {
                live.permit = None;
            }
            if let Some(frame) = live.echoed(frame) {
                return Poll::Ready(frame);
            }
        }
    }

    /// Notes the head that leaves.
    fn send(&mut self, head: &Head) {
        let voice = self.voice();
        if let Some(live) = self.0.as_deref_mut() {
            live.progress.sent = Some(head.status);
            if let Some(key) = &mut live.key {
                key.begin(head, live.terms.stream, (live.routed.as_ref(), voice));
            }
        }
    }

    /// Notes a piece of the answer that leaves.
    fn hand(&mut self, piece: &Bytes, now: Instant) {
        self.hear(piece);
        if let Some(live) = self.live() {
            live.slot.handed(now);
        }
    }

    /// Notes a piece of the answer.
    fn hear(&mut self, piece: &Bytes) {
        if let Some(live) = self.0.as_deref_mut() {
            if let Some(keeping) = &mut live.keeping {
                keeping.heard(piece);
            }
            if let Some(key) = &mut live.key {
                key.piece(piece);
            }
            live.progress.handed = true;
        }
    }

    /// Notes a comment that leaves: the caller must take it, but it is no part of the answer.
    fn hand_comment(&self, now: Instant) {
        if let Some(live) = self.live() {
            live.slot.handed(now);
        }
    }

    /// Keeps the session's last word. Ready once what the request used beyond its reservation is in hand or cannot be
    /// had; `None` where nothing has to be asked.
    fn cover(&mut self, end: Box<End>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let live = self.0.as_deref_mut()?;
        let used = (!live.held.is_nothing()).then(|| settle::foreseen(&live.terms, &end.report));
        let covering = used.and_then(|used| live.held.cover(used));
        live.over = Some(end);
        covering.map(|covering| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(covering) })
    }

    /// The session's last word, once it was kept.
    fn covered(&mut self) -> Option<Box<End>> {
        self.0.as_deref_mut()?.over.take()
    }

    /// Settles: the record is in the spool when this returns. `tail` is what of the answer has not left.
    fn end(&mut self, report: Report, tail: &Bytes) -> Settled {
        match self.0.take() {
            Some(mut live) => {
                let settled = live.settle(report, false);
                let keeping = live.keeping.take().filter(|_| settled.failure.is_none());
                Settled {
                    kept: keeping.map(|keeping| {
                        let keep = keeping.whole(live.state.clone(), tail.clone());
                        live.state.leaving.spawn(keep)
                    }),
                    ..settled
                }
            }
            None => Settled {
                record: None,
                failure: Some(broken()),
                kept: None,
                key: None,
            },
        }
    }

    /// Hears a request out whose caller left: he may come again with its idempotency key.
    async fn carry_on(mut self) {
        if self.live().is_some_and(|live| live.over.is_none()) {
            let end = self.hear_all().await;
            if let Some(covering) = self.cover(end) {
                covering.await;
            }
        }
        let (streams, begun) = (self.streams(), self.has_begun());
        let routed = self.live().and_then(|live| live.routed.clone());
        let (request_id, shape) = (self.request_id(), self.shape());
        let Some(end) = self.covered() else {
            return;
        };
        let Settled {
            record,
            failure,
            kept,
            key,
        } = self.end(end.report, &end.tail);
        let left = key.and_then(|key| match &failure {
            _ if begun => key.told(failure.as_ref(), &end.tail),
            Some(failure) => {
                let (head, body) = error::parts(failure, request_id, shape);
                key.whole(&head, false, routed.as_ref(), &body)
            }
            None => {
                let head = end.head.clone().unwrap_or_else(head::early);
                key.whole(&head, streams, routed.as_ref(), &end.tail)
            }
        });
        Settled::durable(record, kept, left).await;
    }

    /// Hears the session to its last word.
    async fn hear_all(&mut self) -> Box<End> {
        loop {
            match std::future::poll_fn(|context| self.poll_frame(context)).await {
                Frame::Head(head) if !self.has_begun() => self.send(&head),
                Frame::Head(_) => {}
                Frame::Chunk(chunk) if chunk.is_empty() => {}
                Frame::Chunk(chunk) => {
                    if !self.has_begun() {
                        self.send(&head::early());
                    }
                    self.hear(&chunk);
                }
                Frame::End(end) => return end,
            }
        }
    }

    /// True once the head of the answer has left.
    fn has_begun(&self) -> bool {
        let key = self.live().and_then(|live| live.key.as_ref());
        key.is_some_and(|key| key.has_begun())
    }
}

impl Live {
    /// The frame with what its answer repeats; `None` when nothing of it leaves yet.
    fn echoed(&mut self, frame: Frame) -> Option<Frame> {
        let Some(echo) = &mut self.echo else {
            return Some(frame);
        };
        match frame {
            Frame::Chunk(piece) => {
                let piece = echo.piece(piece);
                (!piece.is_empty()).then_some(Frame::Chunk(piece))
            }
            Frame::End(mut end) => {
                end.tail = echo.tail(std::mem::take(&mut end.tail));
                Some(Frame::End(end))
            }
            Frame::Head(head) => Some(Frame::Head(head)),
        }
    }

    fn settle(&mut self, mut report: Report, gone: bool) -> Settled {
        let key = self.key.take();
        if key.as_ref().is_some_and(|key| !key.may_charge(&self.state)) {
            forfeit(&mut report);
        }
        let is_told = report.outcome != Outcome::Ok && report.passed.is_none();
        let told = is_told.then(|| report.failure.clone().unwrap_or_else(broken));
        let told = told.map(|failure| match &self.echo {
            Some(echo) => echo.counted(failure),
            None => failure,
        });
        let ending = Ending {
            report,
            sent: self.progress.sent,
            gone,
        };
        let accepted: &RequestAccepted = &self.slot.accepted;
        let mut waybill = settle::waybill(accepted, &self.terms, ending, self.state.ports.clock.now());
        waybill.settled.idempotency = key.as_ref().map(|_| "first".into());
        self.tell_of_choice(&mut waybill.settled);
        if !self.passes() {
            self.state.profiles.note(&self.terms.model, &waybill.settled);
        }
        let is_whole = told.is_none();
        let held = std::mem::replace(&mut self.held, Held::nothing());
        let written = settle::close(&self.state, accepted, (waybill, held), self.progress.sent);
        // An error event ends a stream as cleanly as its end mark does.
        let ends_cleanly = is_whole && !gone && written.is_ok() || self.speaks_events() && !gone;
        if !ends_cleanly
            && !self.progress.alone
            && self.progress.sent.is_some()
            && let Some(connection) = &self.slot.connection
        {
            connection.close_after_answer();
        }
        match written {
            Ok(recorded) => Settled {
                record: Some((self.state.ports.spool.clone(), recorded.appended.sequence)),
                failure: told,
                kept: None,
                key: key.map(|key| key.close(Some((&recorded.settled, self.envelope(&recorded))))),
            },
            // What is not in the books must not look like an answer.
            Err(_) => Settled {
                record: None,
                failure: Some(Failure::new(
                    FailureCode::SpoolFull,
                    "the record of the request cannot be written",
                )),
                kept: None,
                key: key.map(|key| key.close(None)),
            },
        }
    }

    /// The event of a waybill, as it is published; empty where it does not serialize, which a spool would not have
    /// taken.
    fn envelope(&self, recorded: &Recorded) -> Vec<u8> {
        let settled = &recorded.settled;
        let at = (&settled.tenant, settled.ended_at);
        let envelope = self.state.ports.spool.envelope(recorded.appended, at, settled);
        envelope.unwrap_or_default()
    }

    /// Ends a request whose caller left: the upstream is closed, the session heard out, the waybill written.
    async fn leave(mut self: Box<Self>) {
        let mut report = match self.over.take() {
            Some(end) => end.report,
            None => self.hear_out().await,
        };
        report.delivered.content &= self.progress.handed;
        let delivered = report.delivered.content;
        if !self.held.is_nothing() {
            let used = settle::foreseen(&self.terms, &report);
            if let Some(covering) = self.held.cover(used) {
                covering.await;
            }
        }
        self.settle(report, true);
        if let Some(keeping) = self.keeping.take().filter(|_| delivered) {
            keeping.interrupted(&self.state).await;
        }
    }

    /// Cancels the session and hears its last word, if it comes soon.
    async fn hear_out(&mut self) -> Report {
        if self.changing.take().is_some() {
            // Between two models there is no session to hear.
            return self.concluded(unheard(Outcome::ClientGone));
        }
        let farewell = AssertUnwindSafe(async {
            self.session.cancel();
            loop {
                let frame = std::future::poll_fn(|context| self.session.poll_frame(context)).await;
                if let Frame::End(end) = frame {
                    return *end;
                }
            }
        });
        let heard = match timeout(FAREWELL, farewell.catch_unwind()).await {
            Ok(Ok(end)) => end.report,
            Ok(Err(_)) | Err(_) => unheard(Outcome::ClientGone),
        };
        self.concluded(heard)
    }

    /// Ends a request that panicked: its session is not touched again.
    fn give_up(&mut self) {
        let report = self.concluded(unheard(Outcome::UpstreamError));
        self.settle(report, false);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut live) = self.0.take() else {
            return;
        };
        let leaving = live.state.leaving.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if std::thread::panicking() => drop(leaving.spawn_on(
                async move {
                    live.give_up();
                },
                &runtime,
            )),
            Ok(_) if live.progress.alone => {
                warn!(request.id = %live.slot.accepted.request_id, "a request is left to the next start");
            }
            Ok(runtime) if live.key.is_some() => {
                live.progress.alone = true;
                let running = Self(Some(live));
                drop(leaving.spawn_on(running.carry_on(), &runtime));
            }
            Ok(runtime) => drop(leaving.spawn_on(live.leave(), &runtime)),
            // No runtime, no session: the process ends, and the next start finds the intent.
            Err(_) => {
                warn!(request.id = %live.slot.accepted.request_id, "a request is left to the next start");
            }
        }
    }
}

/// The report of a session that gave none.
pub(crate) fn unheard(outcome: Outcome) -> Report {
    warn!(outcome = outcome.as_str(), "a session ended without a report");
    Report {
        outcome,
        failure: None,
        attempts: Vec::new(),
        served: None,
        usage: None,
        usage_flags: Vec::new(),
        upstream_cost_nano_usd: None,
        attempts_of_unknown_cost: 0,
        passed: None,
        session: None,
        affinity: None,
        decision: None,
        delivered: Delivered::default(),
    }
}

/// Makes nothing of what came back under a key that is another request's by now: one of them is charged, not both.
fn forfeit(report: &mut Report) {
    if matches!(report.outcome, Outcome::Ok | Outcome::ClientGone) {
        report.outcome = if report.delivered.content {
            Outcome::UpstreamCut
        } else {
            Outcome::UpstreamError
        };
        report.failure = Some(idempotency::Refusal::StoreUnavailable.failure());
    }
}

/// An answer that was kept, as it leaves again.
pub(crate) fn kept(head: &Head, events: bool, body: Bytes) -> Response {
    if events {
        head::stream(head, body.into())
    } else {
        head::whole(head, body.into())
    }
}

/// What a caller is told when nobody can say more.
fn broken() -> Failure {
    Failure::new(FailureCode::Internal, "the request failed inside the gateway")
}
