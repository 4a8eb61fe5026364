//! The one framer of server-sent events: cuts a byte stream, delivered in pieces of any size, into events.
//!
//! Guarantees: the same bytes give the same events wherever they are cut; the raw bytes of all events
//! together are the stream, unchanged; an event that lies whole in one piece is a slice of that piece; each
//! byte is looked at once; no more than the cap plus one piece is held.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::scan::find_either;

mod parse;

/// A byte order mark, which may open a stream and means nothing.
const BYTE_ORDER_MARK: &[u8; 3] = b"\xEF\xBB\xBF";
/// Room set aside for a cut event at first, in bytes.
const HELD_BYTES_MIN: usize = 1024;

/// Why a stream cannot be framed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An event passed the cap; the framer stays in this state.
    #[error("an event is longer than {event_bytes_max} bytes")]
    EventTooLong {
        /// The cap that was passed.
        event_bytes_max: usize,
    },
}

/// What an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has a data line.
    Data,
    /// It has none: comments, blank lines, or fields that announce nothing.
    Comment,
}

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The bytes as they came, up to and including the blank line that ends the event.
    pub raw: Bytes,
    /// The data lines, joined by line feeds: a slice of `raw` when there is one.
    pub data: Bytes,
    /// The value of the last `event:` line.
    pub name: Option<Bytes>,
    /// Whether there is data.
    pub kind: Kind,
    /// Where `data` starts in `raw`, when it is a slice of it.
    pub(crate) data_start: Option<usize>,
}

impl Event {
    /// True when there is nothing in it to read: no data line, or only empty ones.
    pub fn is_comment(&self) -> bool {
        self.kind == Kind::Comment || self.data.is_empty()
    }
}

/// Cuts a stream into events. Push a piece, then take events until there are none.
#[derive(Debug)]
pub struct Framer {
    event_bytes_max: usize,
    /// The part of the current event that came in earlier pieces. All of it was looked at.
    held: Vec<u8>,
    /// The piece being read, from the byte after `held`.
    piece: Bytes,
    /// Pieces not yet read.
    queue: VecDeque<Bytes>,
    progress: Progress,
    /// The first line of the stream has ended.
    started: bool,
    overflowed: bool,
}

/// What is known of the current event. Offsets count from its first byte.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes looked at.
    scanned: usize,
    /// Start of the line being read.
    line_start: usize,
    /// Content of the first line that is not blank.
    first_line: Option<Range<usize>>,
    /// More than one line is not blank.
    several_lines: bool,
    /// The last line ended in a carriage return that no line feed has followed so far.
    after_return: bool,
    /// A carriage return ended the blank line; a line feed would still belong to it.
    closing: bool,
}

