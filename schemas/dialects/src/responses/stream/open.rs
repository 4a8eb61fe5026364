//! Items that are open, and the events inside them.

use serde::Serialize;

use super::frame;
use crate::messages::stream::arguments::Scan;
use crate::responses::item::{Item, Piece};
use crate::responses::object::{Frame, State};
use crate::superset::request::ProofMaker;

/// What is written, and the number of the next event.
#[derive(Debug, Default)]
pub(super) struct Pen {
    pub(super) out: Vec<u8>,
    pub(super) sequence: u64,
}

/// The members of an event inside an item.
#[derive(Default, Serialize)]
pub(super) struct Members<'a> {
    pub(super) output_index: usize,
    pub(super) item_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<Piece<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<[(); 0]>,
}

impl Pen {
    /// An event inside an item.
    pub(super) fn say(&mut self, kind: &str, members: &Members<'_>) {
        frame::begin(kind, self.sequence, &mut self.out);
        frame::members(members, &mut self.out);
        frame::end(&mut self.out);
        self.sequence += 1;
    }

    /// An item opens.
    pub(super) fn open(&mut self, index: usize, item: &Item<'_>) {
        self.item("response.output_item.added", index, item);
    }

    /// An item is done: its JSON.
    pub(super) fn close(&mut self, index: usize, item: &Item<'_>) -> Vec<u8> {
        self.item("response.output_item.done", index, item)
    }

    pub(super) fn item(&mut self, kind: &str, index: usize, item: &Item<'_>) -> Vec<u8> {
        // Text and numbers always serialize.
        let json = serde_json::to_vec(item).unwrap_or_default();
        frame::begin(kind, self.sequence, &mut self.out);
        self.out
            .extend_from_slice(format!(",\"output_index\":{index},\"item\":").as_bytes());
        self.out.extend_from_slice(&json);
        frame::end(&mut self.out);
        self.sequence += 1;
        json
    }

    /// What stands about the response as a whole.
    pub(super) fn response(&mut self, kind: &str, frame: &Frame, state: &State<'_>) {
        frame::begin(kind, self.sequence, &mut self.out);
        self.out.extend_from_slice(b",\"response\":");
        frame.write(state, &mut self.out);
        frame::end(&mut self.out);
        self.sequence += 1;
    }
}

impl Place {
    /// The members that name it.
    pub(super) fn members(&self) -> Members<'_> {
        Members {
            output_index: self.index,
            item_id: &self.id,
            ..Members::default()
        }
    }
}

/// An item's place and id.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) id: String,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) place: Place,
    /// The last one is open.
    pub(super) parts: Vec<Said>,
}

#[derive(Debug)]
pub(super) struct Said {
    pub(super) refusal: bool,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) place: Place,
    /// The id that its result names.
    pub(super) told_id: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) custom: bool,
    pub(super) arguments: String,
    /// How far they have come.
    pub(super) scan: Scan,
    /// What proves it, to be told once it has closed.
    pub(super) proofs: Vec<(ProofMaker, String)>,
}

impl Message {
    /// The members that name its last part.
    pub(super) fn members(&self) -> Members<'_> {
        Members {
            content_index: Some(self.parts.len().saturating_sub(1)),
            ..self.place.members()
        }
    }

    pub(super) fn close_part(&self, pen: &mut Pen) {
        let Some(part) = self.parts.last() else {
            return;
        };
        let text = part.text.as_str();
        if part.refusal {
            let refusal = Some(text);
            pen.say(
                "response.refusal.done",
                &Members {
                    refusal,
                    ..self.members()
                },
            );
        } else {
            let (text, logprobs) = (Some(text), Some([]));
            pen.say(
                "response.output_text.done",
                &Members {
                    text,
                    logprobs,
                    ..self.members()
                },
            );
        }
        let part = Some(part.piece());
        pen.say(
            "response.content_part.done",
            &Members {
                part,
                ..self.members()
            },
        );
    }
}

impl Said {
    pub(super) fn piece(&self) -> Piece<'_> {
        if self.refusal {
            Piece::refusal(&self.text)
        } else {
            Piece::said(&self.text)
        }
    }
}

impl Call {
    /// It needs no more arguments; a free text may always go on.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.scan, Scan::Whole) && !self.custom
    }

    pub(super) fn item(&self, status: &'static str) -> Item<'_> {
        let arguments = Some(self.arguments.as_str());
        Item {
            kind: if self.custom {
                "custom_tool_call"
            } else {
                "function_call"
            },
            id: Some(&self.place.id),
            status: Some(status),
            call_id: Some(self.told_id.as_str().into()),
            name: Some(self.name.as_str().into()),
            namespace: self.namespace.as_deref(),
            arguments: arguments.filter(|_| !self.custom),
            input: arguments.filter(|_| self.custom),
            ..Item::default()
        }
    }

    pub(super) fn piece(&mut self, piece: &str, pen: &mut Pen) {
        let kind = if self.custom {
            "response.custom_tool_call_input.delta"
        } else {
            "response.function_call_arguments.delta"
        };
        pen.say(
            kind,
            &Members {
                delta: Some(piece),
                ..self.place.members()
            },
        );
        self.arguments.push_str(piece);
    }

    pub(super) fn close(&self, status: &'static str, pen: &mut Pen) -> Vec<u8> {
        if self.custom {
            let input = Some(self.arguments.as_str());
            pen.say(
                "response.custom_tool_call_input.done",
                &Members {
                    input,
                    ..self.place.members()
                },
            );
        } else {
            let (name, arguments) = (Some(self.name.as_str()), Some(self.arguments.as_str()));
            pen.say(
                "response.function_call_arguments.done",
                &Members {
                    name,
                    arguments,
                    ..self.place.members()
                },
            );
        }
        pen.close(self.place.index, &self.item(status))
    }
}
