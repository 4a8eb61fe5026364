//! What a connection knows of itself: whether an answer was served on it, and whether the upstream has said
//! anything since the current request began. Only that can tell a request that was surely not processed (a
//! reused connection that died in silence) from one that may have been. And whether more of an answer is there
//! already than was handed on: a connection hands on one piece at a time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The knowledge of one HTTP/1.1 connection, shared by its bytes and by the answers that came over it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tag {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// An answer was served to its end.
    served: AtomicBool,
    /// The last answer has ended; the next byte written opens a request.
    resting: AtomicBool,
    /// The upstream sent a byte after the current request was begun.
    heard: AtomicBool,
    /// Reads of the socket that gave bytes; wraps.
    reads: AtomicUsize,
    /// The last read of the socket found nothing.
    dry: AtomicBool,
    /// Who waits for that.
    waker: AtomicWaker,
}

impl Tag {
    /// An answer has ended: what is written from now on is another request.
    pub(crate) fn rest(&self) {
        self.state.served.store(true, Ordering::Relaxed);
        self.state.resting.store(true, Ordering::Release);
    }

    /// True when the current request met a connection that had served before and then said nothing.
    pub(crate) fn died_unheard(&self) -> bool {
        let unsent = self.state.resting.load(Ordering::Acquire);
        self.state.served.load(Ordering::Relaxed) && (unsent || !self.state.heard.load(Ordering::Relaxed))
    }

    /// How often the socket gave bytes so far; wraps.
    pub(super) fn reads(&self) -> usize {
        self.state.reads.load(Ordering::Relaxed)
    }

    /// True when all that came over the socket was handed on; else `context` is woken when that is so.
    pub(super) fn dry(&self, context: &Context<'_>) -> bool {
        self.state.waker.register(context.waker());
        self.state.dry.load(Ordering::Acquire)
    }

    fn wrote(&self) {
        if self.state.resting.load(Ordering::Relaxed) && self.state.resting.swap(false, Ordering::AcqRel) {
            self.state.heard.store(false, Ordering::Relaxed);
        }
    }

    fn found_nothing(&self) {
        if !self.state.dry.swap(true, Ordering::AcqRel) {
            self.state.waker.wake();
        }
    }

    fn read(&self) {
        self.state.reads.fetch_add(1, Ordering::Relaxed);
        self.state.dry.store(false, Ordering::Release);
        if !self.state.resting.load(Ordering::Acquire) {
            self.state.heard.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that keeps its [`Tag`].
#[derive(Debug)]
pub(crate) struct Tagged<T> {
    io: T,
    tag: Tag,
}

impl<T> Tagged<T> {
    pub(crate) fn new(io: T) -> Self {
        Self {
            io,
            tag: Tag::default(),
        }
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.tag.wrote();
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tagged<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_pending() {
            self.tag.found_nothing();
        } else if buffer.filled().len() > before {
            self.tag.read();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tagged<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.note_write(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.note_write(written)
    }
}

impl<T: Connection> Connection for Tagged<T> {
    fn connected(&self) -> Connected {
        let connected = self.io.connected();
        if connected.is_negotiated_h2() {
            return connected;
        }
        connected.extra(self.tag.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_served_and_then_said_nothing_died_unheard() {
        let tag = Tag::default();
        tag.wrote();
        assert!(!tag.died_unheard(), "it never served");

        tag.read();
        tag.rest();
        assert!(tag.died_unheard(), "closed before the next request was written");

        tag.wrote();
        assert!(tag.died_unheard(), "written, and no byte came back");

        tag.read();
        assert!(!tag.died_unheard(), "a byte came back");
    }

    #[test]
    fn bytes_between_two_requests_are_no_answer() {
        let tag = Tag::default();
        tag.rest();
        tag.read();
        tag.wrote();

        assert!(tag.died_unheard());
    }
}
