//! Opens TCP connections, to addresses that may be called: names are looked up here, and what is connected is what was
//! looked at. A name that answers otherwise the next time gains nothing by it.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use schemas::egress::{Egress, Forbidden};
use tokio::net::TcpStream;
use tower_service::Service;

/// Bytes of an answer that the system reads ahead of us: left to grow to megabytes, hundreds of slow callers would
/// hold gigabytes that no limit of ours counts.
const RECEIVE_BUFFER_BYTES: usize = 512 * 1024;
/// Silence after which the kernel asks whether the peer is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Most addresses of one name that are looked at.
const ADDRESSES_MAX: usize = 64;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Addresses of a name, as they are found.
pub(crate) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Knows the addresses of names.
pub(crate) trait Names: Send + Sync {
    /// All addresses of a name, as they are now.
    fn find(&self, name: &str) -> Found;
}

/// Names as the system knows them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemNames;

impl Names for SystemNames {
    fn find(&self, name: &str) -> Found {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX).collect())
        })
    }
}

/// Who may be connected.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) names: Arc<dyn Names>,
    /// Where the connections lead; `None` for anywhere.
    pub(crate) egress: Option<Arc<Egress>>,
}

impl Reach {
    /// Everybody, by the names that the system knows.
    pub(crate) fn everybody() -> Self {
        Self {
            names: Arc::new(SystemNames),
            egress: None,
        }
    }

    fn permits(&self, address: IpAddr) -> bool {
        self.egress.as_ref().is_none_or(|egress| egress.permits(address))
    }
}

/// Looks names up, and leaves out what may not be connected.
impl Service<Name> for Reach {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let reach = self.clone();
        Box::pin(async move {
            let found = reach.names.find(name.as_str()).await?;
            let is_known = !found.is_empty();
            let open = found.into_iter().filter(|address| reach.permits(*address));
            let open: Vec<SocketAddr> = open.map(|address| SocketAddr::new(address, 0)).collect();
            if is_known && open.is_empty() {
                return Err(Forbidden.into());
            }
            Ok(open.into_iter())
        })
    }
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Tcp {
    http: HttpConnector<Reach>,
    reach: Reach,
}

impl Tcp {
    /// Connections within `timeout` each, for URLs of either scheme.
    pub(super) fn new(timeout: Duration, reach: Reach) -> Self {
        let mut http = HttpConnector::new_with_resolver(reach.clone());
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_recv_buffer_size(Some(RECEIVE_BUFFER_BYTES));
        Self { http, reach }
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // An address that stands in the URL itself is looked up by nobody.
        let is_closed = literal(&uri).is_some_and(|address| !self.reach.permits(address));
        let connecting = (!is_closed).then(|| self.http.call(uri));
        let reach = self.reach.clone();
        Box::pin(async move {
            let stream = connecting.ok_or(Forbidden)?.await?;
            // The very address: whatever led here, nothing is sent to another.
            if reach.egress.is_some() && !reach.permits(stream.inner().peer_addr()?.ip()) {
                return Err(Forbidden.into());
            }
            Ok(stream)
        })
    }
}

/// The address that stands in a URL as its host.
fn literal(uri: &Uri) -> Option<IpAddr> {
    let host = uri.host()?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests;
