//! A streamed answer under way: events with their times of arrival, read as fast or as slowly as a test
//! likes, and left at any point.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::connect::Connection;
use super::log::{End, Entry};
use super::sse::{Reader, Said};
use super::surface::Surface;
use super::told::Told;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it was complete, from the sending of the request.
    pub at: Duration,
    /// What it says.
    pub said: Said,
}

/// A streamed answer under way. Dropped before its end the connection is closed: the client has left.
pub struct Stream {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// When the head had arrived, from the sending of the request.
    pub head_at: Duration,
    body: Incoming,
    connection: Connection,
    entry: Entry,
    clock: Clock,
    surface: Surface,
    reader: Reader,
    ready: VecDeque<Event>,
    raw: Vec<u8>,
    error: Option<Value>,
    done: bool,
    end: Option<End>,
    rate_bytes: Option<u32>,
}

/// When a call began, how long silence is borne, and what is read.
pub(super) struct Clock {
    pub(super) surface: Surface,
    pub(super) lenient: bool,
    pub(super) started: Instant,
    pub(super) patience: Duration,
}

/// A streamed answer that has ended.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The API that was called.
    pub surface: Surface,
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// All events, comments too.
    pub events: Vec<Event>,
    /// The body, byte for byte, without chunk framing.
    pub raw: Bytes,
    /// How it ended.
    pub end: End,
}

impl Stream {
    pub(super) fn new(
        response: Response<Incoming>,
        connection: Connection,
        entry: Entry,
        clock: Clock,
    ) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            head_at: clock.started.elapsed(),
            body,
            connection,
            entry,
            surface: clock.surface,
            reader: if clock.lenient {
                Reader::of(clock.surface).lenient()
            } else {
                Reader::of(clock.surface)
            },
            clock,
            ready: VecDeque::new(),
            raw: Vec::new(),
            error: None,
            done: false,
            end: None,
            rate_bytes: None,
        }
    }

    /// A header's value; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        super::header(&self.headers, name)
    }

    /// The request id that the node gave.
    pub fn request_id(&self) -> &str {
        self.header("x-request-id")
    }

    /// From now on at most so many bytes are taken a second; use with `Client::small_buffers`.
    pub fn read_rate(&mut self, bytes_per_second: u32) {
        self.rate_bytes = Some(bytes_per_second.max(1));
    }

    /// The next event; `None` after the last. Panics when nothing comes for the client's patience.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.end.is_some() {
                return None;
            }
            self.read().await;
        }
    }

    /// The next event that is no comment.
    pub async fn next_said(&mut self) -> Option<Said> {
        loop {
            match self.next().await?.said {
                Said::Comment(_) => {}
                said => return Some(said),
            }
        }
    }

    /// Reads until `count` chunks with content have come; gives their texts.
    pub async fn read_content(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            match self.next_said().await {
                Some(Said::Chunk(chunk)) => texts.extend(content(&chunk)),
                other => panic!("wanted {count} chunks of content, had {texts:?}, then {other:?}"),
            }
        }
        texts
    }

    /// Reads to the end.
    pub async fn collect(mut self) -> Transcript {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        let end = self.end.take().unwrap_or(End::Left);
        let raw = Bytes::from(std::mem::take(&mut self.raw));
        Transcript {
            surface: self.surface,
            status: self.status,
            headers: std::mem::take(&mut self.headers),
            events,
            raw,
            end,
        }
    }

    /// Leaves: the connection is closed.
    pub fn close(mut self) {
        self.connection.close();
    }

    /// Leaves with a reset.
    pub fn reset(mut self) {
        self.connection.reset();
    }

    fn streamed(&self) -> bool {
        self.header("content-type").starts_with("text/event-stream")
    }

    async fn read(&mut self) {
        let Ok(frame) = timeout(self.clock.patience, self.body.frame()).await else {
            panic!(
                "the stream was silent for {:?}; so far: {}",
                self.clock.patience,
                self.so_far()
            );
        };
        match frame {
            Some(Ok(frame)) => {
                let bytes = frame.into_data().unwrap_or_default();
                self.raw.extend_from_slice(&bytes);
                if self.streamed() {
                    let at = self.clock.started.elapsed();
                    for said in self.reader.push(&bytes) {
                        match &said {
                            Said::Error(error) => self.error = Some(error.clone()),
                            Said::Done => self.done = true,
                            Said::Chunk(_) | Said::Comment(_) => {}
                        }
                        self.ready.push_back(Event { at, said });
                    }
                }
                if let Some(rate) = self.rate_bytes {
                    let bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    tokio::time::sleep(Duration::from_secs(1) * bytes / rate).await;
                }
            }
            Some(Err(error)) => self.finish(End::Broken(format!("{error:?}"))),
            None => {
                let rest = self.reader.rest();
                assert!(rest.is_none(), "the stream ended well inside an event: {rest:?}");
                self.finish(End::EofWithoutDone);
            }
        }
    }

    /// Notes the end. What the last event said outweighs how the connection ended, but for `[DONE]`:
    /// a stream is only done when its framing ended as well.
    fn finish(&mut self, end: End) {
        let end = match (self.error.take(), end) {
            (Some(error), _) => End::ErrorEvent(error),
            (None, End::EofWithoutDone) if !self.streamed() => End::Whole,
            (None, End::EofWithoutDone) if self.done => End::Done,
            (None, end) => end,
        };
        let code = match &end {
            End::ErrorEvent(error) => Surface::error_of(error)["code"].as_str().map(str::to_owned),
            _ => super::error_code(&self.raw),
        };
        self.entry.end(end.clone(), code);
        self.end = Some(end);
        self.connection.close();
    }

    fn so_far(&self) -> String {
        let start = self.raw.len().saturating_sub(400);
        String::from_utf8_lossy(self.raw.get(start..).unwrap_or_default()).into_owned()
    }
}

