//! The wire to upstreams: pooled connections over HTTP/1.1 and HTTP/2, without redirects and without blind
//! repetition. HTTP/1.1 without TLS, which most engines speak, has a client of our own ([`plain`]).
//!
//! Guarantees: a request is sent once, or twice when the first met a reused HTTP/1.1 connection that was
//! closed without a byte of answer, and then over a new connection; a dead HTTP/2 connection is found by a
//! ping within 13 seconds; a request that is dropped takes its connection or stream with it.

pub(crate) mod connector;
mod decode;
mod plain;
pub(crate) mod read;
mod tag;
pub(crate) mod tcp;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dialects::splice::Spliced;
use http::header::CONTENT_ENCODING;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use schemas::catalog::{Endpoint, Origin};
use schemas::egress::Forbidden;
use tokio::time::error::Elapsed;

use crate::config::Config;

use connector::{Connector, Protocol, tls};
pub(crate) use decode::{Body, Coding, Error as BodyError};
use tag::Tag;
use tcp::{Names, Reach, SystemNames, Tcp};

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
    /// What all requests to the same place have in common.
    pub(crate) route: Arc<Route>,
    /// The header that authenticates.
    pub(crate) credential: Option<(HeaderName, HeaderValue)>,
    /// Headers of this request alone; none that the route has.
    pub(crate) extra: Vec<(HeaderName, HeaderValue)>,
}

impl Target {
    /// The headers that the route does not have.
    fn own_headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> + Clone {
        self.credential.iter().chain(&self.extra)
    }
}

/// A place that requests go to.
#[derive(Debug)]
pub(crate) struct Route {
    /// The whole URL.
    pub(crate) uri: Uri,
    /// Every header but `host`, `content-length`, the credential's and those of one request.
    pub(crate) headers: HeaderMap,
    /// HTTP/2 without asking.
    http2: bool,
    /// Over plain HTTP/1.1, where the URL asks for that.
    plain: Option<plain::Route>,
    /// How far the place is trusted.
    trust: Trust,
}

/// How far a place is trusted to lie where it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// An operator of the machine wrote it down: anywhere.
    Anywhere,
    /// It was registered at run time: where [`Config::egress`] permits. Its connections are its own kind's.
    Egress,
}

impl Trust {
    /// Of an endpoint.
    pub(crate) const fn of(endpoint: &Endpoint) -> Self {
        match endpoint.origin {
            Origin::File => Self::Anywhere,
            Origin::Runtime => Self::Egress,
        }
    }
}

impl Route {
    /// The way to `uri`; every request has `headers`.
    pub(crate) fn new(uri: Uri, headers: HeaderMap, http2: bool, trust: Trust) -> Self {
        Self {
            trust,
            plain: (!http2).then(|| plain::Route::new(&uri, &headers)).flatten(),
            uri,
            headers,
            http2,
        }
    }
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
    /// The same, over plain HTTP/1.1.
    #[error("the upstream cannot be reached")]
    Silent(#[source] plain::Error),
    /// The answer's body is coded in a way that is not known here.
    #[error("the upstream's answer is coded in an unknown way")]
    Coding,
}

impl Error {
    /// True when there was no connection: nothing was sent.
    pub(crate) fn is_unconnected(&self) -> bool {
        match self {
            Self::Unreachable(error) => error.is_connect(),
            Self::Silent(error) => matches!(error, plain::Error::Timeout | plain::Error::Connect(_)),
            Self::Coding => false,
        }
    }

    /// True when there was no connection in time.
    pub(crate) fn is_connect_timeout(&self) -> bool {
        match self {
            Self::Unreachable(error) => error.is_connect() && timed_out(error),
            Self::Silent(plain::Error::Timeout) => true,
            Self::Silent(plain::Error::Connect(error)) => timed_out(error.as_ref()),
            Self::Silent(plain::Error::Broken(_) | plain::Error::Malformed(_)) | Self::Coding => false,
        }
    }

    /// True when nothing was connected because the address is none for the place.
    pub(crate) fn is_forbidden(&self) -> bool {
        let first: &(dyn std::error::Error + 'static) = self;
        let mut causes = std::iter::successors(Some(first), |error| error.source());
        causes.any(<dyn std::error::Error + 'static>::is::<Forbidden>)
    }
}

/// True when a clock is at the bottom of an error: ours over all of a connection, the connector's over one address, or
/// the system's.
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let of_system = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        cause.is::<Elapsed>() || of_system == Some(io::ErrorKind::TimedOut)
    })
}

/// The clients; cheap to use from any thread.
pub(crate) struct Upstream {
    /// For places of files.
    anywhere: Clients,
    /// For places that were registered at run time: no connection is shared with the others.
    guarded: Clients,
    decoded_bytes_max: usize,
}

