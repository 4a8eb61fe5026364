//! Counters are messages that add: the server answers with the total. They are for rates only.

use async_nats::jetstream::message::PublishMessage;
use schemas::subject;
use schemas::time::Timestamp;

use super::api::{Api, NoStream, is_subject};
use super::failure::{self, Strange};
use crate::BusError;
use crate::counter::Slice;
use crate::layout::bucket_stream;

/// The header that makes a message an addition.
const ADD: &str = "Nats-Incr";

/// Streams that were made at the same time were made at the first start of a cluster.
const TOGETHER_MICROS: i64 = 20_000_000;

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

/// Since when the counters count, if their stream was made after the others. See
/// [`crate::counter::Counters::since`].
pub(super) async fn since(api: &Api, slice: Slice) -> Result<Option<Timestamp>, BusError> {
    let stream = match slice {
        Slice::Second => subject::RATE_SECOND_STREAM,
        Slice::Minute => subject::RATE_MINUTE_STREAM,
    };
    let counters = made_at(api, stream).await?;
    // It holds what must not be lost, so it is as old as the cluster.
    let cluster = made_at(api, &bucket_stream(subject::QUOTA_BUCKET)).await?;
    let later = counters.micros().saturating_sub(cluster.micros());
    Ok((later > TOGETHER_MICROS).then_some(counters))
}

async fn made_at(api: &Api, stream: &str) -> Result<Timestamp, BusError> {
    let info = api.stream_info(stream).await?;
    let info = info.ok_or_else(|| failure::away(NoStream(stream.to_owned())))?;
    let micros = info.created.unix_timestamp_nanos() / 1_000;
    Ok(Timestamp::from_micros(i64::try_from(micros).unwrap_or_default()))
}
