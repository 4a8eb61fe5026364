//! One connection to the system under load and one call over it, in chat or in Messages.
//!
//! The request is put together once; a call clones its parts, and names itself where that is asked for. A connection that
//! the server closed between calls is opened again without counting as an error, one that breaks within a call is an
//! error.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::arguments::{Arguments, Dialect, Named};

/// How a stream ends.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// How a stream of Messages ends.
const STOPPED: &[u8] = b"data: {\"type\":\"message_stop\"}\n\n";
/// Where Messages is spoken.
const MESSAGES_PATH: &str = "/v1/messages";
/// Events of a stream of Messages beside those with content: the start, the block's two, the end's two.
const MESSAGES_EVENTS: usize = 5;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
/// Sessions of calls that name one.
const SESSIONS: u64 = 100;

/// Why a call did not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// The connection broke or the answer is no HTTP.
    #[error("the exchange broke: {0}")]
    Http(#[from] hyper::Error),
    /// An answer, but a refusal.
    #[error("status {0}")]
    Status(StatusCode),
    /// A stream without its end mark.
    #[error("the stream ended without its end mark")]
    Cut,
    /// A stream with another number of events.
    #[error("the stream has {found} events instead of {expected}")]
    Events {
        /// Events that came.
        found: usize,
        /// Events that should have come.
        expected: usize,
    },
    /// A stream that ended while it should idle.
    #[error("the stream ended early")]
    Early,
}

/// What is asked of whom; shared by all connections.
#[derive(Debug)]
pub(crate) struct Target {
    address: SocketAddr,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    streamed: bool,
    form: Form,
    events: Option<usize>,
    names: Option<Names>,
}

/// The names of calls.
#[derive(Debug)]
struct Names {
    by: Named,
    /// This process: no other run has used its idempotency keys.
    process: u32,
    calls: AtomicU64,
}

impl Names {
    fn new(by: Named) -> Self {
        Self {
            by,
            process: std::process::id(),
            calls: AtomicU64::new(0),
        }
    }

    /// The header that names the next call.
    fn next(&self) -> Option<(HeaderName, HeaderValue)> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (header, name) = match self.by {
            Named::Key => (IDEMPOTENCY_KEY, format!("bench-{}-{call}", self.process)),
            Named::Session => (SESSION_ID, format!("bench-{}", call % SESSIONS)),
        };
        Some((header, HeaderValue::from_str(&name).ok()?))
    }
}

/// How events are written, and the last one.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Line ends of one event.
    line_ends: usize,
    /// Its last bytes.
    end: &'static [u8],
}

/// When the parts of a whole answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The first byte of the body.
    pub(crate) first_byte: Instant,
    /// The end of the body.
    pub(crate) end: Instant,
}

/// One connection; dropping it closes it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    sender: Option<SendRequest<Full<Bytes>>>,
    driver: JoinSet<()>,
}

impl Target {
    /// Resolves the address and puts the request together.
    pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Arc<Self>> {
        let authority = arguments.url.authority().context("the url has no host")?;
        if arguments.url.scheme_str() != Some("http") {
            bail!("only http urls are supported");
        }
        let address = (authority.host(), authority.port_u16().unwrap_or(80))
            .to_socket_addrs()
            .context("cannot resolve the url's host")?
            .next()
            .context("the url's host has no address")?;
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {}", arguments.key))?,
        );
        let own_path = arguments
            .url
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        let path = if arguments.dialect == Dialect::Messages {
            MESSAGES_PATH
        } else {
            own_path
        };
        Ok(Arc::new(Self {
            address,
            uri: path.parse()?,
            headers,
            body: request_body(arguments)?,
            streamed: arguments.stream || arguments.idle_streams > 0,
            form: if arguments.dialect == Dialect::Messages {
                Form {
                    line_ends: 3,
                    end: STOPPED,
                }
            } else {
                CHAT
            },
            events: events_expected(arguments),
            names: arguments.named.map(Names::new),
        }))
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let name = self.names.as_ref().and_then(Names::next);
        request.headers_mut().extend(name);
        request
    }
}

/// Events of chat have no names.
const CHAT: Form = Form {
    line_ends: 2,
    end: DONE,
};

/// Events of a whole stream: the content, and in chat the finish, the usage if asked for, the end mark.
fn events_expected(arguments: &Arguments) -> Option<usize> {
    let others = if arguments.dialect == Dialect::Messages {
        MESSAGES_EVENTS
    } else {
        2 + usize::from(arguments.include_usage)
    };
    (arguments.expect_chunks > 0).then(|| arguments.expect_chunks.saturating_add(others))
}

fn request_body(arguments: &Arguments) -> anyhow::Result<Bytes> {
    let model = serde_json::to_string(&arguments.model)?;
    let prompt: String = "a plain word and "
        .chars()
        .cycle()
        .take(arguments.prompt_bytes)
        .collect();
    let stream = arguments.stream || arguments.idle_streams > 0;
    // Messages has other members for instructions and usage.
    if arguments.dialect == Dialect::Messages {
        return Ok(Bytes::from(format!(
            r#"{{"model":{model},"system":"You answer briefly.","messages":[{{"role":"user","content":"{prompt}"}}],"temperature":0.7,"max_tokens":128,"stream":{stream}}}"#
        )));
    }
    let tail = match (stream, arguments.include_usage) {
        (true, true) => r#","stream":true,"stream_options":{"include_usage":true}"#,
        (true, false) => r#","stream":true"#,
        (false, _) => "",
    };
    Ok(Bytes::from(format!(
        r#"{{"model":{model},"messages":[{{"role":"system","content":"You answer briefly."}},{{"role":"user","content":"{prompt}"}}],"temperature":0.7,"max_tokens":128{tail}}}"#
    )))
}

