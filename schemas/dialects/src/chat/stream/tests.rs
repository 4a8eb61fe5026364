//! Streams as servers really send them, read and written.

mod odd;
mod recorded;
mod written;

use bytes::{Bytes, BytesMut};

use super::{Decoder, Encoder};
use crate::sse::{Event as Framed, Framer};
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Reply};
use crate::superset::request::ProofMaker;

/// An event that owns what it says; pieces that follow each other are one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Begin,
    Thinking(String),
    Proof(ProofMaker, String, bool),
    Text(String),
    Refusal(String),
    Call(u32, String, String, bool),
    Arguments(u32, String),
    CallProof(u32, ProofMaker, String),
    Finish(Finish, Option<String>),
}

/// Everything that a decoder gave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    said: Vec<Said>,
    /// Prompt and completion, as told last.
    usage: Option<(u64, u64)>,
    broken: Option<Broken>,
    ended: bool,
}

impl Heard {
    fn hear(&mut self, event: Event<'_>) {
        let said = match event {
            Event::Begin => Said::Begin,
            Event::Thinking(text) => Said::Thinking(text.to_owned()),
            Event::Proof {
                maker,
                text,
                redacted,
            } => Said::Proof(maker, text.to_owned(), redacted),
            Event::Text(text) => Said::Text(text.to_owned()),
            Event::Refusal(text) => Said::Refusal(text.to_owned()),
            Event::Call {
                call,
                id,
                name,
                custom,
                ..
            } => Said::Call(call, id.to_owned(), name.to_owned(), custom),
            Event::Arguments { call, piece } => Said::Arguments(call, piece.to_owned()),
            Event::CallProof { call, maker, text } => Said::CallProof(call, maker, text.to_owned()),
            Event::Finish {
                finish,
                stop_sequence,
            } => Said::Finish(finish, stop_sequence.map(ToOwned::to_owned)),
            Event::Usage(facts) => {
                self.usage = facts.prompt_tokens.zip(facts.completion_tokens);
                return;
            }
        };
        match (self.said.last_mut(), said) {
            (Some(Said::Thinking(last)), Said::Thinking(more))
            | (Some(Said::Text(last)), Said::Text(more))
            | (Some(Said::Refusal(last)), Said::Refusal(more)) => last.push_str(&more),
            (Some(Said::Arguments(call, last)), Said::Arguments(other, more)) if *call == other => {
                last.push_str(&more);
            }
            (_, said) => self.said.push(said),
        }
    }
}

/// Reads framed events.
fn decoded(events: &[Framed]) -> Heard {
    let mut heard = Heard::default();
    let mut decoder = Decoder::default();
    for event in events.iter().filter(|event| !event.is_comment()) {
        if let Err(broken) = decoder.event(event, &mut |event: Event<'_>| heard.hear(event)) {
            heard.broken = Some(broken);
            return heard;
        }
    }
    heard.ended = decoder.ended();
    heard.broken = decoder.finish(&mut |_: Event<'_>| {}).err();
    heard
}

/// Frames a stream that comes in pieces.
fn framed(pieces: &[&[u8]]) -> Vec<Framed> {
    let mut framer = Framer::new(1 << 20);
    let mut events = Vec::new();
    for piece in pieces {
        framer.push(Bytes::copy_from_slice(piece));
        while let Some(event) = framer.next().expect("below the cap") {
            events.push(event);
        }
    }
    while let Some(event) = framer.finish().expect("below the cap") {
        events.push(event);
    }
    events
}

/// Reads chunks of which only the choices are written.
fn heard(choices: &[&str]) -> Heard {
    let chunk = |choice: &&str| format!("data: {{\"id\":\"chatcmpl-7\",\"choices\":[{choice}]}}\n\n");
    let stream: String = choices.iter().map(chunk).collect();
    decoded(&framed(&[stream.as_bytes(), b"data: [DONE]\n\n"]))
}

fn delta(delta: &str) -> String {
    format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#)
}

fn end(reason: &str) -> String {
    format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}"#)
}

fn reply() -> Reply {
    Reply {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        created: 1_700_000_000,
        model: "m".to_owned(),
        include_usage: true,
        hides_thinking: false,
        prompt_tokens: 3,
        request: Bytes::new(),
    }
}

/// Writes events.
fn encoded(reply: Reply, events: &[Event<'_>]) -> String {
    let mut encoder = Encoder::new(reply);
    let mut out = BytesMut::new();
    for event in events {
        encoder.event(*event, &mut out);
    }
    out.extend_from_slice(&encoder.end());
    String::from_utf8(out.to_vec()).expect("UTF-8")
}
