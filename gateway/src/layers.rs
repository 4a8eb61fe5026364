//! Everything that happens to every request, in one function: an id, the bounds on headers, the cross-origin rules,
//! a net under panics, and what every answer carries.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, CONTENT_LENGTH, HOST, ORIGIN,
    TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use schemas::failure::{Failure, FailureCode};
use schemas::id::RequestId;
use tower_service::Service as _;
use tracing::error;

use crate::arrival::Arrival;
use crate::connection::Connection;
use crate::error as answer;
use crate::state::{Phase, Shared, State};
use crate::{caller, dispatch, path, routes};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// The revision of the catalogue that a call was admitted under, or else the one that its node has.
pub(crate) const X_CONFIG: HeaderName = HeaderName::from_static("x-waybill-config");

/// Headers of answers that pages of other origins may read.
const EXPOSED: &str = "x-request-id, request-id, x-waybill-config, x-waybill-dropped, x-waybill-estimate, x-routed-model, x-idempotent-replay, etag, x-session-id, x-session-affinity, retry-after, x-should-retry, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, x-ratelimit-limit-cost, x-ratelimit-remaining-cost, x-ratelimit-reset-cost, x-quota-reset";
/// Headers that pages of other origins may send, told to those that name none.
const ALLOWED: &str = "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, x-reasoning-passthrough, x-request-id, x-session-id, x-end-user, x-route-pin, idempotency-key, if-match";
/// Longest list of headers that is granted as it is asked for, in bytes: client libraries send many of their own.
const ASKED_BYTES_MAX: usize = 2_048;
/// Methods they may use.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// Seconds for which a browser may remember all this.
const PREFLIGHT_SECONDS: &str = "600";

/// Completes `router`: what it answers to paths and methods it does not have.
fn completed(router: Router<Shared>, state: &Shared) -> Router {
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(state.clone())
}

/// What one listener serves.
#[derive(Clone)]
pub(crate) struct Routes {
    router: Router,
    /// Calls of models are among it. They are told by their path and go past the router, whose way costs several
    /// boxes per request.
    serves_models: bool,
}

impl Routes {
    /// The main listener's.
    pub(crate) fn main(state: &Shared) -> Self {
        Self {
            router: completed(routes::main(&state.config).router, state),
            serves_models: true,
        }
    }

    /// The administrators' listener's.
    pub(crate) fn admin(state: &Shared) -> Self {
        Self {
            router: completed(routes::admin().router, state),
            serves_models: false,
        }
    }

    async fn answer(mut self, state: &Shared, arrival: Arrival, mut request: Request) -> Response {
        if self.serves_models
            && request.method() == Method::POST
            && let Some(call) = arrival.call
        {
            let presented = caller::Presented::of_request(&request);
            return match caller::admit(state, &arrival, presented).await {
                Ok(caller) => Box::pin(dispatch::run(state.clone(), (arrival, call), caller, request)).await,
                Err(refused) => *refused,
            };
        }
        request.extensions_mut().insert(arrival);
        // For what is done to its end though its caller leaves.
        request.extensions_mut().insert(state.leaving.clone());
        path::mend(&mut request);
        let Ok(response) = self.router.call(request).await;
        response
    }
}

