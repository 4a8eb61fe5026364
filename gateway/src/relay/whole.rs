//! An answer in one piece: settled first, then sent. A failure before any content has its true status.

use axum::body::Body;
use axum::response::Response;
use bus::dispatch::End;

use super::{Running, Settled, head};
use crate::error;
use crate::shape::Shape;

/// The answer of a request that ended before anything was sent.
pub(super) async fn response(mut running: Running, end: End) -> Response {
    let (request_id, shape) = (running.request_id(), Shape::of_surface(running.surface()));
    let streams = running.streams();
    let first = end.head.unwrap_or_else(head::early);
    let Settled {
        record,
        failure,
        kept,
    } = running.end(end.report, &end.tail);
    Settled::durable(record, kept).await;
    match failure {
        Some(failure) => error::response(&failure, request_id, shape),
        None if streams => head::stream(&first, Body::from(end.tail)),
        None => head::whole(&first, Body::from(end.tail)),
    }
}
