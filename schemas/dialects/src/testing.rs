//! What tests of codecs share: streams as events, and events that own what they say.

use bytes::Bytes;

use crate::chat::usage::UsageFacts;
use crate::sse::{self, Framer};
use crate::superset::answer::Finish;
use crate::superset::event::{Event, Reply};
use crate::superset::request::ProofMaker;

/// Longest event that a test frames.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The events of a stream that comes in pieces.
pub(crate) fn framed(pieces: &[&[u8]]) -> Vec<sse::Event> {
    let (mut events, mut framer) = read(pieces);
    while let Some(event) = framer.finish().expect("below the cap") {
        events.push(event);
    }
    events
}

/// Those of them that are whole: the last one may have been cut off.
pub(crate) fn framed_whole(pieces: &[&[u8]]) -> Vec<sse::Event> {
    read(pieces).0
}

fn read(pieces: &[&[u8]]) -> (Vec<sse::Event>, Framer) {
    let mut framer = Framer::new(EVENT_BYTES_MAX);
    let mut events = Vec::new();
    for piece in pieces {
        framer.push(Bytes::copy_from_slice(piece));
        while let Some(event) = framer.next().expect("below the cap") {
            events.push(event);
        }
    }
    (events, framer)
}

/// An event without a name.
pub(crate) fn framed_data(data: &str) -> sse::Event {
    let mut events = framed(&[b"data: ", data.as_bytes(), b"\n\n"]);
    assert_eq!(events.len(), 1, "{data}");
    events.remove(0)
}

/// What an encoder knows of a request that says nothing.
pub(crate) fn reply() -> Reply {
    Reply {
        id: "07".to_owned(),
        created: 5,
        model: "m".to_owned(),
        include_usage: true,
        hides_thinking: false,
        prompt_tokens: 3,
        request: Bytes::new(),
    }
}

/// An event that owns what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// See [`Event::Begin`].
    Begin,
    /// Its text.
    Thinking(String),
    /// Whose, the proof, and whether the thought itself is only in there.
    Proof(ProofMaker, String, bool),
    /// Its text.
    Text(String),
    /// Its text.
    Refusal(String),
    /// Number, id, name, namespace, and whether it takes free text.
    Call(u32, String, String, Option<String>, bool),
    /// Number and piece.
    Arguments(u32, String),
    /// Number, whose, and the proof.
    CallProof(u32, ProofMaker, String),
    /// The figures.
    Usage(UsageFacts),
    /// How, and at which text.
    Finish(Finish, Option<String>),
}

impl Said {
    pub(crate) fn of(event: Event<'_>) -> Self {
        match event {
            Event::Begin => Self::Begin,
            Event::Thinking(text) => Self::Thinking(text.to_owned()),
            Event::Proof {
                maker,
                text,
                redacted,
            } => Self::Proof(maker, text.to_owned(), redacted),
            Event::Text(text) => Self::Text(text.to_owned()),
            Event::Refusal(text) => Self::Refusal(text.to_owned()),
            Event::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => Self::Call(
                call,
                id.to_owned(),
                name.to_owned(),
                namespace.map(Into::into),
                custom,
            ),
            Event::Arguments { call, piece } => Self::Arguments(call, piece.to_owned()),
            Event::CallProof { call, maker, text } => Self::CallProof(call, maker, text.to_owned()),
            Event::Usage(usage) => Self::Usage(usage),
            Event::Finish {
                finish,
                stop_sequence,
            } => Self::Finish(finish, stop_sequence.map(ToOwned::to_owned)),
        }
    }

    pub(crate) fn event(&self) -> Event<'_> {
        match self {
            Self::Begin => Event::Begin,
            Self::Thinking(text) => Event::Thinking(text),
            Self::Proof(maker, text, redacted) => Event::Proof {
                maker: *maker,
                text,
                redacted: *redacted,
            },
            Self::Text(text) => Event::Text(text),
            Self::Refusal(text) => Event::Refusal(text),
            Self::Call(call, id, name, namespace, custom) => Event::Call {
                call: *call,
                id,
                name,
                namespace: namespace.as_deref(),
                custom: *custom,
            },
            Self::Arguments(call, piece) => Event::Arguments { call: *call, piece },
            Self::CallProof(call, maker, text) => Event::CallProof {
                call: *call,
                maker: *maker,
                text,
            },
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Finish(finish, stop) => Event::Finish {
                finish: *finish,
                stop_sequence: stop.as_deref(),
            },
        }
    }
}

/// Neighbors of one kind as one.
pub(crate) fn joined(said: Vec<Said>) -> Vec<Said> {
    let mut joined: Vec<Said> = Vec::new();
    for next in said {
        match (joined.last_mut(), &next) {
            (Some(Said::Text(text)), Said::Text(piece))
            | (Some(Said::Thinking(text)), Said::Thinking(piece))
            | (Some(Said::Refusal(text)), Said::Refusal(piece)) => text.push_str(piece),
            (Some(Said::Arguments(call, text)), Said::Arguments(other, piece)) if call == other => {
                text.push_str(piece);
            }
            _ => joined.push(next),
        }
    }
    joined
}
