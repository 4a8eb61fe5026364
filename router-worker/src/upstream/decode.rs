//! The body of an upstream's answer as plain bytes, whatever it was coded in, and never more of them than
//! the caps allow. Dropping it closes the connection (HTTP/1.1) or resets the stream (HTTP/2).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::io::AsyncRead;
use tokio_util::io::{StreamReader, poll_read_buf};

use super::plain;
use super::tag::Tag;

/// Bytes that are decoded at a time.
const DECODED_PIECE_BYTES: usize = 16 * 1024;

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The connection broke off.
    #[error("the upstream's answer broke off")]
    Cut(#[source] BrokenOff),
    /// It is not coded as its head says, or in a way that is not known here.
    #[error("the upstream's answer cannot be decoded")]
    Coding(#[source] io::Error),
    /// It unfolds to more than the cap.
    #[error("the upstream's answer unfolds to more than {bytes_max} bytes")]
    TooLarge {
        /// The cap.
        bytes_max: usize,
    },
}

/// The connection under a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenOff {
    /// Over TLS or HTTP/2.
    #[error(transparent)]
    Http(hyper::Error),
    /// Over plain HTTP/1.1.
    #[error(transparent)]
    Plain(io::Error),
}

/// A body as it comes over a connection, still coded.
pub(super) enum Coded {
    Http(Incoming),
    Plain(plain::Incoming),
}

impl From<Incoming> for Coded {
    fn from(incoming: Incoming) -> Self {
        Self::Http(incoming)
    }
}

impl From<plain::Incoming> for Coded {
    fn from(incoming: plain::Incoming) -> Self {
        Self::Plain(incoming)
    }
}

impl Coded {
    /// The next bytes, never none of them; `None` at the end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BrokenOff>> {
        match self {
            Self::Http(incoming) => poll_data(incoming, context)
                .map(Option::transpose)
                .map_err(BrokenOff::Http),
            Self::Plain(incoming) => incoming.poll_next(context).map_err(BrokenOff::Plain),
        }
    }
}

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
    Deflate,
}

impl Coding {
    /// Of a `Content-Encoding`; `None` when it is not known here, or there are several.
    pub(crate) fn of_header(value: &[u8]) -> Option<Self> {
        let is = |word: &str| value.trim_ascii().eq_ignore_ascii_case(word.as_bytes());
        Some(if is("") || is("identity") {
            Self::Identity
        } else if is("gzip") || is("x-gzip") {
            Self::Gzip
        } else if is("br") {
            Self::Brotli
        } else if is("zstd") {
            Self::Zstd
        } else if is("deflate") {
            Self::Deflate
        } else {
            return None;
        })
    }
}

/// A body that is being read.
pub(crate) struct Body {
    source: Source,
    tag: Option<Tag>,
    /// Reads of the socket when the last piece came.
    reads: usize,
    /// The last piece came out of the same read as the one before it.
    bursts: bool,
}

enum Source {
    Plain(Coded),
    Decoded(Decoded),
    /// Made in this process.
    Pieces(VecDeque<Bytes>),
    Ended,
}

impl Body {
    /// What came over a connection; at most `decoded_bytes_max` bytes when it is coded.
    pub(super) fn coded(incoming: Coded, coding: Coding, decoded_bytes_max: usize) -> Self {
        let source = match coding {
            Coding::Identity => Source::Plain(incoming),
            _ => Source::Decoded(Decoded::new(incoming, coding, decoded_bytes_max)),
        };
        Self::over(source)
    }

    /// A body made in this process.
    pub(crate) fn of_pieces(pieces: VecDeque<Bytes>) -> Self {
        Self::over(Source::Pieces(pieces))
    }

    const fn over(source: Source) -> Self {
        Self {
            source,
            tag: None,
            reads: 0,
            bursts: false,
        }
    }

    /// The same, over a connection with this tag.
    pub(super) fn tagged(mut self, tag: Option<Tag>) -> Self {
        self.tag = tag;
        self
    }

