//! One connection: writes a request while it looks for the answer, and reads into a buffer that exists only while
//! there is something to read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use dialects::splice::Spliced;
use socket2::SockRef;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::Error;
use super::head::{self, Head};

/// Bodies up to this are copied behind their head: cheaper than a write of two parts.
const JOINED_BYTES_MAX: usize = 4 * 1024;
/// Pieces that are written at once.
const PARTS_MAX: usize = 8;
/// Bytes read at a time: more once a read fills them, fewer once one hardly does.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The largest it grows to.
const READ_BYTES_MAX: usize = 128 * 1024;
/// A head beyond this is parsed again only when a line has ended: else one that drips would cost the square of it.
const DRIPPING_BYTES: usize = 8 * 1024;

/// A connection to an upstream.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// What was read and not yet taken.
    pub(super) buffer: BytesMut,
    read_bytes: usize,
}

/// A request on its way.
pub(super) struct Outgoing {
    /// Head and body, as far as they are not written; none is empty.
    pieces: VecDeque<Bytes>,
    /// The peer takes no more of it.
    refused: Option<io::Error>,
    /// A byte came back.
    pub(super) heard: bool,
}

impl Outgoing {
    pub(super) fn new(head: Vec<u8>, body: &Spliced) -> Self {
        let mut head = head;
        let mut pieces = VecDeque::new();
        if body.bytes() <= JOINED_BYTES_MAX {
            body.pieces()
                .iter()
                .for_each(|piece| head.extend_from_slice(piece));
        } else {
            pieces.extend(body.pieces().iter().cloned());
        }
        pieces.push_front(head.into());
        Self {
            pieces,
            refused: None,
            heard: false,
        }
    }

    /// True when all of it was written.
    pub(super) fn is_whole(&self) -> bool {
        self.pieces.is_empty()
    }

    fn poll_write(&self, stream: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let (Some(piece), 1) = (self.pieces.front(), self.pieces.len()) {
            return Pin::new(stream).poll_write(context, piece);
        }
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        for (part, piece) in parts.iter_mut().zip(&self.pieces) {
            *part = IoSlice::new(piece);
        }
        Pin::new(stream).poll_write_vectored(context, &parts)
    }

    fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some(piece) = self.pieces.front_mut() {
            if left < piece.len() {
                piece.advance(left);
                return;
            }
            left -= piece.len();
            self.pieces.pop_front();
        }
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
        }
    }

    /// Sends a request and reads the head of its answer, which may come before all is sent.
    pub(super) async fn exchange(&mut self, outgoing: &mut Outgoing) -> Result<Head, Error> {
        poll_fn(|context| self.poll_exchange(context, outgoing)).await
    }

    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<Head, Error>> {
        self.write(context, outgoing);
        loop {
            let known = self.buffer.len();
            let read = match ready!(self.poll_fill(context)) {
                Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                read => read,
            };
            if let Err(error) = read {
                // What ended the writing says more than the end of the reading.
                return Poll::Ready(Err(Error::Broken(outgoing.refused.take().unwrap_or(error))));
            }
            outgoing.heard = true;
            let drips = (DRIPPING_BYTES..head::BYTES_MAX).contains(&known)
                && self.buffer.len() < head::BYTES_MAX
                && !self.buffer.iter().skip(known).any(|byte| *byte == b'\n');
            if drips {
                continue;
            }
            if let Some(head) = head::take(&mut self.buffer)? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// Writes as much as the peer takes now. A peer that takes no more may still have answered.
    pub(super) fn write(&mut self, context: &mut Context<'_>, outgoing: &mut Outgoing) {
        while !outgoing.is_whole() && outgoing.refused.is_none() {
            let written = outgoing.poll_write(&mut self.stream, context);
            match written {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => outgoing.refused = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => outgoing.advance(bytes),
                Poll::Ready(Err(error)) => outgoing.refused = Some(error),
            }
        }
    }

    /// Reads more into the buffer; 0 at the end of the connection. While nothing comes there is no buffer.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = match self.stream.poll_read_ready(context) {
            Poll::Ready(Ok(())) => {
                self.buffer.reserve(self.read_bytes);
                poll_read_buf(Pin::new(&mut self.stream), context, &mut self.buffer)
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        match read {
            Poll::Pending => self.release(),
            Poll::Ready(Ok(bytes)) => {
                let is_full = self.buffer.len() == self.buffer.capacity();
                self.read_bytes = next_read_bytes(self.read_bytes, bytes, is_full);
            }
            Poll::Ready(Err(_)) => {}
        }
        read
    }

    /// Reads what is there without waiting; `None` when nothing is.
    pub(super) fn fill_now(&mut self) -> Option<io::Result<usize>> {
        self.buffer.reserve(self.read_bytes);
        match self.stream.try_read_buf(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.release();
                None
            }
            read => Some(read),
        }
    }

    /// True when the peer has said nothing, and not closed either, as far as the runtime has noticed.
    pub(super) fn seems_quiet(&self) -> bool {
        let nothing = || self.stream.try_read(&mut [0]).map_err(|error| error.kind());
        self.buffer.is_empty() && nothing() == Err(io::ErrorKind::WouldBlock)
    }

    /// The same as the system knows it, which a busy runtime learns late.
    pub(super) fn is_quiet(&self) -> bool {
        let peeked = SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        self.buffer.is_empty() && peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Gives an empty buffer back.
    pub(super) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}

/// Bytes of the next read, after one of `current` that gave `bytes`. Whoever holds a piece holds all that was read
/// with it: a burst must not make the small pieces of the hour behind it large.
fn next_read_bytes(current: usize, bytes: usize, is_full: bool) -> usize {
    if is_full {
        (current * 2).min(READ_BYTES_MAX)
    } else if bytes < current / 4 {
        (current / 2).max(READ_BYTES_MIN)
    } else {
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_grow_while_they_are_filled_and_shrink_when_little_comes() {
        let mut bytes = READ_BYTES_MIN;
        for _ in 0..10 {
            bytes = next_read_bytes(bytes, bytes, true);
        }
        assert_eq!(bytes, READ_BYTES_MAX);
        assert_eq!(next_read_bytes(bytes, bytes / 2, false), bytes);
        for _ in 0..10 {
            bytes = next_read_bytes(bytes, 100, false);
        }
        assert_eq!(bytes, READ_BYTES_MIN);
    }
}
