//! A failure becomes an answer: status, headers and a body in the shape of the caller's dialect, with the
//! request's id. Nothing but what a [`Failure`] carries is ever shown.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use dialects::messages;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use schemars::JsonSchema;
use schemas::failure::{Exceeded, Failure, FailureCode};
use schemas::frame::Head;
use schemas::id::RequestId;
use serde::Serialize;

use crate::shape::Shape;
use crate::standing;

/// Seconds after which a refused caller may try again, when nothing better is known.
pub(crate) const RETRY_SECONDS: u64 = 1;

pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Why the gateway cannot start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}; stop what listens there, or choose another address with --listen")]
    Listen {
        /// The address.
        addr: std::net::SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// An origin or the version cannot stand in a header.
    #[error("{field} has characters that no header may have")]
    Header {
        /// The setting at fault.
        field: &'static str,
    },
    /// The deployment's secret for keys is empty.
    #[error("the secret for keys is empty")]
    Secret,
}

/// A failure as callers see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub(crate) struct Wrapped<'a> {
    error: Shown<'a>,
}

/// The members of an error as callers see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FailureError")]
struct Shown<'a> {
    /// For people.
    message: &'a str,
    /// The class of error that client libraries know.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What went wrong, of a closed list.
    #[schemars(with = "FailureCode")]
    code: &'static str,
    /// The field, parameter or header at fault.
    param: Option<&'a str>,
    /// The request's id.
    request_id: RequestId,
    #[serde(flatten)]
    #[schemars(skip)]
    exceeded: Option<&'a Exceeded>,
}

/// A failure as what is kept under an idempotency key: head and body.
pub(crate) fn parts(failure: &Failure, request_id: RequestId, shape: Shape) -> (Head, Vec<u8>) {
    let head = Head {
        status: failure.status,
        headers: Vec::new(),
    };
    (head, body(failure, request_id, shape))
}

/// The body of a failure, in its caller's shape.
fn body(failure: &Failure, request_id: RequestId, shape: Shape) -> Vec<u8> {
    match shape {
        Shape::OpenAi => openai_body(failure, request_id),
        Shape::Anthropic => messages::error::body(failure, &request_id.to_string()),
    }
}

/// `{"error":{"message","type","code","param","request_id"}}`
fn openai_body(failure: &Failure, request_id: RequestId) -> Vec<u8> {
    let wrapped = Wrapped {
        error: Shown {
            message: &failure.message,
            kind: kind(failure),
            code: failure.code.as_str(),
            param: failure.param.as_deref(),
            request_id,
            exceeded: failure.exceeded.as_deref(),
        },
    };
    // Text and an id always serialize.
    serde_json::to_vec(&wrapped).unwrap_or_default()
}

/// The event that ends a stream of the OpenAI dialects which cannot be finished.
pub(crate) fn event(failure: &Failure, request_id: RequestId) -> Bytes {
    let mut event = b"data: ".to_vec();
    event.append(&mut openai_body(failure, request_id));
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// The answer to a call that failed.
pub(crate) fn response(failure: &Failure, request_id: RequestId, shape: Shape) -> Response {
    let mut response = Response::new(Body::from(body(failure, request_id, shape)));
    *response.status_mut() =
        StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let told = failure.retry_after_seconds;
    if let Some(seconds) = told.or_else(|| matches!(failure.status, 429 | 503).then_some(RETRY_SECONDS)) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    } else if failure.exhausted {
        // Clients take it for final, whatever they are told of the time; where it helps to come again it is left out.
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(exceeded) = &failure.exceeded {
        standing::refused(exceeded, headers);
    }
    response
}

/// The same, closing the connection: what the caller still sends is not read.
pub(crate) fn closing_response(failure: &Failure, request_id: RequestId, shape: Shape) -> Response {
    let mut response = response(failure, request_id, shape);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The `type` of a failure: an upstream's status decides where it says more than the code.
fn kind(failure: &Failure) -> &'static str {
    match failure.status {
        429 if failure.code == FailureCode::InvalidApiKey => "rate_limit_error",
        _ => failure.code.kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> RequestId {
        RequestId(uuid::Uuid::from_u128(7))
    }

    #[test]
    fn a_failure_has_the_shape_openai_clients_parse() {
        let failure = Failure::new(FailureCode::InvalidRequest, "the member 'n' must be 1").param("n");

        let body: serde_json::Value =
            serde_json::from_slice(&body(&failure, id(), Shape::OpenAi)).expect("json");

        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "the member 'n' must be 1",
                "type": "invalid_request_error",
                "code": "invalid_request",
                "param": "n",
                "request_id": "00000000-0000-0000-0000-000000000007",
            }})
        );
    }

    #[test]
    fn every_429_and_503_says_when_to_try_again() {
        let busy = response(
            &Failure::new(FailureCode::Overloaded, "busy"),
            id(),
            Shape::OpenAi,
        );
        let circuits = Failure::new(FailureCode::AllCircuitsOpen, "down").retry_after(30);

        assert_eq!(busy.headers()[RETRY_AFTER], "1");
        assert_eq!(
            response(&circuits, id(), Shape::OpenAi).headers()[RETRY_AFTER],
            "30"
        );
    }

    #[test]
    fn a_failure_of_every_leg_asks_not_to_be_retried_unless_it_says_when() {
        let said = |code, told| {
            let mut failure = Failure::new(code, "the upstream failed");
            failure.exhausted = true;
            failure.retry_after_seconds = told;
            let answer = response(&failure, id(), Shape::Anthropic);
            answer.headers().get("x-should-retry").cloned()
        };

        assert_eq!(said(FailureCode::UpstreamError, None).expect("told"), "false");
        assert_eq!(said(FailureCode::UpstreamError, Some(5)), None);
        assert_eq!(said(FailureCode::UpstreamRateLimited, None), None);
        assert_eq!(said(FailureCode::Overloaded, None), None);
    }
}
