//! `POST /api/v1/system/rebuild`: fills the tables of the books anew from the log. For operators.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use schemas::query::RebuildAnswer;
use schemas::subject::QUERY_REBUILD;

use super::openapi::Operation;
use super::{answered, ask, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// How long a rebuild may take.
const REBUILD_WITHIN: Duration = Duration::from_mins(10);

/// What the path does.
pub(crate) const REBUILD: Operation =
    Operation::read::<RebuildAnswer>("Fills the tables of the books anew from the log").of_operators();

/// Rebuilds the projections and tells how many events and rows there are.
pub(crate) async fn rebuild(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    let read = async {
        rights::operates(&caller)?;
        ask::<_, RebuildAnswer>(&state, QUERY_REBUILD, &(), REBUILD_WITHIN).await
    };
    answered(&arrival, read.await)
}
