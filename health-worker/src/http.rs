//! Asks a server one question over a connection of its own: no redirects, no credentials, a bound on time and on size.
//! The addresses that are checked are those that are connected.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use schemas::egress::{Egress, Forbidden};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// A question that is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// `http(s)://host[:port]/path`.
    pub(crate) url: Arc<str>,
    /// Whether only addresses may be called that endpoints of run time may have.
    pub(crate) guarded: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body, where it was asked for.
    pub(crate) body: Bytes,
}

impl Answer {
    /// True for a status of success.
    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The address is none.
    #[error("the address cannot be read")]
    Address,
    /// It must not be called.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// No connection.
    #[error("no connection")]
    Connect(#[from] io::Error),
    /// The exchange broke.
    #[error("the exchange broke")]
    Exchange(#[from] hyper::Error),
    /// The body is too long, or broke.
    #[error("the body is too long, or broke")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer in time")]
    Late,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Asks questions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    egress: Arc<Egress>,
    tls: TlsConnector,
    agent: Arc<str>,
}

impl Client {
    /// Questions of which guarded ones go where `egress` permits.
    pub(crate) fn new(egress: Egress, tls: rustls::ClientConfig, version: &str) -> Self {
        Self {
            egress: Arc::new(egress),
            tls: TlsConnector::from(Arc::new(tls)),
            agent: format!("waybill/{version}").into(),
        }
    }

    /// Asks within `within`, and reads at most `body_bytes_max` of the answer; with 0 its status alone.
    pub(crate) async fn ask(
        &self,
        question: &Question,
        body_bytes_max: usize,
        within: Duration,
    ) -> Result<Answer, Error> {
        let asked = self.exchange(question, body_bytes_max);
        timeout(within, asked).await.unwrap_or(Err(Error::Late))
    }

    async fn exchange(&self, question: &Question, body_bytes_max: usize) -> Result<Answer, Error> {
        let uri: Uri = question.url.parse().map_err(|_| Error::Address)?;
        let stream = self.connect(&uri, question.guarded).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let authority = uri.authority().ok_or(Error::Address)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(HOST, authority.as_str())
            .header(USER_AGENT, &*self.agent)
            .header(ACCEPT, "text/plain, */*;q=0.1")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|_| Error::Address)?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            if body_bytes_max == 0 {
                return Ok(Answer {
                    status,
                    body: Bytes::new(),
                });
            }
            let body = Limited::new(response.into_body(), body_bytes_max).collect().await;
            let body = body.map_err(Error::Body)?.to_bytes();
            Ok(Answer { status, body })
        };
        let driven = async {
            // How it ended, the exchange tells.
            let _ = connection.await;
            std::future::pending::<Answer>().await
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            never = driven => Ok(never),
        }
    }

    /// A connection to one of the addresses of the server.
    async fn connect(&self, uri: &Uri, guarded: bool) -> Result<Box<dyn Stream>, Error> {
        let host = uri.host().ok_or(Error::Address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(Error::Address),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => lookup_host((host, port)).await?.collect(),
        };
        let permitted = |address: &SocketAddr| !guarded || self.egress.permits(address.ip());
        let is_known = !found.is_empty();
        let open: Vec<SocketAddr> = found.into_iter().filter(permitted).take(ADDRESSES_MAX).collect();
        if is_known && open.is_empty() {
            return Err(Forbidden.into());
        }
        let stream = TcpStream::connect(&open[..]).await?;
        stream.set_nodelay(true)?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Address)?;
        Ok(Box::new(self.tls.connect(name, stream).await?))
    }
}

#[cfg(test)]
mod tests;
