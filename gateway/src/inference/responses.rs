//! `GET` and `DELETE /v1/responses/{id}`, and `GET /v1/responses/{id}/input_items`: responses that the caller's tenant let us
//! keep. Nothing is metered.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemas::failure::{Failure, FailureCode};
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::manage::{json, raw_json};
use crate::responses;
use crate::state::Shared;

type Id = Result<Path<String>, PathRejection>;

#[derive(Serialize)]
struct Gone<'a> {
    id: &'a str,
    object: &'static str,
    deleted: bool,
}

/// One response, as its caller got it.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    RawQuery(query): RawQuery,
    id: Id,
) -> Response {
    if query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=true")) {
        let text = "a response that is kept cannot be streamed";
        let failure = Failure::new(FailureCode::UnsupportedParameter, text).param("stream");
        return arrival.refuse(&failure);
    }
    match responses::show(&state, caller.tenant(), &text(id)).await {
        Ok(kept) => raw_json(kept.response()),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Forgets one.
pub(crate) async fn delete(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Id,
) -> Response {
    let id = text(id);
    match responses::forget(&state, caller.tenant(), &id).await {
        Ok(()) => json(&Gone {
            id: &id,
            object: "response",
            deleted: true,
        }),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What the request of one was given.
pub(crate) async fn input_items(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    RawQuery(query): RawQuery,
    id: Id,
) -> Response {
    let kept = responses::show(&state, caller.tenant(), &text(id)).await;
    let items = kept.and_then(|kept| kept.input_items(query.as_deref().unwrap_or_default()));
    match items {
        Ok(items) => raw_json(items),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// An id that is not even text is the id of nothing.
fn text(id: Id) -> String {
    id.map(|Path(id)| id).unwrap_or_default()
}
