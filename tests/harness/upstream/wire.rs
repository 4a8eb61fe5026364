//! From composed pieces to bytes on the wire: content coding, packet borders, early ends, framing.

use std::time::Duration;

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::behaviour::{Answer, Behaviour, Coding, Then, Wire};
use super::compose::{Composed, Piece, compose};
use super::request::Received;

/// Time between the two packets of a split body.
const SPLIT_PAUSE: Duration = Duration::from_millis(2);
/// Blanks in one segment of a bomb, and how often the segment is repeated: a gibibyte.
const BOMB_SEGMENT_BYTES: usize = 1 << 20;
const BOMB_SEGMENTS: usize = 1024;

/// What is to be written, in order, and what follows.
#[derive(Debug)]
pub(crate) struct Performance {
    pub(crate) delay: Duration,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) then: Then,
    pub(crate) close_after: bool,
}

/// Plans the bytes of the answer to `request`.
pub(crate) async fn perform(behaviour: &Behaviour, request: &Received, word: &str) -> Performance {
    let wire = &behaviour.wire;
    let bare = |pieces: Vec<Piece>, then: Then| Performance {
        delay: wire.first_byte_delay,
        pieces: slice(wire, pieces),
        then,
        close_after: true,
    };
    match &behaviour.answer {
        Answer::Raw(bytes) => {
            let whole = vec![Piece {
                wait: Duration::ZERO,
                bytes: bytes.clone(),
            }];
            let then = wire.stop_after_bytes.map_or(Then::End, |(_, then)| then);
            return bare(whole, then);
        }
        Answer::Hang => return bare(Vec::new(), Then::Hang),
        Answer::Drop { reset } => return bare(Vec::new(), if *reset { Then::Reset } else { Then::Cut }),
        _ => {}
    }
    let mut composed = compose(behaviour, request, word);
    composed.pieces = match &behaviour.answer {
        Answer::Bomb => Box::pin(bomb(wire.coding)).await,
        _ => Box::pin(encode(wire.coding, composed.pieces)).await,
    };
    frame(wire, request, composed)
}

fn frame(wire: &Wire, request: &Received, mut composed: Composed) -> Performance {
    let declared: usize = composed.pieces.iter().map(|piece| piece.bytes.len()).sum();
    let cut_inside =
        !composed.streamed && !matches!(composed.then, Then::End) && wire.stop_after_bytes.is_none();
    let mut pieces = slice(wire, std::mem::take(&mut composed.pieces));
    if cut_inside {
        pieces = truncate(pieces, declared / 2);
    }
    if let Some((_, then)) = wire.stop_after_bytes {
        composed.then = then;
    }
    let chunked = composed.streamed && !wire.until_close;
    let length = declared.saturating_sub(wire.drop_last_bytes);
    let mut framed = vec![Piece {
        wait: Duration::ZERO,
        bytes: head(wire, request, &composed, length),
    }];
    framed.extend(
        pieces
            .into_iter()
            .filter(|piece| !piece.bytes.is_empty())
            .map(|piece| {
                let bytes = if chunked { chunk(&piece.bytes) } else { piece.bytes };
                Piece {
                    wait: piece.wait,
                    bytes,
                }
            }),
    );
    if chunked && composed.then == Then::End {
        framed.push(Piece {
            wait: Duration::ZERO,
            bytes: Bytes::from_static(b"0\r\n\r\n"),
        });
    }
    Performance {
        delay: wire.first_byte_delay,
        pieces: framed,
        then: composed.then,
        close_after: wire.close_after || wire.until_close,
    }
}

fn head(wire: &Wire, request: &Received, composed: &Composed, length: usize) -> Bytes {
    let reason = if composed.status == 200 { "OK" } else { "Scripted" };
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", composed.status);
    let mut header = |name: &str, value: &str| {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    };
    header("content-type", composed.content_type);
    match wire.coding {
        Some(Coding::Gzip) => header("content-encoding", "gzip"),
        Some(Coding::Brotli) => header("content-encoding", "br"),
        Some(Coding::Zstd) => header("content-encoding", "zstd"),
        None => {}
    }
    if wire.close_after || wire.until_close {
        header("connection", "close");
    }
    if !wire.until_close {
        if composed.streamed {
            header("transfer-encoding", "chunked");
        } else {
            header("content-length", &length.to_string());
        }
    }
    for (name, value) in &wire.headers {
        header(name, value);
    }
    for name in &wire.echo_headers {
        header(
            &format!("x-echo-{name}"),
            request.header(name).unwrap_or_default(),
        );
    }
    head.push_str("\r\n");
    Bytes::from(head)
}

