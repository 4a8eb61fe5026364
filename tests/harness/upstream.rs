//! A fake upstream on a loopback port that speaks the dialect of the path it is called at: OpenAI's, Anthropic's,
//! Gemini's. It is written on raw sockets so that it can misbehave at the level of bytes; it counts its calls and
//! connections, keeps what it was sent, and notes when its peer left. A strict one refuses what its provider would.
//! `GET /v1/models` and other reads are answered plainly and are not calls.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub mod behaviour;
mod compose;
pub mod request;
mod serve;
pub mod speech;
mod strict;
mod wire;

/// Connections waiting to be accepted.
const BACKLOG: u32 = 1024;
/// How long the waiting methods wait before they panic.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a connection to a port whose queue has room may take.
const QUEUED_WITHIN: Duration = Duration::from_millis(200);
/// How often they look.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The behaviour a closure chose for a request.
type Choose = Arc<dyn Fn(&request::Received) -> behaviour::Behaviour + Send + Sync>;

/// One scripted upstream; it stops when dropped.
pub struct Upstream {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// One call as the upstream saw it.
#[derive(Debug, Clone)]
pub struct Call {
    /// Place among the calls of this upstream, from 0.
    pub number: usize,
    /// The word that `{call}` stands for in this call's answer.
    pub word: String,
    /// The request as it arrived.
    pub request: request::Received,
    /// Which connection carried it, from 0.
    pub connection: usize,
    /// Whether that connection had served a call before.
    pub reused: bool,
    /// When the request had arrived whole.
    pub at: Instant,
    /// When each piece of the answer was handed to the socket, from `at`; the head is the first.
    pub sent_at: Vec<Duration>,
    /// Bytes handed to the socket, head and framing included.
    pub sent_bytes: u64,
    /// How the call stands.
    pub state: CallState,
}

/// How a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// The answer is under way, or silence is.
    Running,
    /// All that the behaviour says was sent.
    Answered,
    /// The peer left before that, so long after the request had arrived.
    PeerLeft(Duration),
}

impl Call {
    /// When the peer left, from the arrival of the request; `None` when it stayed to the end.
    pub fn left_after(&self) -> Option<Duration> {
        match self.state {
            CallState::PeerLeft(after) => Some(after),
            CallState::Running | CallState::Answered => None,
        }
    }
}

/// What the connections of an upstream share.
struct Shared {
    name: String,
    state: Mutex<State>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    open_max: AtomicUsize,
    busy: AtomicUsize,
    resets: AtomicUsize,
}

struct State {
    queue: VecDeque<behaviour::Behaviour>,
    default: behaviour::Behaviour,
    choose: Option<Choose>,
    calls: Vec<Call>,
    reads: Vec<request::Received>,
    faults: Vec<String>,
    refusals: Vec<String>,
    strict: bool,
    models: Vec<String>,
    /// What reads of a path are answered.
    pages: HashMap<String, (u16, String)>,
}

