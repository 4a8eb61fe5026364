//! Reads HTTP/1.1 requests from a raw connection, byte by byte and without a library, so that the scripted
//! upstream can keep exactly what arrived and object to what a careful server would refuse.

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a request head that are read at most.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of a request body that are read at most.
const BODY_BYTES_MAX: usize = 256 << 20;

/// One request as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// The method, as sent.
    pub method: String,
    /// The request target, as sent: path and query.
    pub target: String,
    /// Header names in lower case and values, in the order of arrival.
    pub headers: Vec<(String, String)>,
    /// The head byte for byte, with its final empty line.
    pub head: Bytes,
    /// The body as it was on the wire, chunk framing included.
    pub raw_body: Bytes,
    /// The body without framing.
    pub body: Bytes,
}

impl Received {
    /// The first value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Whether the body asks for a streamed answer.
    pub fn streaming(&self) -> bool {
        self.json()["stream"] == Value::Bool(true)
    }

    /// The model asked for; empty when the body names none.
    pub fn model(&self) -> String {
        self.json()["model"].as_str().unwrap_or_default().to_owned()
    }
}

/// Why no further request came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer closed between two requests.
    Idle,
    /// The peer closed or reset inside a request.
    Broken,
    /// What arrived is not a request a server may accept.
    Malformed(&'static str),
}

/// Reads up to the empty line; `buffer` keeps what came after it.
pub(crate) async fn read_head<R>(reader: &mut R, buffer: &mut BytesMut) -> Result<Received, Ended>
where
    R: AsyncRead + Unpin,
{
    let length = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(Ended::Malformed("the head is too long"));
        }
        let started = !buffer.is_empty();
        fill(reader, buffer)
            .await
            .map_err(|_| if started { Ended::Broken } else { Ended::Idle })?;
    };
    parse_head(&buffer.split_to(length).freeze())
}

/// Reads the body that the head announces, into `received`.
pub(crate) async fn read_body<R>(
    reader: &mut R,
    buffer: &mut BytesMut,
    received: &mut Received,
) -> Result<(), Ended>
where
    R: AsyncRead + Unpin,
{
    let chunked = received
        .header("transfer-encoding")
        .is_some_and(|coding| coding == "chunked");
    if chunked {
        return read_chunked(reader, buffer, received).await;
    }
    let length: usize = match received.header("content-length") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Ended::Malformed("content-length is not a number"))?,
    };
    if length > BODY_BYTES_MAX {
        return Err(Ended::Malformed("the body is too long"));
    }
    received.raw_body = take(reader, buffer, length).await?;
    received.body = received.raw_body.clone();
    Ok(())
}

async fn read_chunked<R>(reader: &mut R, buffer: &mut BytesMut, received: &mut Received) -> Result<(), Ended>
where
    R: AsyncRead + Unpin,
{
    let mut raw = BytesMut::new();
    let mut body = BytesMut::new();
    loop {
        let line = take_line(reader, buffer).await?;
        raw.extend_from_slice(&line);
        let text = std::str::from_utf8(&line).map_err(|_| Ended::Malformed("a chunk size is not text"))?;
        let digits = text.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(digits, 16).map_err(|_| Ended::Malformed("a chunk size is not hex"))?;
        if size == 0 {
            break;
        }
        if body.len().saturating_add(size) > BODY_BYTES_MAX {
            return Err(Ended::Malformed("the body is too long"));
        }
        let chunk = take(reader, buffer, size + 2).await?;
        if !chunk.ends_with(b"\r\n") {
            return Err(Ended::Malformed("a chunk is longer than it says"));
        }
        raw.extend_from_slice(&chunk);
        body.extend_from_slice(chunk.get(..size).unwrap_or_default());
    }
    loop {
        let line = take_line(reader, buffer).await?;
        raw.extend_from_slice(&line);
        if line.as_ref() == b"\r\n" {
            break;
        }
    }
    received.raw_body = raw.freeze();
    received.body = body.freeze();
    Ok(())
}

fn parse_head(head: &Bytes) -> Result<Received, Ended> {
    let text = std::str::from_utf8(head).map_err(|_| Ended::Malformed("the head is not text"))?;
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let mut start = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1"), None) =
        (start.next(), start.next(), start.next(), start.next())
    else {
        return Err(Ended::Malformed("the start line is not that of HTTP/1.1"));
    };
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or(Ended::Malformed("a header has no colon"))?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return Err(Ended::Malformed("a header name has blanks"));
        }
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let received = Received {
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        head: head.clone(),
        ..Received::default()
    };
    let count = |name: &str| received.headers.iter().filter(|(key, _)| key == name).count();
    let lengths = count("content-length");
    if lengths + count("transfer-encoding") > 1 {
        return Err(Ended::Malformed("the body has more than one length"));
    }
    if count("host") != 1 {
        return Err(Ended::Malformed("there is not exactly one host header"));
    }
    Ok(received)
}

async fn take_line<R>(reader: &mut R, buffer: &mut BytesMut) -> Result<Bytes, Ended>
where
    R: AsyncRead + Unpin,
{
    loop {
        if let Some(at) = find(buffer, b"\r\n") {
            return Ok(buffer.split_to(at + 2).freeze());
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(Ended::Malformed("a chunk line is too long"));
        }
        fill(reader, buffer).await?;
    }
}

async fn take<R>(reader: &mut R, buffer: &mut BytesMut, length: usize) -> Result<Bytes, Ended>
where
    R: AsyncRead + Unpin,
{
    while buffer.len() < length {
        fill(reader, buffer).await?;
    }
    Ok(buffer.split_to(length).freeze())
}

async fn fill<R>(reader: &mut R, buffer: &mut BytesMut) -> Result<(), Ended>
where
    R: AsyncRead + Unpin,
{
    match reader.read_buf(buffer).await {
        Ok(0) | Err(_) => Err(Ended::Broken),
        Ok(_) => Ok(()),
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Received, Ended> {
        let mut reader = bytes;
        let mut buffer = BytesMut::new();
        let mut received = read_head(&mut reader, &mut buffer).await?;
        read_body(&mut reader, &mut buffer, &mut received).await?;
        Ok(received)
    }

    #[tokio::test]
    async fn a_chunked_body_is_kept_raw_and_joined() {
        let sent = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

        let received = read(sent).await.expect("a request");

        assert_eq!(received.body.as_ref(), b"abcde");
        assert_eq!(received.raw_body.as_ref(), b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!(
            (received.method.as_str(), received.target.as_str()),
            ("POST", "/x")
        );
    }

    #[tokio::test]
    async fn two_lengths_at_once_are_refused() {
        let sent =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc";

        assert_eq!(
            read(sent).await.err(),
            Some(Ended::Malformed("the body has more than one length"))
        );
    }

    #[tokio::test]
    async fn a_close_between_requests_is_told_from_one_inside() {
        assert_eq!(read(b"").await.err(), Some(Ended::Idle));
        assert_eq!(read(b"POST / HT").await.err(), Some(Ended::Broken));
        let short = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na";
        assert_eq!(read(short).await.err(), Some(Ended::Broken));
    }
}