/// Clients that reach the same addresses.
struct Clients {
    /// HTTP/1.1 without TLS.
    plain: plain::Client,
    /// HTTP/1.1, or HTTP/2 where TLS negotiates it.
    negotiated: Client<Connector, Full<Bytes>>,
    /// HTTP/2 by prior knowledge.
    http2: Client<Connector, Full<Bytes>>,
    /// A new connection for each request.
    fresh: Client<Connector, Full<Bytes>>,
}

impl Clients {
    fn new(config: &Config, tls: &rustls::ClientConfig, reach: Reach) -> Self {
        let timeout = config.connect_timeout;
        let tcp = Tcp::new(timeout, reach);
        let connector = |protocol| Connector::new(protocol, tls.clone(), tcp.clone(), timeout);
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
        Self {
            plain: plain::Client::new(tcp, config),
            negotiated,
            http2,
            fresh,
        }
    }
}

impl Upstream {
    /// Clients as configured; nothing is connected yet.
    pub(crate) fn new(config: &Config) -> Result<Self, rustls::Error> {
        Self::with(config, Arc::new(SystemNames))
    }

    /// The same by other names than the system's.
    fn with(config: &Config, names: Arc<dyn Names>) -> Result<Self, rustls::Error> {
        let tls = tls()?;
        let anywhere = Reach {
            names: Arc::clone(&names),
            egress: None,
        };
        let guarded = Reach {
            names,
            egress: Some(Arc::new(config.egress.clone())),
        };
        Ok(Self {
            anywhere: Clients::new(config, &tls, anywhere),
            guarded: Clients::new(config, &tls, guarded),
            decoded_bytes_max: config.decoded_bytes_max,
        })
    }

    const fn clients(&self, trust: Trust) -> &Clients {
        match trust {
            Trust::Anywhere => &self.anywhere,
            Trust::Egress => &self.guarded,
        }
    }

    /// Asks for something that is no call of a model, over a connection of its own. The answer is as it was sent.
    pub(crate) async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        trust: Trust,
    ) -> Result<Response<Incoming>, Error> {
        let answer = self.clients(trust).fresh.request(request).await;
        answer.map_err(Error::Unreachable)
    }

    /// Posts `body` and waits for the answer's head.
    pub(crate) async fn send(&self, target: &Target, body: &Spliced) -> Result<Answer, Error> {
        let clients = self.clients(target.route.trust);
        if let Some(route) = &target.route.plain {
            let sent = clients.plain.send(route, target.own_headers(), body).await;
            let answer = sent.map_err(Error::Silent)?;
            return self.decoded((answer.status, answer.headers), answer.body.into(), None);
        }
        self.exchange(clients, target.route.http2, || request(target, body))
            .await
    }

    /// Sends a request of any method as it is and waits for the answer's head.
    pub(crate) async fn pass(
        &self,
        request: Request<Full<Bytes>>,
        is_http2: bool,
        trust: Trust,
    ) -> Result<Answer, Error> {
        let clients = self.clients(trust);
        self.exchange(clients, is_http2, || request.clone()).await
    }

    async fn exchange(
        &self,
        clients: &Clients,
        is_http2: bool,
        request: impl Fn() -> Request<Full<Bytes>>,
    ) -> Result<Answer, Error> {
        let client = if is_http2 {
            &clients.http2
        } else {
            &clients.negotiated
        };
        let answer = match client.request(request()).await {
            Err(error) if !is_http2 && died_unheard(&error) => clients.fresh.request(request()).await,
            answer => answer,
        };
        self.answer(answer.map_err(Error::Unreachable)?)
    }

    fn answer(&self, response: Response<Incoming>) -> Result<Answer, Error> {
        let (mut head, incoming) = response.into_parts();
        let tag = head.extensions.remove::<Tag>();
        self.decoded((head.status, head.headers), incoming.into(), tag)
    }

    /// The answer with a body that is read as it was before it was coded.
    fn decoded(
        &self,
        (status, headers): (StatusCode, HeaderMap),
        coded: decode::Coded,
        tag: Option<Tag>,
    ) -> Result<Answer, Error> {
        let coding = match headers.get(CONTENT_ENCODING) {
            None => Coding::Identity,
            Some(value) => Coding::of_header(value.as_bytes()).ok_or(Error::Coding)?,
        };
        Ok(Answer {
            status,
            headers,
            body: Body::coded(coded, coding, self.decoded_bytes_max).tagged(tag),
        })
    }
}

fn request(target: &Target, body: &Spliced) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.joined()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.route.uri.clone();
    let headers = request.headers_mut();
    headers.clone_from(&target.route.headers);
    for (name, value) in target.own_headers() {
        headers.insert(name, value.clone());
    }
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