impl Upstream {
    /// Starts an upstream on a free loopback port; inside a runtime. Until told otherwise it answers `ok {call}`.
    pub fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts an upstream at an address, for example that of one that was stopped.
    pub fn start_at(addr: SocketAddr) -> Self {
        let listener = listen(addr);
        let addr = listener.local_addr().expect("a bound address");
        let state = State {
            queue: VecDeque::new(),
            default: behaviour::Behaviour::chat("ok {call}"),
            choose: None,
            calls: Vec::new(),
            reads: Vec::new(),
            faults: Vec::new(),
            refusals: Vec::new(),
            strict: false,
            models: vec!["m".to_owned()],
            pages: HashMap::new(),
        };
        let shared = Arc::new(Shared {
            name: format!("u{}", addr.port()),
            state: Mutex::new(state),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::accept(listener, Arc::clone(&shared)));
        Self { addr, shared, tasks }
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL, with `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// The root of its URLs, without `/v1`, as Anthropic's and Gemini's clients want it.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From now on it refuses what the provider of the dialect would refuse, with a 400 of that provider.
    #[must_use]
    pub fn strict(self) -> Self {
        self.shared.state.lock().strict = true;
        self
    }

    /// Why a strict upstream refused calls so far.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.state.lock().refusals.clone()
    }

    /// Adds behaviours for the next calls, one each, in order.
    pub fn script(&self, behaviours: impl IntoIterator<Item = behaviour::Behaviour>) {
        self.shared.state.lock().queue.extend(behaviours);
    }

    /// What calls get when the script is empty and no closure is set.
    pub fn default(&self, behaviour: behaviour::Behaviour) {
        self.shared.state.lock().default = behaviour;
    }

    /// Lets a closure choose when the script is empty.
    pub fn on<F>(&self, choose: F)
    where
        F: Fn(&request::Received) -> behaviour::Behaviour + Send + Sync + 'static,
    {
        self.shared.state.lock().choose = Some(Arc::new(choose));
    }

    /// The model ids that `GET /v1/models` lists.
    pub fn models(&self, ids: &[&str]) {
        self.shared.state.lock().models = ids.iter().map(|id| (*id).to_owned()).collect();
    }

    /// What reads of a path are answered from now on; without, they are told that all is well.
    pub fn page(&self, path: &str, status: u16, body: &str) {
        let mut state = self.shared.state.lock();
        state.pages.insert(path.to_owned(), (status, body.to_owned()));
    }

    /// Calls that arrived so far.
    pub fn calls(&self) -> usize {
        self.shared.state.lock().calls.len()
    }

    /// Everything known of each call, in order of arrival.
    pub fn recorded(&self) -> Vec<Call> {
        self.shared.state.lock().calls.clone()
    }

    /// The call with this number; panics when it has not come.
    pub fn call(&self, number: usize) -> Call {
        self.shared
            .state
            .lock()
            .calls
            .get(number)
            .cloned()
            .expect("the upstream had that call")
    }

    /// Requests that were no calls: model lists and probes.
    pub fn reads(&self) -> Vec<request::Received> {
        self.shared.state.lock().reads.clone()
    }

    /// What was wrong with what arrived: requests no careful server accepts, bodies that are not JSON.
    pub fn faults(&self) -> Vec<String> {
        self.shared.state.lock().faults.clone()
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The most connections that were open at once.
    pub fn open_max(&self) -> usize {
        self.shared.open_max.load(Ordering::SeqCst)
    }

    /// Connections that carry an unfinished call now.
    pub fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Requests that were reset because they came on a reused connection.
    pub fn resets(&self) -> usize {
        self.shared.resets.load(Ordering::SeqCst)
    }

    /// Waits until `count` calls have arrived; panics after five seconds.
    pub async fn wait_calls(&self, count: usize) {
        self.wait(&format!("{count} calls"), || self.calls() >= count)
            .await;
    }

    /// Waits until no call is under way; panics after five seconds.
    pub async fn wait_quiet(&self) {
        self.wait("no call under way", || self.busy() == 0).await;
    }

    /// Waits until the peer of a call has left; panics after five seconds.
    pub async fn wait_left(&self, number: usize) -> Duration {
        let left = || {
            self.shared
                .state
                .lock()
                .calls
                .get(number)
                .and_then(Call::left_after)
        };
        self.wait("the peer to leave", || left().is_some()).await;
        left().expect("it left")
    }

    async fn wait(&self, what: &str, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !ready() {
            assert!(
                Instant::now() < deadline,
                "upstream {}: waited in vain for {what}; {} calls, {} busy, {} open",
                self.addr,
                self.calls(),
                self.busy(),
                self.open()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Closes the port and all connections; what was recorded stays.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// A port that listens and takes no connection: its queue is full, so that whoever connects hears nothing.
pub struct SilentPort {
    addr: SocketAddr,
    _listener: Socket,
    /// What fills the queue.
    _waiting: Vec<std::net::TcpStream>,
}

impl SilentPort {
    /// Opens a loopback port and fills its queue.
    pub fn open() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).expect("a loopback port");
        listener.listen(0).expect("a listening socket");
        let bound = listener.local_addr().expect("a bound address");
        let addr = bound.as_socket().expect("an address of the internet");
        let connect = || std::net::TcpStream::connect_timeout(&addr, QUEUED_WITHIN).ok();
        Self {
            addr,
            _waiting: std::iter::from_fn(connect).collect(),
            _listener: listener,
        }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// An address on which nothing listens.
pub fn refusing_addr() -> SocketAddr {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    listener.local_addr().expect("a bound address")
}

fn listen(addr: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option of a socket");
    socket.bind(addr).expect("a loopback port");
    socket.listen(BACKLOG).expect("a listening socket")
}

#[cfg(test)]
mod tests;
