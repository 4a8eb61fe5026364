//! HTTP/1.1 over plain TCP, as engines in one's own network speak it: a request is written and its answer read by
//! whoever polls, without a task, a queue or a box in between. TLS and HTTP/2 go another way.
//!
//! Guarantees: a request is sent once, or twice when the first met a reused connection that said nothing before it
//! closed; an answer's framing is read strictly, and a connection serves again only when its answer began after the
//! whole request was sent, was read to its end, and nothing came behind it; whoever drops an answer closes its
//! connection.

mod connection;
mod framing;
mod head;
mod incoming;
mod pool;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dialects::splice::Spliced;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tower_service::Service as _;

use super::tcp::Tcp;
use crate::config::Config;

use connection::{Connection, Outgoing};
pub(super) use incoming::Incoming;
use pool::Pool;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection in time.
    #[error("no connection within the time limit")]
    Timeout,
    /// No connection.
    #[error("no connection")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke off before the answer's head.
    #[error("the connection broke off")]
    Broken(#[source] io::Error),
    /// What came is no head of an answer.
    #[error(transparent)]
    Malformed(#[from] head::Malformed),
}

/// Where requests of one kind go, with everything of their heads that never changes.
#[derive(Debug)]
pub(super) struct Route {
    /// Host and port: what connections are kept by.
    authority: Arc<str>,
    uri: Uri,
    /// The head up to the length of the body.
    head: Vec<u8>,
}

impl Route {
    /// `None` where plain HTTP/1.1 is not what the URL asks for.
    pub(super) fn new(uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let host = uri.host()?;
        if uri.scheme_str() != Some("http") {
            return None;
        }
        let authority = match uri.port_u16() {
            None | Some(80) => host.to_owned(),
            Some(port) => format!("{host}:{port}"),
        };
        Some(Self {
            head: head::begin(uri, &authority, headers),
            authority: authority.into(),
            uri: uri.clone(),
        })
    }
}

/// The head of an answer, and its body.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Those that somebody reads.
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
}

/// Posts requests; its connections are kept for the next.
pub(super) struct Client {
    connector: Tcp,
    connect_timeout: Duration,
    pool: Arc<Pool>,
}

impl Client {
    /// A client over connections of this kind.
    pub(super) fn new(connector: Tcp, config: &Config) -> Self {
        Self {
            connector,
            connect_timeout: config.connect_timeout,
            pool: Arc::new(Pool::new(config.pool_idle_timeout, config.pool_idle_max)),
        }
    }

    /// Posts `body`, with the `own` headers of this request, and waits for the answer's head.
    pub(super) async fn send<'h>(
        &self,
        route: &Route,
        own: impl IntoIterator<Item = &'h (HeaderName, HeaderValue)> + Clone,
        body: &Spliced,
    ) -> Result<Answer, Error> {
        let head = head::complete(&route.head, own, body.bytes());
        if let Some(mut connection) = self.pool.take(&route.authority) {
            let mut outgoing = Outgoing::new(head.clone(), body);
            match connection.exchange(&mut outgoing).await {
                Err(_) if !outgoing.heard => {}
                Err(error) => return Err(error),
                Ok(head) => return Ok(self.answer(route, connection, (head, outgoing))),
            }
        }
        let mut connection = self.connect(&route.uri).await?;
        let mut outgoing = Outgoing::new(head, body);
        let head = connection.exchange(&mut outgoing).await?;
        Ok(self.answer(route, connection, (head, outgoing)))
    }

    async fn connect(&self, uri: &Uri) -> Result<Connection, Error> {
        let mut connector = self.connector.clone();
        let connected = tokio::time::timeout(self.connect_timeout, connector.call(uri.clone())).await;
        let stream = connected.map_err(|_| Error::Timeout)?.map_err(Error::Connect)?;
        Ok(Connection::new(stream.into_inner()))
    }

    fn answer(&self, route: &Route, connection: Connection, (head, sent): (head::Head, Outgoing)) -> Answer {
        // A peer that answered too early might take the rest of the request for another one.
        let home = (head.keeps_alive && sent.is_whole())
            .then(|| (Arc::clone(&self.pool), Arc::clone(&route.authority)));
        Answer {
            status: head.status,
            headers: head.headers,
            body: Incoming::new((connection, sent), head.framing, home),
        }
    }
}

#[cfg(test)]
mod tests;