fn chunk(bytes: &Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(bytes.len() + 16);
    framed.put_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    framed.put_slice(bytes);
    framed.put_slice(b"\r\n");
    framed.freeze()
}

/// Packet borders and early ends.
fn slice(wire: &Wire, mut pieces: Vec<Piece>) -> Vec<Piece> {
    if wire.drop_last_bytes > 0 {
        let total: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        pieces = truncate(pieces, total.saturating_sub(wire.drop_last_bytes));
    }
    if let Some((bytes, _)) = wire.stop_after_bytes {
        pieces = truncate(pieces, bytes);
    }
    if let Some(at) = wire.split_at {
        let mut front = join(&pieces);
        let back = front.split_off(at.min(front.len()));
        pieces = vec![
            Piece {
                wait: Duration::ZERO,
                bytes: front,
            },
            Piece {
                wait: SPLIT_PAUSE,
                bytes: back,
            },
        ];
    }
    if let Some((size, pace)) = wire.dribble {
        let mut small = Vec::new();
        for piece in pieces {
            for (index, start) in (0..piece.bytes.len()).step_by(size).enumerate() {
                let end = piece.bytes.len().min(start + size);
                let wait = if index == 0 { piece.wait.max(pace) } else { pace };
                small.push(Piece {
                    wait,
                    bytes: piece.bytes.slice(start..end),
                });
            }
        }
        pieces = small;
    }
    pieces
}

fn truncate(pieces: Vec<Piece>, length: usize) -> Vec<Piece> {
    let mut left = length;
    let mut kept = Vec::new();
    for mut piece in pieces {
        if left == 0 {
            break;
        }
        piece.bytes.truncate(left);
        left -= piece.bytes.len();
        kept.push(piece);
    }
    kept
}

fn join(pieces: &[Piece]) -> Bytes {
    let mut joined = BytesMut::new();
    for piece in pieces {
        joined.put_slice(&piece.bytes);
    }
    joined.freeze()
}

/// An encoder that writes to memory.
enum Encoder {
    Gzip(GzipEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip(GzipEncoder::new(Vec::new())),
            Coding::Brotli => Self::Brotli(Box::new(BrotliEncoder::with_quality(
                Vec::new(),
                async_compression::Level::Fastest,
            ))),
            Coding::Zstd => Self::Zstd(ZstdEncoder::new(Vec::new())),
        }
    }

    /// The coded form of `bytes`, complete enough to be decoded at once.
    async fn flushed(&mut self, bytes: &[u8]) -> Bytes {
        match self {
            Self::Gzip(encoder) => {
                write(encoder, bytes).await;
                std::mem::take(encoder.get_mut())
            }
            Self::Brotli(encoder) => {
                write(encoder, bytes).await;
                std::mem::take(encoder.get_mut())
            }
            Self::Zstd(encoder) => {
                write(encoder, bytes).await;
                std::mem::take(encoder.get_mut())
            }
        }
        .into()
    }

    /// The end of the coded body.
    async fn finished(mut self) -> Bytes {
        let ended = match &mut self {
            Self::Gzip(encoder) => encoder.shutdown().await,
            Self::Brotli(encoder) => encoder.shutdown().await,
            Self::Zstd(encoder) => encoder.shutdown().await,
        };
        ended.expect("coding into memory");
        match self {
            Self::Gzip(encoder) => encoder.into_inner(),
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.into_inner(),
        }
        .into()
    }
}

async fn write<W: AsyncWrite + Unpin>(encoder: &mut W, bytes: &[u8]) {
    encoder.write_all(bytes).await.expect("coding into memory");
    encoder.flush().await.expect("coding into memory");
}

async fn encode(coding: Option<Coding>, pieces: Vec<Piece>) -> Vec<Piece> {
    let Some(coding) = coding else { return pieces };
    let mut encoder = Encoder::new(coding);
    let mut coded = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces {
        coded.push(Piece {
            wait: piece.wait,
            bytes: encoder.flushed(&piece.bytes).await,
        });
    }
    coded.push(Piece {
        wait: Duration::ZERO,
        bytes: encoder.finished().await,
    });
    coded
}

