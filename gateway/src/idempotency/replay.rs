//! A request that is answered from what the first one left: the same status and bytes, as an answer of its own. Its row
//! costs nothing and says that it is a replay; it takes nothing of any limit.

use axum::body::Body;
use axum::response::Response;
use bus::Message;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};
use schemas::event::request::{RequestAccepted, RequestSettled, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::frame::Head;
use schemas::id::{EventId, ModelName, SpoolId};
use schemas::idempotency::REPLAY_HEADER;
use schemas::idempotency::answer::{Answer, Body as Kept};
use schemas::idempotency::record::Done;
use schemas::limit::Reservation;
use schemas::money::PriceVersion;
use schemas::outcome::Outcome;
use schemas::subject;
use serde::Deserialize;
use tokio::time::timeout;
use tracing::error;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::error as answers;
use crate::gate::Wishes;
use crate::state::Shared;
use crate::{relay, settle};

const X_REPLAY: HeaderName = HeaderName::from_static(REPLAY_HEADER);
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// How long the bus may take over an event that is published again.
const PUBLISH_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// A request as its row tells it.
pub(crate) struct Repeated {
    pub(crate) surface: Surface,
    pub(crate) model: ModelName,
    pub(crate) wishes: Wishes,
}

/// What a replay is told of the first request by its waybill.
#[derive(Debug, Deserialize)]
struct First {
    id: EventId,
    source: String,
    subject: String,
    data: Ended,
}

#[derive(Debug, Deserialize)]
struct Ended {
    outcome: Outcome,
    error_code: Option<FailureCode>,
}

/// Answers `repeated` with what the first request left. Its row is in the spool when this returns.
pub(crate) async fn answer(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    repeated: Repeated,
    done: Done,
) -> Result<Response, Failure> {
    let first: Option<First> = serde_json::from_slice(&done.envelope).ok();
    record(state, (arrival, caller), repeated, (&done.answer, first.as_ref())).await?;
    if let Some(first) = first {
        publish_again(state, &first, done.envelope.into());
    }
    Ok(response(done.answer))
}

/// Writes the row.
async fn record(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    repeated: Repeated,
    (answer, first): (&Answer, Option<&First>),
) -> Result<(), Failure> {
    let full = || {
        Failure::new(FailureCode::SpoolFull, "the node cannot record further requests")
            .retry_after(answers::RETRY_SECONDS)
    };
    let spool = &state.ports.spool;
    let reservation = spool.reserve().map_err(|_| full())?;
    let accepted = RequestAccepted {
        request_id: arrival.request_id,
        payer: caller.payer(),
        surface: repeated.surface,
        model: repeated.model,
        reservation: Reservation::default(),
        price_version: PriceVersion(state.ports.catalog.load().revision_text.clone()),
        started_at: arrival.at,
        node: state.config.node.clone(),
    };
    let now = state.ports.clock.now();
    let settled = RequestSettled {
        stream: answer.stream,
        idempotency: Some("replay".into()),
        ..settle::ended(
            &accepted,
            repeated.wishes,
            ending(answer, first),
            state.config.billing_tz,
            now,
        )
    };
    let appended = spool.append(&settled.tenant, now, &settled);
    spool.give_back(reservation);
    match appended {
        Ok(appended) => {
            state.metrics.settled(&state.ports.catalog.peek(), &settled);
            spool.durable(appended.sequence).await;
            Ok(())
        }
        Err(problem) => {
            error!(request.id = %arrival.request_id, error = &problem as &dyn std::error::Error, "a replay cannot be written");
            Err(full())
        }
    }
}

/// How a replay ends: as the first request did, for whoever reads it.
fn ending(answer: &Answer, first: Option<&First>) -> settle::Told {
    let (outcome, error_code) = match first {
        Some(first) => (first.data.outcome, first.data.error_code),
        None if answer.status < 400 => (Outcome::Ok, None),
        None => (Outcome::UpstreamError, Some(FailureCode::UpstreamError)),
    };
    settle::Told {
        outcome,
        error_code,
        status: answer.status,
    }
}

/// The books may not have the first request yet: its node may have died after the answer was kept, and its spool may
/// come later or never. Read twice, an event changes nothing.
fn publish_again(state: &Shared, first: &First, envelope: Bytes) {
    let own = state.ports.spool.id();
    let source = first
        .source
        .rsplit_once('/')
        .map(|(_, spool)| SpoolId::from(spool));
    if source.as_ref() == Some(own) {
        return;
    }
    let message = Message {
        subject: subject::event(subject::REQUEST_SETTLED, &first.subject),
        id: first.id.to_string(),
        payload: envelope,
    };
    let bus = state.ports.bus.clone();
    state.leaving.spawn(async move {
        // The spool's own publisher will, if this does not.
        let _ = timeout(PUBLISH_WITHIN, bus.publish(&[message])).await;
    });
}

/// The answer: nothing of it belongs to the connection or to the moment of the first.
fn response(answer: Answer) -> Response {
    let Kept::Kept(body) = answer.body else {
        return Response::new(Body::empty());
    };
    let head = Head {
        status: answer.status,
        headers: answer.headers,
    };
    let mut response = relay::kept(&head, answer.stream, body.into());
    let headers = response.headers_mut();
    headers.insert(X_REPLAY, HeaderValue::from_static("true"));
    if head.status >= 400 {
        // Under this key the answer stays the same.
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if matches!(head.status, 429 | 503) {
        headers.insert(RETRY_AFTER, HeaderValue::from(answers::RETRY_SECONDS));
    }
    response
}
