//! Streams as servers really send them, read and written.

mod odd;
mod recorded;
mod written;

use bytes::BytesMut;

use super::{Decoder, Encoder};
use crate::sse::Event as Framed;
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Reply};
use crate::superset::request::ProofMaker;
use crate::testing::{self, Said, framed, joined};

/// Everything that a decoder gave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    said: Vec<Said>,
    /// Prompt and completion, as told last.
    usage: Option<(u64, u64)>,
    broken: Option<Broken>,
    ended: bool,
}

/// Reads framed events.
fn decoded(events: &[Framed]) -> Heard {
    let (mut said, mut usage) = (Vec::new(), None);
    let mut sink = |event: Event<'_>| match event {
        Event::Usage(facts) => usage = facts.prompt_tokens.zip(facts.completion_tokens),
        event => said.push(Said::of(event)),
    };
    let mut decoder = Decoder::default();
    let mut events = events.iter().filter(|event| !event.is_comment());
    let read = events.try_for_each(|event| decoder.event(event, &mut sink));
    let ended = read.is_ok() && decoder.ended();
    let broken = read.and_then(|()| decoder.finish(&mut |_: Event<'_>| {})).err();
    Heard {
        said: joined(said),
        usage,
        broken,
        ended,
    }
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
        ..testing::reply()
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