impl Transcript {
    /// The chunks, without comments, errors and the end mark.
    pub fn chunks<'a>(&'a self) -> Vec<&'a Value> {
        let chunk = |event: &'a Event| match &event.said {
            Said::Chunk(chunk) => Some(chunk),
            Said::Comment(_) | Said::Error(_) | Said::Done => None,
        };
        self.events.iter().filter_map(chunk).collect()
    }

    /// What it says, put together as a client of its dialect does; panics where the dialect is broken.
    pub fn told(&self) -> Told {
        Told::streamed(self.surface, &self.chunks(), self.end == End::Done)
    }

    /// The texts of the first choice, put together.
    pub fn text(&self) -> String {
        self.chunks().into_iter().filter_map(content).collect()
    }

    /// The reasoning of the first choice, put together.
    pub fn reasoning(&self) -> String {
        let part = |chunk: &Value| {
            chunk["choices"][0]["delta"]["reasoning_content"]
                .as_str()
                .map(str::to_owned)
        };
        self.chunks().into_iter().filter_map(part).collect()
    }

    /// The tool calls of the first choice, put together: id, name, arguments.
    pub fn tool_calls(&self) -> Vec<(String, String, String)> {
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for chunk in self.chunks() {
            let Some(parts) = chunk["choices"][0]["delta"]["tool_calls"].as_array() else {
                continue;
            };
            for part in parts {
                let index =
                    usize::try_from(part["index"].as_u64().expect("an index")).expect("a small index");
                if calls.len() <= index {
                    calls.resize(index + 1, Default::default());
                }
                let call = calls.get_mut(index).expect("it was made");
                call.0.push_str(part["id"].as_str().unwrap_or_default());
                call.1
                    .push_str(part["function"]["name"].as_str().unwrap_or_default());
                call.2
                    .push_str(part["function"]["arguments"].as_str().unwrap_or_default());
            }
        }
        calls
    }

    /// The last usage that is not null.
    pub fn usage(&self) -> Option<Value> {
        self.chunks()
            .into_iter()
            .rev()
            .map(|chunk| chunk["usage"].clone())
            .find(|usage| !usage.is_null())
    }

    /// The finish reason of the first choice.
    pub fn finish_reason(&self) -> Option<String> {
        let reason = |chunk: &Value| chunk["choices"][0]["finish_reason"].as_str().map(str::to_owned);
        self.chunks().into_iter().rev().find_map(reason)
    }

    /// The error event or error body; `Null` when there is none.
    pub fn error(&self) -> Value {
        match &self.end {
            End::ErrorEvent(error) => Surface::error_of(error).clone(),
            End::Whole => {
                let body: Value = serde_json::from_slice(&self.raw).unwrap_or(Value::Null);
                body["error"].clone()
            }
            _ => Value::Null,
        }
    }

    /// The request id that the node gave.
    pub fn request_id(&self) -> &str {
        super::header(&self.headers, "x-request-id")
    }

    /// Panics unless it is a whole stream of status 200; gives its text.
    pub fn whole(&self) -> String {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.raw));
        assert_eq!(self.end, End::Done, "{}", String::from_utf8_lossy(&self.raw));
        self.text()
    }
}

fn content(chunk: &Value) -> Option<String> {
    let choice = &chunk["choices"][0];
    let text = match chunk["type"].as_str() {
        Some("content_block_delta") => chunk["delta"]["text"].as_str(),
        Some("response.output_text.delta") => chunk["delta"].as_str(),
        Some(_) => None,
        None => choice["delta"]["content"]
            .as_str()
            .or_else(|| choice["text"].as_str()),
    };
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