impl Link {
    /// One whole call.
    pub(crate) async fn call(&mut self, target: &Target) -> Result<Times, Error> {
        let result = self.exchange(target).await;
        if result.is_err() {
            self.sender = None;
        }
        result
    }

    /// Opens a stream, waits for its first bytes and hands over the rest.
    pub(crate) async fn open(&mut self, target: &Target) -> Result<Incoming, Error> {
        let mut body = self.send(target).await?;
        match body.frame().await {
            Some(frame) => frame.map(|_| body).map_err(Error::Http),
            None => Err(Error::Early),
        }
    }

    async fn exchange(&mut self, target: &Target) -> Result<Times, Error> {
        let mut body = self.send(target).await?;
        let mut first_byte = None;
        let mut seen = Seen::of(target.form);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            if target.streamed {
                first_byte.get_or_insert_with(Instant::now);
                seen.add(&data);
            }
        }
        let end = Instant::now();
        if target.streamed {
            seen.check(target.events)?;
        }
        Ok(Times {
            first_byte: first_byte.unwrap_or(end),
            end,
        })
    }

    async fn send(&mut self, target: &Target) -> Result<Incoming, Error> {
        let sender = self.ready(target).await?;
        let response = sender.send_request(target.request()).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(Error::Status(status)),
        }
    }

    async fn ready(&mut self, target: &Target) -> Result<&mut SendRequest<Full<Bytes>>, Error> {
        let kept = match self.sender.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let sender = match kept {
            Some(sender) => sender,
            None => self.connect(target).await?,
        };
        Ok(self.sender.insert(sender))
    }

    async fn connect(&mut self, target: &Target) -> Result<SendRequest<Full<Bytes>>, Error> {
        let stream = TcpStream::connect(target.address).await.map_err(Error::Connect)?;
        stream.set_nodelay(true).map_err(Error::Connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        self.driver = JoinSet::new();
        // How a connection ends shows in the call that used it.
        self.driver.spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// What came of a stream so far: events are counted by their line ends, which escaped JSON cannot contain.
#[derive(Debug)]
struct Seen {
    form: Form,
    line_ends: usize,
    tail: Vec<u8>,
}

impl Seen {
    const fn of(form: Form) -> Self {
        Self {
            form,
            line_ends: 0,
            tail: Vec::new(),
        }
    }

    fn add(&mut self, data: &[u8]) {
        self.line_ends += data.iter().map(|byte| usize::from(*byte == b'\n')).sum::<usize>();
        let length = self.form.end.len();
        if data.len() >= length {
            self.tail.clear();
        }
        self.tail
            .extend_from_slice(data.get(data.len().saturating_sub(length)..).unwrap_or(data));
        let surplus = self.tail.len().saturating_sub(length);
        self.tail.drain(..surplus);
    }

    fn check(&self, events: Option<usize>) -> Result<(), Error> {
        if self.tail != self.form.end {
            return Err(Error::Cut);
        }
        let Form { line_ends, .. } = self.form;
        match events {
            Some(expected) if self.line_ends != expected.saturating_mul(line_ends) => Err(Error::Events {
                found: self.line_ends / line_ends,
                expected,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"data: {\"a\":1}\n\ndata: {}\n\ndata: [DONE]\n\n";

    fn seen(pieces: &[&[u8]]) -> Seen {
        let mut seen = Seen::of(CHAT);
        for piece in pieces {
            seen.add(piece);
        }
        seen
    }

    #[test]
    fn a_stream_is_whole_wherever_its_packets_are_cut() {
        for at in 0..=STREAM.len() {
            let (left, right) = STREAM.split_at(at);

            assert!(seen(&[left, right]).check(Some(3)).is_ok(), "cut at {at}");
        }
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert!(seen(&bytes).check(Some(3)).is_ok());
    }

    #[test]
    fn a_stream_without_its_end_mark_is_cut() {
        assert!(matches!(seen(&[b"data: {}\n\n"]).check(None), Err(Error::Cut)));
    }

    #[test]
    fn a_stream_of_messages_has_names_and_another_end() {
        let form = Form {
            line_ends: 3,
            end: STOPPED,
        };
        let mut seen = Seen::of(form);
        seen.add(b"event: ping\ndata: {\"type\":\"ping\"}\n\nevent: message_stop\n");
        assert!(matches!(seen.check(None), Err(Error::Cut)));
        seen.add(STOPPED);

        assert!(seen.check(Some(2)).is_ok());
    }

    #[test]
    fn a_lost_event_is_noticed() {
        let result = seen(&[b"data: {}\n\ndata: [DONE]\n\n"]).check(Some(3));

        assert!(matches!(
            result,
            Err(Error::Events {
                found: 2,
                expected: 3
            })
        ));
    }
}
