//! Buckets are streams in key-value form. Values are read from the leader, so that no answer is older than a write
//! that has returned; a write that expects something carries the expected place, and the server decides.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL, NATS_ROLLUP};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;

use super::api::Api;
use super::failure;
use super::link::Touched;
use crate::layout::{bucket_stream, bucket_subject, is_rolled_up};
use crate::{BusError, Entry, Expected, Revision};

/// The header that marks deletions, and its values.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
const PURGED: &str = "PURGE";
/// The header of a deletion that the server itself made.
const MARKER_REASON: &str = "Nats-Marker-Reason";
/// How often a write that expects nothing meets a deletion that was replaced meanwhile, before it gives up.
const ABSENT_TRIES: usize = 3;

/// Buckets on a server.
pub(super) struct Buckets {
    api: Api,
}

impl Buckets {
    pub(super) fn new(api: Api) -> Self {
        Self { api }
    }

    /// See [`crate::Kv::get`].
    pub(super) async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        let newest = self.newest(bucket, key).await?;
        Ok(newest.filter(|entry| entry.value.is_some()))
    }

    /// The newest value or deletion.
    async fn newest(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        let subject = subject(bucket, key)?;
        let stream = bucket_stream(bucket);
        let asked = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let get = async {
            let stream = self.api.context.get_stream_no_info(&stream).await;
            let stream = stream.map_err(failure::away)?;
            match stream.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(Some(entry(key, message))),
                Err(problem) => match problem.kind() {
                    LastRawMessageErrorKind::NoMessageFound => Ok(None),
                    _ => Err(failure::away(problem)),
                },
            }
        };
        self.api
            .link
            .call(Touched::Subject(&asked), self.api.deadline, get)
            .await
    }

    /// Writes a value or, with `None`, a deletion, for good or for a lifetime. See [`crate::Kv::put_for`].
    pub(super) async fn write(
        &self,
        (bucket, key): (&str, &str),
        (value, life): (Option<Bytes>, Option<Duration>),
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let write = Write {
            subject: subject(bucket, key)?,
            value,
            is_rolled_up: is_rolled_up(bucket, key),
            life_seconds: life.map(life_seconds),
        };
        match expected {
            Expected::Any => self.send(&write, None).await,
            Expected::Revision(revision) => self.send(&write, Some(revision)).await,
            Expected::Absent => self.write_absent(bucket, key, &write).await,
        }
    }

    /// A key that was deleted has a last place: the deletion's.
    async fn write_absent(&self, bucket: &str, key: &str, write: &Write) -> Result<Revision, BusError> {
        let mut place = 0;
        for _ in 0..ABSENT_TRIES {
            match self.send(write, Some(place)).await {
                Err(BusError::Conflict) => {}
                done => return done,
            }
            // Nothing was written, that is certain. What is there?
            match self.newest(bucket, key).await? {
                Some(Entry {
                    value: None,
                    revision,
                    ..
                }) => place = revision,
                Some(_) => return Err(BusError::Conflict),
                None => place = 0,
            }
        }
        Err(BusError::Conflict)
    }

    async fn send(&self, write: &Write, place: Option<Revision>) -> Result<Revision, BusError> {
        let ack = self.api.publish(&write.subject, write.message(place)).await?;
        Ok(ack.sequence)
    }
}

/// A value or a deletion on its way.
struct Write {
    subject: String,
    value: Option<Bytes>,
    is_rolled_up: bool,
    /// For how long it is there, if not for good.
    life_seconds: Option<u64>,
}

/// A lifetime as servers count it: in whole seconds, one at least, and never shorter than asked.
fn life_seconds(life: Duration) -> u64 {
    let whole = life.as_secs();
    let more = u64::from(life.subsec_nanos() > 0);
    whole.saturating_add(more).max(1)
}

impl Write {
    fn message(&self, place: Option<Revision>) -> PublishMessage {
        let mut headers = HeaderMap::new();
        if let Some(place) = place {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, place.to_string().as_str());
        }
        if let Some(seconds) = self.life_seconds {
            headers.insert(NATS_MESSAGE_TTL, seconds.to_string().as_str());
        }
        if self.is_rolled_up {
            headers.insert(NATS_ROLLUP, "sub");
        }
        if self.value.is_none() {
            headers.insert(OPERATION, DELETED);
        }
        PublishMessage::build()
            .headers(headers)
            .payload(self.value.clone().unwrap_or_default())
    }
}

fn entry(key: &str, message: StreamMessage) -> Entry {
    Entry {
        key: key.to_owned(),
        value: (!is_deletion(&message.headers)).then_some(message.payload),
        revision: message.sequence,
    }
}

pub(super) fn is_deletion(headers: &HeaderMap) -> bool {
    headers.get(MARKER_REASON).is_some()
        || headers
            .get(OPERATION)
            .is_some_and(|operation| [DELETED, PURGED].contains(&operation.as_str()))
}

/// Where a key's values are published; [`BusError::Refused`] for names that a server does not take.
fn subject(bucket: &str, key: &str) -> Result<String, BusError> {
    if is_bucket(bucket) && is_key(key) {
        return Ok(format!("{}{key}", bucket_subject(bucket)));
    }
    Err(BusError::Refused {
        reason: format!("{key:?} in {bucket:?} is no name of a record"),
    })
}

pub(super) fn is_bucket(bucket: &str) -> bool {
    !bucket.is_empty()
        && bucket
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn is_key(key: &str) -> bool {
    key.split('.').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-/_=".contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(life_seconds(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }

    #[test]
    fn a_record_has_a_name_that_servers_take() {
        assert_eq!(
            subject("wb_catalog", "key.0123").ok().as_deref(),
            Some("$KV.wb_catalog.key.0123")
        );
        for (bucket, key) in [
            ("wb_catalog", ""),
            ("wb_catalog", "a..b"),
            ("wb_catalog", ".a"),
            ("wb_catalog", "a.>"),
            ("wb_catalog", "a b"),
            ("wb.catalog", "a"),
            ("", "a"),
        ] {
            let refused = subject(bucket, key);
            assert!(matches!(refused, Err(BusError::Refused { .. })), "{bucket} {key}");
        }
    }
}
