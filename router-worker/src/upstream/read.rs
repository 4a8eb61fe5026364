//! Reads lists from upstreams, over TLS or without: what they serve, before anything is configured. One try, no
//! redirects, so that a credential goes nowhere else.

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use schemas::secret::Secret;
use std::time::Duration;

use super::connector::{self, Connector, Protocol};
use super::tcp::{Reach, Tcp};
use crate::provider::OUR_USER_AGENT;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The address or a header is none.
    #[error("it cannot be asked for that")]
    Request,
    /// No connection, or it broke.
    #[error("it cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("it did not answer in time")]
    TimedOut,
    /// It said no.
    #[error("it answered with status {0}")]
    Refused(u16),
    /// It answered with more than was asked for.
    #[error("its answer is too large")]
    TooLarge,
}

/// Reads; cheap to use for many.
pub struct Reader {
    client: Client<Connector, Empty<Bytes>>,
}

impl Reader {
    /// A reader; nothing is connected yet.
    pub fn new() -> Result<Self, rustls::Error> {
        let tcp = Tcp::new(CONNECT_TIMEOUT, Reach::everybody());
        let connector = Connector::new(Protocol::Negotiated, connector::tls()?, tcp, CONNECT_TIMEOUT);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// The body at `url`, at most `bytes_max` bytes, within `wait`. The values of `headers` are credentials as far as
    /// they are concerned: they are in no log.
    pub async fn get(
        &self,
        url: &str,
        headers: &[(&'static str, Secret<String>)],
        (wait, bytes_max): (Duration, usize),
    ) -> Result<Bytes, ReadError> {
        let request = request(url, headers).ok_or(ReadError::Request)?;
        tokio::time::timeout(wait, self.read(request, bytes_max))
            .await
            .map_err(|_| ReadError::TimedOut)?
    }

    async fn read(&self, request: Request<Empty<Bytes>>, bytes_max: usize) -> Result<Bytes, ReadError> {
        let unreachable = |error: Box<dyn std::error::Error + Send + Sync>| ReadError::Unreachable(error);
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|error| unreachable(error.into()))?;
        if answer.status() != http::StatusCode::OK {
            return Err(ReadError::Refused(answer.status().as_u16()));
        }
        let mut body = answer.into_body();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(error.into()))?;
            let Ok(data) = frame.into_data() else { continue };
            if all.len() + data.len() > bytes_max {
                return Err(ReadError::TooLarge);
            }
            all.extend_from_slice(&data);
        }
        Ok(all.freeze())
    }
}

fn request(url: &str, headers: &[(&'static str, Secret<String>)]) -> Option<Request<Empty<Bytes>>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = url.parse::<Uri>().ok()?;
    let sent = request.headers_mut();
    sent.insert(ACCEPT, HeaderValue::from_static("application/json"));
    sent.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    sent.insert(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT));
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value.reveal()).ok()?;
        value.set_sensitive(true);
        sent.insert(HeaderName::from_static(name), value);
    }
    Some(request)
}
