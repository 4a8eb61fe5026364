//! How a stream of Responses says that it failed: in an event that every client takes for the end.

use bytes::Bytes;
use schemas::failure::Failure;
use serde::Deserialize;

use super::object::{Frame, State};
use super::stream::frame;

/// Events of a piece of a stream, from its end, in which a number is looked for.
const EVENTS_LOOKED_AT_MAX: usize = 8;

/// The event that tells of a failure. `last_sequence` is the number of the last event that was sent; `None` when there
/// was none: then the response begins first. `request_id` is 32 hexadecimal digits, `created` in seconds since the
/// epoch.
pub fn failed(
    failure: &Failure,
    request_id: &str,
    last_sequence: Option<u64>,
    model: &str,
    created: i64,
) -> Bytes {
    let response = Frame::bare(request_id, created, model);
    let mut out = Vec::new();
    let mut say = |kind: &str, number: u64, state: &State<'_>| {
        frame::begin(kind, number, &mut out);
        out.extend_from_slice(b",\"response\":");
        response.write(state, &mut out);
        frame::end(&mut out);
    };
    if last_sequence.is_none() {
        let begun = State {
            status: "in_progress",
            ..State::default()
        };
        say("response.created", 0, &begun);
    }
    let state = State {
        status: "failed",
        error: Some((failure.code.as_str(), &failure.message)),
        ..State::default()
    };
    say(
        "response.failed",
        last_sequence.map_or(1, |last| last.saturating_add(1)),
        &state,
    );
    out.into()
}

/// What the first piece of a stream calls its response, without the prefix of such ids: whatever is said of it later
/// must call it so.
pub fn begun(piece: &[u8]) -> Option<String> {
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

    let lines = piece.split(|byte| matches!(byte, b'\n' | b'\r'));
    let told = lines
        .filter_map(|line| line.strip_prefix(b"data:"))
        .take(EVENTS_LOOKED_AT_MAX)
        .find_map(|data| serde_json::from_slice::<Begun<'_>>(data).ok())?;
    told.response.id.strip_prefix("resp_").map(str::to_owned)
}

/// The number of the last event in a piece of a stream that consists of whole events.
pub fn last_sequence_number(piece: &[u8]) -> Option<u64> {
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

    fn told(last: Option<u64>) -> Vec<(String, Value)> {
        let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off\n\"here\"");
        let written = failed(&failure, "07", last, "m", 5);
        let text = String::from_utf8(written.to_vec()).expect("text");
        let events = text.split_terminator("\n\n").map(|event| {
            let (name, data) = event.split_once("\ndata: ").expect("an event");
            (name.to_owned(), serde_json::from_str(data).expect("json"))
        });
        events.collect()
    }

    #[test]
    fn a_failure_goes_on_counting_and_begins_what_had_not_begun() {
        let later = told(Some(6));
        let first = told(None);

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
    }

    #[test]
    fn a_response_goes_by_the_name_that_it_began_with() {
        let first = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_up1\"}}\n\ndata: {\"response\":{\"id\":\"resp_2\"}}\n\n";

        assert_eq!(begun(first).as_deref(), Some("up1"));
        assert_eq!(begun(b"data: {\"response\":{\"id\":\"chatcmpl-1\"}}\n\n"), None);
        assert_eq!(begun(b": keepalive\n\n"), None);
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
