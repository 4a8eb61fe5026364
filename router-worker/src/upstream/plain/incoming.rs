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
    /// `None` once it went back.
    connection: Option<Connection>,
    framing: Framing,
    /// What of the request was not sent when its answer began.
    unsent: Option<Outgoing>,
    /// Where the connection goes when it may serve again.
    home: Option<(Arc<Pool>, Arc<str>)>,
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
        }
    }

    /// The next bytes, never none of them; `None` at the end.
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
            if ready!(connection.poll_fill(context))? == 0 {
                return Poll::Ready(self.closed().map(|()| None));
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
            return Ok(Piece::End);
        };
        let piece = self
            .framing
            .take(&mut connection.buffer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if self.framing.is_ended() {
            self.rest();
        }
        Ok(piece)
    }

    fn closed(&mut self) -> io::Result<()> {
        self.connection = None;
        if self.framing.ends_with_connection() {
            return Ok(());
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Nothing more of this body matters: what is left of it is read by whoever wants the connection next.
    pub(crate) fn rest(&mut self) {
        let is_sent = self.unsent.as_ref().is_none_or(Outgoing::is_whole);
        if let (Some(connection), Some((pool, authority))) = (self.connection.take(), self.home.take())
            && is_sent
        {
            pool.put(&authority, connection, self.framing);
        }
    }
}
