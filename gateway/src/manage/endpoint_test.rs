//! `POST /api/v1/endpoints/{id}/test`: one real call to an endpoint for the smallest answer there is, made by a router.
//! The answer is a 200 that says whether it worked; nobody is billed for it.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use schemas::account::attempts::Allowance;
use schemas::failure::Failure;
use schemas::subject;
use schemas::trial::{self, TrialAnswer, TrialQuery};

use super::endpoints::named;
use super::openapi::Operation;
use super::{ask, json};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::sign_in::attempts::{self, Of};
use crate::state::Shared;

/// How long a router may take: a little longer than it gives the endpoint.
const WITHIN: Duration = Duration::from_secs(65);
/// How often the callers of a tenant may have endpoints tried, over all nodes: routers make few trials at once, and each
/// is a call that somebody pays for.
const ALLOWANCE: Allowance = Allowance {
    attempts_max: 30,
    seconds: 60,
};
/// Why nothing was tried.
const NO_ROUTER: &str = "no router could make the call: none of the endpoint's pool answers";

/// What the path does.
pub(crate) const TEST: Operation = Operation::read::<TrialAnswer>(
    "Calls an endpoint once for the smallest answer, within a minute, and tells whether it works",
);

/// Has a router call the endpoint.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    match tested(&state, &caller, id).await {
        Ok(answer) => json(&answer),
        Err(failure) => arrival.refuse_unread(&failure),
    }
}

async fn tested(
    state: &Shared,
    caller: &Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<TrialAnswer, Failure> {
    let catalog = state.ports.catalog.load();
    let endpoint = named(caller, &catalog, id)?.record.id.clone();
    attempts::count(state, Of::Trial(caller.tenant()), ALLOWANCE).await?;
    let pool = trial::pool(&catalog, &endpoint);
    let subject = subject::trial(pool.as_str());
    let query = TrialQuery::new(&catalog, endpoint, &pool);
    let asked = ask::<_, TrialAnswer>(state, &subject, &query, WITHIN).await;
    Ok(asked.unwrap_or_else(|_| TrialAnswer::failed(NO_ROUTER)))
}
