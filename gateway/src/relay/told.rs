//! What the head of an answer tells beside what the session says of it.

use http::HeaderValue;

use super::Live;
use crate::standing::Standings;

impl Live {
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