/// Answers one request of `connection` by `routes`. Called by the connection itself, not as a layer of the router:
/// that costs no box per request.
pub(crate) async fn around(
    (state, routes): (Shared, Routes),
    connection: Arc<Connection>,
    request: Request,
) -> Result<Response, Infallible> {
    let version = request.version();
    let leaving = state.phase() != Phase::Serving;
    connection.speaks(version);
    if leaving {
        connection.go_away();
    }
    let arrival = Arrival::new(&state, connection, &request);
    let (request_id, shape) = (arrival.request_id, arrival.shape);
    let origin = allowed_origin(&state, request.headers());
    // The cookie of a session is for the paths of signing in, and for origins that are named.
    let with_cookie = request.uri().path().starts_with("/auth/");
    let with_cookie = with_cookie && origin.as_ref().is_some_and(|origin| origin != "*");
    let mut response = if let Err(failure) = bounded(&state, version, request.headers()) {
        state.metrics.refused(failure.code, arrival.surface_word(), None);
        arrival.refuse_unread(&failure)
    } else if preflight(&request) {
        preflight_response(origin.is_some(), request.headers())
    } else {
        let handled = AssertUnwindSafe(routes.answer(&state, arrival, request));
        if let Ok(response) = handled.catch_unwind().await {
            response
        } else {
            error!(request.id = %request_id, "a handler panicked");
            let failure = Failure::new(FailureCode::Internal, "the request failed inside the gateway");
            answer::response(&failure, request_id, shape)
        }
    };
    finish(&state, response.headers_mut(), request_id, origin);
    if with_cookie {
        let yes = HeaderValue::from_static("true");
        response
            .headers_mut()
            .insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
    }
    if version >= Version::HTTP_2 {
        // A stream's own end says it there.
        response.headers_mut().remove(CONNECTION);
    } else if leaving {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Bounds on headers. Both lengths at once, or more than one host, are two readings of one message: never served.
fn bounded(state: &State, version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if headers.len() > state.config.headers_max || bytes > state.config.header_bytes_max {
        let text = "the request's headers are too many or too large";
        return Err(Failure::new(FailureCode::HeadersTooLarge, text));
    }
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        let text = "content-length and transfer-encoding exclude each other";
        return Err(Failure::new(FailureCode::InvalidRequest, text));
    }
    let hosts = headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && version == Version::HTTP_11) {
        let text = "a request over HTTP/1.1 has one host header";
        return Err(Failure::new(FailureCode::InvalidRequest, text));
    }
    Ok(())
}

/// What every answer carries.
fn finish(state: &State, headers: &mut HeaderMap, request_id: RequestId, origin: Option<HeaderValue>) {
    let mut text = uuid::Uuid::encode_buffer();
    let text: &str = request_id.0.as_hyphenated().encode_lower(&mut text);
    if let Ok(id) = HeaderValue::from_str(text) {
        headers.insert(REQUEST_ID, id.clone());
        headers.insert(X_REQUEST_ID, id);
    }
    if let Ok(revision) = HeaderValue::from_str(&state.ports.catalog.peek().revision_text) {
        headers.entry(X_CONFIG).or_insert(revision);
    }
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    if !state.cors_origins.is_empty() {
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// The origin to allow, when the request names one that is.
fn allowed_origin(state: &State, headers: &HeaderMap) -> Option<HeaderValue> {
    if state.cors_origins.is_empty() {
        return None;
    }
    let origin = headers.get(ORIGIN)?;
    let found = state
        .cors_origins
        .iter()
        .find(|allowed| *allowed == origin || *allowed == "*");
    found.cloned()
}

/// True when a browser asks for leave.
fn preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight_response(allowed: bool, asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if allowed {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        let asked = asked
            .get(ACCESS_CONTROL_REQUEST_HEADERS)
            .filter(|list| !list.is_empty() && list.len() <= ASKED_BYTES_MAX);
        let granted = asked
            .cloned()
            .unwrap_or_else(|| HeaderValue::from_static(ALLOWED));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, granted);
        headers.insert(
            ACCESS_CONTROL_MAX_AGE,
            HeaderValue::from_static(PREFLIGHT_SECONDS),
        );
    }
    response
}

async fn unknown_path(arrival: Arrival, request: Request) -> Response {
    if request.uri().path().contains("/v1/v1/") {
        let text = "there is no such path: /v1 is in it twice, so leave it out of the base URL";
        return arrival.refuse(&Failure::new(FailureCode::NotFound, text));
    }
    arrival.refuse(&no_path())
}

/// The answer to a path that leads nowhere.
pub(crate) fn no_path() -> Failure {
    Failure::new(FailureCode::NotFound, "there is no such path")
}

async fn unknown_method(arrival: Arrival) -> Response {
    let failure = Failure::new(
        FailureCode::MethodNotAllowed,
        "the path does not take this method",
    );
    arrival.refuse(&failure)
}
