//! Somebody whose answer goes on for long: who he is and what he may is asked again on the way, so that a credential
//! that is revoked ends what it began.

use axum::extract::Request;
use http::HeaderMap;
use schemas::failure::Failure;

use crate::arrival::Arrival;
use crate::caller::{Caller, Presented, identify};
use crate::state::Shared;

/// What a request said of who sent it.
pub(super) struct Again {
    pub(super) state: Shared,
    arrival: Arrival,
    headers: HeaderMap,
    authority: Option<String>,
}

impl Again {
    pub(super) fn new(state: Shared, arrival: &Arrival, request: Request) -> Self {
        let authority = Presented::of_request(&request).authority.map(str::to_owned);
        Self {
            state,
            arrival: arrival.clone(),
            headers: request.into_parts().0.headers,
            authority,
        }
    }

    /// Who he is now.
    pub(super) async fn caller(&mut self) -> Result<Caller, Failure> {
        self.arrival.at = self.state.ports.clock.now();
        let presented = Presented {
            headers: &self.headers,
            authority: self.authority.as_deref(),
        };
        identify(&self.state, &self.arrival, presented).await
    }
}
