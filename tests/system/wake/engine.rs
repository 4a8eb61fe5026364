//! An engine that sleeps, and somebody who starts engines.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A loopback address where nothing listens.
pub(super) fn closed_addr() -> SocketAddr {
    let listener = StdListener::bind((LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound address")
}

/// An engine as vLLM is: it answers while it sleeps, though not with answers of models.
pub(crate) struct Engine {
    addr: SocketAddr,
    state: Arc<Mutex<Sleep>>,
    _tasks: JoinSet<()>,
}

struct Sleep {
    /// When it is awake; never before it was told to wake.
    awake_at: Option<Instant>,
    takes: Duration,
    wakes: usize,
    calls: usize,
}

impl Engine {
    /// One that needs so long to wake.
    pub(crate) fn asleep(takes: Duration) -> Self {
        let listener = StdListener::bind((LOCALHOST, 0)).expect("a free port");
        let state = Arc::new(Mutex::new(Sleep {
            awake_at: None,
            takes,
            wakes: 0,
            calls: 0,
        }));
        Self::at(listener, state)
    }

    fn at(listener: StdListener, state: Arc<Mutex<Sleep>>) -> Self {
        let addr = listener.local_addr().expect("a bound address");
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(
            listener,
            Router::new().fallback(engine).with_state(Arc::clone(&state)),
        ));
        Self {
            addr,
            state,
            _tasks: tasks,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// It goes to sleep again.
    pub(super) fn doze(&self) {
        self.state.lock().awake_at = None;
    }

    /// How often it was told to wake.
    pub(crate) fn wakes(&self) -> usize {
        self.state.lock().wakes
    }

    /// How often a model was asked for something.
    pub(super) fn calls(&self) -> usize {
        self.state.lock().calls
    }
}

async fn serve(listener: StdListener, router: Router) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = TcpListener::from_std(listener).expect("a listener");
    axum::serve(listener, router).await.expect("served");
}

async fn engine(State(state): State<Arc<Mutex<Sleep>>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let mut state = state.lock();
    let awake = state.awake_at.is_some_and(|at| at <= Instant::now());
    match path.as_str() {
        "/is_sleeping" => json!({"is_sleeping": !awake}).to_string().into_response(),
        "/wake_up" => {
            state.wakes += 1;
            let at = Instant::now() + state.takes;
            state.awake_at.get_or_insert(at);
            "".into_response()
        }
        "/health" if awake => "".into_response(),
        "/v1/chat/completions" if awake => {
            state.calls += 1;
            let answer = json!({
                "id": "c", "object": "chat.completion", "created": 1, "model": "z",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "awake"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
            });
            ([("content-type", "application/json")], answer.to_string()).into_response()
        }
        _ => {
            let status = http::StatusCode::SERVICE_UNAVAILABLE;
            (
                status,
                json!({"error": {"message": "the engine is sleeping"}}).to_string(),
            )
                .into_response()
        }
    }
}

/// Whoever is asked to start an engine.
pub(super) struct Boss {
    addr: SocketAddr,
    duty: Arc<Duty>,
    _tasks: JoinSet<()>,
}

struct Duty {
    /// Where it starts an engine, and how long that takes.
    starts: Option<(SocketAddr, Duration)>,
    answer: (u16, &'static str),
    asked: Mutex<Vec<Asked>>,
    started: Mutex<Vec<Engine>>,
}

/// A question as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Method, path and query.
    pub(super) target: String,
    headers: http::HeaderMap,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}

impl Boss {
    /// One that starts an engine at an address.
    pub(super) fn starting(addr: SocketAddr, takes: Duration) -> Self {
        Self::with(LOCALHOST, Some((addr, takes)), (202, "{}"))
    }

    /// One that only answers.
    pub(super) fn answering(status: u16, body: &'static str) -> Self {
        Self::with(LOCALHOST, None, (status, body))
    }

    /// One in another network of this machine.
    pub(super) fn apart() -> Self {
        Self::with(Ipv4Addr::new(127, 0, 0, 2), None, (200, "{}"))
    }

    fn with(host: Ipv4Addr, starts: Option<(SocketAddr, Duration)>, answer: (u16, &'static str)) -> Self {
        let listener = StdListener::bind((host, 0)).expect("a free port");
        let addr = listener.local_addr().expect("a bound address");
        let duty = Arc::new(Duty {
            starts,
            answer,
            asked: Mutex::default(),
            started: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(
            listener,
            Router::new().fallback(boss).with_state(Arc::clone(&duty)),
        ));
        Self {
            addr,
            duty,
            _tasks: tasks,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.duty.asked.lock().clone()
    }
}

async fn boss(State(duty): State<Arc<Duty>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 65_536).await.expect("a body");
    duty.asked.lock().push(Asked {
        target: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    if let Some((addr, takes)) = duty.starts {
        // The connection of the caller may end meanwhile; the start goes on.
        let duty = Arc::clone(&duty);
        let start = async move {
            sleep(takes).await;
            let awake = Sleep {
                awake_at: Some(Instant::now()),
                takes,
                wakes: 0,
                calls: 0,
            };
            let listener = StdListener::bind(addr).expect("its own address");
            duty.started
                .lock()
                .push(Engine::at(listener, Arc::new(Mutex::new(awake))));
        };
        start.await;
    }
    let (status, text) = duty.answer;
    (http::StatusCode::from_u16(status).expect("a status"), text).into_response()
}