/// A gibibyte of blanks. Gzip: one flushed segment repeated, which decodes (its references stay inside
/// blanks) though the checksum is missing. Zstd: a frame of run-length blocks.
async fn bomb(coding: Option<Coding>) -> Vec<Piece> {
    let piece = |bytes: Bytes| Piece {
        wait: Duration::ZERO,
        bytes,
    };
    if coding == Some(Coding::Zstd) {
        let mut frame = BytesMut::from(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58][..]);
        let blocks = BOMB_SEGMENT_BYTES * BOMB_SEGMENTS / (128 << 10);
        for index in 1..=blocks {
            let header: u32 = (128 << 10 << 3) | (1 << 1) | u32::from(index == blocks);
            frame.put_slice(header.to_le_bytes().get(..3).unwrap_or_default());
            frame.put_u8(b' ');
        }
        return vec![piece(frame.freeze())];
    }
    let mut encoder = Encoder::new(coding.unwrap_or(Coding::Gzip));
    let start = encoder.flushed(b" ").await;
    let segment = encoder.flushed(&vec![b' '; BOMB_SEGMENT_BYTES]).await;
    let mut body = BytesMut::from(start.as_ref());
    for _ in 0..BOMB_SEGMENTS {
        body.put_slice(&segment);
    }
    vec![piece(body.freeze())]
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn pieces(parts: &[&'static str]) -> Vec<Piece> {
        parts
            .iter()
            .map(|part| Piece {
                wait: Duration::ZERO,
                bytes: Bytes::from_static(part.as_bytes()),
            })
            .collect()
    }

    fn texts(pieces: &[Piece]) -> Vec<String> {
        pieces
            .iter()
            .map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned())
            .collect()
    }

    #[test]
    fn a_split_parts_the_body_at_its_offset() {
        let wire = Wire {
            split_at: Some(3),
            ..Wire::default()
        };

        assert_eq!(texts(&slice(&wire, pieces(&["ab", "cd"]))), ["abc", "d"]);
    }

    #[test]
    fn a_dribble_makes_packets_of_its_size() {
        let wire = Wire {
            dribble: Some((2, Duration::ZERO)),
            ..Wire::default()
        };

        assert_eq!(texts(&slice(&wire, pieces(&["abc", "d"]))), ["ab", "c", "d"]);
    }

    #[test]
    fn a_cut_keeps_the_bytes_before_it() {
        let wire = Wire {
            stop_after_bytes: Some((3, Then::Cut)),
            ..Wire::default()
        };

        assert_eq!(texts(&slice(&wire, pieces(&["ab", "cd", "ef"]))), ["ab", "c"]);
    }

    #[tokio::test]
    async fn each_coded_piece_can_be_decoded_before_the_next_comes() {
        use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};

        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let coded = encode(Some(coding), pieces(&["one ", "two"])).await;
            for (count, expected) in [(1, "one "), (3, "one two")] {
                let bytes = join(coded.get(..count).expect("pieces"));
                let mut out = vec![0_u8; expected.len()];
                let read = match coding {
                    Coding::Gzip => GzipDecoder::new(bytes.as_ref()).read_exact(&mut out).await,
                    Coding::Brotli => BrotliDecoder::new(bytes.as_ref()).read_exact(&mut out).await,
                    Coding::Zstd => ZstdDecoder::new(bytes.as_ref()).read_exact(&mut out).await,
                };
                assert!(read.is_ok(), "{coding:?}: {read:?}");
                assert_eq!(out, expected.as_bytes(), "{coding:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_bomb_unpacks_far_beyond_its_size() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let bytes = join(&bomb(Some(coding)).await);
            assert!(bytes.len() <= 2 << 20, "{coding:?}: {}", bytes.len());
            let mut out = vec![0_u8; 4 << 20];
            let read = match coding {
                Coding::Zstd => {
                    async_compression::tokio::bufread::ZstdDecoder::new(bytes.as_ref())
                        .read_exact(&mut out)
                        .await
                }
                _ => {
                    async_compression::tokio::bufread::GzipDecoder::new(bytes.as_ref())
                        .read_exact(&mut out)
                        .await
                }
            };
            assert!(read.is_ok(), "{coding:?}: {read:?}");
            assert!(out.iter().all(|byte| *byte == b' '));
        }
    }
}
