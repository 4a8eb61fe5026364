//! An answer in one piece: settled first, then sent. A failure before any content has its true status.

use axum::body::Body;
use axum::response::Response;
use bus::dispatch::End;

use super::{Live, Running, Settled, head};
use crate::error;

/// The answer of a request that ended before anything was sent.
pub(super) async fn response(mut running: Running, end: Box<End>) -> Response {
    let (request_id, shape) = (running.request_id(), running.shape());
    let (streams, passes) = (running.streams(), running.live().is_some_and(Live::passes));
    let routed = running.live().and_then(|live| live.routed.clone());
    if let Some(covering) = running.cover(end) {
        covering.await;
    }
    let Some(end) = running.covered() else {
        return head::whole(&head::early(), Body::empty());
    };
    let first = end.head.unwrap_or_else(head::early);
    let session = head::session(&end.report);
    let Settled {
        record,
        failure,
        kept,
        key,
    } = running.end(end.report, &end.tail);
    let left = key.and_then(|key| match &failure {
        Some(failure) => {
            let (head, body) = error::parts(failure, request_id, shape);
            key.whole(&head, false, routed.as_ref(), &body)
        }
        None => key.whole(&first, streams, routed.as_ref(), &end.tail),
    });
    Settled::durable(record, kept, left).await;
    match failure {
        Some(failure) => {
            let mut response = error::response(&failure, request_id, shape);
            response.headers_mut().extend(session);
            response
        }
        None if passes => head::passing(&first, Body::from(end.tail)),
        None if streams => head::stream(&first, Body::from(end.tail)),
        None => head::whole(&first, Body::from(end.tail)),
    }
}
