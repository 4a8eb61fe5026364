//! A raw socket for what no HTTP library would send: broken heads, two lengths at once, half a body.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a raw socket waits for more bytes.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came back on a raw socket.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Whether the node closed (or reset) the connection; if not, nothing more came in five seconds.
    pub closed: bool,
}

impl RawAnswer {
    /// The bytes as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The status of the first answer; 0 when there is none.
    pub fn status(&self) -> u16 {
        let text = self.text();
        let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        status.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// A header of the first answer; empty when it is missing.
    pub fn header(&self, name: &str) -> String {
        let text = self.text();
        let head = text.split("\r\n\r\n").next().unwrap_or_default();
        let of_name = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        head.lines().skip(1).find_map(of_name).unwrap_or_default()
    }

    /// What follows the first head.
    pub fn body(&self) -> String {
        self.text()
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .unwrap_or_default()
    }
}

/// Sends `bytes` and reads until the node closes or is silent for five seconds.
pub async fn raw(addr: SocketAddr, bytes: &[u8]) -> RawAnswer {
    let mut socket = RawSocket::connect(addr).await;
    socket.send(bytes).await;
    socket.read_to_end().await
}

/// A raw connection.
pub struct RawSocket {
    stream: TcpStream,
}

impl RawSocket {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("an option of a socket");
        Self { stream }
    }

    /// Sends bytes; gives how many went before the node closed (all of them, if it did not).
    pub async fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match timeout(PATIENCE, self.stream.write(rest)).await {
                Ok(Ok(count)) if count > 0 => sent += count,
                _ => break,
            }
        }
        sent
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) {
        // If the node has closed first, it knows.
        let _ = self.stream.shutdown().await;
    }

    /// Reads until `ready` likes what came, the node closes, or it is silent for five seconds.
    pub async fn read_until(&mut self, ready: impl Fn(&[u8]) -> bool) -> RawAnswer {
        let mut answer = RawAnswer {
            bytes: Vec::new(),
            closed: false,
        };
        while !ready(&answer.bytes) {
            match timeout(PATIENCE, self.stream.read_buf(&mut answer.bytes)).await {
                Ok(Ok(0) | Err(_)) => {
                    answer.closed = true;
                    break;
                }
                Ok(Ok(_)) => {}
                Err(_) => break,
            }
        }
        answer
    }

    /// Reads until the node closes or is silent for five seconds.
    pub async fn read_to_end(&mut self) -> RawAnswer {
        self.read_until(|_| false).await
    }
}
