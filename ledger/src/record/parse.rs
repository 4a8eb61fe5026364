//! Reading an envelope in one pass: its type stands before its data, so the data is read as what it is while the
//! bytes go by. An envelope in another order of fields is read all the same, in two passes.

use std::borrow::Cow;

use schemas::envelope::{ContentType, Envelope, SpecVersion};
use schemas::event::audit::Audited;
use schemas::event::health::{CircuitChanged, CredentialChanged, EndpointChanged, WakeEnded};
use schemas::event::ledger::{Adjusted, Sealed};
use schemas::event::limit::LimitRefused;
use schemas::event::request::{RequestLost, RequestSettled};
use schemas::event::spool::{SpoolFilled, SpoolLost};
use schemas::id::{EventId, RequestId};
use schemas::subject;
use schemas::time::Timestamp;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An envelope and what its data says.
#[derive(Debug)]
pub(super) struct Parsed<'a> {
    pub(super) id: EventId,
    pub(super) source: Cow<'a, str>,
    pub(super) kind: Cow<'a, str>,
    pub(super) subject: Cow<'a, str>,
    pub(super) time: Timestamp,
    pub(super) sequence: u64,
    /// `None` for data that is not what the type promises.
    pub(super) said: Option<Said>,
}

/// What data says, as far as the books care.
#[derive(Debug)]
pub(super) enum Said {
    Settled(Box<RequestSettled>),
    Lost(Box<RequestLost>),
    Accepted(RequestId),
    Adjusted(Box<Adjusted>),
    SpoolLost(SpoolLost),
    Nothing,
}

/// Reads an envelope; `None` for anything else.
pub(super) fn parse(bytes: &[u8]) -> Option<Parsed<'_>> {
    if let Ok(parsed) = serde_json::from_slice::<Parsed<'_>>(bytes) {
        return Some(parsed);
    }
    // Either no envelope, or one whose data is wrong, or one whose data stands before its type.
    let envelope: Envelope<&RawValue> = serde_json::from_slice(bytes).ok()?;
    let mut data = serde_json::Deserializer::from_str(envelope.data.get());
    let said = Data(&envelope.kind).deserialize(&mut data).ok();
    Some(Parsed {
        id: envelope.id,
        source: envelope.source.into(),
        subject: envelope.subject.into(),
        time: envelope.time,
        sequence: envelope.sourcesequence,
        said,
        kind: envelope.kind.into(),
    })
}

/// What is needed of `request.accepted`; the rest stays in the envelope.
#[derive(Deserialize)]
struct Accepted {
    request_id: RequestId,
}

