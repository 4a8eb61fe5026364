//! What the head of an answer tells beside what the session says of it.

use http::HeaderValue;
use schemas::event::request::Surface;

use super::Live;
use crate::standing::Standings;

impl Live {
    /// The answer passes as it came.
    pub(super) fn passes(&self) -> bool {
        self.slot.accepted.surface == Surface::Proxy
    }

    /// The answer is a stream of events in which the gateway may say something itself.
    pub(super) fn speaks_events(&self) -> bool {
        self.terms.stream && !self.passes()
    }

    /// The revision of the catalogue that it was admitted under, as its row has it.
    pub(super) fn revision(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.slot.accepted.price_version.revision()).ok()
    }

    /// How its limits stand; `None` where it has none.
    pub(super) fn limits(&self) -> Option<Standings> {
        if self.held.is_nothing() {
            return None;
        }
        let now = self.state.ports.clock.now();
        Some(Standings {
            least: self.held.standings(),
            period: self.state.ports.limits.period(now),
            now,
        })
    }
}
