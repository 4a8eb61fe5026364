//! An answer as a stream: a body that polls the session. Nothing is spawned and nothing is copied; a caller who reads
//! slowly is a body that is not polled, which is an upstream that is not read. The end mark waits for the waybill;
//! a stream that cannot be finished ends with an error event and without the mark.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bus::dispatch::Frame;
use bytes::Bytes;
use http_body::Frame as Piece;
use schemas::frame::Head;
use tokio::time::Instant;

use super::stall::Silence;
use super::voice::{COMMENT, Voice};
use super::{Live, Running, Settled, head};

/// The answer began in a form that no error event can end: the connection breaks off instead.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(super) struct Broken;

/// The body of a streamed answer.
struct Stream {
    running: Running,
    voice: Voice,
    /// A stream of events, which an error event can end.
    events: bool,
    silence: Option<Silence>,
    /// A piece that came before the body did.
    first: Option<Bytes>,
    phase: Phase,
}

/// Where a stream is.
enum Phase {
    /// The session is polled.
    Relaying,
    /// What was used beyond its reservation is asked for.
    Covering(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The waybill is written; the rest leaves once it is durable.
    Closing {
        durable: Pin<Box<dyn Future<Output = ()> + Send>>,
        rest: Result<Bytes, Broken>,
    },
    /// Nothing more comes.
    Done,
}

/// A streamed answer whose head is known; `first` leaves before anything else.
pub(super) fn response(
    head: &Head,
    mut running: Running,
    silence: Option<Silence>,
    first: Option<Bytes>,
) -> Response {
    running.send(head);
    let events = running.streams();
    let passes = running.live().is_some_and(Live::passes);
    let mut stream = Stream {
        voice: running.voice(),
        running,
        events,
        silence,
        first: None,
        phase: Phase::Relaying,
    };
    if let Some(first) = first {
        if first == COMMENT {
            stream.running.hand_comment(Instant::now());
        } else {
            stream.hand(&first);
        }
        stream.first = Some(first);
    }
    let body = Body::new(stream);
    if passes {
        head::passing(head, body)
    } else if events {
        head::stream(head, body)
    } else {
        head::whole(head, body)
    }
}

impl Stream {
    /// The next piece of a running answer, `None` when the phase has changed.
    fn poll_relay(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match self.running.poll_frame(context) {
                Poll::Ready(Frame::Chunk(chunk)) if chunk.is_empty() => {}
                Poll::Ready(Frame::Chunk(chunk)) => {
                    self.hand(&chunk);
                    return Poll::Ready(Some(chunk));
                }
                // The head has left already: with the first comment.
                Poll::Ready(Frame::Head(_)) => {}
                Poll::Ready(Frame::End(end)) => {
                    match self.running.cover(end) {
                        Some(covering) => self.phase = Phase::Covering(covering),
                        None => self.close(),
                    }
                    return Poll::Ready(None);
                }
                Poll::Pending => return self.poll_silence(context),
            }
        }
    }

    /// Settles: what is left of the answer leaves once that is durable.
    fn close(&mut self) {
        let Some(end) = self.running.covered() else {
            self.phase = Phase::Done;
            return;
        };
        let Settled {
            record,
            failure,
            kept,
            key,
        } = self.running.end(end.report, &end.tail);
        let rest = match failure {
            None => Ok(end.tail),
            Some(failure) if self.events => Ok(self.voice.failure(&failure)),
            Some(_) => Err(Broken),
        };
        let left = key.and_then(|key| key.last(rest.as_ref().ok().map(|rest| &rest[..])));
        let durable = Box::pin(Settled::durable(record, kept, left));
        self.phase = Phase::Closing { durable, rest };
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(silence) = &mut self.silence else {
            return Poll::Pending;
        };
        ready!(silence.poll(context));
        self.running.hand_comment(Instant::now());
        Poll::Ready(Some(self.voice.alive()))
    }

    /// Notes that a piece leaves.
    fn hand(&mut self, piece: &Bytes) {
        let now = Instant::now();
        self.running.hand(piece, now);
        self.voice.heard(piece);
        if let Some(silence) = &mut self.silence {
            silence.broken(now);
        }
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece<Bytes>, Broken>>> {
        let stream = self.get_mut();
        if let Some(first) = stream.first.take() {
            return Poll::Ready(Some(Ok(Piece::data(first))));
        }
        loop {
            match &mut stream.phase {
                Phase::Relaying => {
                    if let Some(piece) = ready!(stream.poll_relay(context)) {
                        return Poll::Ready(Some(Ok(Piece::data(piece))));
                    }
                }
                Phase::Covering(covering) => {
                    ready!(covering.as_mut().poll(context));
                    stream.close();
                }
                Phase::Closing { durable, rest } => {
                    ready!(durable.as_mut().poll(context));
                    let rest = std::mem::replace(rest, Ok(Bytes::new()));
                    stream.phase = Phase::Done;
                    return match rest {
                        Ok(rest) if rest.is_empty() => Poll::Ready(None),
                        rest => Poll::Ready(Some(rest.map(Piece::data))),
                    };
                }
                Phase::Done => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.phase, Phase::Done) && self.first.is_none()
    }
}
