//! Where the body of an answer ends: by its length, in chunks, or with its connection. Pure, and strict: what is not
//! framed as it must be is cut off, never guessed at.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue};

/// Longest line before a chunk, its extensions included, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Most bytes of trailers, which are passed over.
const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// The framing of a body, and how far it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// All until the connection closes.
    Close,
}

/// What comes next in a body of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// The size of a chunk.
    Size,
    /// So many bytes of a chunk.
    Data(u64),
    /// The line end behind a chunk.
    DataEnd,
    /// Trailers, of which so many bytes were read.
    Trailer(usize),
    /// Nothing: this was the end.
    Ended,
}

/// What was found in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Some bytes of the body, never none.
    Data(Bytes),
    /// More must be read first.
    More,
    /// The body has ended.
    End,
}

/// The chunks are not framed as chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chunks of the answer are not valid")]
pub(super) struct Malformed;

impl Framing {
    /// The beginning of a body of chunks.
    pub(super) const fn chunked() -> Self {
        Self::Chunked(Chunk::Size)
    }

    /// True when the close of the connection is the end of the body.
    pub(super) const fn ends_with_connection(self) -> bool {
        matches!(self, Self::Close)
    }

    /// True when the body was read to its end.
    pub(super) const fn is_ended(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Ended))
    }

    /// Takes the next bytes of the body off the front of `buffer`.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        match self {
            Self::Length(0) => Ok(Piece::End),
            Self::Length(left) => Ok(data(left, buffer)),
            Self::Close if buffer.is_empty() => Ok(Piece::More),
            Self::Close => Ok(Piece::Data(buffer.split().freeze())),
            Self::Chunked(chunk) => chunk.take(buffer),
        }
    }
}

impl Chunk {
    fn take(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            *self = match *self {
                Self::Size => match take_line(buffer)? {
                    None if begins_size(buffer) => return Ok(Piece::More),
                    None => return Err(Malformed),
                    Some(line) => match size(&line)? {
                        0 => Self::Trailer(0),
                        size => Self::Data(size),
                    },
                },
                Self::Data(0) => Self::DataEnd,
                Self::Data(mut left) => {
                    let piece = data(&mut left, buffer);
                    *self = Self::Data(left);
                    return Ok(piece);
                }
                Self::DataEnd => match buffer.get(..2).unwrap_or(buffer) {
                    b"\r\n" => {
                        buffer.advance(2);
                        Self::Size
                    }
                    b"" | b"\r" => return Ok(Piece::More),
                    _ => return Err(Malformed),
                },
                Self::Trailer(bytes) => match take_line(buffer)? {
                    None => return Ok(Piece::More),
                    Some(line) if line.is_empty() => Self::Ended,
                    Some(line) if !is_trailer(&line) => return Err(Malformed),
                    Some(line) => match bytes + line.len() {
                        bytes @ ..TRAILER_BYTES_MAX => Self::Trailer(bytes),
                        _ => return Err(Malformed),
                    },
                },
                Self::Ended => return Ok(Piece::End),
            }
        }
    }
}

/// Up to `left` bytes; counts them off.
fn data(left: &mut u64, buffer: &mut BytesMut) -> Piece {
    if buffer.is_empty() {
        return Piece::More;
    }
    let bytes = usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
    *left -= u64::try_from(bytes).unwrap_or(0);
    Piece::Data(buffer.split_to(bytes).freeze())
}

