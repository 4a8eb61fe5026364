//! Just enough of HTTP/2 by hand to ask, to read what comes for a stream, and to reset it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// A connection with prior knowledge.
pub(crate) struct Http2 {
    socket: TcpStream,
    /// The server said that it takes no further stream.
    pub(crate) told_to_go: bool,
}

impl Http2 {
    pub(crate) async fn new(mut socket: TcpStream) -> Self {
        socket
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .expect("write");
        let mut connection = Self {
            socket,
            told_to_go: false,
        };
        connection.send(SETTINGS, 0, 0, &[]).await;
        connection
    }

    /// Posts `body` to chat completions on `stream`.
    pub(crate) async fn post(&mut self, stream: u32, key: &str, body: &str) {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "waybill"),
            (":path", "/v1/chat/completions"),
            ("x-api-key", key),
        ] {
            // Literal, not indexed, not compressed.
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).expect("a short text"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.send(HEADERS, END_HEADERS, stream, &block).await;
        self.send(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    /// The next piece of the answer on `stream`; `None` at its end.
    pub(crate) async fn data(&mut self, stream: u32) -> Option<String> {
        loop {
            let mut head = [0; 9];
            self.socket.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; usize::try_from(length).expect("a length")];
            self.socket.read_exact(&mut payload).await.expect("a payload");
            self.told_to_go |= head[3] == GOAWAY;
            if head[3] != DATA || of != stream {
                continue;
            }
            if payload.is_empty() && head[4] & END_STREAM != 0 {
                return None;
            }
            return Some(String::from_utf8(payload).expect("text"));
        }
    }

    /// Gives up on `stream`.
    pub(crate) async fn reset(&mut self, stream: u32) {
        self.send(RST_STREAM, 0, stream, &CANCEL).await;
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len())
            .expect("a short payload")
            .to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.socket.write_all(&frame).await.expect("write");
    }
}
