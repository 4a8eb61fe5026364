//! What a plan may know of backends beside their circuits, at one moment.

use std::sync::Arc;

use schemas::balance::profile::Profile;
use schemas::balance::snapshot::Engine;
use schemas::health::Spared;
use schemas::id::{BackendId, EndpointId, ModelName};

/// What is known of backends. Whatever is not known is as if nothing spoke for or against them.
pub(crate) trait Outlook {
    /// Calls that the fleet runs there.
    fn calls(&self, _: &BackendId) -> u64 {
        0
    }

    /// What its engine said lately.
    fn engine(&self, _: &BackendId) -> Option<Engine> {
        None
    }

    /// How long it is expected to take to the first token, in microseconds.
    fn ttft_us(&self, _: &BackendId) -> Option<u64> {
        None
    }

    /// How long it is to be asked last, in milliseconds, because it could not be connected to.
    fn banned_ms(&self, _: &BackendId) -> Option<u64> {
        None
    }

    /// Why it is to be left out although no call speaks against it.
    fn spared(&self, _: &BackendId) -> Option<Spared> {
        None
    }

    /// What is learned of the legs of a model.
    fn profile(&self, _: &ModelName) -> Option<Arc<Profile>> {
        None
    }

    /// What calls of a model left of their budgets so far, in nano-dollars.
    fn balance(&self, _: &ModelName) -> i64 {
        0
    }

    /// Another call of it leaves so much, or takes it where it is below 0.
    fn spend(&self, _: &ModelName, _change_nano_usd: i64) {}

    /// Choices made so far among the backends of an endpoint that are asked in turn.
    fn turn(&self, _: &EndpointId) -> u64 {
        0
    }

    /// Counts one more; false when somebody else did since `seen` was read, so that it is to be read again.
    fn take_turn(&self, _: &EndpointId, _seen: u64) -> bool {
        true
    }
}

/// Nothing is known.
#[cfg(test)]
pub(crate) struct Nothing;

#[cfg(test)]
impl Outlook for Nothing {}
