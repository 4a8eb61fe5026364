//! Appending: everything that can be done before the sequence is known is done before the lock is taken, and
//! under it there is one copy, one checksum and one write.
//!
//! ```text
//! intent   request id (16) · accepted facts (JSON)
//! event    sequence u64 · time i64 (microseconds) · request id settled by it, or zeros (16) · event id (16)
//!          · subject length u16 · subject · envelope (JSON)
//! ```

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

use schemas::event::Fact;
use schemas::event::request::RequestAccepted;
use schemas::id::{EventId, RequestId, TenantId};
use schemas::subject;
use schemas::time::Timestamp;
use uuid::Uuid;

use super::{Appended, Error, Intent, Shared, Spool, State};
use crate::{json, segment};

/// Kind of an intent's record.
pub(super) const INTENT: u8 = 1;
/// Kind of a numbered event's record.
pub(super) const EVENT: u8 = 2;
/// Bytes of an event's record before its subject.
pub(super) const EVENT_HEAD_BYTES: usize = 8 + 8 + 16 + 16 + 2;
/// No event's record is smaller: the head, the subject and an envelope around nothing.
pub(super) const EVENT_BYTES_MIN: usize = 256;

/// What an event's record says besides its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) sequence: u64,
    pub(super) time: Timestamp,
    pub(super) settles: Option<RequestId>,
    pub(super) id: EventId,
    pub(super) subject: &'a str,
    /// Where the envelope begins.
    pub(super) envelope: usize,
}

/// Takes an event's payload apart; `None` for bytes that no writer of this version wrote.
pub(super) fn head(payload: &[u8]) -> Option<Head<'_>> {
    let (sequence, rest) = payload.split_first_chunk::<8>()?;
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (settles, rest) = rest.split_first_chunk::<16>()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let settles = Uuid::from_bytes(*settles);
    Some(Head {
        sequence: u64::from_le_bytes(*sequence),
        time: Timestamp::from_micros(i64::from_le_bytes(*time)),
        settles: (!settles.is_nil()).then_some(RequestId(settles)),
        id: EventId(Uuid::from_bytes(*id)),
        subject: std::str::from_utf8(rest.get(..length)?).ok()?,
        envelope: EVENT_HEAD_BYTES + length,
    })
}

/// Takes an intent's payload apart.
pub(super) fn intent(payload: &[u8]) -> Option<(RequestId, &[u8])> {
    let (request, facts) = payload.split_first_chunk::<16>()?;
    Some((RequestId(Uuid::from_bytes(*request)), facts))
}

/// An event that lacks nothing but its sequence.
struct Draft {
    id: EventId,
    /// The record up to the envelope's sequence, which stands in its head as 0.
    before: Vec<u8>,
    /// The envelope from its `data` on.
    after: Vec<u8>,
}

impl Shared {
    pub(super) fn intend(&self, accepted: &RequestAccepted) -> Result<(), Error> {
        let mut record = Vec::with_capacity(768);
        let start = segment::begin(&mut record, INTENT);
        record.extend_from_slice(accepted.request_id.0.as_bytes());
        json::write(&mut record, accepted)?;
        segment::finish(&mut record, start)?;

        let mut state = self.state.lock();
        let written = state.write_intent(accepted.request_id, &record);
        self.note_bytes(&state);
        Ok(written?)
    }

    pub(super) fn append<F: Fact>(
        &self,
        id: EventId,
        (tenant, now): (&TenantId, Timestamp),
        fact: &F,
        settles: Option<RequestId>,
    ) -> Result<Appended, Error> {
        let draft = self.draft(id, (tenant, now), fact, settles)?;
        let mut state = self.state.lock();
        let appended = state.write_event(&draft, now, settles);
        self.note_bytes(&state);
        appended
    }

    fn draft<F: Fact>(
        &self,
        id: EventId,
        (tenant, now): (&TenantId, Timestamp),
        fact: &F,
        settles: Option<RequestId>,
    ) -> Result<Draft, Error> {
        let subject = subject::event(F::KIND, tenant.as_str());
        let length = u16::try_from(subject.len()).map_err(|_| segment::TooLarge { bytes: subject.len() })?;
        let settles = settles.map_or(Uuid::nil(), |request| request.0);

        let mut before = Vec::with_capacity(512);
        segment::begin(&mut before, EVENT);
        before.extend_from_slice(&[0; 8]);
        before.extend_from_slice(&now.micros().to_le_bytes());
        before.extend_from_slice(settles.as_bytes());
        before.extend_from_slice(id.0.as_bytes());
        before.extend_from_slice(&length.to_le_bytes());
        before.extend_from_slice(subject.as_bytes());
        self.write_before::<F>(&mut before, id, (tenant, now))?;

        let mut after = Vec::with_capacity(1_536);
        write_after(&mut after, fact)?;
        Ok(Draft { id, before, after })
    }