/// A line without its end; `None` while its end is not there. Whoever takes a lone CR or LF for the end of a line
/// reads other lines: there are none of them.
fn take_line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, Malformed> {
    let mut bytes = buffer.iter().take(LINE_BYTES_MAX);
    let Some(end) = bytes.position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if buffer.len() >= LINE_BYTES_MAX {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    match buffer.get(end..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {
            let line = buffer.split_to(end);
            buffer.advance(2);
            Ok(Some(line))
        }
        b"\r" => Ok(None),
        _ => Err(Malformed),
    }
}

/// True when the line that has begun can become one with a size.
fn begins_size(begun: &[u8]) -> bool {
    let mut rest = begun.iter().skip_while(|byte| byte.is_ascii_hexdigit());
    let next = rest.find(|byte| !matches!(byte, b' ' | b'\t'));
    begun.first().is_none_or(u8::is_ascii_hexdigit) && matches!(next, None | Some(b';' | b'\r'))
}

/// True for a line that a head could have as well.
fn is_trailer(line: &[u8]) -> bool {
    let mut parts = line.splitn(2, |byte| *byte == b':');
    match (parts.next(), parts.next()) {
        (Some(name), Some(value)) => {
            HeaderName::from_bytes(name).is_ok() && HeaderValue::from_bytes(value).is_ok()
        }
        _ => false,
    }
}

/// The size before a chunk; extensions are passed over.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    match rest.iter().find(|byte| !matches!(byte, b' ' | b'\t')) {
        None | Some(b';') => u64::from_str_radix(text, 16).map_err(|_| Malformed),
        Some(_) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body that comes in pieces of `step` bytes; what is left in the buffer, and the data.
    fn read(framing: Framing, text: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>, bool), Malformed> {
        let (mut framing, mut buffer, mut data) = (framing, BytesMut::new(), Vec::new());
        for part in text.chunks(step) {
            buffer.extend_from_slice(part);
            while let Piece::Data(piece) = framing.take(&mut buffer)? {
                assert!(!piece.is_empty());
                data.extend_from_slice(&piece);
            }
        }
        Ok((data, buffer.to_vec(), framing.is_ended()))
    }

    #[test]
    fn chunks_are_read_the_same_wherever_they_are_cut() {
        let text = b"5\r\nhello\r\n00A;name=\"x\" \r\n, chunk\r\n!\r\n0\r\nx-trailer: y\r\n\r\nnext";
        for step in 1..=text.len() {
            let read = read(Framing::chunked(), text, step);

            let expected = (b"hello, chunk\r\n!".to_vec(), b"next".to_vec(), true);
            assert_eq!(read, Ok(expected), "{step}");
        }
    }

    #[test]
    fn a_length_ends_a_body_and_leaves_what_follows() {
        for step in 1..=8 {
            let expected = (b"12345".to_vec(), b"678".to_vec(), true);
            assert_eq!(read(Framing::Length(5), b"12345678", step), Ok(expected));
        }
        let short = read(Framing::Length(5), b"1234", 2);
        assert_eq!(short, Ok((b"1234".to_vec(), Vec::new(), false)));
    }

    #[test]
    fn without_a_length_all_is_the_body_and_only_the_connection_ends_it() {
        let all = read(Framing::Close, b"1234", 3);

        assert_eq!(all, Ok((b"1234".to_vec(), Vec::new(), false)));
        assert!(Framing::Close.ends_with_connection());
    }

    #[test]
    fn what_cannot_become_chunks_is_refused_before_its_line_has_ended() {
        for text in [
            "x",
            "\r",
            "5x",
            "5 x",
            "5\rx",
            "5;x\ry",
            "5\r\nhellox",
            "5\r\nhello\rx",
            "0\r\nx\ry",
        ] {
            assert_eq!(
                read(Framing::chunked(), text.as_bytes(), 1),
                Err(Malformed),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "5 ",
            "5 ;",
            "5\r",
            "5;x\r",
            "5\r\nhello\r",
            "0\r\n\r",
            "0\r\nx: y\r",
        ] {
            assert!(read(Framing::chunked(), text.as_bytes(), 1).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_framed_as_chunks_are_is_refused() {
        let long = format!("5;{}", "x".repeat(LINE_BYTES_MAX));
        let trailers = format!("0\r\n{}", "x: y\r\n".repeat(TRAILER_BYTES_MAX));
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+5\r\nhello\r\n",
            "5\nhello\r\n",
            "5 5\r\nhello\r\n",
            "5\r;x\r\nhello\r\n",
            "5;a\rb\r\nhello\r\n",
            "5\x0c\r\nhello\r\n",
            "0\r\nx: a\rb\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n folded: x\r\n\r\n",
            "0\r\nx: a\0b\r\n\r\n",
            "5\r\nhelloo\r\n",
            "5\r\nhello\n\n",
            "10000000000000000\r\n",
            &long,
            &trailers,
        ] {
            assert_eq!(
                read(Framing::chunked(), text.as_bytes(), text.len()),
                Err(Malformed),
                "{text}"
            );
        }
    }
}