impl Framer {
    /// `event_bytes_max`: longest event, terminator included, in bytes.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            held: Vec::new(),
            piece: Bytes::new(),
            queue: VecDeque::new(),
            progress: Progress::default(),
            started: false,
            overflowed: false,
        }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() || self.overflowed {
            return;
        }
        if self.piece.is_empty() {
            self.piece = bytes;
        } else {
            self.queue.push_back(bytes);
        }
    }

    /// The next whole event; `None` until more bytes are pushed.
    #[expect(
        clippy::should_implement_trait,
        reason = "it can fail, and None is not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if self.overflowed {
                return Err(self.overflow());
            }
            if let Some(end) = self.find_end() {
                return self.take(end).map(Some);
            }
            self.hold()?;
            match self.queue.pop_front() {
                Some(piece) => self.piece = piece,
                None => return Ok(None),
            }
        }
    }

    /// At the end of the stream: what is left, one event at a time, and last the event that no blank line
    /// ended.
    pub fn finish(&mut self) -> Result<Option<Event>, Error> {
        if let Some(event) = self.next()? {
            return Ok(Some(event));
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        if !self.started {
            self.skip_byte_order_mark();
        }
        let end = self.progress.scanned;
        self.end_line(end);
        self.take(end).map(Some)
    }

    /// Reads on until the current event ends; its length, or `None` when the piece is used up.
    fn find_end(&mut self) -> Option<usize> {
        loop {
            let unread = self.piece.get(self.progress.scanned - self.held.len()..)?;
            if self.progress.closing {
                let line_feed = usize::from(*unread.first()? == b'\n');
                return Some(self.progress.scanned + line_feed);
            }
            let Some(found) = find_either(unread, b'\n', b'\r') else {
                self.progress.scanned += unread.len();
                return None;
            };
            let line_feed = unread.get(found) == Some(&b'\n');
            if self.terminator(self.progress.scanned + found, line_feed) {
                return Some(self.progress.scanned);
            }
        }
    }

    /// Takes note of a line feed or carriage return at `at`; true when it ends the event.
    fn terminator(&mut self, at: usize, line_feed: bool) -> bool {
        if !self.started {
            self.started = true;
            self.skip_byte_order_mark();
        }
        self.progress.scanned = at + 1;
        let follows_return = self.progress.after_return;
        if line_feed && follows_return && at == self.progress.line_start {
            self.progress.after_return = false;
            self.progress.line_start = at + 1;
            return false;
        }
        self.progress.after_return = !line_feed;
        if self.end_line(at) {
            return false;
        }
        // A blank line. After a lone carriage return another one is taken at its word: such a stream would
        // else be one event late all the time. A line feed after it then opens the next event, unread.
        self.progress.closing = !line_feed && !follows_return;
        !self.progress.closing
    }

    /// Ends the current line before the terminator at `at`; false when the line is blank.
    fn end_line(&mut self, at: usize) -> bool {
        let start = self.progress.line_start;
        self.progress.line_start = at + 1;
        if at <= start {
            return false;
        }
        if self.progress.first_line.is_none() {
            self.progress.first_line = Some(start..at);
        } else {
            self.progress.several_lines = true;
        }
        true
    }

    /// Starts the first line of the stream behind its byte order mark, if it has one.
    fn skip_byte_order_mark(&mut self) {
        let first = self.progress.first_line.is_none() && self.progress.line_start == 0;
        let mut opening = self.held.iter().chain(self.piece.iter());
        if first && BYTE_ORDER_MARK.iter().all(|byte| opening.next() == Some(byte)) {
            self.progress.line_start = BYTE_ORDER_MARK.len();
        }
    }

    /// Cuts off the first `end` bytes as an event.
    fn take(&mut self, end: usize) -> Result<Event, Error> {
        if end > self.event_bytes_max {
            return Err(self.overflow());
        }
        let fresh = self.piece.split_to(end - self.held.len());
        let raw = if self.held.is_empty() {
            fresh
        } else {
            self.held.extend_from_slice(&fresh);
            Bytes::from(std::mem::take(&mut self.held))
        };
        let progress = std::mem::take(&mut self.progress);
        self.progress.after_return = progress.after_return;
        Ok(parse::event(raw, progress.first_line, progress.several_lines))
    }

    /// Moves the rest of the piece, an unfinished event, to the bytes held.
    fn hold(&mut self) -> Result<(), Error> {
        let needed = self.held.len() + self.piece.len();
        if needed > self.event_bytes_max {
            return Err(self.overflow());
        }
        if needed > self.held.capacity() {
            let room = self.held.capacity().saturating_mul(2).max(HELD_BYTES_MIN);
            let room = room.min(self.event_bytes_max).max(needed);
            self.held.reserve_exact(room - self.held.len());
        }
        self.held.extend_from_slice(&self.piece);
        self.piece.advance(self.piece.len());
        Ok(())
    }

    /// Gives up: drops what is held and stays failed.
    fn overflow(&mut self) -> Error {
        self.overflowed = true;
        self.held = Vec::new();
        self.piece = Bytes::new();
        self.queue.clear();
        Error::EventTooLong {
            event_bytes_max: self.event_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests;