    /// Says that nothing more of this answer matters, so that its connection can serve again.
    pub(crate) fn rest(&mut self) {
        if let Some(tag) = &self.tag {
            tag.rest();
        }
        if let Source::Plain(Coded::Plain(incoming)) = &mut self.source {
            incoming.rest();
        }
    }

    /// The next bytes, if they are there already: they came with the same read of the socket as the last piece, over
    /// TLS and HTTP/2 as the last two.
    /// `None` when there are none, also at the end.
    pub(crate) fn poll_at_hand(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if let Source::Plain(Coded::Plain(incoming)) = &mut self.source {
            let found = incoming.at_hand();
            return Poll::Ready(found.map_err(|error| Error::Cut(BrokenOff::Plain(error))));
        }
        if !self.bursts {
            return Poll::Ready(Ok(None));
        }
        match self.poll_next(context) {
            Poll::Pending if self.tag.as_ref().is_none_or(|tag| tag.dry(context)) => Poll::Ready(Ok(None)),
            next => next,
        }
    }

    /// The next bytes, never none of them; `None` at the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        let next = ready!(self.source.poll_next(context));
        if matches!(next, Ok(None)) {
            self.source = Source::Ended;
            self.rest();
        }
        if let Some(tag) = &self.tag {
            let reads = tag.reads();
            self.bursts = reads == std::mem::replace(&mut self.reads, reads);
        }
        Poll::Ready(next)
    }
}

impl Source {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        match self {
            Self::Plain(incoming) => incoming.poll_next(context).map_err(Error::Cut),
            Self::Decoded(decoded) => decoded.poll_next(context),
            Self::Pieces(pieces) => Poll::Ready(Ok(pieces.pop_front())),
            Self::Ended => Poll::Ready(Ok(None)),
        }
    }
}

/// The next data of a body; trailers and empty frames are passed over.
fn poll_data(
    incoming: &mut Incoming,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, hyper::Error>>> {
    loop {
        match ready!(Pin::new(&mut *incoming).poll_frame(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}

/// The compressed bytes as a stream.
struct Compressed(Coded);

impl Stream for Compressed {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.poll_next(context);
        next.map(|next| next.map_err(io::Error::other).transpose())
    }
}

/// A body behind a decoder.
struct Decoded {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    bytes_left: usize,
    bytes_max: usize,
}

impl Decoded {
    fn new(incoming: Coded, coding: Coding, bytes_max: usize) -> Self {
        let compressed = StreamReader::new(Compressed(incoming));
        let reader: Pin<Box<dyn AsyncRead + Send>> = match coding {
            Coding::Identity => Box::pin(compressed),
            Coding::Gzip => Box::pin(GzipDecoder::new(compressed)),
            Coding::Brotli => Box::pin(BrotliDecoder::new(compressed)),
            Coding::Zstd => Box::pin(ZstdDecoder::new(compressed)),
            Coding::Deflate => Box::pin(ZlibDecoder::new(compressed)),
        };
        Self {
            reader,
            bytes_left: bytes_max,
            bytes_max,
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        let mut piece = BytesMut::with_capacity(DECODED_PIECE_BYTES);
        let read = ready!(poll_read_buf(self.reader.as_mut(), context, &mut piece));
        let bytes = read.map_err(fault)?;
        if bytes == 0 {
            return Poll::Ready(Ok(None));
        }
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            return Poll::Ready(Err(Error::TooLarge {
                bytes_max: self.bytes_max,
            }));
        };
        self.bytes_left = left;
        Poll::Ready(Ok(Some(piece.freeze())))
    }
}

/// Tells a connection that broke off from a body that is coded wrongly.
fn fault(error: io::Error) -> Error {
    match error.downcast::<BrokenOff>() {
        Ok(cut) => Error::Cut(cut),
        Err(error) => Error::Coding(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_known_by_their_names_in_any_case() {
        assert_eq!(Coding::of_header(b""), Some(Coding::Identity));
        assert_eq!(Coding::of_header(b" GZip "), Some(Coding::Gzip));
        assert_eq!(Coding::of_header(b"br"), Some(Coding::Brotli));
        assert_eq!(Coding::of_header(b"gzip, br"), None);
        assert_eq!(Coding::of_header(b"compress"), None);
    }
}
