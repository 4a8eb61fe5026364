//! How a stream of Responses says that it failed: in an event that every client takes for the end.

use bytes::Bytes;
use schemas::failure::Failure;
use serde::Deserialize;

use super::object::{Frame, State};
use super::stream::frame;

/// Events of a piece of a stream, from its end, in which a number is looked for.
const EVENTS_LOOKED_AT_MAX: usize = 8;

/// What a stream has said so far of its response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// What it calls it: whatever is said later must call it so.
    id: Option<String>,
    /// An event has left: the response began.
    began: bool,
    /// The number of the last event that had one.
    last_sequence: Option<u64>,
}

impl Said {
    /// A piece of the stream leaves, which consists of whole events.
    pub fn heard(&mut self, piece: &[u8]) {
        self.last_sequence = last_sequence_number(piece).or(self.last_sequence);
        if self.id.is_none() {
            self.began |= data(piece).next().is_some();
            self.id = response_id(piece);
        }
    }

    /// The event that tells of a failure; a response that has not begun begins first. `request_id` is 32 hexadecimal
    /// digits, `created` in seconds since the epoch.
    pub fn failed(&self, failure: &Failure, request_id: &str, model: &str, created: i64) -> Bytes {
        let own_id = || format!("resp_{request_id}");
        let response = Frame::bare(self.id.clone().unwrap_or_else(own_id), created, model);
        let mut out = Vec::new();
        let mut next = self.last_sequence.map_or(0, |last| last.saturating_add(1));
        let mut say = |kind: &str, state: &State<'_>| {
            frame::begin(kind, next, &mut out);
            out.extend_from_slice(b",\"response\":");
            response.write(state, &mut out);
            frame::end(&mut out);
            next = next.saturating_add(1);
        };
        if !self.began {
            let begun = State {
                status: "in_progress",
                ..State::default()
            };
            say("response.created", &begun);
        }
        let state = State {
            status: "failed",
            error: Some((failure.code.as_str(), &failure.message)),
            ..State::default()
        };
        say("response.failed", &state);
        out.into()
    }
}

/// The data of events in a piece of a stream.
fn data(piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = piece.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter_map(|line| line.strip_prefix(b"data:"))
}

/// What a piece of a stream calls its response.
fn response_id(piece: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Begun<'a> {
        #[serde(borrow)]
        response: Response<'a>,
    }
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        id: std::borrow::Cow<'a, str>,
    }

    let told = data(piece)
        .take(EVENTS_LOOKED_AT_MAX)
        .find_map(|data| serde_json::from_slice::<Begun<'_>>(data).ok())?;
    Some(told.response.id.into_owned())
}

/// The number of the last event in a piece of a stream that consists of whole events.
fn last_sequence_number(piece: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        sequence_number: u64,
    }

    let lines = piece.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    lines
        .filter_map(|line| line.strip_prefix(b"data:"))
        .take(EVENTS_LOOKED_AT_MAX)
        .find_map(|data| serde_json::from_slice::<Numbered>(data).ok())
        .map(|event| event.sequence_number)
}

#[cfg(test)]
mod tests {
    use schemas::failure::FailureCode;
    use serde_json::Value;

    use super::*;

    const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_up1\"}}\n\n";

    /// The events that a stream which failed after these pieces ends with.
    fn told(pieces: &[&str]) -> Vec<(String, Value)> {
        let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off\n\"here\"");
        let mut said = Said::default();
        for piece in pieces {
            said.heard(piece.as_bytes());
        }
        let written = said.failed(&failure, "07", "m", 5);
        let text = String::from_utf8(written.to_vec()).expect("text");
        let events = text.split_terminator("\n\n").map(|event| {
            let (name, data) = event.split_once("\ndata: ").expect("an event");
            (name.to_owned(), serde_json::from_str(data).expect("json"))
        });
        events.collect()
    }

    #[test]
    fn a_failure_goes_on_counting_and_begins_what_had_not_begun() {
        let later = told(&[
            "data: {\"sequence_number\":5,\"response\":{\"id\":\"resp_07\"}}\n\n",
            "data: {\"sequence_number\":6}\n\n",
        ]);
        let first = told(&[]);

        assert_eq!(later.len(), 1);
        assert_eq!(later[0].0, "event: response.failed");
        assert_eq!(later[0].1["sequence_number"], 7);
        assert_eq!(later[0].1["response"]["id"], "resp_07");
        assert_eq!(later[0].1["response"]["error"]["code"], "stream_interrupted");
        assert_eq!(first.len(), 2);
        assert_eq!(
            (&first[0].1["type"], &first[1].1["sequence_number"]),
            (&"response.created".into(), &1.into())
        );
        for member in [
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "incomplete_details",
            "output",
        ] {
            assert!(first[1].1["response"].get(member).is_some(), "{member}");
        }
        assert_eq!(told(&[": keepalive\n\n"]), first, "a comment begins nothing");
    }

    #[test]
    fn what_began_without_numbers_does_not_begin_again() {
        let failed = told(&[
            CREATED,
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n",
        ]);

        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].1["response"]["id"], "resp_up1");
        assert_eq!(
            told(&["data: {\"type\":\"response.output_item.added\"}\n\n"]).len(),
            1
        );
    }

    #[test]
    fn a_response_goes_by_the_name_that_it_began_with() {
        let other = "data: {\"response\":{\"id\":\"resp_2\"}}\n\n";
        let foreign = CREATED.replace("resp_up1", "chatcmpl-1");
        let id = |pieces: &[&str]| told(pieces).pop().expect("an event").1["response"]["id"].clone();

        assert_eq!(id(&[&[CREATED, other].concat()]), "resp_up1");
        assert_eq!(id(&[": keepalive\n\n", CREATED, other]), "resp_up1");
        assert_eq!(id(&[&foreign]), "chatcmpl-1");
    }

    #[test]
    fn the_last_number_is_that_of_the_last_event_that_has_one() {
        let nested = br#"data: {"sequence_number": 3,"response":{"tools":[{"sequence_number":9}],"x":"\"sequence_number\":8"}}"#;
        let several = b"event: a\ndata: {\"sequence_number\":4}\r\n\r\nevent: b\r\ndata:{\"sequence_number\":5}\r\n\r\n: x\n\n";

        assert_eq!(last_sequence_number(nested), Some(3));
        assert_eq!(last_sequence_number(several), Some(5));
        assert_eq!(last_sequence_number(b": keepalive\n\n"), None);
        assert_eq!(
            last_sequence_number(b"data: {\"sequence_number\":\"x\"}\n\n"),
            None
        );
    }
}
