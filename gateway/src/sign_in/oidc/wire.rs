//! The few requests that a gateway makes of a provider: bounded in time and size, without redirects, over TLS that trusts
//! the machine's own roots. In the clear only a provider on the machine itself is asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use schemas::secret::Secret;
use tokio::time::timeout;

use crate::sign_in::origin::is_loopback;

/// How long a request may take in all.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest answer, in bytes.
const BYTES_MAX: usize = 256 * 1_024;

/// Why there is no answer that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// The provider cannot be reached, or not in time.
    #[error("the provider cannot be reached")]
    Away,
    /// It answers that it will not.
    #[error("the provider answers {0}")]
    Refused(StatusCode),
    /// What it says is not what the protocol has it say.
    #[error("the provider's {0} is not what it has to be")]
    Odd(&'static str),
}

/// Asks a provider.
pub(super) struct Wire(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Wire {
    pub(super) fn new() -> Option<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?;
        let trusting = builder.clone().with_native_roots();
        // Without roots only a provider on the machine itself can be asked.
        let trusting =
            trusting.unwrap_or_else(|_| builder.with_root_certificates(rustls::RootCertStore::empty()));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trusting.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        // Seconds lie between two requests: no connection waits for the next.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Some(Self(client))
    }

    /// Reads a document.
    pub(super) async fn get(&self, uri: &Uri) -> Result<Bytes, Error> {
        let request = Request::builder().method(Method::GET).uri(uri);
        let request = request
            .header(ACCEPT, "application/json")
            .body(Full::default())
            .map_err(|_| Error::Odd("address"))?;
        self.answer(request).await
    }

    /// Sends a form, as whom `login` says in a header.
    pub(super) async fn post(
        &self,
        uri: &Uri,
        form: String,
        login: Option<Secret<String>>,
    ) -> Result<Bytes, Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(login) = login {
            let value = HeaderValue::try_from(format!("Basic {}", login.reveal()));
            let mut value = value.map_err(|_| Error::Odd("client"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request
            .body(Full::from(form))
            .map_err(|_| Error::Odd("address"))?;
        self.answer(request).await
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Error> {
        let answered = async {
            let response = self.0.request(request).await.map_err(|_| Error::Away)?;
            if response.status() != StatusCode::OK {
                return Err(Error::Refused(response.status()));
            }
            let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
            body.map(http_body_util::Collected::to_bytes)
                .map_err(|_| Error::Odd("answer"))
        };
        timeout(WITHIN, answered).await.unwrap_or(Err(Error::Away))
    }
}

/// An address that a provider may be asked at: under TLS, or on the machine itself.
pub(super) fn address(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let is_named = !authority.is_empty() && !authority.contains('@');
    let is_private = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_loopback(Some(authority)),
        _ => false,
    };
    (is_named && is_private).then_some(uri)
}

/// A text as it stands in a form or a query.
pub(super) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;

    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Several of them, as a form or a query.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<String>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_asked_under_tls_or_on_the_machine_itself() {
        for (text, expected) in [
            ("https://login.example.com/token", true),
            ("http://127.0.0.1:8080/token", true),
            ("http://localhost/token", true),
            ("http://login.example.com/token", false),
            ("http://127.0.0.1.evil.org/token", false),
            ("https://user:password@login.example.com/token", false),
            ("http://127.0.0.1@evil.org/", false),
            ("file:///etc/passwd", false),
            ("/token", false),
            ("", false),
        ] {
            assert_eq!(address(text).is_some(), expected, "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_form_adds_no_pair() {
        assert_eq!(
            form(&[("a b", "c&d=e+f"), ("g", "\u{e9}/~")]),
            "a%20b=c%26d%3De%2Bf&g=%C3%A9%2F~"
        );
    }
}
