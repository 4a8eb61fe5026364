//! Heads of messages: what of a request's head never changes is written once per route, and of an answer's head only
//! what decides something is kept. Pure.

use bytes::{Buf as _, BytesMut};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use super::framing::Framing;

/// Most lines of an answer's head.
const LINES_MAX: usize = 100;
/// Largest head of an answer, in bytes.
pub(super) const BYTES_MAX: usize = 128 * 1024;
/// Room for the credential and the length behind what is written once.
const SPARE_BYTES: usize = 64;

/// Headers of an answer that somebody reads; the others are passed over.
const KEPT: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, RETRY_AFTER];
/// The same of an error: when to try again may be told as a date.
const KEPT_OF_ERRORS: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_ENCODING, RETRY_AFTER, DATE];

/// These bytes are no head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// Not of HTTP/1.
    #[error("the head of the answer is not valid")]
    Syntax,
    /// Larger than an answer's head may be.
    #[error("the head of the answer is larger than {BYTES_MAX} bytes")]
    TooLarge,
    /// Its lengths contradict each other, or are none.
    #[error("the length of the answer is not valid")]
    Length,
    /// Coded for its transfer in a way that nobody asked for, or that its version does not have.
    #[error("the transfer coding of the answer is not known")]
    Coding,
    /// Another protocol was offered, which nobody asked for.
    #[error("the upstream wants to speak another protocol")]
    Upgrade,
}

/// What the head of an answer says.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// The connection may serve again.
    pub(super) keeps_alive: bool,
}

/// The head of a request up to what differs from one to the next. A host among the headers goes before `authority`;
/// how the body is framed is not theirs to say.
pub(super) fn begin(uri: &Uri, authority: &str, headers: &HeaderMap) -> Vec<u8> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let root = if path.starts_with('/') { "" } else { "/" };
    let host = headers
        .get(HOST)
        .map_or(authority.as_bytes(), HeaderValue::as_bytes);
    let mut head = Vec::with_capacity(256);
    for part in ["POST ", root, path, " HTTP/1.1\r\nhost: "] {
        head.extend_from_slice(part.as_bytes());
    }
    head.extend_from_slice(host);
    head.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        line(&mut head, name, value);
    }
    head
}

/// The whole head of a request whose body has `length` bytes; `own` are headers of this request alone.
pub(super) fn complete<'h>(
    begun: &[u8],
    own: impl IntoIterator<Item = &'h (HeaderName, HeaderValue)> + Clone,
    length: usize,
) -> Vec<u8> {
    let line_bytes = |(name, value): &(HeaderName, HeaderValue)| name.as_str().len() + value.len() + 4;
    let own_bytes: usize = own.clone().into_iter().map(line_bytes).sum();
    let mut head = Vec::with_capacity(begun.len() + own_bytes + SPARE_BYTES);
    head.extend_from_slice(begun);
    for (name, value) in own {
        line(&mut head, name, value);
    }
    head.extend_from_slice(b"content-length: ");
    head.extend_from_slice(length.to_string().as_bytes());
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// Writes a header, unless it is one that is written here anyway.
fn line(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    if [HOST, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
        return;
    }
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Takes the head of an answer off the front of `buffer`; `None` while it is not there whole. Interim answers are
/// passed over.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Head>, Malformed> {
    loop {
        let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
        let mut response = httparse::Response::new(&mut lines);
        let bytes = match response.parse(buffer) {
            Err(_) => return Err(Malformed::Syntax),
            Ok(httparse::Status::Partial) if buffer.len() >= BYTES_MAX => return Err(Malformed::TooLarge),
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(bytes)) => bytes,
        };
        let status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or(Malformed::Syntax)?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Malformed::Upgrade);
        }
        if status.is_informational() {
            buffer.advance(bytes);
            continue;
        }
        let head = read(status, response.version == Some(1), response.headers)?;
        buffer.advance(bytes);
        return Ok(Some(head));
    }
}

