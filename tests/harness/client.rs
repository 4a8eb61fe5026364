//! A strict client: HTTP/1.1 (or HTTP/2 without TLS) on hyper's bare connections, one connection a call,
//! no retries and no redirects, so that what a test sees is what the node sent. Each inference call and
//! how it ended goes to a log that the checker compares with the books.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

mod connect;
pub mod log;
pub mod raw;
pub mod raw2;
pub mod sse;
pub mod stream;
pub mod surface;
mod targets;
pub mod told;

use connect::Connection;
use log::{ClientLog, End, Entry};
use stream::Stream;
use surface::Surface;
use targets::Targets;
use told::Told;

/// A word that stands in each prompt of the harness and must not be found in any log, event or table.
pub const PROMPT_CANARY: &str = "prompt-canary-7f3a9";
/// The same in arguments of tools, those that are asked for and those that are answered.
pub const ARGUMENT_CANARY: &str = "argument-canary-c41e8";
/// How long a client waits for the next byte before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a call had no answer, or only a part of one.
#[derive(Debug)]
pub enum Error {
    /// The connection was refused or reset before a request was sent.
    Connect(std::io::Error),
    /// The connection ended before the head of the answer, or inside the answer.
    Http(hyper::Error),
    /// Nothing came for as long as the client waits.
    Silence,
}

/// Who calls, and how.
#[derive(Clone)]
pub struct Client {
    targets: Targets,
    headers: Vec<(String, String)>,
    http2: bool,
    lenient: bool,
    receive_bytes: Option<usize>,
    patience: Duration,
    log: ClientLog,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, all of it.
    pub body: Bytes,
    /// From the sending of the request to the last byte.
    pub took: Duration,
}

