//! An upstream that speaks HTTP/2 by prior knowledge. It answers every chat call with the same words, whole or streamed
//! as asked, until its connections are told to go silent: they stay open then, are read no more and say nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// One such upstream; it stops when dropped.
pub struct Http2Upstream {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// For each connection, whether it is silent.
    connections: Mutex<Vec<Arc<AtomicBool>>>,
    /// For each call, the connection that carried it.
    calls: Mutex<Vec<usize>>,
}

impl Http2Upstream {
    /// What it says to each call.
    pub const WORDS: &str = "over two";

    /// An upstream on a free loopback port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let addr = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            addr,
            shared,
            _tasks: tasks,
        }
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL, with `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// For each call that it answered, in order, the number of the connection that carried it, from 0.
    pub fn calls(&self) -> Vec<usize> {
        self.shared.calls.lock().clone()
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Every connection of now goes silent for ever; those that come later are as good as new.
    pub fn silence(&self) {
        for silent in &*self.shared.connections.lock() {
            silent.store(true, Ordering::SeqCst);
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // A peer that has gone already needs no haste.
        let _ = stream.set_nodelay(true);
        let silent = Arc::new(AtomicBool::new(false));
        let number = {
            let mut all = shared.connections.lock();
            all.push(Arc::clone(&silent));
            all.len() - 1
        };
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| answer(request, Arc::clone(&shared), number));
        let connection = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(Silenceable { stream, silent }), service);
        // Whatever ended it, the calls tell.
        connections.spawn(async move { drop(connection.await) });
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    connection: usize,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    shared.calls.lock().push(connection);
    let (kind, text) = if asked["stream"] == true {
        ("text/event-stream", streamed())
    } else {
        ("application/json", whole().to_string())
    };
    let response = Response::builder().header("content-type", kind);
    Ok(response
        .body(Full::new(Bytes::from(text)))
        .expect("a response of the harness is well formed"))
}

fn usage() -> Value {
    json!({"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29})
}

fn whole() -> Value {
    let message = json!({"role": "assistant", "content": Http2Upstream::WORDS});
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage(),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
}

fn streamed() -> String {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let said = chunk(
        json!({"role": "assistant", "content": Http2Upstream::WORDS}),
        Value::Null,
    );
    let mut end = chunk(json!({}), json!("stop"));
    end["usage"] = usage();
    format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

/// A socket that can go silent. A silent one is never ready again, so nobody needs to be woken.
struct Silenceable {
    stream: TcpStream,
    silent: Arc<AtomicBool>,
}

impl Silenceable {
    fn silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
    }
}

impl AsyncRead for Silenceable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.silent() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Silenceable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.silent() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.silent() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.silent() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
