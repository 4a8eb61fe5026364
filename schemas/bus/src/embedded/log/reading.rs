//! Reading the log from anywhere; a reader that reads on finds its place again without a search.

use std::io;

use parking_lot::Mutex;

use super::{MESSAGE, Shared, read_message};
use crate::segment::cursor::{Cursor, Ended, Visit};
use crate::{BusError, Stored};

/// Readers whose places are kept.
const READERS_MAX: usize = 4;

/// Where readers read on.
#[derive(Default)]
pub(super) struct Readings(Mutex<Vec<Reading>>);

struct Reading {
    cursor: Cursor,
    /// Messages before this one are behind the cursor.
    next: u64,
}

impl Readings {
    fn take(&self, next: u64) -> Option<Reading> {
        let mut readings = self.0.lock();
        let index = readings.iter().position(|reading| reading.next == next)?;
        Some(readings.swap_remove(index))
    }

    fn keep(&self, reading: Reading) {
        let mut readings = self.0.lock();
        if readings.len() >= READERS_MAX {
            readings.remove(0);
        }
        readings.push(reading);
    }
}

impl Shared {
    /// Messages from `from` to `upto`.
    pub(super) fn read(
        &self,
        (from, upto): (u64, u64),
        messages_max: usize,
    ) -> Result<Vec<Stored>, BusError> {
        let mut messages = Vec::new();
        if from > upto || messages_max == 0 {
            return Ok(messages);
        }
        // A file whose messages were all read may have been released since.
        // The file may have been released since, once it was read to its end.
        let known = self
            .readings
            .take(from)
            .filter(|reading| self.extent(reading.cursor.ordinal()).is_ok());
        let Some(mut reading) = known.map_or_else(|| self.find(from), |reading| Ok(Some(reading)))? else {
            return Ok(messages);
        };
        loop {
            // Asked before the file is read: an open one may grow behind the reader.
            let (end, closed) = self.extent(reading.cursor.ordinal())?;
            let next = &mut reading.next;
            let scanned = reading.cursor.scan(end, &mut |kind, record| {
                let message = (kind == MESSAGE).then(|| read_message(&record)).flatten();
                let Some(message) = message.filter(|message| message.sequence >= *next) else {
                    return Visit::Next;
                };
                if message.sequence > upto || messages.len() >= messages_max {
                    return Visit::Stop;
                }
                *next = message.sequence + 1;
                messages.push(message);
                Visit::Next
            });
            if scanned.map_err(BusError::Disk)? == Ended::Stopped || !closed {
                break;
            }
            match self.open(reading.cursor.ordinal() + 1)? {
                Some(cursor) => reading.cursor = cursor,
                None => break,
            }
        }
        self.readings.keep(reading);
        Ok(messages)
    }

    fn find(&self, from: u64) -> Result<Option<Reading>, BusError> {
        let located = self.state.lock().files.holding(from);
        let opened = located
            .map(|(ordinal, path, _)| Cursor::open(ordinal, &path))
            .transpose();
        Ok(self
            .unless_gone(opened)?
            .map(|cursor| Reading { cursor, next: from }))
    }

    fn open(&self, ordinal: u64) -> Result<Option<Cursor>, BusError> {
        let located = self.state.lock().files.at_or_after(ordinal);
        let opened = located
            .map(|(ordinal, path, _)| Cursor::open(ordinal, &path))
            .transpose();
        self.unless_gone(opened)
    }

    /// Bytes written to a file, and whether nothing will be added.
    fn extent(&self, ordinal: u64) -> Result<(u64, bool), BusError> {
        let state = self.state.lock();
        match state
            .files
            .at_or_after(ordinal)
            .filter(|(found, ..)| *found == ordinal)
        {
            Some((_, _, bytes)) => Ok((bytes, state.files.is_closed(ordinal))),
            None => Err(BusError::Trimmed { first: state.first() }),
        }
    }

    /// A file may be released between looking and opening.
    fn unless_gone<T>(&self, opened: io::Result<T>) -> Result<T, BusError> {
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BusError::Trimmed {
                first: self.state.lock().first(),
            },
            _ => BusError::Disk(error),
        })
    }
}
