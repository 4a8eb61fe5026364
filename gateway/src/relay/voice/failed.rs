//! The event by which a stream of Responses says that it failed, and the number it must have.

use bytes::Bytes;
use schemas::failure::Failure;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use serde::Serialize;

/// The member that numbers events, as it is written.
const NUMBER: &[u8] = b"\"sequence_number\":";

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    id: String,
    object: &'static str,
    created_at: i64,
    status: &'static str,
    error: Option<Fault<'a>>,
    incomplete_details: Option<()>,
    model: &'a str,
    output: [(); 0],
    usage: Option<()>,
}

#[derive(Serialize)]
struct Fault<'a> {
    code: &'a str,
    message: &'a str,
}

/// The failure of a stream whose last event had the number `last`; one that had no event begins first.
pub(super) fn event(
    failure: &Failure,
    request_id: RequestId,
    last: Option<u64>,
    model: &str,
    created: Timestamp,
) -> Bytes {
    let mut out = Vec::new();
    let response = |status, error| Response {
        id: format!("resp_{}", request_id.0.as_simple()),
        object: "response",
        created_at: created.millis() / 1_000,
        status,
        error,
        incomplete_details: None,
        model,
        output: [],
        usage: None,
    };
    if last.is_none() {
        write("response.created", 0, response("in_progress", None), &mut out);
    }
    let fault = Fault {
        code: failure.code.as_str(),
        message: &failure.message,
    };
    let number = last.map_or(1, |last| last.saturating_add(1));
    write(
        "response.failed",
        number,
        response("failed", Some(fault)),
        &mut out,
    );
    out.into()
}

fn write(kind: &'static str, sequence_number: u64, response: Response<'_>, out: &mut Vec<u8>) {
    let event = Event {
        kind,
        sequence_number,
        response,
    };
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // Text and numbers always serialize.
    out.append(&mut serde_json::to_vec(&event).unwrap_or_default());
    out.extend_from_slice(b"\n\n");
}

/// The number of the last event in a piece of a stream.
pub(super) fn last_number(piece: &[u8]) -> Option<u64> {
    let at = piece.windows(NUMBER.len()).rposition(|window| window == NUMBER)?;
    let digits = piece.get(at + NUMBER.len()..)?.trim_ascii_start();
    let end = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use schemas::failure::FailureCode;
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;

    fn told(last: Option<u64>) -> Vec<(String, Value)> {
        let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off");
        let id = RequestId(Uuid::from_u128(7));
        let written = event(&failure, id, last, "m", Timestamp::from_micros(1_500_000));
        let text = String::from_utf8(written.to_vec()).expect("text");
        let events = text.split_terminator("\n\n").map(|event| {
            let (name, data) = event.split_once("\ndata: ").expect("an event");
            (name.to_owned(), serde_json::from_str(data).expect("JSON"))
        });
        events.collect()
    }

    #[test]
    fn a_failure_has_the_number_after_the_last_and_begins_what_had_not_begun() {
        let later = told(Some(6));
        let first = told(None);

        assert_eq!(later.len(), 1);
        assert_eq!(
            (&*later[0].0, &later[0].1["sequence_number"]),
            ("event: response.failed", &7.into())
        );
        assert_eq!(
            later[0].1["response"]["id"],
            "resp_00000000000000000000000000000007"
        );
        assert_eq!(later[0].1["response"]["error"]["message"], "the answer broke off");
        assert_eq!(first[0].1["type"], "response.created");
        assert_eq!((&first[1].1["sequence_number"], first.len()), (&1.into(), 2));
    }

    #[test]
    fn the_last_number_is_that_of_the_last_event_and_not_one_in_a_text() {
        let piece = br#"data: {"sequence_number": 3,"delta":"\"sequence_number\":9"}"#;

        assert_eq!(last_number(piece), Some(3));
        assert_eq!(last_number(b": keepalive\n\n"), None);
    }
}
