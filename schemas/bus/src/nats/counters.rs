//! Counters are messages that add: the server answers with the total. They are for rates only.

use async_nats::jetstream::message::PublishMessage;
use schemas::subject;

use super::api::{Api, is_subject};
use super::failure::Strange;
use crate::BusError;
use crate::counter::Slice;

/// The header that makes a message an addition.
const ADD: &str = "Nats-Incr";

/// Adds to a counter. See [`crate::counter::Counters::add`].
pub(super) async fn add(api: &Api, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
    let prefix = match slice {
        Slice::Second => subject::RATE_SECOND,
        Slice::Minute => subject::RATE_MINUTE,
    };
    let subject = format!("{prefix}{name}");
    if !is_subject(&subject) {
        return Err(BusError::Refused {
            reason: format!("{name:?} is no name of a counter"),
        });
    }
    let addition = PublishMessage::build().header(ADD, format!("+{amount}").as_str());
    let ack = api.publish(&subject, addition).await?;
    let total = ack.value.as_deref().and_then(|value| value.parse().ok());
    total.ok_or_else(|| Strange::Unreadable.into())
}
