//! `POST /v1/chat/completions`.

use axum::extract::{Request, State};
use axum::response::Response;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::dispatch;
use crate::state::Shared;

/// Where it is.
pub(crate) const PATH: &str = "/v1/chat/completions";

/// Answers a chat request, streamed or whole.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    dispatch::chat(state, arrival, caller, request).await
}
