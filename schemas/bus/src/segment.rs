//! One record format for the spool, the log and the KV journal.
//!
//! ```text
//! "WB" · kind u8 · version u8 · length u32 LE · crc32 u32 LE (over kind, version, length, payload) · payload
//! ```
//!
//! A torn or zero-filled tail never parses. A reader that meets bytes which are no record goes on at the next
//! one that is, and reports the range it left out: damage costs the records it touches and no other.

pub mod cursor;
pub mod files;

use std::ops::Range;

/// What every record begins with.
const MAGIC: [u8; 2] = *b"WB";
/// The only version of the format so far.
const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 12;
/// Largest payload. Its four length bytes can never be printable text, so that text is refused as a header
/// at first sight.
pub const PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A damaged end that closes with so many zeros was filled in by a file system, not written.
const ZERO_FILL_BYTES: usize = 8;

/// The payload is larger than [`PAYLOAD_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of {bytes} bytes is larger than the {PAYLOAD_BYTES_MAX} a record may have")]
pub struct TooLarge {
    /// Its size in bytes.
    pub bytes: usize,
}

/// Begins a record at the end of `out`; the payload is pushed after it, then [`finish`] is called.
pub fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind, VERSION]);
    out.extend_from_slice(&[0; HEADER_BYTES - 4]);
    start
}

/// Completes the record that began at `start` and ends with `out`. A record that is too large is taken away.
pub fn finish(out: &mut Vec<u8>, start: usize) -> Result<(), TooLarge> {
    let bytes = out.len().saturating_sub(start + HEADER_BYTES);
    let length = match u32::try_from(bytes) {
        Ok(length) if bytes <= PAYLOAD_BYTES_MAX => length,
        _ => {
            out.truncate(start);
            return Err(TooLarge { bytes });
        }
    };
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&out[start..]);
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Appends one whole record to `out`.
pub fn encode(out: &mut Vec<u8>, kind: u8, payload: &[u8]) -> Result<(), TooLarge> {
    let start = begin(out, kind);
    out.extend_from_slice(payload);
    finish(out, start)
}

/// Appends a length and a text: at most 65,535 bytes.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) -> Result<(), TooLarge> {
    let length = u16::try_from(text.len()).map_err(|_| TooLarge { bytes: text.len() })?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Takes a length and a text off the front; `None` when they are not there.
pub(crate) fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// The checksum of a record that starts with its header.
fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[2..8]);
    hasher.update(&record[HEADER_BYTES..]);
    hasher.finalize()
}

/// A record where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it holds, as its writer numbers its kinds.
    pub kind: u8,
    /// Where the header begins and the payload ends.
    pub whole: Range<usize>,
}

impl Record {
    /// Where its payload is.
    pub const fn payload(&self) -> Range<usize> {
        self.whole.start + HEADER_BYTES..self.whole.end
    }
}

/// What stands at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A record.
    Record(Record),
    /// The beginning of what may be a record of `bytes` bytes; the rest is not here.
    Incomplete {
        /// How many bytes from here are needed to know more.
        bytes: usize,
    },
    /// No record.
    Damaged,
}

/// Looks at the place `at`.
pub fn parse(bytes: &[u8], at: usize) -> Step {
    let Some(rest) = bytes.get(at..) else {
        return Step::Damaged;
    };
    let known = rest.len().min(MAGIC.len());
    if rest[..known] != MAGIC[..known] {
        return Step::Damaged;
    }
    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
        return Step::Incomplete { bytes: HEADER_BYTES };
    };
    let [_, _, kind, version, l0, l1, l2, l3, c0, c1, c2, c3] = *header;
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    if version != VERSION || length > PAYLOAD_BYTES_MAX {
        return Step::Damaged;
    }
    let bytes = HEADER_BYTES + length;
    match rest.get(..bytes) {
        None => Step::Incomplete { bytes },
        Some(record) if checksum(record) == u32::from_le_bytes([c0, c1, c2, c3]) => Step::Record(Record {
            kind,
            whole: at..at + bytes,
        }),
        Some(_) => Step::Damaged,
    }
}

/// The first whole record at or after `from`.
pub fn resync(bytes: &[u8], from: usize) -> Option<Record> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.iter().position(|&byte| byte == MAGIC[0])?;
        if let Step::Record(record) = parse(bytes, at) {
            return Some(record);
        }
        at += 1;
    }
}

/// Why a range is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The end of the file: a write that was cut, or zeros that a file system filled in.
    Torn,
    /// Bytes that were changed after they were written.
    Checksum,
}

/// What a [`Reader`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A record.
    Record(Record),
    /// A range without one.
    Damaged {
        /// Which bytes.
        range: Range<usize>,
        /// Why.
        cause: Cause,
    },
}

/// Goes through a whole file in memory: every byte is in exactly one piece.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the beginning.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl Iterator for Reader<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at;
        if let Step::Record(record) = parse(self.bytes, start) {
            self.at = record.whole.end;
            return Some(Piece::Record(record));
        }
        let next = resync(self.bytes, start + 1);
        self.at = next.map_or(self.bytes.len(), |record| record.whole.start);
        let cause = if self.at == self.bytes.len() {
            cause_of_end(self.bytes, start)
        } else {
            Cause::Checksum
        };
        Some(Piece::Damaged {
            range: start..self.at,
            cause,
        })
    }
}

/// Tells a write that never finished from one that was spoiled later.
fn cause_of_end(bytes: &[u8], start: usize) -> Cause {
    let end = &bytes[start..];
    let zeros = end.iter().rev().take_while(|&&byte| byte == 0).count();
    let cut = matches!(parse(bytes, start), Step::Incomplete { .. });
    if cut || zeros == end.len() || zeros >= ZERO_FILL_BYTES {
        Cause::Torn
    } else {
        Cause::Checksum
    }
}

#[cfg(test)]
mod tests;
