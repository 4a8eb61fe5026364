//! The body of an answer as it comes. Read to its end, its connection goes back to the pool; dropped before, it
//! closes.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::connection::{Connection, Outgoing};
use super::framing::{Framing, Piece};
use super::pool::Pool;

/// A body that is being read.
pub(crate) struct Incoming {
    /// `None` once it went back or broke.
    connection: Option<Connection>,
    framing: Framing,
    /// What of the request was not sent when its answer began.
    unsent: Option<Outgoing>,
    /// Where the connection goes when it may serve again.
    home: Option<(Arc<Pool>, Arc<str>)>,
    /// Why the body has no end.
    broken: Option<io::ErrorKind>,
}

impl Incoming {
    /// The body behind a head.
    pub(super) fn new(
        (connection, sent): (Connection, Outgoing),
        framing: Framing,
        home: Option<(Arc<Pool>, Arc<str>)>,
    ) -> Self {
        Self {
            connection: Some(connection),
            framing,
            unsent: (!sent.is_whole()).then_some(sent),
            home,
            broken: None,
        }
    }

    /// The next bytes, never none of them; `None` at the end. After an error there are only errors.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match self.take()? {
                Piece::Data(bytes) => return Poll::Ready(Ok(Some(bytes))),
                Piece::End => return Poll::Ready(Ok(None)),
                Piece::More => {}
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Ok(None));
            };
            if let Some(unsent) = &mut self.unsent {
                connection.write(context, unsent);
            }
            match ready!(connection.poll_fill(context)) {
                Ok(1..) => {}
                Ok(0) if self.framing.ends_with_connection() => {
                    self.connection = None;
                    return Poll::Ready(Ok(None));
                }
                Ok(0) => return Poll::Ready(Err(self.fail(io::ErrorKind::UnexpectedEof.into()))),
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
        }
    }

    /// The next bytes, if they were read already; `None` when none were, also at the end.
    pub(crate) fn at_hand(&mut self) -> io::Result<Option<Bytes>> {
        Ok(match self.take()? {
            Piece::Data(bytes) => Some(bytes),
            Piece::More | Piece::End => None,
        })
    }

    /// Takes from the buffer; a connection whose answer has ended goes back.
    fn take(&mut self) -> io::Result<Piece> {
        let Some(connection) = &mut self.connection else {
            return self.broken.map_or(Ok(Piece::End), |kind| Err(kind.into()));
        };
        let piece = match self.framing.take(&mut connection.buffer) {
            Ok(piece) => piece,
            Err(error) => return Err(self.fail(io::Error::new(io::ErrorKind::InvalidData, error))),
        };
        if self.framing.is_ended() {
            self.rest();
        }
        Ok(piece)
    }

    /// Gives the connection up.
    fn fail(&mut self, error: io::Error) -> io::Error {
        self.connection = None;
        self.broken = Some(error.kind());
        error
    }

    /// Nothing more of this body matters: what is left of it is read by whoever wants the connection next. A
    /// connection on which more came than the body closes.
    pub(crate) fn rest(&mut self) {
        if let (Some(connection), Some((pool, authority))) = (self.connection.take(), self.home.take())
            && (connection.buffer.is_empty() || !self.framing.is_ended())
        {
            pool.put(&authority, connection, self.framing);
        }
    }
}
