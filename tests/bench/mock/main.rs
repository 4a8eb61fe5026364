//! A mock OpenAI chat upstream for the benchmarks: one thread, hyper, no work beyond the answer.
//!
//! It answers with the model name it was asked for, so that a proxy which renames a model has to do so for real. A streamed
//! answer is `chunks` content events, a finish event, the usage event if it was asked for, and `[DONE]`; every event is
//! flushed on its own, as an engine does, only the usage event and `[DONE]` share one write.
//! `PUT /config?delay_ms=5&chunks=32&stall_after=1` changes the behaviour of later answers; 0 turns delay and stall off.

mod answer;
mod script;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use clap::Parser;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::answer::{Answer, Asked};
use crate::script::Script;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Longest request body read, in bytes; longer ones are refused.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// A mock `OpenAI` chat upstream.
#[derive(Debug, Parser)]
struct Arguments {
    /// Address to bind; port 0 picks a free one, the bound one is printed to stderr.
    #[arg(long, default_value = "127.0.0.1:9001")]
    addr: SocketAddr,
    /// Microseconds between the events of a stream; the timer rounds up to whole milliseconds.
    #[arg(long, default_value_t = 0)]
    delay_us: u64,
    /// Content events of a stream.
    #[arg(long, default_value_t = 32)]
    chunks: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let script = Arc::new(Script::new(arguments.delay_us, arguments.chunks));
    let listener = TcpListener::bind(arguments.addr)
        .await
        .with_context(|| format!("cannot bind {}", arguments.addr))?;
    eprintln!("listening addr={} role=mock", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&script)));
            }
            Err(error) => {
                eprintln!("accept failed: {error}");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Serves one connection to its end; a broken one ends silently, the load generator counts it.
async fn connection(stream: TcpStream, script: Arc<Script>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let script = Arc::clone(&script);
        async move { Ok::<_, Infallible>(route(request, &script).await) }
    });
    drop(
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

async fn route(request: Request<Incoming>, script: &Script) -> Response<Answer> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/chat/completions") => chat(request, script).await,
        (&Method::GET, "/v1/models") => json(StatusCode::OK, Bytes::from_static(answer::MODELS.as_bytes())),
        (&Method::GET, "/health") => json(StatusCode::OK, Bytes::from_static(b"{\"status\":\"healthy\"}")),
        (&Method::PUT, "/config") => match script.change(request.uri().query().unwrap_or_default()) {
            Ok(()) => json(StatusCode::OK, Bytes::from_static(b"{}")),
            Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        _ => refuse(StatusCode::NOT_FOUND, "no such path"),
    }
}

async fn chat(request: Request<Incoming>, script: &Script) -> Response<Answer> {
    let Ok(body) = Limited::new(request.into_body(), REQUEST_BYTES_MAX)
        .collect()
        .await
    else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body was cut or is too large");
    };
    let body = body.to_bytes();
    let asked: Asked<'_> = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "the body is not a chat request"),
    };
    if asked.is_streamed() {
        let mut response = Response::new(Answer::stream(&asked, script.now()));
        let kind = header::HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return response;
    }
    json(StatusCode::OK, answer::completion(&asked))
}

fn json(status: StatusCode, body: Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::whole(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn refuse(status: StatusCode, message: &str) -> Response<Answer> {
    let error = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
    json(status, Bytes::from(error.to_string()))
}
