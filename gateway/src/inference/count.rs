//! `POST /v1/messages/count_tokens`: how many tokens a request is about. Estimated here, so that it is answered also
//! while no provider is; a model that is not there for the caller is refused as it is everywhere. Nothing is metered.

use axum::extract::{Request, State};
use axum::response::Response;
use dialects::skim;
use http::{HeaderName, HeaderValue};
use schemas::failure::Failure;
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::manage::json;
use crate::state::Shared;
use crate::{auto, dispatch, gate};

/// Says that a figure is an estimate.
const X_WAYBILL_ESTIMATE: HeaderName = HeaderName::from_static("x-waybill-estimate");

/// An estimate is raised by one in so many, since a client that is told too little fills its context too far.
const MARGIN: u64 = 20;

#[derive(Serialize)]
struct Counted {
    input_tokens: u64,
}

/// Counts a request.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    match count(&state, &caller, request).await {
        Ok(counted) => {
            let mut response = json(&counted);
            let headers = response.headers_mut();
            headers.insert(X_WAYBILL_ESTIMATE, HeaderValue::from_static("true"));
            response
        }
        Err((failure, true)) => arrival.refuse_unread(&failure),
        Err((failure, false)) => arrival.refuse(&failure),
    }
}

/// The count, or why there is none and whether the rest of the body was left unread.
async fn count(state: &Shared, caller: &Caller, request: Request) -> Result<Counted, (Failure, bool)> {
    let _place = dispatch::enter(state).map_err(|failure| (failure, true))?;
    let (parts, body) = request.into_parts();
    let (body, _permit) = dispatch::read(state, &parts.headers, body)
        .await
        .map_err(|failure| (failure, true))?;
    let limits = dispatch::skim_limits(state);
    let skim = skim::skim_counted(&body, &limits).map_err(|problem| (gate::malformed(&problem), false))?;
    let catalog = state.ports.catalog.load();
    if auto::strategy(&catalog, Some(&caller.key), &skim.model).is_none() {
        gate::visible(&catalog, Some(&caller.key), &skim.model)
            .filter(|model| !model.embeds)
            .ok_or_else(|| (gate::no_model(), false))?;
    }
    let estimate = skim.prompt_tokens_estimate;
    Ok(Counted {
        input_tokens: estimate.saturating_add(estimate.div_ceil(MARGIN)),
    })
}
