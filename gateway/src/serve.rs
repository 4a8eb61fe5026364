//! Sockets: what binds them, what serves a connection, and how it all ends. Everything that can fail at start fails in
//! [`bind`]; after that a fault costs one connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::ReadBuf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::config::Config;
use crate::connection::socket::Socket;
use crate::connection::{Connection, Wish};
use crate::error::Error;
use crate::layers::Routes;
use crate::metrics::Metrics;
use crate::state::{Phase, Ports, Shared, State};
use crate::{layers, limits, manage, open, peers, pulse, sign_in};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;
/// Rest after a failed accept (out of descriptors, most often).
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Bytes that wait for a caller in the system. A full buffer is told to be free again only when a third of it is:
/// left to grow to megabytes, a slow caller would look like one who takes nothing.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// How long a connection may be idle, or take to send a request's headers.
const HEADERS_WITHIN: Duration = Duration::from_secs(75);
/// Largest head of a request that the HTTP library takes; beyond, it answers 431 itself.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Most headers that it takes.
const HEAD_LINES_MAX: usize = 256;
/// Requests at once on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 1_000;
/// Bytes of one HTTP/2 request in flight.
const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;
/// Bytes of one HTTP/2 connection in flight.
const HTTP2_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes of one HTTP/2 answer that wait for the caller.
const HTTP2_SEND_BYTES_MAX: usize = 64 * 1024;
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it may think.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// How long interrupted requests may take to settle.
const INTERRUPTED_WITHIN: Duration = Duration::from_millis(900);
/// How long connections may take to send what they hold.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);
/// How long the tasks of aborted connections may take to notice.
const ABORTED_WITHIN: Duration = Duration::from_millis(100);
/// How long requests of callers that left may take to settle, at the very end.
const LEAVING_WITHIN: Duration = Duration::from_millis(400);

/// A gateway whose sockets are bound and not yet served.
pub struct Gateway {
    state: Shared,
    main: TcpListener,
    admin: Option<TcpListener>,
    addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
}

impl Gateway {
    /// Where callers reach it.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where administrators reach it, when that is apart.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// A way to call it from this process.
    pub fn calls(&self) -> Calls {
        Calls {
            routes: Routes::main(&self.state),
            connection: self.state.connections.open(self.addr),
            state: self.state.clone(),
        }
    }
}

/// Calls of the main listener's paths that come over no socket, as from one connection of this machine.
pub struct Calls {
    state: Shared,
    routes: Routes,
    connection: Arc<Connection>,
}

impl Calls {
    /// Answers a request as it would be answered over a socket.
    pub async fn call(&self, request: Request) -> Response {
        let server = (self.state.clone(), self.routes.clone());
        let Ok(response) = layers::around(server, self.connection.clone(), request).await;
        response
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.state.connections.close(&self.connection);
    }
}

/// Binds the sockets and checks the settings: whatever can fail at start fails here.
pub async fn bind(config: Config, ports: Ports, metrics: Metrics) -> Result<Gateway, Error> {
    let (main, addr) = listen(config.listen)?;
    let admin = config.admin_listen.map(listen).transpose()?;
    let state = State::new(config, ports, metrics)?;
    let (admin, admin_addr) = admin.unzip();
    Ok(Gateway {
        state,
        main,
        admin,
        addr,
        admin_addr,
    })
}

fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let bound = || {
        let socket = if addr.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    };
    bound().map_err(|source| Error::Listen { addr, source })
}

/// Serves until `shutdown`, then drains: what runs ends whole up to the drain limit, then with an error; returns at
/// most two seconds after the limit. `kill` ends everything at once: the next start settles what was running.
pub async fn run(
    gateway: Gateway,
    shutdown: CancellationToken,
    kill: CancellationToken,
) -> Result<(), Error> {
    let Gateway {
        state, main, admin, ..
    } = gateway;
    let stop = CancellationToken::new();
    let connections = TaskTracker::new();
    let mut tasks = JoinSet::new();
    let server = |routes| Server {
        state: state.clone(),
        routes,
        http: Arc::new(Http::new()),
        connections: connections.clone(),
    };
    tasks.spawn(accept(server(Routes::main(&state)), main, stop.clone()));
    if let Some(admin) = admin {
        tasks.spawn(accept(server(Routes::admin(&state)), admin, stop.clone()));
    }
    tasks.spawn(open::sweep(state.clone(), stop.clone()));
    tasks.spawn(pulse::run(state.clone(), stop.clone()));
    tasks.spawn(peers::serve(state.clone(), stop.clone()));
    tasks.spawn(sign_in::run(state.clone(), stop.clone()));
    tasks.spawn(sign_in::errand::run(state.clone(), stop.clone()));
    tasks.spawn(manage::grants::sweep(state.clone(), stop.clone()));
    // Ends last: what requests hold is given back when they end.
    let (mut limiter, released) = (JoinSet::new(), CancellationToken::new());
    limiter.spawn(limits::run(state.ports.limits.clone(), released.clone()));
    let orderly = async {
        shutdown.cancelled().await;
        drain(&state, &stop, &connections).await;
        released.cancel();
        while limiter.join_next().await.is_some() {}
    };
    tokio::select! {
        () = orderly => {}
        () = kill.cancelled() => {}
    }
    state.enter(Phase::Closed);
    stop.cancel();
    state.connections.abort();
    tasks.shutdown().await;
    Ok(())
}

