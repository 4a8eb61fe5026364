//! One request as it comes in: our id for it, the caller's own, when and from where. The layers make it; every
//! handler takes it as an argument.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use schemas::failure::Failure;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use uuid::Uuid;

use crate::caller::grant::Door;
use crate::connection::Connection;
use crate::error;
use crate::inference::call::Call;
use crate::path;
use crate::shape::Shape;
use crate::state::State;

/// Longest id, session or name of a caller's own that is kept, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// What is known of a request before its caller is.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// Our id, minted on arrival.
    pub(crate) request_id: RequestId,
    /// When it arrived.
    pub(crate) at: Timestamp,
    /// The address it came from.
    pub(crate) peer: Option<SocketAddr>,
    /// The connection it came on.
    pub(crate) connection: Option<Arc<Connection>>,
    /// In whose words it is refused.
    pub(crate) shape: Shape,
    /// What it asks of a model, where its path says so.
    pub(crate) call: Option<Call>,
    /// Where it goes, for credentials that do not go everywhere.
    pub(crate) door: Door,
}

impl Arrival {
    /// Mints the id of a request.
    pub(crate) fn new(state: &State, connection: Arc<Connection>, request: &Request) -> Self {
        let at = state.ports.clock.now();
        let path = path::plain(request.uri().path());
        Self {
            shape: Shape::of(&path, request.headers()),
            call: Call::of(&path),
            door: Door::of(&path),
            request_id: state.ports.mint.request_id(at),
            at,
            peer: Some(connection.peer),
            connection: Some(connection),
        }
    }

    /// Answers a request whose body is not read: the connection lingers a moment, then closes.
    pub(crate) fn refuse_unread(&self, failure: &Failure) -> Response {
        if let Some(connection) = &self.connection {
            connection.linger();
        }
        error::closing_response(failure, self.request_id, self.shape)
    }

    /// Answers a request that failed.
    pub(crate) fn refuse(&self, failure: &Failure) -> Response {
        error::response(failure, self.request_id, self.shape)
    }

    /// The word of its surface in metrics; empty where it asks nothing of a model.
    pub(crate) fn surface_word(&self) -> &'static str {
        self.call.map_or("", |call| call.surface().as_str())
    }

    /// What the layers put beside the request; a nameless arrival where they did not run.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let nameless = Self {
            request_id: RequestId(Uuid::nil()),
            at: Timestamp::default(),
            peer: None,
            connection: None,
            shape: Shape::default(),
            call: None,
            door: Door::Other,
        };
        extensions.get::<Self>().cloned().unwrap_or(nameless)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Arrival {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// A label of the caller's own, kept only when it is short and printable.
pub(crate) fn label(headers: &HeaderMap, name: &HeaderName) -> Option<Arc<str>> {
    kept(headers.get(name)?.to_str().ok()?)
}

/// The same, from elsewhere.
pub(crate) fn kept(text: &str) -> Option<Arc<str>> {
    let value = text.trim();
    let printable = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (!value.is_empty() && value.len() <= LABEL_BYTES_MAX && printable).then(|| value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_header(value: &'static str) -> Option<Arc<str>> {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", http::HeaderValue::from_static(value));
        label(&headers, &HeaderName::from_static("x-request-id"))
    }

    #[test]
    fn labels_are_kept_only_when_short_and_printable() {
        assert_eq!(of_header("run 7").as_deref(), Some("run 7"));
        assert_eq!(of_header("  "), None);
        assert_eq!(of_header("tab\tbed"), None);
        let long: &'static str = Box::leak("x".repeat(129).into_boxed_str());
        assert_eq!(of_header(long), None);
    }
}
