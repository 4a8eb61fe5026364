//! Failures as callers of Messages see them, and the event that keeps a silent stream alive.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use schemas::failure::{Exceeded, Failure, FailureCode};
use serde::{Deserialize, Serialize};

/// How Anthropic's API says that the account of a key is spent, with a status that otherwise is for callers' mistakes:
/// that there is no money left, or that its owner allows no more.
const SPENT: [&str; 2] = [
    "Your credit balance is too low",
    "You have reached your specified",
];
/// What a prompt that does not fit is called: clients look for it to shorten the conversation by themselves.
const TOO_LONG: &str = "prompt is too long";

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    error: Inner<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct Inner<'a> {
    r#type: &'static str,
    message: &'a str,
    /// Of limits alone: what callers of Anthropic do not know, they pass over.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(flatten)]
    exceeded: Option<&'a Exceeded>,
}

/// A failure as a JSON body: `{"type":"error","error":{"type","message"},"request_id"}`.
pub fn body(failure: &Failure, request_id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write(failure, request_id, &mut out);
    out
}

/// The same as an event of a stream. It ends the stream: no `message_stop` follows.
pub fn event(failure: &Failure, request_id: &str) -> Bytes {
    let mut out = b"event: error\ndata: ".to_vec();
    write(failure, request_id, &mut out);
    out.extend_from_slice(b"\n\n");
    out.into()
}

/// An event without meaning, for while nothing is generated.
pub const fn ping() -> Bytes {
    Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n")
}

/// True for an error that says that the account behind the gateway's own key has nothing left.
pub fn tells_of_spent_account(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow)]
        error: ToldError<'a>,
    }
    #[derive(Deserialize)]
    struct ToldError<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    if SPENT
        .iter()
        .all(|words| memmem::find(body, words.as_bytes()).is_none())
    {
        return false;
    }
    let told: Option<Told<'_>> = serde_json::from_slice(body).ok();
    told.is_some_and(|told| {
        // Elsewhere the words may be a caller's, repeated to him.
        let (kind, message) = (&*told.error.r#type, &*told.error.message);
        kind == "invalid_request_error" && SPENT.iter().any(|words| message.starts_with(words))
    })
}

fn write(failure: &Failure, request_id: &str, out: &mut Vec<u8>) {
    let named;
    let mut message = failure.message.as_ref();
    if failure.code == FailureCode::ContextLengthExceeded && !message.contains(TOO_LONG) {
        named = format!("{TOO_LONG}: {message}");
        message = &named;
    }
    let body = Body {
        r#type: "error",
        error: Inner {
            r#type: kind(failure.status),
            message,
            code: failure.exceeded.as_ref().map(|_| failure.code.as_str()),
            exceeded: failure.exceeded.as_deref(),
        },
        request_id,
    };
    let written = serde_json::to_writer(out, &body);
    debug_assert!(written.is_ok(), "text always serializes");
}

/// The type that goes with a status.
const fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 | 431 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_type_of_its_status() {
        let types = [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (402, "billing_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (409, "invalid_request_error"),
            (413, "request_too_large"),
            (422, "invalid_request_error"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
            (504, "api_error"),
            (529, "overloaded_error"),
        ];
        for (status, kind) in types {
            let failure = Failure::new(FailureCode::Internal, "it failed").with_status(status);

            let expected = format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"it failed"}},"request_id":"r1"}}"#
            );
            assert_eq!(String::from_utf8(body(&failure, "r1")), Ok(expected));
        }
    }

    #[test]
    fn an_account_that_is_spent_is_told_from_a_callers_mistake() {
        let said = |kind: &str, message: &str| {
            let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message}});
            tells_of_spent_account(body.to_string().as_bytes())
        };
        let spent =
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";

        let capped =
            "You have reached your specified API usage limits. You will regain access on 2026-12-01.";

        assert!(said("invalid_request_error", spent));
        assert!(said("invalid_request_error", capped));
        assert!(!said("api_error", spent));
        assert!(!said(
            "invalid_request_error",
            "messages.0: 'credit balance is too low' is no role"
        ));
        assert!(!said("invalid_request_error", "prompt is too long"));
        assert!(!tells_of_spent_account(b"credit balance is too low"));
        assert!(!tells_of_spent_account(br#"["credit balance is too low"]"#));
    }

    #[test]
    fn a_failure_within_a_stream_is_an_error_event() {
        let failure = Failure::new(FailureCode::StreamInterrupted, "the upstream broke \"off\"\n");

        assert_eq!(
            event(&failure, "r1"),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the upstream \
             broke \\\"off\\\"\\n\"},\"request_id\":\"r1\"}\n\n"
        );
    }

    #[test]
    fn a_prompt_that_does_not_fit_is_called_too_long() {
        let failure = Failure::new(FailureCode::ContextLengthExceeded, "the model takes 8192 tokens");

        let body = String::from_utf8(body(&failure, "r1")).expect("text");

        assert!(
            body.contains(r#""message":"prompt is too long: the model takes 8192 tokens""#),
            "{body}"
        );
    }
}