/// Reads the lines of a final head.
fn read(status: StatusCode, is_current: bool, lines: &[httparse::Header<'_>]) -> Result<Head, Malformed> {
    let is_error = status.is_client_error() || status.is_server_error();
    let kept: &[HeaderName] = if is_error { &KEPT_OF_ERRORS } else { &KEPT };
    let mut headers = HeaderMap::new();
    let mut keeps_alive = is_current;
    let mut length = None;
    let mut is_chunked = false;
    for line in lines {
        let is = |name: &HeaderName| line.name.eq_ignore_ascii_case(name.as_str());
        if is(&CONTENT_LENGTH) {
            let told = lengths(line.value).ok_or(Malformed::Length)?;
            if length.is_some_and(|before| before != told) {
                return Err(Malformed::Length);
            }
            length = Some(told);
        } else if is(&TRANSFER_ENCODING) {
            if is_chunked || !is_current || !line.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Coding);
            }
            is_chunked = true;
        } else if is(&CONNECTION) {
            keeps_alive &= !says_close(line.value);
        } else if let Some(name) = kept.iter().find(|name| is(name)) {
            let value = HeaderValue::from_bytes(line.value).map_err(|_| Malformed::Syntax)?;
            headers.append(name, value);
        }
    }
    // With both lengths at once somebody on the way reads the message otherwise: nothing follows it here.
    keeps_alive &= !(is_chunked && length.is_some());
    let framing = match (status, is_chunked, length) {
        (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, ..) => {
            // An upstream that announces a body here may send it all the same.
            keeps_alive &= !is_chunked && length.unwrap_or(0) == 0;
            Framing::Length(0)
        }
        (_, true, _) => Framing::chunked(),
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => Framing::Close,
    };
    keeps_alive &= framing != Framing::Close;
    Ok(Head {
        status,
        headers,
        framing,
        keeps_alive,
    })
}

/// One length, perhaps said several times.
fn lengths(value: &[u8]) -> Option<u64> {
    let mut found = None;
    for part in value.split(|byte| *byte == b',') {
        let digits = part.trim_ascii();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let length: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        if found.is_some_and(|before| before != length) {
            return None;
        }
        found = Some(length);
    }
    found
}

