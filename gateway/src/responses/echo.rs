//! What a response says of its request that its upstream was not told, or told otherwise: which response it goes on
//! from, and that it is kept; and an id of ours, since upstreams may give none, or the same one twice. It is put into
//! the answer on its way to the caller, so that it stands there whatever the upstream speaks.

use bytes::{Bytes, BytesMut};
use schemas::failure::Failure;

use super::object::{Object, quoted};

/// The member that names the response before.
const PREVIOUS: &str = "previous_response_id";
/// The member that says whether it is kept.
const STORE: &str = "store";
/// What an event has that tells of the response as a whole. In text it would be escaped.
const RESPONSE: &str = "\"response\"";
/// What the line of an event's data begins with.
const DATA: &str = "data:";

/// Puts it into one answer.
#[derive(Debug, Clone)]
pub(crate) struct Echo {
    facts: Facts,
    /// What came so far of an answer that is one piece; `None` for streams.
    begun: Option<BytesMut>,
    /// How many items stand in front of those that the caller sent.
    before: usize,
}

/// What is put into it.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The id of the response that is gone on from, as JSON; `None` when it goes on from nothing.
    previous: Option<String>,
    /// It is kept, although its upstream was told to keep nothing.
    stored: bool,
    /// The id of the response, as JSON: no other has it.
    own_id: String,
}

impl Facts {
    /// Of a response to one request.
    pub(super) fn new(previous: Option<&str>, stored: bool, own_id: &str) -> Self {
        Self {
            previous: previous.map(quoted),
            stored,
            own_id: quoted(own_id),
        }
    }

    /// The response with what it lacks; `None` where it stays as it is.
    fn put_into(&self, response: &Object<'_>) -> Option<Vec<u8>> {
        let mut members: Vec<(&str, &str)> = Vec::new();
        if response.get("id").is_none_or(|id| id.get() != self.own_id) {
            members.push(("id", &self.own_id));
        }
        if self.stored && response.get(STORE).is_some_and(|store| store.get() == "false") {
            members.push((STORE, "true"));
        }
        members.extend(self.previous.iter().map(|previous| (PREVIOUS, previous.as_str())));
        (!members.is_empty()).then(|| response.with(&members))
    }

