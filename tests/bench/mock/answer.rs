//! The mock's answers: a chat completion, and a stream of chunks of which each is written on its own.
//!
//! The bytes of an answer are put together once per request; a stream then hands out references to the same chunk.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use serde::Deserialize;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::script::Pace;

/// The answer of `GET /v1/models`.
pub(crate) const MODELS: &str = r#"{"object":"list","data":[{"id":"bench-upstream","object":"model","created":1700000000,"owned_by":"bench"}]}"#;

const COMPLETION_HEAD: &str =
    r#"{"id":"chatcmpl-bench00000000000000000000","object":"chat.completion","created":1700000000,"model":""#;
const COMPLETION_TAIL: &str = concat!(
    r#"","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy "#,
    r#"dog while the patient gateway counts every token of it."},"logprobs":null,"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":64,"completion_tokens":32,"total_tokens":96},"system_fingerprint":"fp_bench"}"#
);
const CHUNK_HEAD: &str = concat!(
    r#"data: {"id":"chatcmpl-bench00000000000000000000","object":"chat.completion.chunk","#,
    r#""created":1700000000,"model":""#
);
const CONTENT_TAIL: &str = concat!(
    r#"","choices":[{"index":0,"delta":{"role":"assistant","content":" word"},"finish_reason":null}]}"#,
    "\n\n"
);
const FINISH_TAIL: &str = concat!(
    r#"","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "\n\n"
);
const USAGE_TAIL: &str = concat!(
    r#"","choices":[],"usage":{"prompt_tokens":64,"completion_tokens":32,"total_tokens":96}}"#,
    "\n\n"
);
const DONE: &str = "data: [DONE]\n\n";

/// The part of a chat request the mock reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Asked<'_> {
    /// Whether the client wants server-sent events.
    pub(crate) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// The model name as it stands inside a JSON string, quotes excluded.
    fn model_escaped(&self) -> String {
        let quoted = serde_json::Value::from(self.model.as_ref()).to_string();
        quoted
            .get(1..quoted.len().saturating_sub(1))
            .unwrap_or_default()
            .to_owned()
    }
}

/// The body of an unstreamed answer, with usage; about 470 bytes.
pub(crate) fn completion(asked: &Asked<'_>) -> Bytes {
    around(COMPLETION_HEAD, &asked.model_escaped(), COMPLETION_TAIL).freeze()
}

fn around(head: &str, model: &str, tail: &str) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(head.len() + model.len() + tail.len() + DONE.len());
    bytes.put_slice(head.as_bytes());
    bytes.put_slice(model.as_bytes());
    bytes.put_slice(tail.as_bytes());
    bytes
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// All at once; `None` when handed over.
    Whole(Option<Bytes>),
    /// Event by event.
    Stream(Box<Stream>),
}

/// A stream under way.
#[derive(Debug)]
pub(crate) struct Stream {
    content: Bytes,
    finish: Bytes,
    last: Bytes,
    pace: Pace,
    sent: u64,
    flush_owed: bool,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    /// An answer of known length.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self::Whole(Some(body))
    }

    /// A stream that behaves as `pace` says.
    pub(crate) fn stream(asked: &Asked<'_>, pace: Pace) -> Self {
        let model = asked.model_escaped();
        let with_usage = asked
            .stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage);
        let mut last = if with_usage {
            around(CHUNK_HEAD, &model, USAGE_TAIL)
        } else {
            BytesMut::new()
        };
        last.put_slice(DONE.as_bytes());
        Self::Stream(Box::new(Stream {
            content: around(CHUNK_HEAD, &model, CONTENT_TAIL).freeze(),
            finish: around(CHUNK_HEAD, &model, FINISH_TAIL).freeze(),
            last: last.freeze(),
            pace,
            sent: 0,
            flush_owed: false,
            pause: (!pace.delay.is_zero()).then(|| Box::pin(sleep_until(Instant::now() + pace.delay))),
        }))
    }
}

impl Stream {
    /// Writes of the whole stream: the content, the finish, the rest.
    fn writes(&self) -> u64 {
        self.pace.chunks.saturating_add(2)
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.sent >= self.writes() {
            return Poll::Ready(None);
        }
        if self.pace.stall_after.is_some_and(|events| self.sent >= events) {
            // Nothing will wake this body; the connection wakes when its client leaves.
            return Poll::Pending;
        }
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            pause.as_mut().reset(Instant::now() + self.pace.delay);
        } else if self.flush_owed {
            // Being pending for one turn makes the connection write what it has.
            self.flush_owed = false;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let event = match self.sent {
            at if at < self.pace.chunks => self.content.clone(),
            at if at == self.pace.chunks => self.finish.clone(),
            _ => self.last.clone(),
        };
        self.sent += 1;
        self.flush_owed = true;
        Poll::Ready(Some(event))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.get_mut() {
            Self::Whole(body) => Poll::Ready(body.take()),
            Self::Stream(stream) => stream.poll_event(context),
        };
        data.map(|data| data.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_none(),
            Self::Stream(stream) => stream.sent >= stream.writes(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(Some(body)) => SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX)),
            Self::Whole(None) => SizeHint::with_exact(0),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::script::Script;

    fn asked(body: &str) -> Asked<'_> {
        serde_json::from_str(body).unwrap()
    }

    async fn text(answer: Answer) -> String {
        String::from_utf8(answer.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_completion_is_json_with_the_asked_model_and_usage() {
        let body = completion(&asked(r#"{"model":"a\"b"}"#));

        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["model"], "a\"b");
        assert_eq!(value["usage"]["total_tokens"], 96);
    }

    #[tokio::test]
    async fn a_stream_has_its_chunks_a_finish_usage_and_done() {
        let request = asked(r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#);

        let events = text(Answer::stream(&request, Script::new(0, 32).now())).await;

        assert_eq!(events.matches("\n\n").count(), 35);
        assert_eq!(events.matches(r#""content":" word""#).count(), 32);
        assert_eq!(events.matches(r#""usage""#).count(), 1);
        assert!(events.ends_with("data: [DONE]\n\n"));
    }

    #[tokio::test]
    async fn a_stream_without_the_option_carries_no_usage() {
        let request = asked(r#"{"model":"m","stream":true}"#);

        let events = text(Answer::stream(&request, Script::new(0, 2).now())).await;

        assert_eq!(events.matches("\n\n").count(), 4);
        assert!(!events.contains("usage"));
    }

    #[tokio::test]
    async fn a_stalled_stream_says_nothing_after_its_last_event() {
        let script = Script::new(0, 32);
        script.change("stall_after=1").unwrap();
        let mut stream = Answer::stream(&asked(r#"{"model":"m","stream":true}"#), script.now());

        let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();

        assert!(first.starts_with(b"data: {"));
        let second = tokio::time::timeout(std::time::Duration::from_millis(5), stream.frame()).await;
        assert!(second.is_err());
    }
}
