//! The wire to upstreams: pooled connections over HTTP/1.1 and HTTP/2, without redirects and without blind
//! repetition.
//!
//! Guarantees: a request is sent once, or twice when the first met a reused HTTP/1.1 connection that was
//! closed without a byte of answer, and then over a new connection; a dead HTTP/2 connection is found by a
//! ping within 13 seconds; a request that is dropped takes its connection or stream with it.

mod connector;
mod decode;
mod tag;

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::config::Config;

use connector::{Connector, Protocol};
pub(crate) use decode::{Body, Coding, Error as BodyError};
use tag::Tag;

/// Silence on an HTTP/2 connection after which it is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(8);
/// How long a ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes an upstream may send ahead on one HTTP/2 stream.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes an upstream may send ahead on one HTTP/2 connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Where a request goes, and with which headers.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The whole URL.
    pub(crate) uri: Uri,
    /// Every header but `host` and `content-length`.
    pub(crate) headers: HeaderMap,
    /// HTTP/2 without asking.
    pub(crate) http2: bool,
}

/// The head of an answer, and its body as plain bytes.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// There is no answer to a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection, or none that lived until the answer's head.
    #[error("the upstream cannot be reached")]
    Unreachable(#[source] legacy::Error),
    /// The answer's body is coded in a way that is not known here.
    #[error("the upstream's answer is coded in an unknown way")]
    Coding,
}

/// The clients; cheap to use from any thread.
pub(crate) struct Upstream {
    /// HTTP/1.1, or HTTP/2 where TLS negotiates it.
    negotiated: Client<Connector, Full<Bytes>>,
    /// HTTP/2 by prior knowledge.
    http2: Client<Connector, Full<Bytes>>,
    /// A new connection for each request.
    fresh: Client<Connector, Full<Bytes>>,
    decoded_bytes_max: usize,
}

impl Upstream {
    /// Clients as configured; nothing is connected yet.
    pub(crate) fn new(config: &Config) -> Result<Self, rustls::Error> {
        let tls = connector::tls()?;
        let connector = |protocol| Connector::new(protocol, tls.clone(), config.connect_timeout);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(config.pool_idle_timeout)
            .pool_max_idle_per_host(config.pool_idle_max)
            .retry_canceled_requests(false)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let negotiated = builder.build(connector(Protocol::Negotiated));
        let http2 = builder.clone().http2_only(true).build(connector(Protocol::Http2));
        let fresh = builder
            .pool_max_idle_per_host(0)
            .build(connector(Protocol::Negotiated));
        Ok(Self {
            negotiated,
            http2,
            fresh,
            decoded_bytes_max: config.decoded_bytes_max,
        })
    }

    /// Posts `body` and waits for the answer's head.
    pub(crate) async fn send(&self, target: &Target, body: &Bytes) -> Result<Answer, Error> {
        let client = if target.http2 {
            &self.http2
        } else {
            &self.negotiated
        };
        let answer = match client.request(request(target, body)).await {
            Err(error) if !target.http2 && died_unheard(&error) => {
                self.fresh.request(request(target, body)).await
            }
            answer => answer,
        };
        self.answer(answer.map_err(Error::Unreachable)?)
    }

    fn answer(&self, response: Response<Incoming>) -> Result<Answer, Error> {
        let (mut head, incoming) = response.into_parts();
        let coding = match head.headers.get(CONTENT_ENCODING) {
            None => Coding::Identity,
            Some(value) => Coding::of_header(value.as_bytes()).ok_or(Error::Coding)?,
        };
        let tag = head.extensions.remove::<Tag>();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: Body::coded(incoming, coding, self.decoded_bytes_max).tagged(tag),
        })
    }
}

fn request(target: &Target, body: &Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri.clone();
    *request.headers_mut() = target.headers.clone();
    request
}

/// True when it is sure that the upstream has not processed the request.
fn died_unheard(error: &legacy::Error) -> bool {
    let mut extensions = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extensions);
    }
    extensions.get::<Tag>().is_some_and(Tag::died_unheard)
}
