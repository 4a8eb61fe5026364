//! The connections of callers: who is at the other end, since when he takes no byte, and how to tell the task that
//! serves him to finish or to stop. Nothing here locks per request or per frame.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Context;

use dashmap::DashMap;
use futures_util::task::AtomicWaker;

pub(crate) mod socket;

/// What is wanted of the task that serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// Nothing.
    None = 0,
    /// Take no further request, finish what runs.
    Finish = 1,
    /// Stop now.
    Abort = 2,
}

/// One connection of a caller.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end.
    pub(crate) peer: SocketAddr,
    id: u64,
    /// It speaks HTTP/2: learned from its first bytes, or from its first request where they came in pieces.
    http2: AtomicBool,
    wish: AtomicU8,
    waker: AtomicWaker,
    /// Milliseconds since which a write waits for the caller, plus one; 0 while none does.
    blocked_since: AtomicU64,
    /// The last answer refused a body that the caller still sends.
    lingering: AtomicBool,
}

impl Connection {
    /// Notes the protocol of a request.
    pub(crate) fn speaks(&self, version: http::Version) {
        let is_http2 = version == http::Version::HTTP_2;
        if is_http2 != self.http2.load(Ordering::Relaxed) {
            self.http2.store(is_http2, Ordering::Relaxed);
        }
    }

    /// Closes after the answer under way. On HTTP/2 the stream's own end says as much.
    pub(crate) fn close_after_answer(&self) {
        if !self.http2.load(Ordering::Relaxed) {
            self.want(Wish::Finish);
        }
    }

    /// Takes no further request on HTTP/2. On HTTP/1 a header of the answer says as much.
    pub(crate) fn go_away(&self) {
        if self.http2.load(Ordering::Relaxed) {
            self.want(Wish::Finish);
        }
    }

    /// Reads on for a moment before it closes, so that a caller who still sends sees the answer and no reset.
    pub(crate) fn linger(&self) {
        self.lingering.store(true, Ordering::Relaxed);
    }

    /// Ends the connection and every request on it.
    pub(crate) fn abort(&self) {
        self.want(Wish::Abort);
    }

    fn want(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::Relaxed);
        self.waker.wake();
    }

    /// What is wanted now; wakes the task when that changes.
    pub(crate) fn wish(&self, context: &Context<'_>) -> Wish {
        self.waker.register(context.waker());
        match self.wish.load(Ordering::Relaxed) {
            0 => Wish::None,
            1 => Wish::Finish,
            _ => Wish::Abort,
        }
    }

    /// A write waits for the caller since `now_ms`, or still does.
    fn blocked(&self, now_ms: u64) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(now_ms + 1, Ordering::Relaxed);
        }
    }

    /// The caller took a byte.
    fn moved(&self) {
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: DashMap<u64, Arc<Connection>>,
    ids: AtomicU64,
}

impl Connections {
    /// Notes a connection; [`Self::close`] forgets it.
    pub(crate) fn open(&self, peer: SocketAddr) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            peer,
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            http2: AtomicBool::new(false),
            wish: AtomicU8::new(Wish::None as u8),
            waker: AtomicWaker::new(),
            blocked_since: AtomicU64::new(0),
            lingering: AtomicBool::new(false),
        });
        self.open.insert(connection.id, connection.clone());
        connection
    }

    /// Forgets a connection.
    pub(crate) fn close(&self, connection: &Connection) {
        self.open.remove(&connection.id);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Sends GOAWAY on those that speak HTTP/2. The others are told by a header of their next answer, so that no
    /// request that is on its way meets a closed connection.
    pub(crate) fn announce_end(&self) {
        for connection in &self.open {
            connection.go_away();
        }
    }

    /// Finishes all.
    pub(crate) fn finish(&self) {
        for connection in &self.open {
            connection.want(Wish::Finish);
        }
    }

    /// Aborts all.
    pub(crate) fn abort(&self) {
        for connection in &self.open {
            connection.abort();
        }
    }

    /// Aborts those whose caller took no byte for `stall_ms`.
    pub(crate) fn abort_stalled(&self, now_ms: u64, stall_ms: u64) {
        for connection in &self.open {
            let since = connection.blocked_since.load(Ordering::Relaxed);
            if since != 0 && now_ms.saturating_sub(since - 1) >= stall_ms {
                connection.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(connection: &Connection) -> Wish {
        connection.wish(&Context::from_waker(futures_util::task::noop_waker_ref()))
    }

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    #[test]
    fn a_caller_who_takes_no_byte_is_ended_and_one_who_does_is_not() {
        let connections = Connections::default();
        let stalled = connections.open(peer());
        let slow = connections.open(peer());
        stalled.blocked(1_000);
        slow.blocked(1_000);
        slow.moved();
        slow.blocked(50_000);

        connections.abort_stalled(60_999, 60_000);
        assert_eq!(wish(&stalled), Wish::None);
        connections.abort_stalled(61_000, 60_000);

        assert_eq!(wish(&stalled), Wish::Abort);
        assert_eq!(wish(&slow), Wish::None);
    }

    #[test]
    fn the_end_is_announced_at_once_only_to_those_who_speak_http2() {
        let connections = Connections::default();
        let (one, two) = (connections.open(peer()), connections.open(peer()));
        two.speaks(http::Version::HTTP_2);

        connections.announce_end();

        assert_eq!((wish(&one), wish(&two)), (Wish::None, Wish::Finish));
        connections.close(&one);
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn a_wish_to_stop_is_never_taken_back() {
        let connections = Connections::default();
        let connection = connections.open(peer());

        connection.abort();
        connection.close_after_answer();

        assert_eq!(wish(&connection), Wish::Abort);
    }
}
