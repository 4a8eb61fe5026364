//! Connections that wait for a request. One whose last answer has an unread rest serves again only once that rest has
//! come; one on which the peer said anything else, or which it closed, never does.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::framing::{Framing, Piece};

/// Most bytes of an answer's unread rest.
const REST_BYTES_MAX: usize = 64 * 1024;

/// Idle connections by the host and port they lead to.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Arc<str>, Vec<Idle>>>,
    timeout: Duration,
    idle_max: usize,
    /// Closes those that were idle for too long.
    sweeper: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    /// How far the last answer was read.
    framing: Framing,
    since: Instant,
}

/// What may become of an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It can serve.
    Ready,
    /// The rest of its last answer has not come.
    Unfinished,
    /// It cannot serve any more.
    Gone,
}

impl Idle {
    fn state(&mut self) -> State {
        let mut rest_bytes = 0;
        while !self.framing.is_ended() {
            match self.framing.take(&mut self.connection.buffer) {
                Ok(Piece::Data(bytes)) => rest_bytes += bytes.len(),
                Ok(Piece::End) => break,
                Ok(Piece::More) => match self.connection.fill_now() {
                    None => return State::Unfinished,
                    Some(Ok(1..)) => {}
                    Some(Ok(0) | Err(_)) => return State::Gone,
                },
                Err(_) => return State::Gone,
            }
            if rest_bytes > REST_BYTES_MAX {
                return State::Gone;
            }
        }
        self.connection.release();
        if self.connection.seems_quiet() {
            State::Ready
        } else {
            State::Gone
        }
    }
}

impl Pool {
    /// At most `idle_max` connections to one place, each for at most `timeout`.
    pub(super) fn new(timeout: Duration, idle_max: usize) -> Self {
        Self {
            idle: Mutex::default(),
            timeout,
            idle_max,
            sweeper: Mutex::default(),
        }
    }

    /// The connection that was used last, of those that can serve.
    pub(super) fn take(&self, authority: &str) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(authority)?;
        let mut place = kept.len();
        while let Some(at) = place.checked_sub(1) {
            place = at;
            let state = kept.get_mut(at).map_or(State::Gone, Idle::state);
            if state == State::Unfinished {
                continue;
            }
            let taken = kept.swap_remove(at);
            let can_serve = state == State::Ready && taken.since.elapsed() <= self.timeout;
            if can_serve && taken.connection.is_quiet() {
                return Some(taken.connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer was read as far as `framing` says.
    pub(super) fn put(self: &Arc<Self>, authority: &Arc<str>, connection: Connection, framing: Framing) {
        let mut entry = Idle {
            connection,
            framing,
            since: Instant::now(),
        };
        if self.idle_max == 0 {
            return;
        }
        entry.connection.release();
        let first = {
            let mut idle = self.idle.lock();
            if let Some(kept) = idle.get_mut(authority) {
                if kept.len() >= self.idle_max {
                    kept.remove(0);
                }
                kept.push(entry);
                false
            } else {
                idle.insert(Arc::clone(authority), vec![entry]);
                true
            }
        };
        if first {
            self.start_sweeper();
        }
    }

    /// Starts what closes idle connections, where it does not run yet; it ends with the pool.
    fn start_sweeper(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut sweeper = self.sweeper.lock();
        if sweeper.is_empty() {
            let pause = (self.timeout / 2).max(Duration::from_millis(10));
            sweeper.spawn_on(sweep(Arc::downgrade(self), pause), &runtime);
        }
    }

    /// Closes what was idle for too long or cannot serve any more.
    fn tidy(&self) {
        let mut idle = self.idle.lock();
        idle.retain(|_, kept| {
            kept.retain_mut(|entry| entry.since.elapsed() <= self.timeout && entry.state() != State::Gone);
            !kept.is_empty()
        });
    }
}

async fn sweep(pool: Weak<Pool>, pause: Duration) {
    loop {
        sleep(pause).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        pool.tidy();
    }
}