/// Reads data as its type says.
struct Data<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = Said;

    fn deserialize<D: Deserializer<'de>>(self, data: D) -> Result<Said, D::Error> {
        Ok(match self.0 {
            subject::REQUEST_SETTLED => Said::Settled(Box::new(RequestSettled::deserialize(data)?)),
            subject::REQUEST_LOST => Said::Lost(Box::new(RequestLost::deserialize(data)?)),
            subject::REQUEST_ACCEPTED => Said::Accepted(Accepted::deserialize(data)?.request_id),
            subject::SPOOL_LOST => Said::SpoolLost(SpoolLost::deserialize(data)?),
            subject::LIMIT_REFUSED => {
                LimitRefused::deserialize(data)?;
                Said::Nothing
            }
            subject::AUDIT => {
                Audited::deserialize(data)?;
                Said::Nothing
            }
            subject::HEALTH_CIRCUIT => {
                CircuitChanged::deserialize(data)?;
                Said::Nothing
            }
            subject::HEALTH_ENDPOINT => {
                EndpointChanged::deserialize(data)?;
                Said::Nothing
            }
            subject::HEALTH_CREDENTIAL => {
                CredentialChanged::deserialize(data)?;
                Said::Nothing
            }
            subject::HEALTH_WAKE => {
                WakeEnded::deserialize(data)?;
                Said::Nothing
            }
            subject::REQUEST_ADJUSTED => {
                let adjusted = Adjusted::deserialize(data)?;
                if !adjusted.adds_up() {
                    return Err(D::Error::custom("the amount is not what lies between the costs"));
                }
                Said::Adjusted(Box::new(adjusted))
            }
            subject::LEDGER_SEALED => {
                Sealed::deserialize(data)?;
                Said::Nothing
            }
            subject::SPOOL_FILLED => {
                SpoolFilled::deserialize(data)?;
                Said::Nothing
            }
            _ => {
                IgnoredAny::deserialize(data)?;
                Said::Nothing
            }
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Field {
    SpecVersion,
    Id,
    Source,
    Type,
    Subject,
    Time,
    DataContentType,
    SourceSequence,
    Data,
    #[serde(other)]
    Other,
}

/// Text that is borrowed where it holds no escape.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Parsed<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Parsed<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an envelope")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Parsed<'de>, M::Error> {
        let (mut id, mut time, mut sequence, mut said) = (None, None, None, None);
        let (mut version, mut content) = (None, None);
        let (mut source, mut kind, mut subject) = (None, None, None);
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::SpecVersion => once(&mut version, map.next_value::<SpecVersion>()?)?,
                Field::DataContentType => once(&mut content, map.next_value::<ContentType>()?)?,
                Field::Id => once(&mut id, map.next_value()?)?,
                Field::Source => once(&mut source, map.next_value::<Text<'de>>()?.0)?,
                Field::Type => once(&mut kind, map.next_value::<Text<'de>>()?.0)?,
                Field::Subject => once(&mut subject, map.next_value::<Text<'de>>()?.0)?,
                Field::Time => once(&mut time, map.next_value()?)?,
                Field::SourceSequence => once(&mut sequence, map.next_value()?)?,
                Field::Data => {
                    let kind = kind.as_deref().ok_or_else(|| M::Error::missing_field("type"))?;
                    once(&mut said, map.next_value_seed(Data(kind))?)?;
                }
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        have(version)?;
        have(content)?;
        Ok(Parsed {
            id: have(id)?,
            source: have(source)?,
            kind: have(kind)?,
            subject: have(subject)?,
            time: have(time)?,
            sequence: have(sequence)?,
            said: Some(have(said)?),
        })
    }
}

fn once<T, E: serde::de::Error>(place: &mut Option<T>, value: T) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("a field stands twice")),
    }
}

fn have<T, E: serde::de::Error>(value: Option<T>) -> Result<T, E> {
    value.ok_or_else(|| E::custom("a field is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, SOURCE, lost, settled};

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn an_envelope_says_the_same_in_any_order_of_its_fields() {
        let whole = text(&fixture::envelope(SOURCE, 4, settled(4)));
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&whole).expect("an object");
        let data = fields.remove("data").expect("data");
        let head = serde_json::to_string(&fields).expect("json");
        let turned = format!("{{\"data\":{data},{}", &head[1..]);

        for envelope in [&whole, &turned] {
            let parsed = parse(envelope.as_bytes()).expect("an envelope");
            assert_eq!((parsed.sequence, &*parsed.source), (4, SOURCE));
            let Some(Said::Settled(said)) = parsed.said else {
                panic!("{:?}", parsed.said);
            };
            assert_eq!(*said, settled(4));
        }
    }

    #[test]
    fn data_that_breaks_its_promise_is_told_from_what_is_no_envelope() {
        let whole = text(&fixture::envelope(SOURCE, 4, lost(4).accepted));
        let broken = whole.replace("\"request_id\"", "\"request\"");

        assert!(parse(broken.as_bytes()).expect("an envelope").said.is_none());
        assert!(parse(whole.replace("\"1.0\"", "\"2.0\"").as_bytes()).is_none());
        assert!(parse(whole.replace("\"sourcesequence\":4,", "").as_bytes()).is_none());
        assert!(parse(b"{}").is_none());
        let accepted = parse(whole.as_bytes()).expect("an envelope").said;
        assert!(matches!(accepted, Some(Said::Accepted(id)) if id == fixture::request_id(4)));
    }
}
