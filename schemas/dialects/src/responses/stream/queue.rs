//! What came while a call was open that is not of it: it waits, in its order, until that call has closed. Nothing is
//! lost, and pieces of one thing are kept as one.

use crate::superset::event::Event;
use crate::superset::request::ProofMaker;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<Held>);

/// Something that waits, whole as far as it came.
#[derive(Debug)]
pub(super) enum Held {
    Thinking(String),
    Text(String),
    Refusal(String),
    Proof {
        maker: ProofMaker,
        text: String,
        redacted: bool,
    },
    Call {
        call: u32,
        id: String,
        name: String,
        namespace: Option<String>,
        custom: bool,
    },
    Arguments {
        call: u32,
        pieces: String,
    },
    CallProof {
        call: u32,
        maker: ProofMaker,
        text: String,
    },
}

impl Queue {
    /// True when nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that waits.
    pub(super) fn take(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.0)
    }

    /// Keeps a piece of content; the rest of an answer does not wait.
    pub(super) fn push(&mut self, event: Event<'_>) {
        let held = match event {
            Event::Begin | Event::Usage(_) | Event::Finish { .. } => return,
            Event::Arguments { call, piece } => return self.arguments(call, piece),
            Event::Thinking(piece) => match self.0.last_mut() {
                Some(Held::Thinking(text)) => return text.push_str(piece),
                _ => Held::Thinking(piece.to_owned()),
            },
            Event::Text(piece) => match self.0.last_mut() {
                Some(Held::Text(text)) => return text.push_str(piece),
                _ => Held::Text(piece.to_owned()),
            },
            Event::Refusal(piece) => match self.0.last_mut() {
                Some(Held::Refusal(text)) => return text.push_str(piece),
                _ => Held::Refusal(piece.to_owned()),
            },
            Event::Proof {
                maker,
                text,
                redacted,
            } => Held::Proof {
                maker,
                text: text.to_owned(),
                redacted,
            },
            Event::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => Held::Call {
                call,
                id: id.to_owned(),
                name: name.to_owned(),
                namespace: namespace.map(ToOwned::to_owned),
                custom,
            },
            Event::CallProof { call, maker, text } => Held::CallProof {
                call,
                maker,
                text: text.to_owned(),
            },
        };
        self.0.push(held);
    }

    /// Pieces of the arguments of one call may stand together, whatever came between them: they have one reader.
    fn arguments(&mut self, of: u32, piece: &str) {
        let pieces = self.0.iter_mut().rev().find_map(|held| match held {
            Held::Arguments { call, pieces } if *call == of => Some(pieces),
            _ => None,
        });
        match pieces {
            Some(pieces) => pieces.push_str(piece),
            None => self.0.push(Held::Arguments {
                call: of,
                pieces: piece.to_owned(),
            }),
        }
    }
}

impl Held {
    /// The event that it was.
    pub(super) fn event(&self) -> Event<'_> {
        match self {
            Self::Thinking(text) => Event::Thinking(text),
            Self::Text(text) => Event::Text(text),
            Self::Refusal(text) => Event::Refusal(text),
            Self::Proof {
                maker,
                text,
                redacted,
            } => Event::Proof {
                maker: *maker,
                text,
                redacted: *redacted,
            },
            Self::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => Event::Call {
                call: *call,
                id,
                name,
                namespace: namespace.as_deref(),
                custom: *custom,
            },
            Self::Arguments { call, pieces } => Event::Arguments {
                call: *call,
                piece: pieces,
            },
            Self::CallProof { call, maker, text } => Event::CallProof {
                call: *call,
                maker: *maker,
                text,
            },
        }
    }
}