impl Answer {
    /// The body as JSON; panics when it is none.
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("status {}: {error} in {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The request id that the node gave; empty when it gave none.
    pub fn request_id(&self) -> &str {
        self.header("x-request-id")
    }

    /// The text of the first choice.
    pub fn content(&self) -> String {
        self.json()["choices"][0]["message"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// What it says, put together as a client of its dialect does; panics where the dialect is broken.
    pub fn told(&self, surface: Surface) -> Told {
        assert_eq!(self.status, 200, "{}", self.text());
        Told::whole(surface, &self.json())
    }

    /// The `code` of an error body; empty when there is none.
    pub fn error_code(&self) -> String {
        error_code(&self.body).unwrap_or_default()
    }
}

impl Client {
    /// A client of the node at `addr` that presents `key`; an empty key presents none.
    pub fn new(addr: SocketAddr, key: &str) -> Self {
        let client = Self {
            targets: Targets::new(&[addr]),
            headers: Vec::new(),
            http2: false,
            lenient: false,
            receive_bytes: None,
            patience: PATIENCE,
            log: ClientLog::default(),
        };
        client.with_key(key)
    }

    /// The same client with another log.
    #[must_use]
    pub fn logging(mut self, log: &ClientLog) -> Self {
        self.log = log.clone();
        self
    }

    /// The same client with another key; the log is shared.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let mut client = self.clone();
        client.headers.retain(|(name, _)| name != "authorization");
        if key.is_empty() {
            client
        } else {
            client.with_header("authorization", &format!("Bearer {key}"))
        }
    }

    /// The same client with one more header on each request.
    #[must_use]
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// The same client for another address, for example that of a node started again.
    #[must_use]
    pub fn at(&self, addr: SocketAddr) -> Self {
        self.over(&[addr])
    }

    /// The same client for several nodes: its calls, and those of its clones, go to one after the other.
    #[must_use]
    pub fn over(&self, addrs: &[SocketAddr]) -> Self {
        Self {
            targets: Targets::new(addrs),
            ..self.clone()
        }
    }

    /// Turns this client and all its clones to other nodes.
    pub fn retarget(&self, addrs: &[SocketAddr]) {
        self.targets.set(addrs);
    }

    /// The same client over HTTP/2 without TLS.
    #[must_use]
    pub fn http2(&self) -> Self {
        Self {
            http2: true,
            ..self.clone()
        }
    }

    /// The same client with small receive buffers, so that what it does not read stops the sender soon.
    #[must_use]
    pub fn small_buffers(&self) -> Self {
        Self {
            receive_bytes: Some(4096),
            ..self.clone()
        }
    }

    /// The same client, for streams that pass in the spelling of their upstream, whichever that is.
    #[must_use]
    pub fn lenient(&self) -> Self {
        Self {
            lenient: true,
            ..self.clone()
        }
    }

    /// The same client with another time to wait for the next byte.
    #[must_use]
    pub fn patience(&self, patience: Duration) -> Self {
        Self {
            patience,
            ..self.clone()
        }
    }

    /// The address of its next call.
    pub fn addr(&self) -> SocketAddr {
        self.targets.next()
    }

    /// What was answered so far, and how each answer ended.
    pub fn log(&self) -> &ClientLog {
        &self.log
    }

    /// A chat call, whole; panics when no whole answer comes.
    pub async fn post_chat(&self, body: &Value) -> Answer {
        self.try_post_chat(body).await.expect("a whole answer")
    }

    /// A chat call, whole.
    pub async fn try_post_chat(&self, body: &Value) -> Result<Answer, Error> {
        self.post_inference(Surface::Chat.path(), body.to_string()).await
    }

    /// Posts any bytes to an inference path; the call is logged.
    pub async fn post_inference(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer, Error> {
        let started = Instant::now();
        let (mut connection, response) = match self.exchange("POST", path, body.into()).await {
            Ok(exchanged) => exchanged,
            Err(error) => {
                self.log.add_unanswered();
                return Err(error);
            }
        };
        let mut entry = Entry::new(&self.log, &response);
        let (parts, body) = response.into_parts();
        let whole = self.whole(body).await;
        connection.close();
        match whole {
            Ok(body) => {
                entry.end(End::Whole, error_code(&body));
                let (status, headers) = (parts.status.as_u16(), parts.headers);
                Ok(Answer {
                    status,
                    headers,
                    body,
                    took: started.elapsed(),
                })
            }
            Err(error) => {
                entry.end(End::Broken(format!("{error:?}")), None);
                Err(error)
            }
        }
    }

    /// A streamed chat call; panics when no head of an answer comes.
    pub async fn stream_chat(&self, body: &Value) -> Stream {
        self.try_stream_chat(body).await.expect("the head of an answer")
    }

    /// A streamed chat call; `body` is sent as it is and should ask for a stream.
    pub async fn try_stream_chat(&self, body: &Value) -> Result<Stream, Error> {
        self.try_stream(Surface::Chat, body).await
    }

    /// A call on any surface, whole; panics when no whole answer comes.
    pub async fn post(&self, surface: Surface, body: &Value) -> Answer {
        let answer = self.post_inference(surface.path(), body.to_string()).await;
        answer.expect("a whole answer")
    }

    /// A streamed call on any surface; panics when no head of an answer comes.
    pub async fn stream(&self, surface: Surface, body: &Value) -> Stream {
        self.try_stream(surface, body)
            .await
            .expect("the head of an answer")
    }

    /// A streamed call on any surface; `body` is sent as it is and should ask for a stream.
    pub async fn try_stream(&self, surface: Surface, body: &Value) -> Result<Stream, Error> {
        let started = Instant::now();
        match self
            .exchange("POST", surface.path(), Bytes::from(body.to_string()))
            .await
        {
            Ok((connection, response)) => {
                let entry = Entry::new(&self.log, &response);
                Ok(Stream::new(
                    response,
                    connection,
                    entry,
                    stream::Clock {
                        surface,
                        lenient: self.lenient,
                        started,
                        patience: self.patience,
                    },
                ))
            }
            Err(error) => {
                self.log.add_unanswered();
                Err(error)
            }
        }
    }

    /// Begins a chat call and leaves after `wait`, whatever came until then.
    pub async fn leave_chat_after(&self, body: &Value, wait: Duration) {
        self.leave_after(Surface::Chat, body, wait).await;
    }

    /// Begins a call on any surface and leaves after `wait`, whatever came until then.
    pub async fn leave_after(&self, surface: Surface, body: &Value, wait: Duration) {
        let call = timeout(
            wait,
            self.exchange("POST", surface.path(), Bytes::from(body.to_string())),
        );
        if let Ok(Ok((_, response))) = call.await {
            drop(Entry::new(&self.log, &response));
        } else {
            self.log.add_unanswered();
        }
    }

    /// Reads a path; not an inference call, so not logged.
    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Bytes::new())
            .await
            .expect("a whole answer")
    }

    /// Any other call; not logged.
    pub async fn call(&self, method: &str, path: &str, body: Bytes) -> Result<Answer, Error> {
        let started = Instant::now();
        let (mut connection, response) = self.exchange(method, path, body).await?;
        let (parts, body) = response.into_parts();
        let body = self.whole(body).await;
        connection.close();
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Ok(Answer {
            status,
            headers,
            body: body?,
            took: started.elapsed(),
        })
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, Error> {
        let collected = timeout(self.patience, body.collect())
            .await
            .map_err(|_| Error::Silence)?;
        Ok(collected.map_err(Error::Http)?.to_bytes())
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<(Connection, Response<Incoming>), Error> {
        let addr = self.targets.next();
        let request = self.request(addr, (method, path), body);
        let mut connection = Connection::open(addr, self.http2, self.receive_bytes).await?;
        let sent = timeout(self.patience, connection.send(request))
            .await
            .map_err(|_| Error::Silence)?;
        Ok((connection, sent.map_err(Error::Http)?))
    }

    fn request(&self, addr: SocketAddr, (method, path): (&str, &str), body: Bytes) -> Request<Full<Bytes>> {
        let uri = if self.http2 {
            format!("http://{addr}{path}")
        } else {
            path.to_owned()
        };
        let mut request = Request::builder().method(method).uri(uri);
        if !self.http2 {
            request = request.header("host", addr.to_string());
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
            .body(Full::new(body))
            .expect("a request of the harness is well formed")
    }
}

/// A plain chat body whose prompt holds [`PROMPT_CANARY`].
pub fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": format!("say hi, {PROMPT_CANARY}")}]})
}

/// The same, streamed.
pub fn chat_streamed(model: &str) -> Value {
    let mut body = chat(model);
    body["stream"] = Value::Bool(true);
    body
}

/// The same, streamed and with usage.
pub fn chat_streamed_with_usage(model: &str) -> Value {
    let mut body = chat_streamed(model);
    body["stream_options"] = json!({"include_usage": true});
    body
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn error_code(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value["error"]["code"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests;