    /// An envelope up to its sequence.
    fn write_before<F: Fact>(
        &self,
        out: &mut Vec<u8>,
        id: EventId,
        (tenant, now): (&TenantId, Timestamp),
    ) -> Result<(), Error> {
        out.extend_from_slice(br#"{"specversion":"1.0","id":"#);
        json::write(out, &id)?;
        out.extend_from_slice(br#","source":"#);
        out.extend_from_slice(self.source_json.as_bytes());
        out.extend_from_slice(br#","type":"#);
        json::write(out, F::KIND)?;
        out.extend_from_slice(br#","subject":"#);
        json::write(out, tenant)?;
        out.extend_from_slice(br#","time":"#);
        json::write(out, &now)?;
        out.extend_from_slice(br#","datacontenttype":"application/json","sourcesequence":"#);
        Ok(())
    }

    pub(super) fn note_bytes(&self, state: &State) {
        self.bytes.store(state.files.bytes(), Ordering::Release);
    }
}

/// An envelope from its `data` on.
fn write_after<F: Fact>(out: &mut Vec<u8>, fact: &F) -> Result<(), Error> {
    out.extend_from_slice(br#","data":"#);
    json::write(out, fact)?;
    out.push(b'}');
    Ok(())
}

impl Spool {
    /// The envelope of an event that was appended at `now`, as it is published.
    pub fn envelope<F: Fact>(
        &self,
        appended: Appended,
        at: (&TenantId, Timestamp),
        fact: &F,
    ) -> Result<Vec<u8>, Error> {
        let mut envelope = Vec::with_capacity(2_048);
        self.shared.write_before::<F>(&mut envelope, appended.id, at)?;
        json::number(&mut envelope, appended.sequence);
        write_after(&mut envelope, fact)?;
        Ok(envelope)
    }
}

impl State {
    pub(super) fn write_intent(&mut self, request: RequestId, record: &[u8]) -> std::io::Result<()> {
        let place = self.files.append(record, self.next)?;
        self.inherit_last();
        let intent = Intent {
            ordinal: place.ordinal,
            offset: place.offset,
            bytes: record.len(),
        };
        self.note_intent(request, intent);
        Ok(())
    }

    /// Notes in a file without events that everything before it is before it.
    pub(super) fn inherit_last(&mut self) {
        let last = self.next - 1;
        if let Some(newest) = self.files.newest_mut() {
            newest.notes.last = last;
        }
    }

    /// Notes where the newest record of a request's intent is.
    pub(super) fn note_intent(&mut self, request: RequestId, intent: Intent) {
        let before = match self.open.entry(request) {
            Entry::Occupied(mut known) => Some(known.insert(intent)),
            Entry::Vacant(free) => {
                free.insert(intent);
                None
            }
        };
        self.count_intent(intent.ordinal, 1);
        if let Some(before) = before {
            self.count_intent(before.ordinal, -1);
        }
    }

    /// Notes that a request is settled.
    pub(super) fn close_intent(&mut self, request: RequestId) {
        if let Some(intent) = self.open.remove(&request) {
            self.count_intent(intent.ordinal, -1);
        }
    }

    fn count_intent(&mut self, ordinal: u64, change: i32) {
        if let Some(segment) = self.files.get_mut(ordinal) {
            segment.notes.intents_open = segment.notes.intents_open.saturating_add_signed(change);
        }
    }

    fn write_event(
        &mut self,
        draft: &Draft,
        now: Timestamp,
        settles: Option<RequestId>,
    ) -> Result<Appended, Error> {
        let sequence = self.next;
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend_from_slice(&draft.before);
        record[segment::HEADER_BYTES..segment::HEADER_BYTES + 8].copy_from_slice(&sequence.to_le_bytes());
        json::number(&mut record, sequence);
        record.extend_from_slice(&draft.after);
        segment::finish(&mut record, 0)?;
        let written = self.files.append(&record, sequence);
        self.record = record;
        written?;

        self.next += 1;
        self.inherit_last();
        self.ages.note(sequence, now);
        if let Some(request) = settles {
            self.close_intent(request);
        }
        Ok(Appended {
            sequence,
            id: draft.id,
        })
    }
}
