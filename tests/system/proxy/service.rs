//! A service behind an endpoint: it keeps what it is sent, byte for byte, and answers by the path.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::control::PATIENCE;

/// An answer of chat, oddly spaced, with usage.
pub(super) const ANSWER: &str = "{ \"id\":\"c\",\"object\":\"chat.completion\", \"model\" : \"up\",\n\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"as it is\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":20,\"total_tokens\":29},\"own\":[1 ,2]}";
/// The same as a stream.
pub(super) const EVENTS: &str = ": hello\n\ndata: {\"id\":\"c\",\"model\":\"up\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"as it is\"}}]}\n\ndata:  {\"id\":\"c\",\"model\":\"up\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":20}}\n\ndata: [DONE]\n\n";
/// The first event of a stream that goes on for ever.
pub(super) const BEGINNING: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Method, path and query.
    pub(super) target: String,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}

#[derive(Default)]
struct Duty {
    asked: Mutex<Vec<Asked>>,
    /// Streams whose reader has left.
    left: AtomicUsize,
}

/// The service.
pub(super) struct Service {
    addr: SocketAddr,
    duty: Arc<Duty>,
    _tasks: JoinSet<()>,
}

impl Service {
    pub(super) fn start() -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let addr = listener.local_addr().expect("a bound address");
        let duty = Arc::new(Duty::default());
        let router = Router::new().fallback(serve).with_state(Arc::clone(&duty));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router).await.expect("served");
        });
        Self {
            addr,
            duty,
            _tasks: tasks,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.duty.asked.lock().clone()
    }

    /// The last request that came.
    pub(super) fn last(&self) -> Asked {
        self.asked().pop().expect("a request")
    }

    /// Waits until the reader of a stream has left.
    pub(super) async fn wait_left(&self) {
        let left = async {
            while self.duty.left.load(Ordering::Relaxed) == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, left)
            .await
            .expect("the reader leaves");
    }
}

/// Counts when it is let go of.
struct Leaving(Arc<Duty>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}

async fn serve(State(duty): State<Arc<Duty>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 * 1024 * 1024).await.expect("a body");
    let is_stream = String::from_utf8_lossy(&body).contains("\"stream\":true");
    duty.asked.lock().push(Asked {
        target: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body,
    });
    let json = [("content-type", "application/json")];
    match parts.uri.path() {
        "/v1/chat/completions" if is_stream => {
            let pieces = EVENTS.as_bytes().chunks(50).map(Bytes::copy_from_slice);
            let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.map(Ok).collect();
            events(Body::from_stream(stream::iter(pieces)))
        }
        "/v1/chat/completions" => (json, ANSWER).into_response(),
        "/endless/v1/chat/completions" => events(endless(duty)),
        "/cut/v1/chat/completions" => events(cut()),
        "/elsewhere" => (
            StatusCode::TEMPORARY_REDIRECT,
            [("location", "/v1/chat/completions"), ("set-cookie", "a=b")],
        )
            .into_response(),
        "/fails/404" => (StatusCode::NOT_FOUND, json, "{\"own\": \"words\"}").into_response(),
        "/fails/500/v1/chat/completions" => (StatusCode::INTERNAL_SERVER_ERROR, "it broke").into_response(),
        "/fails/401" => (StatusCode::UNAUTHORIZED, "wrong key sk-inner").into_response(),
        _ => (
            StatusCode::CREATED,
            [
                ("content-type", "application/x-own"),
                ("etag", "\"7\""),
                ("set-cookie", "inner=1"),
                ("x-own", "yes"),
                ("access-control-allow-origin", "*"),
            ],
            Bytes::from_static(b"\x00\xffown bytes"),
        )
            .into_response(),
    }
}

fn events(body: Body) -> Response {
    ([("content-type", "text/event-stream")], body).into_response()
}

/// One event, and then the connection breaks.
fn cut() -> Body {
    let broken = stream::unfold(false, |begun| async move {
        if begun {
            // What was said before is on its way by then.
            sleep(Duration::from_millis(200)).await;
            return Some((Err(std::io::Error::other("cut")), true));
        }
        Some((Ok(Bytes::from_static(BEGINNING.as_bytes())), true))
    });
    Body::from_stream(broken)
}

/// One event, and then nothing for ever.
fn endless(duty: Arc<Duty>) -> Body {
    let begun = stream::unfold((Leaving(duty), false), |(leaving, begun)| async move {
        if begun {
            std::future::pending::<()>().await;
        }
        let piece: Result<Bytes, std::io::Error> = Ok(Bytes::from_static(BEGINNING.as_bytes()));
        Some((piece, (leaving, true)))
    });
    Body::from_stream(begun)
}
