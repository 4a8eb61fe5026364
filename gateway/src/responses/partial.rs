//! What has been said so far on a stream of Responses: enough to keep it as an incomplete response when its caller
//! leaves. Items that are done are held as they were said, of those under way only their text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use dialects::sse::Framer;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::object::{Object, quoted};

/// Longest event that is read, in bytes.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that are held; a stream that says more is not kept when it is cut.
const HELD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The stream so far.
#[derive(Debug)]
pub(super) struct Partial {
    framer: Framer,
    response: Option<Box<RawValue>>,
    items: BTreeMap<u64, Item>,
    held_bytes: usize,
    /// It cannot be followed any further.
    lost: bool,
}

#[derive(Debug)]
enum Item {
    Done(Box<RawValue>),
    Text { id: String, text: String },
}

/// An event, as far as it is looked at.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    item_id: Option<Cow<'a, str>>,
    output_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Cow<'a, str>>,
}

impl Default for Partial {
    fn default() -> Self {
        Self {
            framer: Framer::new(EVENT_BYTES_MAX),
            response: None,
            items: BTreeMap::new(),
            held_bytes: 0,
            lost: false,
        }
    }
}

impl Partial {
    /// The next bytes of the stream.
    pub(super) fn push(&mut self, chunk: &Bytes) {
        if self.lost {
            return;
        }
        self.framer.push(chunk.clone());
        loop {
            match self.framer.next() {
                Ok(Some(event)) if event.is_comment() => {}
                Ok(Some(event)) => {
                    if let Ok(told) = serde_json::from_slice(&event.data) {
                        self.note(&told);
                    }
                }
                Ok(None) => return,
                Err(_) => self.lose(),
            }
            if self.held_bytes > HELD_BYTES_MAX {
                self.lose();
            }
            if self.lost {
                return;
            }
        }
    }

    fn note(&mut self, told: &Told<'_>) {
        match (&*told.kind, told.output_index) {
            ("response.created", _) => self.response = told.response.map(ToOwned::to_owned),
            ("response.output_item.done", Some(index)) => {
                if let Some(item) = told.item {
                    self.held_bytes += item.get().len();
                    self.items.insert(index, Item::Done(item.to_owned()));
                }
            }
            ("response.output_text.delta", Some(index)) => {
                let delta = told.delta.as_deref().unwrap_or_default();
                self.held_bytes += delta.len();
                let begun = || Item::Text {
                    id: told.item_id.as_deref().unwrap_or_default().to_owned(),
                    text: String::new(),
                };
                if let Item::Text { text, .. } = self.items.entry(index).or_insert_with(begun) {
                    text.push_str(delta);
                }
            }
            _ => {}
        }
    }

    fn lose(&mut self) {
        *self = Self {
            lost: true,
            ..Self::default()
        };
    }

    /// The response as far as it came; `None` when it had not begun, or cannot be told.
    pub(super) fn interrupted(&self) -> Option<Vec<u8>> {
        let response = Object::read(self.response.as_ref()?.get().as_bytes())?;
        let items: Vec<Cow<'_, str>> = self.items.values().map(Item::written).collect();
        let output = format!("[{}]", items.join(","));
        Some(response.with(&[
            ("status", "\"incomplete\""),
            ("incomplete_details", r#"{"reason":"interrupted"}"#),
            ("output", &output),
        ]))
    }
}

impl Item {
    fn written(&self) -> Cow<'_, str> {
        match self {
            Self::Done(item) => item.get().into(),
            Self::Text { id, text } => format!(
                r#"{{"type":"message","id":{},"status":"incomplete","role":"assistant","content":[{{"type":"output_text","text":{},"annotations":[]}}]}}"#,
                quoted(id),
                quoted(text)
            )
            .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stream() -> String {
        let events = [
            json!({"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","output":[]}}),
            json!({"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1"}}),
            json!({"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","delta":"Hel\"lo"}),
            json!({"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","delta":" wor"}),
        ];
        let written = events.map(|event| format!("event: x\ndata: {event}\n\n"));
        written.concat()
    }

    #[test]
    fn a_cut_stream_is_an_incomplete_response_with_what_was_said_however_it_was_cut() {
        let stream = Bytes::from(stream());
        for size in [1, 7, stream.len()] {
            let mut partial = Partial::default();
            for start in (0..stream.len()).step_by(size) {
                partial.push(&stream.slice(start..stream.len().min(start + size)));
            }

            let told: Value =
                serde_json::from_slice(&partial.interrupted().expect("a response")).expect("JSON");

            assert_eq!(told["status"], "incomplete");
            assert_eq!(told["incomplete_details"]["reason"], "interrupted");
            assert_eq!(told["output"][0]["id"], "rs_1");
            assert_eq!(told["output"][1]["id"], "msg_1");
            assert_eq!(told["output"][1]["content"][0]["text"], "Hel\"lo wor");
        }
    }

    #[test]
    fn a_stream_that_has_not_begun_or_says_too_much_is_not_kept() {
        let mut endless = Partial::default();
        endless.push(&Bytes::from(stream()));
        let piece = format!(
            "data: {{\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"{}\"}}\n\n",
            "x".repeat(1 << 20)
        );
        for _ in 0..9 {
            endless.push(&Bytes::from(piece.clone()));
        }

        assert_eq!(Partial::default().interrupted(), None);
        assert_eq!(endless.interrupted(), None);
    }
}
