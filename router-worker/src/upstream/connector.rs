//! Opens connections: name, TCP and TLS within one time limit, no delay of small packets, and a tag on each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;
use tracing::warn;

use super::tag::Tagged;
use super::tcp::Tcp;

/// A connection as HTTP sees it.
pub(super) type Stream = TokioIo<Tagged<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1, or HTTP/2 where TLS negotiates it.
    Negotiated,
    /// HTTP/2 without asking.
    Http2,
}

/// Opens connections to upstreams.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Tcp>,
    timeout: Duration,
}

impl Connector {
    /// Over TCP as `tcp` opens it; all of a connection takes `timeout` at most.
    pub(super) fn new(protocol: Protocol, tls: rustls::ClientConfig, tcp: Tcp, timeout: Duration) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let https = match protocol {
            Protocol::Negotiated => builder.enable_all_versions().wrap_connector(tcp),
            Protocol::Http2 => builder.enable_http2().wrap_connector(tcp),
        };
        Self { https, timeout }
    }
}

/// TLS that trusts the machine's own roots. Without any, only upstreams over plain HTTP can be reached.
pub fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let trusting = match builder.clone().with_native_roots() {
        Ok(trusting) => trusting,
        Err(error) => {
            warn!(
                error = &error as &dyn std::error::Error,
                "there are no root certificates: upstreams over TLS cannot be reached"
            );
            builder.with_root_certificates(rustls::RootCertStore::empty())
        }
    };
    Ok(trusting.with_no_client_auth())
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri);
        let timeout = self.timeout;
        Box::pin(async move {
            let stream = tokio::time::timeout(timeout, connecting).await??;
            Ok(TokioIo::new(Tagged::new(TokioIo::new(stream))))
        })
    }
}
