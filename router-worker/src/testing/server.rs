//! An upstream on a socket: reads requests, keeps their bytes, and answers with scripted acts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What an upstream does with one call, step by step.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Waits.
    Wait(Duration),
    /// Closes the connection.
    Close,
    /// Waits until the peer closes.
    Hang,
}

/// Decides the acts of a call, by its number from 0.
type Script = Box<dyn Fn(usize) -> Vec<Act> + Send + Sync>;

struct State {
    script: Script,
    requests: Mutex<Vec<String>>,
    closed: AtomicUsize,
    connections: AtomicUsize,
}

/// A running upstream; it ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Starts an upstream.
    pub(crate) async fn start(script: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            script: Box::new(script),
            requests: Mutex::new(Vec::new()),
            closed: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// One that does the same for each call.
    pub(crate) async fn always(acts: Vec<Act>) -> Self {
        Self::start(move |_| acts.clone()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Head and body of each request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.state.requests.lock().len()
    }

    /// Connections that the peer closed.
    pub(crate) fn closed(&self) -> usize {
        self.state.closed.load(Ordering::SeqCst)
    }

    /// Connections in all.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("nodelay");
        state.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    while let Some(request) = read_request(&mut stream).await {
        let call = {
            let mut requests = state.requests.lock();
            requests.push(request);
            requests.len() - 1
        };
        for act in (state.script)(call) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        state.closed.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
                Act::Wait(time) => tokio::time::sleep(time).await,
                Act::Close => return,
                Act::Hang => {
                    let mut byte = [0];
                    // Either way the peer has closed.
                    let _ = stream.read(&mut byte).await;
                    state.closed.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        }
    }
    state.closed.fetch_add(1, Ordering::SeqCst);
}

/// Reads one request by its `content-length`; `None` when the peer closes.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length: ")?
                        .parse()
                        .ok()
                })
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text);
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// An answer with a length.
pub(crate) fn ok(content_type: &str, body: &[u8]) -> Vec<u8> {
    response("200 OK", content_type, body)
}

/// An answer with a status line and a length.
pub(crate) fn response(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A whole answer with usage 3 and 2.
pub(crate) fn chat(text: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","model":"org/m-7b","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}}}"#
    );
    ok("application/json", body.as_bytes())
}

/// One event of a stream: `delta` and `finish` are JSON.
pub(crate) fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"org/m-7b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// A stream of a body that ends with its connection.
pub(crate) fn events(body: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    [head.as_bytes(), body.as_bytes()].concat()
}
