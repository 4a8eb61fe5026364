//! Publishes to the stream of a NATS server: its line protocol over one connection, a window of messages under way,
//! every one confirmed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

/// Messages under way at once, as many as nodes have.
const WINDOW_MESSAGES: usize = 256;
/// How long a confirmation may take.
const CONFIRM_MAX: Duration = Duration::from_secs(30);
/// Where confirmations go.
const INBOX: &str = "_INBOX.bench";
/// Longest message that is read, in bytes.
const READ_BYTES_MAX: usize = 64 << 10;

/// A message for the stream.
#[derive(Debug)]
pub(crate) struct Message {
    /// Where it goes.
    pub(crate) subject: String,
    /// What makes it one with its repetitions.
    pub(crate) id: String,
    /// What it says.
    pub(crate) payload: Vec<u8>,
}

/// What the server says of a message.
#[derive(Debug, Deserialize)]
struct Confirmation {
    seq: Option<u64>,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    description: Option<String>,
}

/// A connection that publishes.
#[derive(Debug)]
pub(crate) struct Publisher {
    reader: BufReader<TcpStream>,
    written: Vec<u8>,
}

impl Publisher {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(CONFIRM_MAX))?;
        stream.set_nodelay(true)?;
        let mut publisher = Self {
            reader: BufReader::new(stream),
            written: Vec::new(),
        };
        let greeting =
            format!("CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true}}\r\nSUB {INBOX} 1\r\n");
        publisher.written.extend_from_slice(greeting.as_bytes());
        Ok(publisher)
    }

    /// Publishes all; gives the place of the last one in the stream.
    pub(crate) fn publish(&mut self, messages: impl Iterator<Item = Message>) -> anyhow::Result<u64> {
        let mut messages = messages.peekable();
        let mut last = 0;
        while messages.peek().is_some() {
            let mut under_way = 0;
            for message in messages.by_ref().take(WINDOW_MESSAGES) {
                put(&mut self.written, &message);
                under_way += 1;
            }
            self.send()?;
            for _ in 0..under_way {
                last = last.max(self.confirmed()?);
            }
        }
        Ok(last)
    }

    fn send(&mut self) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(&self.written)?;
        self.written.clear();
        Ok(())
    }

    /// The place of the next message that the server confirms.
    fn confirmed(&mut self) -> anyhow::Result<u64> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("the NATS server closed the connection");
            }
            match line.split_ascii_whitespace().next() {
                Some("MSG") => return place(&self.body(&line)?),
                Some("PING") => {
                    self.written.extend_from_slice(b"PONG\r\n");
                    self.send()?;
                }
                Some("INFO" | "PONG" | "+OK") => {}
                _ => bail!("the NATS server says: {}", line.trim_end()),
            }
        }
    }

    /// What follows the line of a message.
    fn body(&mut self, line: &str) -> anyhow::Result<Vec<u8>> {
        let length = line.split_ascii_whitespace().last().unwrap_or_default();
        let length: usize = length.parse().context("a message without a length")?;
        if length > READ_BYTES_MAX {
            bail!("a confirmation of {length} bytes");
        }
        let mut body = vec![0; length + 2];
        self.reader.read_exact(&mut body)?;
        body.truncate(length);
        Ok(body)
    }
}

fn put(written: &mut Vec<u8>, message: &Message) {
    let header = format!("NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n", message.id);
    let line = format!(
        "HPUB {} {INBOX} {} {}\r\n",
        message.subject,
        header.len(),
        header.len() + message.payload.len()
    );
    for part in [line.as_bytes(), header.as_bytes(), &message.payload, b"\r\n"] {
        written.extend_from_slice(part);
    }
}

fn place(body: &[u8]) -> anyhow::Result<u64> {
    let confirmation: Confirmation =
        serde_json::from_slice(body).context("a confirmation that cannot be read")?;
    if let Some(refusal) = confirmation.error {
        bail!(
            "the stream refuses a message: {}",
            refusal.description.unwrap_or_default()
        );
    }
    confirmation.seq.context("a confirmation without a place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_with_its_id_and_both_lengths() {
        let mut written = Vec::new();

        put(
            &mut written,
            &Message {
                subject: "a.b".to_owned(),
                id: "7".to_owned(),
                payload: b"{}".to_vec(),
            },
        );

        let text = String::from_utf8(written).expect("text");
        assert_eq!(
            text,
            "HPUB a.b _INBOX.bench 28 30\r\nNATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n{}\r\n"
        );
    }

    #[test]
    fn a_confirmation_gives_the_place_or_the_refusal() {
        assert_eq!(place(br#"{"stream":"S","seq":12}"#).ok(), Some(12));
        let refused = place(br#"{"error":{"code":503,"description":"full"},"stream":"S","seq":0}"#);
        assert!(refused.is_err_and(|error| error.to_string().ends_with("full")));
        assert!(place(b"").is_err());
    }
}