/// Lets what runs end, then ends what still runs, then lets connections send what they hold.
async fn drain(state: &Shared, stop: &CancellationToken, connections: &TaskTracker) {
    state.enter(Phase::Draining);
    state.connections.announce_end();
    let limit = Duration::from_secs(state.config.drain_seconds);
    let whole = state.open.idle(limit).await;
    state.enter(Phase::Closed);
    if !whole {
        state.open.interrupt();
        state.open.idle(INTERRUPTED_WITHIN).await;
    }
    stop.cancel();
    state.connections.finish();
    connections.close();
    if timeout(FLUSH_WITHIN, connections.wait()).await.is_err() {
        state.connections.abort();
        // An aborted connection hands its requests over as soon as its task runs.
        let _ = timeout(ABORTED_WITHIN, connections.wait()).await;
    }
    state.leaving.close();
    if timeout(LEAVING_WITHIN, state.leaving.wait()).await.is_err() {
        warn!(
            requests.open = state.open.count(),
            "some requests are left to the next start"
        );
    }
    state.refusals.close(state);
    open::write_again(state);
}

/// What serves the connections of one listener.
#[derive(Clone)]
struct Server {
    state: Shared,
    routes: Routes,
    http: Arc<Http>,
    connections: TaskTracker,
}

/// Accepts connections until `stop`.
async fn accept(server: Server, listener: TcpListener, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                server.connections.spawn(serve(server.clone(), stream, peer));
            }
            Err(problem) => {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    "a connection cannot be accepted"
                );
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Serves one connection to its end, or until it is told to stop.
async fn serve(server: Server, stream: TcpStream, peer: SocketAddr) {
    // Without it small pieces of a stream wait for the acknowledgment of the piece before: 40 ms each. A socket that
    // refuses is already closed.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Server {
        state, routes, http, ..
    } = server;
    let connection = state.connections.open(peer);
    let Some(builder) = http.builder(&stream, &connection).await else {
        state.connections.close(&connection);
        return;
    };
    let socket = Socket::new(stream, connection.clone(), state.ports.clock.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let server = (state.clone(), routes.clone());
        layers::around(server, connection.clone(), request.map(Body::new))
    });
    {
        let mut http = pin!(builder.serve_connection(TokioIo::new(socket), service));
        let mut finishing = false;
        let ended = std::future::poll_fn(|context| {
            match connection.wish(context) {
                Wish::Abort => return Poll::Ready(()),
                Wish::Finish if !finishing => {
                    finishing = true;
                    http.as_mut().graceful_shutdown();
                }
                Wish::Finish | Wish::None => {}
            }
            // A caller's faults are his own: nothing is logged for a connection that breaks.
            http.as_mut().poll(context).map(drop)
        });
        ended.await;
    }
    state.connections.close(&connection);
}

/// How connections are served, by what they may speak.
struct Http {
    /// The version is still to be told, from bytes that are read for it.
    either: Builder<TokioExecutor>,
    /// The first bytes have told: no buffer is begun with bytes that were read to find out.
    one: Builder<TokioExecutor>,
}

impl Http {
    fn new() -> Self {
        Self {
            either: builder(),
            one: builder().http1_only(),
        }
    }

    /// What serves a connection, once its first bytes are there; they stay unread. `None` when none come.
    async fn builder(&self, stream: &TcpStream, connection: &Connection) -> Option<&Builder<TokioExecutor>> {
        let mut first = [0; 4];
        let mut buffer = ReadBuf::new(&mut first);
        let peeked = std::future::poll_fn(|context| match connection.wish(context) {
            Wish::Abort => Poll::Ready(None),
            Wish::Finish | Wish::None => stream.poll_peek(context, &mut buffer).map(Result::ok),
        });
        let bytes = timeout(HEADERS_WITHIN, peeked).await.ok()??;
        match first.get(..bytes)? {
            [] => None,
            b"PRI " => {
                connection.speaks(http::Version::HTTP_2);
                Some(&self.either)
            }
            [b'P'] | [b'P', b'R', ..] => Some(&self.either),
            _ => Some(&self.one),
        }
    }
}

/// The HTTP settings of a connection.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_LINES_MAX)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_send_buf_size(HTTP2_SEND_BYTES_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}
