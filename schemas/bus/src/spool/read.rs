//! Reading for the publisher: straight through the files, from where the last read ended.

use schemas::subject::CHANGES;

use super::write::{EVENT, Head, head};
use super::{Error, Shared};
use crate::Message;
use crate::segment::cursor::{Cursor, Ended, Visit};

/// Where the next read goes on.
pub(super) struct Reading {
    cursor: Cursor,
    /// Events before this one are behind the cursor.
    next: u64,
}

/// Under which id the log takes an event. One that tells of a change may be told again, in a record of its own that has
/// its own place among the source's events: were it taken for the first, the books would miss that place.
fn message_id(head: &Head<'_>) -> String {
    if head.subject.starts_with(CHANGES) {
        format!("{}:{}", head.id, head.sequence)
    } else {
        head.id.to_string()
    }
}

impl Shared {
    /// Events from `from` to `upto`.
    pub(super) fn read(
        &self,
        from: u64,
        upto: u64,
        messages_max: usize,
    ) -> Result<Vec<(u64, Message)>, Error> {
        let mut messages = Vec::new();
        if from > upto || messages_max == 0 {
            return Ok(messages);
        }
        let mut place = self.reading.lock();
        let mut reading = match place.take() {
            Some(reading) if reading.next == from => reading,
            _ => match self.find(from)? {
                Some(cursor) => Reading { cursor, next: from },
                None => return Ok(messages),
            },
        };
        loop {
            // Whether the file is closed is asked before it is read: an open one may grow behind the reader.
            let closed = self.state.lock().files.is_closed(reading.cursor.ordinal());
            let ended = self.collect(&mut reading, upto, messages_max, &mut messages)?;
            if ended == Ended::Stopped || !closed {
                break;
            }
            match self.after(reading.cursor.ordinal())? {
                Some(cursor) => reading.cursor = cursor,
                None => break,
            }
        }
        *place = Some(reading);
        Ok(messages)
    }

    fn collect(
        &self,
        reading: &mut Reading,
        upto: u64,
        messages_max: usize,
        messages: &mut Vec<(u64, Message)>,
    ) -> Result<Ended, Error> {
        let ordinal = reading.cursor.ordinal();
        let located = self.state.lock().files.at_or_after(ordinal);
        let Some((_, _, end)) = located.filter(|(found, _, _)| *found == ordinal) else {
            // Trimmed while it was read: everything in it is marked.
            return Ok(Ended::AtEnd);
        };
        let next = &mut reading.next;
        let ended = reading.cursor.scan(end, &mut |kind, payload| {
            if kind != EVENT {
                return Visit::Next;
            }
            let Some(head) = head(&payload) else {
                return Visit::Next;
            };
            if head.sequence < *next {
                return Visit::Next;
            }
            if head.sequence > upto || messages.len() >= messages_max {
                return Visit::Stop;
            }
            *next = head.sequence + 1;
            let message = Message {
                subject: head.subject.to_owned(),
                id: message_id(&head),
                payload: payload.slice(head.envelope..),
            };
            messages.push((head.sequence, message));
            Visit::Next
        })?;
        Ok(ended)
    }

    /// The beginning of the file that holds `sequence`.
    fn find(&self, sequence: u64) -> Result<Option<Cursor>, Error> {
        let located = self.state.lock().files.holding(sequence);
        located
            .map(|(ordinal, path, _)| Cursor::open(ordinal, &path))
            .transpose()
            .map_err(Error::Disk)
    }

    /// The beginning of the file after `ordinal`.
    fn after(&self, ordinal: u64) -> Result<Option<Cursor>, Error> {
        let located = self.state.lock().files.at_or_after(ordinal + 1);
        located
            .map(|(ordinal, path, _)| Cursor::open(ordinal, &path))
            .transpose()
            .map_err(Error::Disk)
    }
}
