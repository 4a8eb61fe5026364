//! A place in a row of segment files from which records are read in order, in large pieces: reading on from
//! where the last read ended costs no search. Only bytes that were written whole are looked at.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use tracing::warn;

use crate::segment::{self, Step};

/// How much is read at a time.
const WINDOW_BYTES: u64 = 256 * 1024;

/// A place in one file.
#[derive(Debug)]
pub struct Cursor {
    ordinal: u64,
    file: File,
    offset: u64,
}

/// What the visitor of a record wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// The next one.
    Next,
    /// Nothing more; this one counts as not read.
    Stop,
}

/// Why reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// At the end of what is written.
    AtEnd,
    /// By the visitor.
    Stopped,
}

impl Cursor {
    /// The beginning of a file.
    pub fn open(ordinal: u64, path: &Path) -> io::Result<Self> {
        Ok(Self {
            ordinal,
            file: File::open(path)?,
            offset: 0,
        })
    }

    /// The file it is in.
    pub const fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Shows records (kind and payload) up to `end`, the bytes that are written, until the visitor stops.
    /// Bytes that are no record are passed over.
    pub fn scan(&mut self, end: u64, visit: &mut dyn FnMut(u8, Bytes) -> Visit) -> io::Result<Ended> {
        let mut window_bytes = WINDOW_BYTES;
        while self.offset < end {
            let window = self.window(window_bytes.min(end - self.offset))?;
            let whole = self.offset + length(&window) >= end;
            let mut at = 0;
            while at < window.len() {
                match segment::parse(&window, at) {
                    Step::Record(record) => {
                        if visit(record.kind, window.slice(record.payload())) == Visit::Stop {
                            return Ok(Ended::Stopped);
                        }
                        at = record.whole.end;
                        self.offset += length(&window[record.whole]);
                    }
                    Step::Incomplete { bytes } if !whole => {
                        window_bytes = WINDOW_BYTES.max(u64::try_from(bytes).unwrap_or(u64::MAX));
                        break;
                    }
                    Step::Incomplete { .. } | Step::Damaged => {
                        self.pass_over(end)?;
                        break;
                    }
                }
            }
        }
        Ok(Ended::AtEnd)
    }

    /// Moves to the next record after bytes that are none.
    fn pass_over(&mut self, end: u64) -> io::Result<()> {
        let rest = self.window(end - self.offset)?;
        let next = segment::resync(&rest, 1).map_or(rest.len(), |record| record.whole.start);
        let skipped = length(&rest[..next]);
        warn!(
            segment.ordinal = self.ordinal,
            segment.offset = self.offset,
            bytes = skipped,
            "damaged bytes are left out"
        );
        self.offset += skipped;
        Ok(())
    }

    fn window(&mut self, bytes: u64) -> io::Result<Bytes> {
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut window = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        (&self.file).take(bytes).read_to_end(&mut window)?;
        if window.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(window.into())
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
