//! One question of the machines, carried to the bus and answered: once, in time, and never by a guess. Of a write that
//! was not answered nobody knows whether it was, or will be, applied.

use std::time::Duration;

use bus::{BusError, Entry, Expected, Revision, counter};
use bytes::Bytes;
use schemas::limit::holdings::steps::{Answer, Ask};
use schemas::limit::layers::Name;
use schemas::limit::limits::Slice;
use schemas::limit::rate::Add;
use schemas::limit::shared::{Outcome, Step, Write};
use schemas::limit::{quota, slots};
use schemas::subject::{QUOTA_BUCKET, SLOT_BUCKET};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::Ports;

/// How long an answer is waited for.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// A question that fails is asked again no sooner.
const REST: Duration = Duration::from_millis(100);

/// An answer, and whether the bus gave it.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) is_heard: bool,
    /// It is what the leader reads.
    pub(super) is_read: bool,
}

/// Asks one question.
pub(super) async fn ask(ports: &Ports, ask: Ask) -> Answered {
    let begun = Instant::now();
    let is_read = matches!(ask, Ask::Slots(_, Step::Read) | Ask::Quota(_, Step::Read));
    let answer = match timeout(ANSWER_WAIT, answer(ports, &ask)).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(_)) | Err(_) => None,
    };
    let is_heard = answer.is_some();
    if !is_heard {
        sleep_until(begun + REST).await;
    }
    Answered {
        answer: answer.unwrap_or_else(|| unanswered(&ask)),
        is_heard,
        is_read: is_read && is_heard,
    }
}

/// What the machines are told of a question that nobody answered.
fn unanswered(ask: &Ask) -> Answer {
    match ask {
        Ask::Add(name, _) => Answer::NotAdded(name.clone()),
        Ask::Slots(name, Step::Read) | Ask::Quota(name, Step::Read) => Answer::NotRead(name.clone()),
        Ask::Slots(name, Step::Write(_)) | Ask::Quota(name, Step::Write(_)) => {
            Answer::Wrote(name.clone(), Outcome::Unknown)
        }
    }
}

async fn answer(ports: &Ports, ask: &Ask) -> Result<Answer, BusError> {
    match ask {
        Ask::Add(name, add) => added(ports, name, add).await,
        Ask::Slots(name, Step::Read) => {
            let entry = ports.kv.get(SLOT_BUCKET, name.as_str()).await?;
            slots_are(name, entry.as_ref())
        }
        Ask::Quota(name, Step::Read) => {
            let entry = ports.kv.get(QUOTA_BUCKET, name.as_str()).await?;
            quota_is(name, entry.as_ref())
        }
        Ask::Slots(name, Step::Write(write)) => {
            let value = encoded(write.record.encode())?;
            let put = ports.kv.put(SLOT_BUCKET, name.as_str(), value, expected(write));
            wrote(name, put.await)
        }
        Ask::Quota(name, Step::Write(write)) => {
            let value = encoded(write.record.encode())?;
            let (place, expected) = ((QUOTA_BUCKET, name.as_str()), expected(write));
            let put = match quota::record::life(name) {
                Some(life) => ports.kv.put_for(place, value, expected, life),
                None => ports.kv.put(place.0, place.1, value, expected),
            };
            wrote(name, put.await)
        }
    }
}

async fn added(ports: &Ports, name: &Name, add: &Add) -> Result<Answer, BusError> {
    let counter = name.slice(add.index);
    let value = ports.counters.add(slice(add.slice), &counter, add.amount).await?;
    Ok(Answer::Added(name.clone(), value))
}

/// The slices of the machines as the counters know them.
pub(super) const fn slice(slice: Slice) -> counter::Slice {
    match slice {
        Slice::Second => counter::Slice::Second,
        Slice::Minute => counter::Slice::Minute,
    }
}

fn expected<R>(write: &Write<R>) -> Expected {
    write.expected.map_or(Expected::Absent, Expected::Revision)
}

/// A record is plain data and has no way to fail; were it to, nothing would have been written.
fn encoded(bytes: Result<Vec<u8>, serde_json::Error>) -> Result<Bytes, BusError> {
    let refused = |problem: serde_json::Error| BusError::Refused {
        reason: problem.to_string(),
    };
    bytes.map(Bytes::from).map_err(refused)
}

fn wrote(name: &Name, written: Result<Revision, BusError>) -> Result<Answer, BusError> {
    let outcome = match written {
        Ok(revision) => Outcome::Won(revision),
        Err(BusError::Conflict) => Outcome::Lost,
        Err(problem @ (BusError::Full | BusError::Refused { .. })) => {
            warn!(
                record.name = name.as_str(),
                error = &problem as &dyn std::error::Error,
                "a record of a limit cannot be written"
            );
            return Err(problem);
        }
        Err(problem) => return Err(problem),
    };
    Ok(Answer::Wrote(name.clone(), outcome))
}

/// The record of slots in an entry, as it is told to the machines.
pub(super) fn slots_are(name: &Name, entry: Option<&Entry>) -> Result<Answer, BusError> {
    let found = found(name, entry, slots::record::Record::decode)?;
    Ok(Answer::SlotsAre(name.clone(), found))
}

/// The record of a quota in an entry, as it is told to the machines.
pub(super) fn quota_is(name: &Name, entry: Option<&Entry>) -> Result<Answer, BusError> {
    let found = found(name, entry, quota::record::Record::decode)?;
    Ok(Answer::QuotaIs(name.clone(), found))
}

/// A record and its revision. One that cannot be read is not taken for none: what it counts would be forgotten.
fn found<R>(
    name: &Name,
    entry: Option<&Entry>,
    decode: impl Fn(&[u8]) -> Option<R>,
) -> Result<Option<(u64, R)>, BusError> {
    let Some((entry, value)) = entry.and_then(|entry| Some((entry, entry.value.as_deref()?))) else {
        return Ok(None);
    };
    let Some(record) = decode(value) else {
        warn!(
            record.name = name.as_str(),
            record.revision = entry.revision,
            "a record of a limit cannot be read: whom it bounds is not served"
        );
        return Err(BusError::Refused {
            reason: "the record cannot be read".to_owned(),
        });
    };
    Ok(Some((entry.revision, record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_is_not_taken_for_none() {
        let name = Name::from("acme.t.total_usd.total");
        let entry = |value: Option<&'static [u8]>| Entry {
            key: name.as_str().to_owned(),
            value: value.map(Bytes::from_static),
            revision: 7,
        };

        assert!(quota_is(&name, Some(&entry(Some(b"{")))).is_err());
        let none = Answer::QuotaIs(name.clone(), None);
        assert_eq!(quota_is(&name, Some(&entry(None))).ok(), Some(none.clone()));
        assert_eq!(quota_is(&name, None).ok(), Some(none));
        let found = quota_is(&name, Some(&entry(Some(br#"{"base":3,"holders":{}}"#))));
        let record = quota::record::Record::with_base(3);
        assert_eq!(found.ok(), Some(Answer::QuotaIs(name, Some((7, record)))));
    }
}