    /// A piece of a stream, which consists of whole events, with it in every event that tells of the response.
    fn told(&self, piece: Bytes) -> Bytes {
        let Some(text) = std::str::from_utf8(&piece)
            .ok()
            .filter(|text| text.contains(RESPONSE))
        else {
            return piece;
        };
        let mut out = Vec::with_capacity(text.len() + 256);
        for line in text.split_inclusive('\n') {
            match line.strip_prefix(DATA).and_then(|data| self.event(data)) {
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

    /// The data of an event that tells of the response; `None` for others, and for what stays as it is.
    fn event(&self, data: &str) -> Option<Vec<u8>> {
        if !data.contains(RESPONSE) {
            return None;
        }
        let event = Object::read(data.as_bytes())?;
        let response = self.put_into(&Object::read(event.get("response")?.get().as_bytes())?)?;
        Some(event.with(&[("response", std::str::from_utf8(&response).ok()?)]))
    }
}

impl Echo {
    pub(super) fn new(facts: Facts, streams: bool) -> Self {
        Self {
            facts,
            begun: (!streams).then(BytesMut::new),
            before: 0,
        }
    }

    /// The same for a request with so many items in front of its own.
    pub(super) fn behind(self, before: usize) -> Self {
        Self { before, ..self }
    }

    /// A failure that names an item by its place, as the caller counts: from the first that he sent himself. What was
    /// said before is the response's that he goes on from.
    pub(crate) fn counted(&self, failure: Failure) -> Failure {
        let Some(param) = failure.param.as_deref().filter(|_| self.before > 0) else {
            return failure;
        };
        let Some(place) = param.strip_prefix("input.") else {
            return failure;
        };
        let (number, rest) = place.split_at(place.find('.').unwrap_or(place.len()));
        let Ok(number) = number.parse::<usize>() else {
            return failure;
        };
        let own = match number.checked_sub(self.before) {
            Some(number) => format!("input.{number}{rest}"),
            None => PREVIOUS.to_owned(),
        };
        let message = failure
            .message
            .replace(&format!("'{param}'"), &format!("'{own}'"));
        Failure {
            message: message.into(),
            param: Some(own.into()),
            ..failure
        }
    }

    /// A piece of the answer that is not its end. One of an answer that is no stream is held back.
    pub(crate) fn piece(&mut self, piece: Bytes) -> Bytes {
        match &mut self.begun {
            None => self.facts.told(piece),
            Some(begun) => {
                begun.extend_from_slice(&piece);
                Bytes::new()
            }
        }
    }

    /// The end of the answer.
    pub(crate) fn tail(&mut self, tail: Bytes) -> Bytes {
        let Some(begun) = &mut self.begun else {
            return self.facts.told(tail);
        };
        let whole = if begun.is_empty() {
            tail
        } else {
            begun.extend_from_slice(&tail);
            std::mem::take(begun).freeze()
        };
        let response = Object::read(&whole).filter(|response| response.get("output").is_some());
        let changed = response.and_then(|response| self.facts.put_into(&response));
        changed.map_or(whole, Bytes::from)
    }

    /// What the gateway itself says in a stream.
    pub(crate) fn own(&self, events: Bytes) -> Bytes {
        self.facts.told(events)
    }
}

#[cfg(test)]
mod tests {
    use schemas::failure::FailureCode;

    use super::*;

    const TEXT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"say \\\"response\\\":{}\"}\n\n";

    fn going_on(streams: bool) -> Echo {
        Echo::new(Facts::new(Some("resp_0"), false, "resp_own"), streams)
    }

    #[test]
    fn every_event_about_the_response_names_the_one_before_and_no_other_event_changes() {
        let mut echo = going_on(true);
        let begun = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"previous_response_id\":null,\"tools\":[]}}\n\n";
        let bare = "data: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"resp_1\"}}\n\n";

        let first = echo.piece([begun, TEXT, bare].concat().into());
        let last = echo.tail(begun.into());

        let named = begun.replace("null", "\"resp_0\"").replace("resp_1", "resp_own");
        let added = bare.replace("\"resp_1\"", "\"resp_own\",\"previous_response_id\":\"resp_0\"");
        assert_eq!(first, [&*named, TEXT, &*added].concat());
        assert_eq!(last, named);
    }

    #[test]
    fn places_of_items_are_counted_from_the_first_that_the_caller_sent() {
        let told = |before: usize, param: &'static str| {
            let text = format!("the member '{param}' must be the id of a call before it");
            let failure = Failure::new(FailureCode::InvalidRequest, text).param(param);
            let told = going_on(false).behind(before).counted(failure);
            (
                told.param.expect("a name").into_owned(),
                told.message.into_owned(),
            )
        };
        let is = |param: &str| {
            let text = format!("the member '{param}' must be the id of a call before it");
            (param.to_owned(), text)
        };

        assert_eq!(told(4, "input.4.call_id"), is("input.0.call_id"));
        assert_eq!(told(4, "input.15"), is("input.11"));
        assert_eq!(told(4, "input.3.arguments"), is("previous_response_id"));
        assert_eq!(told(0, "input.4.call_id"), is("input.4.call_id"));
        assert_eq!(told(4, "input"), is("input"));
        assert_eq!(told(4, "input.reasoning"), is("input.reasoning"));
        assert_eq!(told(4, "tools.4.name"), is("tools.4.name"));
    }

    #[test]
    fn a_whole_answer_names_the_one_before_in_however_many_pieces_it_came() {
        let mut echo = going_on(false);

        let held = echo.piece(Bytes::from_static(b"{\"id\":\"resp_1\",\"previous_res"));
        let whole = echo.tail(Bytes::from_static(b"ponse_id\":null,\"output\":[]}"));

        assert_eq!(held, "");
        assert_eq!(
            whole,
            "{\"id\":\"resp_own\",\"previous_response_id\":\"resp_0\",\"output\":[]}"
        );
        assert_eq!(going_on(false).tail(Bytes::from_static(b"[]")), "[]");
    }

    #[test]
    fn what_is_kept_says_so_and_all_else_passes_as_it_was_written() {
        let kept = |answer: &'static str, stored| {
            let mut echo = Echo::new(Facts::new(None, stored, "resp_own"), false);
            echo.tail(Bytes::from_static(answer.as_bytes()))
        };
        let told = r#"{"id": "resp_own","store": false,"output":[]}"#;

        assert_eq!(kept(told, true), r#"{"id":"resp_own","store":true,"output":[]}"#);
        assert_eq!(kept(told, false), told);
        let silent = r#"{"id": "resp_own","output":[]}"#;
        assert_eq!(kept(silent, true), silent);
        let error = r#"{"error":{"message":"no"}}"#;
        assert_eq!(kept(error, true), error);
    }

    #[test]
    fn a_response_has_an_id_of_ours_in_every_event_whatever_its_upstream_calls_it() {
        for id in ["null", "\"\"", "7", "\"a b\"", "\"resp_1\""] {
            let mut echo = Echo::new(Facts::new(None, true, "resp_own"), true);
            let event = |id: &str| {
                format!(
                    "data: {{\"type\":\"response.created\",\"response\":{{\"id\":{id},\"output\":[]}}}}\n\n"
                )
            };

            let told = echo.piece(event(id).into());

            assert_eq!(told, event("\"resp_own\""), "{id}");
        }
        let mut whole = Echo::new(Facts::new(None, true, "resp_own"), false);
        assert_eq!(
            whole.tail(Bytes::from_static(b"{\"output\":[]}")),
            "{\"output\":[],\"id\":\"resp_own\"}"
        );
    }
}
