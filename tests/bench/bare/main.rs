//! The yardstick: a proxy of axum and hyper-util's pooled client that does nothing but pass bytes on.
//!
//! One thread, `TCP_NODELAY` on both sides, bodies streamed in both directions, the product's allocator. What a gateway costs
//! beyond this program is the price of its own work.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use clap::Parser;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{StatusCode, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A proxy that passes every request on to one upstream.
#[derive(Debug, Parser)]
struct Arguments {
    /// Address to bind; port 0 picks a free one, the bound one is printed to stderr.
    #[arg(long, default_value = "127.0.0.1:9002")]
    addr: SocketAddr,
    /// Address of the upstream.
    #[arg(long, default_value = "127.0.0.1:9001")]
    upstream: SocketAddr,
}

#[derive(Clone)]
struct Proxy {
    client: Client<HttpConnector, Body>,
    upstream: Authority,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let proxy = Proxy {
        client: Client::builder(TokioExecutor::new()).build(connector),
        upstream: Authority::try_from(arguments.upstream.to_string())?,
    };
    let listener = tokio::net::TcpListener::bind(arguments.addr)
        .await
        .with_context(|| format!("cannot bind {}", arguments.addr))?;
    eprintln!("listening addr={} role=bare", listener.local_addr()?);
    // A failure here means that the peer has gone already, which the connection finds out by itself.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, Router::new().fallback(forward).with_state(proxy)).await?;
    Ok(())
}

async fn forward(State(proxy): State<Proxy>, mut request: Request) -> Response {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(proxy.upstream.clone());
    parts.path_and_query = request
        .uri()
        .path_and_query()
        .cloned()
        .or_else(|| Some(PathAndQuery::from_static("/")));
    let Ok(uri) = Uri::from_parts(parts) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::CONNECTION);
    match proxy.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
