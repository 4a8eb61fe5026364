//! The head of an answer: what the router allowed of the upstream's, without anything that is the gateway's own
//! business (framing, hops, cross-origin rules).

use axum::body::Body;
use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemas::affinity::VERDICT_HEADER;
use schemas::affinity::hint::SESSION_HEADER;
use schemas::frame::{Head, Report};

/// The status of a stream that begins before its upstream answers.
const STATUS_EARLY: u16 = 200;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The head of a stream that begins before its upstream answers.
pub(super) fn early() -> Head {
    Head {
        status: STATUS_EARLY,
        headers: Vec::new(),
    }
}

/// An answer that is one piece.
pub(super) fn whole(head: &Head, body: Body) -> Response {
    with(head, body, "application/json")
}

/// An answer that is a stream of events: no proxy on the way may hold it back.
pub(super) fn stream(head: &Head, body: Body) -> Response {
    let mut response = with(head, body, "text/event-stream");
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// An answer that passes as it came. To a browser it is no page of the gateway's own, and none that may run anything.
pub(super) fn passing(head: &Head, body: Body) -> Response {
    let mut response = bare(head, body);
    let headers = response.headers_mut();
    // There only where it is of a body that does not come.
    let length = head
        .headers
        .iter()
        .find(|(name, _)| name == CONTENT_LENGTH.as_str());
    if let Some(length) = length.and_then(|(_, value)| HeaderValue::try_from(value).ok()) {
        headers.insert(CONTENT_LENGTH, length);
    }
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What a failure tells of its session; the router puts it into the heads of answers itself.
pub(super) fn session(report: &Report) -> Vec<(HeaderName, HeaderValue)> {
    let Some(affinity) = &report.affinity else {
        return Vec::new();
    };
    let verdict = (HeaderName::from_static(VERDICT_HEADER), Some(affinity));
    let session = (HeaderName::from_static(SESSION_HEADER), report.session.as_ref());
    [verdict, session]
        .into_iter()
        .filter_map(|(name, value)| Some((name, HeaderValue::from_str(value?).ok()?)))
        .collect()
}

fn bare(head: &Head, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    for (name, value) in &head.headers {
        append(headers, name, value);
    }
    response
}

fn with(head: &Head, body: Body, content_type: &'static str) -> Response {
    let mut response = bare(head, body);
    response
        .headers_mut()
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static(content_type));
    response
}

fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
        return;
    };
    let hop = matches!(
        name.as_str(),
        "connection" | "keep-alive" | "te" | "trailer" | "upgrade" | "date" | "server"
    );
    let framing = name == CONTENT_LENGTH || name == TRANSFER_ENCODING;
    if !hop && !framing && !name.as_str().starts_with("access-control-") {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_hops_and_cross_origin_rules_of_an_upstream_stay_behind() {
        let lines = [
            ("content-type", "application/json; charset=utf-8"),
            ("content-length", "7"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("access-control-allow-origin", "*"),
            ("bad name", "x"),
        ];
        let head = Head {
            status: 200,
            headers: lines
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };

        let response = whole(&head, Body::empty());

        assert_eq!(response.headers().len(), 1);
        assert_eq!(
            response.headers()[CONTENT_TYPE],
            "application/json; charset=utf-8"
        );
    }

    #[test]
    fn a_stream_may_not_be_buffered() {
        let response = stream(&early(), Body::empty());

        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
    }
}
