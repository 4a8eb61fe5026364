//! From the raw bytes of one event to its fields. One line, the usual case, needs no second look.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Event, Kind};
use crate::scan::find_either;

/// A field that is read; the others are kept in the raw bytes only.
enum Field {
    Data(Range<usize>),
    Name(Range<usize>),
}

/// Reads the event of `raw`, whose first line that is not blank is known.
pub(super) fn event(raw: Bytes, first_line: Option<Range<usize>>, several_lines: bool) -> Event {
    let Some(first_line) = first_line else {
        return Event {
            raw,
            data: Bytes::new(),
            name: None,
            kind: Kind::Comment,
            data_start: None,
        };
    };
    if several_lines {
        return several(raw, first_line.start);
    }
    let mut parts = Parts::default();
    parts.add(&raw, field(&raw, first_line));
    parts.event(raw)
}

/// Reads an event of several lines, from `start` on.
fn several(raw: Bytes, start: usize) -> Event {
    let mut parts = Parts::default();
    let mut at = start;
    while let Some(rest) = raw.get(at..).filter(|rest| !rest.is_empty()) {
        let length = find_either(rest, b'\n', b'\r').unwrap_or(rest.len());
        parts.add(&raw, field(&raw, at..at + length));
        at += length + 1;
    }
    parts.event(raw)
}

/// The field of one line; `None` for comments, blank lines and fields that are not read.
fn field(raw: &[u8], line: Range<usize>) -> Option<Field> {
    let text = raw.get(line.clone())?;
    let (name_bytes, kind): (usize, fn(Range<usize>) -> Field) = if text.starts_with(b"data") {
        (4, Field::Data)
    } else if text.starts_with(b"event") {
        (5, Field::Name)
    } else {
        return None;
    };
    let start = match text.get(name_bytes..)? {
        [] => line.end,
        [b':', b' ', ..] => line.start + name_bytes + 2,
        [b':', ..] => line.start + name_bytes + 1,
        _ => return None,
    };
    Some(kind(start..line.end))
}

/// Fields gathered so far.
#[derive(Default)]
struct Parts {
    first_data: Option<Range<usize>>,
    /// All data lines, once there are two.
    joined: Option<BytesMut>,
    name: Option<Range<usize>>,
}

impl Parts {
    fn add(&mut self, raw: &[u8], field: Option<Field>) {
        match field {
            Some(Field::Name(value)) => self.name = Some(value),
            Some(Field::Data(value)) => self.add_data(raw, value),
            None => {}
        }
    }

    fn add_data(&mut self, raw: &[u8], value: Range<usize>) {
        let Some(first) = self.first_data.clone() else {
            self.first_data = Some(value);
            return;
        };
        let joined = self
            .joined
            .get_or_insert_with(|| BytesMut::from(raw.get(first).unwrap_or_default()));
        joined.put_u8(b'\n');
        joined.extend_from_slice(raw.get(value).unwrap_or_default());
    }

    fn event(self, raw: Bytes) -> Event {
        let name = self.name.map(|value| raw.slice(value));
        let kind = if self.first_data.is_some() {
            Kind::Data
        } else {
            Kind::Comment
        };
        let (data, data_start) = match (self.joined, self.first_data) {
            (Some(joined), _) => (joined.freeze(), None),
            (None, Some(value)) => (raw.slice(value.clone()), Some(value.start)),
            (None, None) => (Bytes::new(), None),
        };
        Event {
            raw,
            data,
            name,
            kind,
            data_start,
        }
    }
}
