//! What an answer tells that passes as it is: usage, what was generated, and whether it is a failure. It is read beside
//! the bytes that leave; what cannot be read tells nothing.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::error::UpstreamError;
use crate::chat::shares::Shares;
use crate::chat::usage::UsageFacts;
use crate::dialect::Dialect;
use crate::gemini;
use crate::passage::request::Asked;
use crate::passage::{self, Skimmer};
use crate::sse::{Event, Framer};

/// What an answer told.
#[derive(Debug, Default)]
pub struct Heard {
    /// The usage.
    pub usage: Option<UsageFacts>,
    /// Bytes of generated text.
    pub output_bytes: u64,
    /// The upstream says, in an answer that seems to be one, that it failed.
    pub error: Option<UpstreamError>,
}

/// A document that is whole. `dialect`: what it should be of, where that is known.
pub fn document(dialect: Option<Dialect>, body: &[u8], asked: impl FnOnce() -> Asked) -> Heard {
    if dialect == Some(Dialect::Gemini) {
        return of_gemini(body);
    }
    let Ok(answer) = passage::answer(dialect.unwrap_or(Dialect::Chat), body) else {
        return Heard::default();
    };
    Heard {
        usage: Shares::of_answer(&answer).usage(asked),
        output_bytes: u64::try_from(answer.output_bytes).unwrap_or(u64::MAX),
        // What is no answer of a model may well have a member of that name.
        error: answer.error.filter(|_| dialect.is_some()),
    }
}

/// The events of a stream.
#[derive(Debug)]
pub struct Events {
    dialect: Option<Dialect>,
    /// `None` once an event was too long to be read.
    framer: Option<Framer>,
    skimmer: Skimmer,
    shares: Shares,
    heard: Heard,
    has_content: bool,
}

impl Events {
    /// Of a dialect, where it is known.
    pub fn new(dialect: Option<Dialect>, event_bytes_max: usize) -> Self {
        Self {
            dialect,
            framer: Some(Framer::new(event_bytes_max)),
            skimmer: Skimmer::new(dialect.unwrap_or(Dialect::Chat)),
            shares: Shares::default(),
            heard: Heard::default(),
            has_content: false,
        }
    }

    /// Reads the next piece.
    pub fn push(&mut self, piece: Bytes) {
        let Some(mut framer) = self.framer.take() else {
            return;
        };
        framer.push(piece);
        loop {
            match framer.next() {
                Ok(Some(event)) => self.event(&event),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        self.framer = Some(framer);
    }

    /// Something generated was read.
    pub const fn has_spoken(&self) -> bool {
        self.heard.output_bytes > 0 || self.has_content
    }

    /// What was heard until now.
    pub fn heard(mut self, asked: impl FnOnce() -> Asked) -> Heard {
        if let Some(mut framer) = self.framer.take()
            && let Ok(Some(event)) = framer.finish()
        {
            self.event(&event);
        }
        let usage = self.heard.usage.or_else(|| self.shares.usage(asked));
        Heard { usage, ..self.heard }
    }

    fn event(&mut self, event: &Event) {
        if event.is_comment() {
            return;
        }
        if self.dialect == Some(Dialect::Gemini) {
            let told = of_gemini(&event.data);
            self.heard.usage = told.usage.or(self.heard.usage);
            self.heard.error = told.error.or(self.heard.error.take());
            self.has_content = true;
            return;
        }
        let Ok(seen) = self.skimmer.skim(event) else {
            return;
        };
        self.shares.hear(&seen);
        self.has_content |= seen.content;
        let said = u64::try_from(seen.output_bytes).unwrap_or(u64::MAX);
        self.heard.output_bytes = self.heard.output_bytes.saturating_add(said);
        if self.dialect.is_some() && self.heard.error.is_none() {
            self.heard.error = seen.error;
        }
    }
}

/// What Gemini tells: in one document, or in the last of a list.
fn of_gemini(body: &[u8]) -> Heard {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told<'a> {
        #[serde(borrow, default)]
        usage_metadata: Option<&'a RawValue>,
        #[serde(borrow, default)]
        error: Option<&'a RawValue>,
    }
    let documents: Vec<Told<'_>> = match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body).unwrap_or_default(),
        _ => serde_json::from_slice(body).into_iter().collect(),
    };
    let mut heard = Heard::default();
    for told in documents {
        let usage = told
            .usage_metadata
            .and_then(|usage| gemini::usage::read(usage.get()));
        heard.usage = usage.or(heard.usage);
        if told.error.is_some() {
            heard.error = Some(UpstreamError::default());
        }
    }
    heard
}
