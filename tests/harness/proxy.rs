//! A TCP proxy in user space that makes the network between two processes bad on command: cut, stalled, slow, dribbling,
//! closed on one side; each direction on its own, until it is healed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Pieces on their way in one direction.
const PIECES_MAX: usize = 64;

/// One of the two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From whoever connected to the server.
    Up,
    /// From the server back.
    Down,
}

/// What happens to bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Flow {
    #[default]
    Free,
    Stalled,
    Delayed(Duration),
    Dribbling {
        bytes: usize,
        every: Duration,
    },
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    up: Flow,
    down: Flow,
    cut: bool,
}

impl State {
    fn flow(&self, way: Way) -> Flow {
        match way {
            Way::Up => self.up,
            Way::Down => self.down,
        }
    }
}

/// A proxy before one server; gone with all its connections when dropped.
pub struct Proxy {
    addr: SocketAddr,
    target: watch::Sender<SocketAddr>,
    state: watch::Sender<State>,
    open: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A proxy on a free port before the server at `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let addr = listener.local_addr().expect("a bound address");
        let (state, _) = watch::channel(State::default());
        let (target, _) = watch::channel(target);
        let (open, accepted) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        let accept = Accept {
            state: state.subscribe(),
            target: target.subscribe(),
            open: Arc::clone(&open),
            accepted: Arc::clone(&accepted),
        };
        tasks.spawn(accept.run(listener));
        Self {
            addr,
            target,
            state,
            open,
            accepted,
            _tasks: tasks,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// New connections go to another server.
    pub fn retarget(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// Resets every connection, and each new one, until healed.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// Lets nothing through in this direction; connections stay.
    pub fn stall(&self, way: Way) {
        self.set(way, Flow::Stalled);
    }

    /// Lets each byte through only so long after it came.
    pub fn delay(&self, way: Way, by: Duration) {
        self.set(way, Flow::Delayed(by));
    }

    /// Lets so many bytes through at once, with a pause after each time.
    pub fn dribble(&self, way: Way, bytes: usize, every: Duration) {
        assert!(bytes > 0, "nothing at once is a stall");
        self.set(way, Flow::Dribbling { bytes, every });
    }

    /// Tells the receiver of this direction that no more comes, and drops what does; the other direction goes on.
    pub fn half_close(&self, way: Way) {
        self.set(way, Flow::Closed);
    }

    /// Undoes all of that; directions that were closed stay so on the connections of that time.
    pub fn heal(&self) {
        self.state.send_replace(State::default());
    }

    fn set(&self, way: Way, flow: Flow) {
        self.state.send_modify(|state| match way {
            Way::Up => state.up = flow,
            Way::Down => state.down = flow,
        });
    }
}

struct Accept {
    state: watch::Receiver<State>,
    target: watch::Receiver<SocketAddr>,
    open: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
}

impl Accept {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            while connections.try_join_next().is_some() {}
            self.accepted.fetch_add(1, Ordering::SeqCst);
            let (state, target) = (self.state.clone(), *self.target.borrow());
            let open = Arc::clone(&self.open);
            connections.spawn(async move {
                open.fetch_add(1, Ordering::SeqCst);
                serve(client, target, state).await;
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

/// Carries one connection until both directions have ended, or it is cut.
async fn serve(mut client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    reset_on_close(&client, true);
    if state.borrow().cut {
        return;
    }
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    reset_on_close(&server, true);
    // A socket that has gone already has no delay to take away.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (up, down) = (state.clone(), state.clone());
    let orderly = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let both = async {
            tokio::join!(
                carry(client_read, server_write, up, Way::Up),
                carry(server_read, client_write, down, Way::Down),
            )
        };
        tokio::select! {
            ends = both => ends.0.is_some() && ends.1.is_some(),
            () = is(&mut state, |state| state.cut) => false,
        }
    };
    if orderly {
        reset_on_close(&client, false);
        reset_on_close(&server, false);
    }
}

/// Whether dropping the socket is a reset.
fn reset_on_close(stream: &TcpStream, reset: bool) {
    // A socket that the peer reset first has nothing left to set.
    let _ = SockRef::from(stream).set_linger(reset.then_some(Duration::ZERO));
}

/// Carries one direction to its end; `None` when the end was not orderly.
async fn carry(
    read: ReadHalf<'_>,
    write: WriteHalf<'_>,
    state: watch::Receiver<State>,
    way: Way,
) -> Option<()> {
    let (pieces, arrived) = mpsc::channel(PIECES_MAX);
    let (taken, given) = tokio::join!(take(read, pieces), give(write, arrived, state, way));
    taken.and(given)
}

/// Reads pieces with the time they came at; `None` when the sender was reset.
async fn take(mut read: ReadHalf<'_>, pieces: mpsc::Sender<(Instant, Vec<u8>)>) -> Option<()> {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        match read.read(&mut piece).await {
            Ok(0) => return Some(()),
            Ok(length) => {
                piece.truncate(length);
                if pieces.send((Instant::now(), piece)).await.is_err() {
                    return None;
                }
            }
            Err(_) => return None,
        }
    }
}

/// Writes pieces as the state lets them through; `None` when the receiver was reset.
async fn give(
    mut write: WriteHalf<'_>,
    mut pieces: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut state: watch::Receiver<State>,
    way: Way,
) -> Option<()> {
    loop {
        let piece = tokio::select! {
            piece = pieces.recv() => piece,
            () = is(&mut state, |state| state.flow(way) == Flow::Closed) => {
                write.shutdown().await.ok()?;
                while pieces.recv().await.is_some() {}
                return Some(());
            }
        };
        let Some((came, piece)) = piece else {
            write.shutdown().await.ok()?;
            return Some(());
        };
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let pass = passing(&mut state, way, (came, rest.len())).await?;
            let (now, later) = rest.split_at(pass.bytes);
            if !pass.dropped {
                write.write_all(now).await.ok()?;
            }
            rest = later;
            tokio::time::sleep(pass.then).await;
        }
    }
}

/// What may pass of a piece.
struct Pass {
    bytes: usize,
    dropped: bool,
    then: Duration,
}

/// Waits until some of a piece may pass; `None` when the proxy is gone.
async fn passing(
    state: &mut watch::Receiver<State>,
    way: Way,
    (came, length): (Instant, usize),
) -> Option<Pass> {
    let mut pass = Pass {
        bytes: length,
        dropped: false,
        then: Duration::ZERO,
    };
    loop {
        let flow = state.borrow_and_update().flow(way);
        match flow {
            Flow::Free => return Some(pass),
            Flow::Closed => {
                pass.dropped = true;
                return Some(pass);
            }
            Flow::Dribbling { bytes, every } => {
                pass.bytes = bytes.min(length);
                pass.then = every;
                return Some(pass);
            }
            Flow::Stalled => state.changed().await.ok()?,
            Flow::Delayed(by) => {
                tokio::select! {
                    () = tokio::time::sleep_until(came + by) => return Some(pass),
                    changed = state.changed() => changed.ok()?,
                }
            }
        }
    }
}

/// Returns when the state is so; never when the proxy is gone.
async fn is(state: &mut watch::Receiver<State>, so: impl FnMut(&State) -> bool) {
    if state.wait_for(so).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
