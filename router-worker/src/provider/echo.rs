//! The demo provider: answers in process with the text of the last user message, so that a first call needs
//! no upstream and no key. Its usage is what the estimator says.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;
use dialects::estimate::{MESSAGE_TOKENS, text_tokens};
use dialects::splice::json_string;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use schemas::command::Offer;
use serde::Deserialize;

use crate::upstream::{Answer, Body};

/// Most pieces of one streamed answer; the last holds the rest.
const PIECES_MAX: usize = 4_096;

#[derive(Deserialize)]
struct Prompt<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Parts(#[serde(borrow)] Vec<Part<'a>>),
    Part(#[serde(borrow)] Part<'a>),
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

impl Content<'_> {
    fn text(&self) -> String {
        let of_part = |part: &Part<'_>| part.text.as_deref().unwrap_or_default().to_owned();
        match self {
            Self::Text(text) => text.to_string(),
            Self::Parts(parts) => parts.iter().map(of_part).collect(),
            Self::Part(part) => of_part(part),
        }
    }
}

/// The answer to a request body, in the form the caller asked for.
pub(crate) fn answer(offer: &Offer, body: &[u8]) -> Answer {
    let prompt = serde_json::from_slice::<Prompt<'_>>(body).map(|prompt| prompt.messages);
    let messages = prompt.unwrap_or_default();
    let text = messages
        .iter()
        .rev()
        .find(|message| message.role == "user")
        .and_then(|message| message.content.as_ref())
        .map(Content::text)
        .unwrap_or_default();
    let prompt_tokens = messages
        .iter()
        .map(|message| {
            MESSAGE_TOKENS
                + message
                    .content
                    .as_ref()
                    .map_or(0, |content| text_tokens(&content.text()))
        })
        .sum();
    let echo = Echo {
        offer,
        text,
        prompt_tokens,
    };
    let (kind, pieces) = if offer.splice.stream {
        ("text/event-stream", echo.events())
    } else {
        ("application/json", VecDeque::from([echo.completion()]))
    };
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Answer {
        status: StatusCode::OK,
        headers,
        body: Body::of_pieces(pieces),
    }
}

struct Echo<'a> {
    offer: &'a Offer,
    text: String,
    prompt_tokens: u64,
}

impl Echo<'_> {
    fn completion(&self) -> Bytes {
        let content = quoted(&self.text);
        let usage = self.usage();
        Bytes::from(format!(
            r#"{{{},"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":{content}}},"finish_reason":"stop"}}],"usage":{usage}}}"#,
            self.identity()
        ))
    }

    fn events(&self) -> VecDeque<Bytes> {
        let mut events = VecDeque::new();
        events.push_back(self.chunk(r#"{"role":"assistant"}"#, "null"));
        let mut rest = self.text.as_str();
        for word in self.text.split_inclusive(' ').take(PIECES_MAX) {
            events.push_back(self.delta(word));
            rest = rest.get(word.len()..).unwrap_or_default();
        }
        if !rest.is_empty() {
            events.push_back(self.delta(rest));
        }
        events.push_back(self.chunk("{}", r#""stop""#));
        events.push_back(Bytes::from(format!(
            "data: {{{},\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{}}}\n\n",
            self.identity(),
            self.usage()
        )));
        events.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn delta(&self, text: &str) -> Bytes {
        self.chunk(&format!(r#"{{"content":{}}}"#, quoted(text)), "null")
    }

    fn chunk(&self, delta: &str, finish: &str) -> Bytes {
        Bytes::from(format!(
            "data: {{{},\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n",
            self.identity()
        ))
    }

    fn identity(&self) -> String {
        let created = self.offer.started_at.millis().div_euclid(1_000);
        let model = quoted(&self.offer.public_model);
        format!(
            r#""id":"chatcmpl-{}","created":{created},"model":{model}"#,
            self.offer.request_id
        )
    }

    fn usage(&self) -> String {
        let (prompt, output) = (self.prompt_tokens, text_tokens(&self.text));
        let total = prompt + output;
        format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{output},"total_tokens":{total}}}"#)
    }
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&json_string(text)).into_owned()
}