fn says_close(value: &[u8]) -> bool {
    let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.any(|word| word.eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_of(text: &str) -> Result<Option<Head>, Malformed> {
        take(&mut BytesMut::from(text))
    }

    fn framing_of(lines: &str) -> Result<(Framing, bool), Malformed> {
        let head = head_of(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))?.expect("whole");
        Ok((head.framing, head.keeps_alive))
    }

    #[test]
    fn a_request_names_its_host_its_headers_its_credential_and_its_length() {
        let uri: Uri = "http://host:81/v1/chat?x=1".parse().expect("a URL");
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let credential = (HeaderName::from_static("x-key"), HeaderValue::from_static("k"));

        let head = complete(&begin(&uri, "host:81", &headers), Some(&credential), 12);

        assert_eq!(
            String::from_utf8(head).expect("text"),
            "POST /v1/chat?x=1 HTTP/1.1\r\nhost: host:81\r\naccept: */*\r\nx-key: k\r\ncontent-length: 12\r\n\r\n"
        );
    }

    #[test]
    fn when_an_error_was_told_is_kept_and_when_an_answer_was_is_not() {
        let date = "date: Mon, 30 Nov 2026 10:00:00 GMT\r\n";
        for (status, kept) in [("200 OK", 0), ("429 Slow", 1), ("503 Busy", 1)] {
            let head = head_of(&format!("HTTP/1.1 {status}\r\n{date}\r\n"));

            let head = head.expect("valid").expect("whole");
            assert_eq!(head.headers.len(), kept, "{status}");
        }
    }

    #[test]
    fn a_head_is_taken_once_it_is_whole_and_what_follows_it_stays() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Slow\r\nRetry-After: 3\r\nX-Other: y\r\ncontent-length: 2\r\n\r\nhi";
        for cut in 0..text.len() - 2 {
            assert!(head_of(&text[..cut]).expect("valid so far").is_none(), "{cut}");
        }
        let mut buffer = BytesMut::from(text);

        let head = take(&mut buffer).expect("valid").expect("whole");

        assert_eq!(head.status, 429);
        assert_eq!(head.headers[RETRY_AFTER], "3");
        assert_eq!(head.headers.len(), 1);
        assert_eq!((head.framing, head.keeps_alive), (Framing::Length(2), true));
        assert_eq!(&buffer[..], b"hi");
    }

    #[test]
    fn the_length_of_an_answer_is_read_strictly() {
        assert_eq!(
            framing_of("content-length: 5\r\n"),
            Ok((Framing::Length(5), true))
        );
        assert_eq!(
            framing_of("content-length: 5, 5\r\n"),
            Ok((Framing::Length(5), true))
        );
        assert_eq!(
            framing_of("content-length: 5\r\ncontent-length: 6\r\n"),
            Err(Malformed::Length)
        );
        for wrong in ["", "+5", "-1", "0x5", "5 5", "99999999999999999999"] {
            let line = format!("content-length: {wrong}\r\n");
            assert_eq!(framing_of(&line), Err(Malformed::Length), "{wrong}");
        }
        assert_eq!(
            framing_of("transfer-encoding: Chunked \r\n"),
            Ok((Framing::chunked(), true))
        );
        assert_eq!(
            framing_of("transfer-encoding: chunked\r\ncontent-length: 5\r\n"),
            Ok((Framing::chunked(), false))
        );
        assert_eq!(framing_of(""), Ok((Framing::Close, false)));
    }

    #[test]
    fn a_transfer_coding_that_nobody_asked_for_is_refused() {
        for coding in [
            "",
            "gzip",
            "identity",
            "gzip, chunked",
            "chunked, chunked",
            "chunked,",
            "xchunked",
        ] {
            let line = format!("transfer-encoding: {coding}\r\n");
            assert_eq!(framing_of(&line), Err(Malformed::Coding), "{coding}");
        }
        let twice = "transfer-encoding: chunked\r\n".repeat(2);
        assert_eq!(framing_of(&twice), Err(Malformed::Coding));
        let old = head_of("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        assert_eq!(old.err(), Some(Malformed::Coding));
    }

    #[test]
    fn an_answer_without_a_body_that_announces_one_is_the_last_on_its_connection() {
        for (lines, keeps_alive) in [
            ("", true),
            ("content-length: 0\r\n", true),
            ("content-length: 5\r\n", false),
            ("transfer-encoding: chunked\r\n", false),
        ] {
            for status in [204, 304] {
                let head = head_of(&format!("HTTP/1.1 {status} x\r\n{lines}\r\n"));
                let head = head.expect("valid").expect("whole");
                let read = (head.framing, head.keeps_alive);
                assert_eq!(read, (Framing::Length(0), keeps_alive), "{status} {lines}");
            }
        }
    }

    #[test]
    fn configured_headers_name_another_host_but_never_another_framing() {
        let uri: Uri = "http://host?x=1".parse().expect("a URL");
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (HOST, "other"),
            (CONTENT_LENGTH, "1"),
            (TRANSFER_ENCODING, "chunked"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let credential = (TRANSFER_ENCODING, HeaderValue::from_static("chunked"));

        let head = complete(&begin(&uri, "host", &headers), Some(&credential), 12);

        assert_eq!(
            String::from_utf8(head).expect("text"),
            "POST /?x=1 HTTP/1.1\r\nhost: other\r\ncontent-length: 12\r\n\r\n"
        );
    }

    #[test]
    fn a_connection_that_will_close_does_not_serve_again() {
        let closing = framing_of("content-length: 0\r\nconnection: keep-alive, Close\r\n");
        assert_eq!(closing, Ok((Framing::Length(0), false)));
        let old = head_of("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n").expect("valid");
        assert!(!old.expect("whole").keeps_alive);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        ] {
            assert!(head_of(text).is_err(), "{text}");
        }
        let upgrade = head_of("HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n");
        assert_eq!(upgrade.err(), Some(Malformed::Upgrade));
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(BYTES_MAX));
        assert_eq!(head_of(&endless).err(), Some(Malformed::TooLarge));
    }
}
