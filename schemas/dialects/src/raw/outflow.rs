//! A stream of events on its way to the caller as it came: whole lines leave at once, and what ends the stream for its
//! caller is kept back until everything else is done.
//!
//! Guarantees: what leaves and [`Outflow::rest`] together are the bytes that came; a line that is not whole waits for
//! its end, unless it is longer than any mark.

use bytes::{Bytes, BytesMut};

/// A line without an end that is longer is no mark.
const LINE_BYTES_MAX: usize = 1024;
/// What follows a mark and is longer shows that it was none.
const ENDING_BYTES_MAX: usize = 64 * 1024;
/// Beginnings of the lines after which nothing follows.
const MARKS: [&[u8]; 11] = [
    b"data: [DONE]",
    b"data:[DONE]",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
    b"event:message_stop",
    b"event:response.completed",
    b"data: {\"type\":\"message_stop\"",
    b"data: {\"type\": \"message_stop\"",
    b"data: {\"type\":\"response.completed\"",
];

/// A stream as far as it has not left.
#[derive(Debug, Default)]
pub struct Outflow {
    /// The beginning of a line.
    line: BytesMut,
    /// The mark and what follows it.
    ending: Option<BytesMut>,
    /// The line being read is too long for a mark, and left in part.
    is_long: bool,
}

impl Outflow {
    /// Takes the next piece and gives what may leave.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        if let Some(ending) = &mut self.ending {
            ending.extend_from_slice(&piece);
            if ending.len() <= ENDING_BYTES_MAX {
                return Bytes::new();
            }
            return self.ending.take().unwrap_or_default().freeze();
        }
        let mut read = if self.line.is_empty() {
            piece
        } else {
            self.line.extend_from_slice(&piece);
            self.line.split().freeze()
        };
        if let Some(at) = self.mark(&read) {
            self.ending = Some(BytesMut::from(&*read.split_off(at)));
            return read;
        }
        let whole = memchr::memrchr2(b'\n', b'\r', &read).map_or(0, |at| at + 1);
        if whole > 0 {
            self.is_long = false;
        }
        if self.is_long || read.len() - whole > LINE_BYTES_MAX {
            self.is_long = true;
            return read;
        }
        self.line = BytesMut::from(&*read.split_off(whole));
        read
    }

    /// What has not left when the stream is over.
    pub fn rest(self) -> Bytes {
        let mut rest = self.ending.unwrap_or_default();
        rest.extend_from_slice(&self.line);
        rest.freeze()
    }

    /// Where a mark begins whose line is whole.
    fn mark(&self, read: &[u8]) -> Option<usize> {
        let mut start = 0;
        let mut is_first = true;
        for end in memchr::memchr2_iter(b'\n', b'\r', read) {
            let line = read.get(start..end).unwrap_or_default();
            let is_cut = is_first && self.is_long;
            if !is_cut && MARKS.iter().any(|mark| line.starts_with(mark)) {
                return Some(start);
            }
            is_first = false;
            start = end + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "data: {\"a\":1}\n\n: hm\n\ndata: {\"b\":2}\r\n\r\ndata: [DONE]\n\n";

    fn flow(text: &str, size: usize) -> (String, String) {
        let mut outflow = Outflow::default();
        let mut left = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            left.extend_from_slice(&outflow.push(Bytes::copy_from_slice(piece)));
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        (text(&left), text(&outflow.rest()))
    }

    #[test]
    fn the_mark_stays_wherever_the_stream_is_cut_and_no_byte_is_lost() {
        let messages =
            "event: message_delta\ndata: {}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for (text, rest) in [
            (CHAT, "data: [DONE]\n\n"),
            (
                messages,
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ),
        ] {
            for size in 1..=text.len() {
                let (left, kept) = flow(text, size);
                assert_eq!(kept, rest, "{size}");
                assert_eq!(format!("{left}{kept}"), text, "{size}");
            }
        }
    }

    #[test]
    fn events_leave_when_they_are_whole() {
        let mut outflow = Outflow::default();
        assert_eq!(outflow.push(Bytes::from_static(b"data: {}\n")), "data: {}\n");
        assert_eq!(outflow.push(Bytes::from_static(b"\nda")), "\n");
        assert_eq!(outflow.push(Bytes::from_static(b"ta: x\n\n")), "data: x\n\n");
        assert_eq!(outflow.rest(), "");
    }

    #[test]
    fn what_is_long_is_no_mark_and_does_not_wait() {
        let long = format!("data: {}", "x".repeat(3_000));
        let text = format!("{long}data: [DONE]\n\ndata: y\n\n");
        for size in [1, 7, 1_500, 4_000] {
            let (left, kept) = flow(&text, size);
            assert_eq!((left.as_str(), kept.as_str()), (text.as_str(), ""), "{size}");
        }
        let after = format!("data: [DONE]\n\n{}\n", "y".repeat(70_000));
        let (left, kept) = flow(&after, 1_000);
        assert_eq!(format!("{left}{kept}"), after);
        assert!(left.len() > 60_000);
    }
}
