//! A bare HTTP/2 connection without TLS, of which a test sees every frame. Only as much of the protocol as a call needs:
//! headers are written without compression and never read, and windows are never widened.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a connection waits for the next frame.
const PATIENCE: Duration = Duration::from_secs(5);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// The flag of an acknowledgement, and of the end of a stream.
const ACK_OR_END: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame that a test may care about; the others are answered or passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A part of a body, of this stream.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes.
        bytes: Vec<u8>,
        /// Nothing follows in this stream.
        last: bool,
    },
    /// No new streams are taken.
    GoAway {
        /// The highest stream that is still served.
        last_stream: u32,
        /// Why; 0 is no error.
        code: u32,
    },
    /// The node closed the connection, in order.
    Closed,
}

/// The connection.
pub struct Http2Socket {
    stream: TcpStream,
}

impl Http2Socket {
    /// Connects and says hello.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("an option of a socket");
        let mut socket = Self { stream };
        socket
            .stream
            .write_all(PREFACE)
            .await
            .expect("an open connection");
        socket.send((SETTINGS, 0), 0, &[]).await;
        socket
    }

    /// Posts JSON on a new stream, which has an odd number above those before.
    pub async fn post(&mut self, stream: u32, (path, key): (&str, &str), body: &str) {
        // POST and http by their index, the others as literals by the index of their name.
        let mut headers = vec![0x83, 0x86];
        let bearer = format!("Bearer {key}");
        let literals: [(&[u8], &str); 4] = [
            (&[0x04], path),
            (&[0x01], "a"),
            (&[0x0f, 0x08], &bearer),
            (&[0x0f, 0x10], "application/json"),
        ];
        for (name, value) in literals {
            headers.extend_from_slice(name);
            let length = u8::try_from(value.len()).expect("a short value");
            assert!(length < 0x7f, "a short value");
            headers.push(length);
            headers.extend_from_slice(value.as_bytes());
        }
        self.send((HEADERS, END_HEADERS), stream, &headers).await;
        self.send((DATA, ACK_OR_END), stream, body.as_bytes()).await;
    }

    /// The next frame that may matter. Panics when none comes in five seconds.
    pub async fn next(&mut self) -> Frame {
        loop {
            let mut head = [0; 9];
            let read = timeout(PATIENCE, self.stream.read_exact(&mut head)).await;
            if let Err(error) = read.expect("a frame, or the end") {
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
                return Frame::Closed;
            }
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
            let length = u32::from_be_bytes([0, l0, l1, l2]);
            let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
            self.stream.read_exact(&mut payload).await.expect("a whole frame");
            let is_flagged = flags & ACK_OR_END != 0;
            match kind {
                DATA => {
                    return Frame::Data {
                        stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
                        bytes: payload,
                        last: is_flagged,
                    };
                }
                GOAWAY => {
                    let word = |at: usize| {
                        let bytes = payload.get(at..at + 4).and_then(|word| word.try_into().ok());
                        u32::from_be_bytes(bytes.expect("a whole frame"))
                    };
                    return Frame::GoAway {
                        last_stream: word(0) & 0x7fff_ffff,
                        code: word(4),
                    };
                }
                SETTINGS if !is_flagged => self.send((SETTINGS, ACK_OR_END), 0, &[]).await,
                PING if !is_flagged => self.send((PING, ACK_OR_END), 0, &payload).await,
                _ => {}
            }
        }
    }

    async fn send(&mut self, (kind, flags): (u8, u8), stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        // A node that has closed by now says so to whoever reads.
        let _ = self.stream.write_all(&frame).await;
    }
}
