//! What a response repeats of its request that its upstream was not told: which response it goes on from. It is put
//! into the answer on its way to the caller, so that it stands there whatever the upstream speaks.

use bytes::{Bytes, BytesMut};

use super::object::{Object, quoted};

/// The member.
const PREVIOUS: &str = "previous_response_id";
/// What an event has that tells of the response as a whole. In text it would be escaped.
const RESPONSE: &str = "\"response\"";
/// What the line of an event's data begins with.
const DATA: &str = "data:";

/// Puts it into one answer.
#[derive(Debug, Clone)]
pub(crate) struct Echo {
    /// The id of the response that is gone on from, as JSON.
    previous: String,
    /// What came so far of an answer that is one piece; `None` for streams.
    begun: Option<BytesMut>,
}

impl Echo {
    pub(super) fn new(previous: &str, streams: bool) -> Self {
        Self {
            previous: quoted(previous),
            begun: (!streams).then(BytesMut::new),
        }
    }

    /// A piece of the answer that is not its end. One of an answer that is no stream is held back.
    pub(crate) fn piece(&mut self, piece: Bytes) -> Bytes {
        match &mut self.begun {
            None => told(&self.previous, piece),
            Some(begun) => {
                begun.extend_from_slice(&piece);
                Bytes::new()
            }
        }
    }

    /// The end of the answer.
    pub(crate) fn tail(&mut self, tail: Bytes) -> Bytes {
        let Some(begun) = &mut self.begun else {
            return told(&self.previous, tail);
        };
        begun.extend_from_slice(&tail);
        let whole = std::mem::take(begun).freeze();
        match Object::read(&whole) {
            Some(response) => response.with(&[(PREVIOUS, &self.previous)]).into(),
            None => whole,
        }
    }

    /// What the gateway itself says in a stream.
    pub(crate) fn own(&self, events: Bytes) -> Bytes {
        told(&self.previous, events)
    }
}

/// A piece of a stream, which consists of whole events, with `previous` in every event that tells of the response.
fn told(previous: &str, piece: Bytes) -> Bytes {
    let Some(text) = std::str::from_utf8(&piece)
        .ok()
        .filter(|text| text.contains(RESPONSE))
    else {
        return piece;
    };
    let mut out = Vec::with_capacity(text.len() + 2 * (PREVIOUS.len() + previous.len()));
    for line in text.split_inclusive('\n') {
        match line.strip_prefix(DATA).and_then(|data| event(previous, data)) {
            Some(event) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&event);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line.as_bytes()),
        }
    }
    out.into()
}

/// The data of an event that tells of the response; `None` for others.
fn event(previous: &str, data: &str) -> Option<Vec<u8>> {
    if !data.contains(RESPONSE) {
        return None;
    }
    let event = Object::read(data.as_bytes())?;
    let response = Object::read(event.get("response")?.get().as_bytes())?.with(&[(PREVIOUS, previous)]);
    Some(event.with(&[("response", std::str::from_utf8(&response).ok()?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"say \\\"response\\\":{}\"}\n\n";

    #[test]
    fn every_event_about_the_response_names_the_one_before_and_no_other_event_changes() {
        let mut echo = Echo::new("resp_0", true);
        let begun = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"previous_response_id\":null,\"tools\":[]}}\n\n";
        let bare = "data: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"resp_1\"}}\n\n";

        let first = echo.piece([begun, TEXT, bare].concat().into());
        let last = echo.tail(begun.into());

        let named = begun.replace("null", "\"resp_0\"");
        let added = bare.replace("\"resp_1\"", "\"resp_1\",\"previous_response_id\":\"resp_0\"");
        assert_eq!(first, [&*named, TEXT, &*added].concat());
        assert_eq!(last, named);
    }

    #[test]
    fn a_whole_answer_names_the_one_before_in_however_many_pieces_it_came() {
        let mut echo = Echo::new("resp_0", false);

        let held = echo.piece(Bytes::from_static(b"{\"id\":\"resp_1\",\"previous_res"));
        let whole = echo.tail(Bytes::from_static(b"ponse_id\":null,\"output\":[]}"));

        assert_eq!(held, "");
        assert_eq!(
            whole,
            "{\"id\":\"resp_1\",\"previous_response_id\":\"resp_0\",\"output\":[]}"
        );
        assert_eq!(Echo::new("resp_0", false).tail(Bytes::from_static(b"[]")), "[]");
    }
}
