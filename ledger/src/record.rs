//! A message of the log as the ledger reads it: the raw envelope, where it came from, and what it says.
//! Reading never fails: what is not understood is kept as it is and changes nothing else.

mod parse;

use std::sync::Arc;

use bus::Stored;
use bytes::Bytes;
use schemas::envelope::Envelope;
use schemas::event::ledger::Adjusted;
use schemas::event::request::{RequestAccepted, RequestSettled};
use schemas::id::RequestId;
use schemas::query::Row;
use schemas::time::Timestamp;

use crate::coverage::Coverage;
use parse::{Parsed, Said, parse};

/// Type under which messages that are no envelope are kept.
pub const NO_ENVELOPE: &str = "unreadable";

/// One message of the log.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its place in the stream.
    pub sequence: u64,
    /// The envelope's source; empty for a message that is no envelope.
    pub source: Arc<str>,
    /// Its place there, 0 for a message that is no envelope.
    pub source_sequence: u64,
    /// The event's id; the message's for a message that is no envelope.
    pub event_id: Arc<str>,
    /// The envelope's type.
    pub kind: Arc<str>,
    /// The tenant.
    pub subject: Arc<str>,
    /// When the fact was recorded.
    pub time: Timestamp,
    /// The bytes as they were published.
    pub envelope: Bytes,
    /// What it says.
    pub fact: Fact,
}

/// What a message says to the books.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A request has this row.
    Waybill(Arc<Waybill>),
    /// What a request costs was corrected.
    Adjusted(Arc<Adjustment>),
    /// A request runs, unless it has a row.
    Accepted(RequestId),
    /// These sequences of `source` can never come.
    Lost {
        /// The source with the hole.
        source: Arc<str>,
        /// First lost sequence.
        from: u64,
        /// Last lost sequence.
        to: u64,
    },
    /// Kept, and no row comes from it.
    Kept,
    /// Not understood although its type is known, or no envelope at all.
    Unreadable,
}

/// A row, and the event it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waybill {
    /// The row.
    pub row: Row,
    /// The event.
    pub event_id: Arc<str>,
    /// True when it is `request.lost`: the admitting node's own word supersedes it.
    pub provisional: bool,
}

/// A correction of what a request costs, and the event it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjustment {
    /// What it says.
    pub adjusted: Adjusted,
    /// The event's source.
    pub source: Arc<str>,
    /// Its place there.
    pub source_sequence: u64,
    /// Its id.
    pub event_id: Arc<str>,
}

impl Record {
    /// Reads one message.
    pub fn read(stored: &Stored) -> Self {
        match parse(&stored.message.payload) {
            Some(parsed) if i64::try_from(parsed.sequence).is_ok() => Self::of(stored, parsed),
            _ => Self::raw(stored),
        }
    }

    /// Reads an envelope that was kept, wherever in the stream it was. `event_id` is the one it is kept under.
    pub fn read_again(event_id: &str, envelope: Bytes) -> Self {
        let message = bus::Message {
            subject: String::new(),
            id: event_id.to_owned(),
            payload: envelope,
        };
        Self::read(&Stored { sequence: 0, message })
    }

    /// Notes which sequences are kept, or can never be, once this record is.
    pub fn cover(&self, coverage: &mut Coverage) {
        if !self.source.is_empty() {
            coverage.cover(&self.source, self.source_sequence, self.source_sequence);
        }
        if let Fact::Lost { source, from, to } = &self.fact {
            coverage.cover(source, *from, *to);
        }
    }

    fn of(stored: &Stored, parsed: Parsed<'_>) -> Self {
        let mut record = Self {
            sequence: stored.sequence,
            source: parsed.source.into(),
            source_sequence: parsed.sequence,
            event_id: parsed.id.to_string().into(),
            kind: parsed.kind.into(),
            subject: parsed.subject.into(),
            time: parsed.time,
            envelope: stored.message.payload.clone(),
            fact: Fact::Unreadable,
        };
        if let Some(said) = parsed.said {
            record.fact = record.understand(said);
        }
        record
    }

    fn raw(stored: &Stored) -> Self {
        Self {
            sequence: stored.sequence,
            source: "".into(),
            source_sequence: 0,
            event_id: stored.message.id.as_str().into(),
            kind: NO_ENVELOPE.into(),
            subject: "".into(),
            time: Timestamp::default(),
            envelope: stored.message.payload.clone(),
            fact: Fact::Unreadable,
        }
    }

    fn understand(&self, said: Said) -> Fact {
        match said {
            Said::Settled(settled) => self.waybill(*settled, false),
            Said::Lost(lost) => self.waybill(lost.into_row(), true),
            Said::Adjusted(adjusted) => Fact::Adjusted(Arc::new(Adjustment {
                adjusted: *adjusted,
                source: Arc::clone(&self.source),
                source_sequence: self.source_sequence,
                event_id: Arc::clone(&self.event_id),
            })),
            Said::Accepted(request_id) => Fact::Accepted(request_id),
            Said::SpoolLost(lost) => {
                let root = self.source.rsplit_once('/').map_or("", |(root, _)| root);
                let source = format!("{root}/{}", lost.spool).into();
                Fact::Lost {
                    source,
                    from: lost.from.max(1),
                    to: lost.to,
                }
            }
            Said::Nothing => Fact::Kept,
        }
    }

    fn waybill(&self, settled: RequestSettled, provisional: bool) -> Fact {
        Fact::Waybill(Arc::new(Waybill {
            row: Row {
                settled,
                source: self.source.to_string(),
                source_sequence: self.source_sequence,
            },
            event_id: Arc::clone(&self.event_id),
            provisional,
        }))
    }
}

/// What the envelope of `request.accepted` says; `None` for any other.
pub fn accepted(envelope: &[u8]) -> Option<RequestAccepted> {
    let envelope: Envelope<RequestAccepted> = serde_json::from_slice(envelope).ok()?;
    Some(envelope.data)
}
