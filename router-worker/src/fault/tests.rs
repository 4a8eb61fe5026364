//! What follows from each kind of failure.

use dialects::chat::error::ErrorCode;

use super::*;

fn refused(status: u16) -> Fault {
    Fault::from(Refusal::of_answer(status, &HeaderMap::new(), b"{}"))
}

#[test]
fn faults_of_the_request_are_neutral_and_not_tried_elsewhere() {
    for status in [400, 413, 422] {
        let fault = refused(status);

        assert_eq!(fault.verdict(), Verdict::Neutral, "{status}");
        assert_eq!(fault.remedy(), Remedy::Report, "{status}");
        assert_eq!(fault.failure().status, status);
        assert_eq!(fault.failure().code, FailureCode::UpstreamRejectedRequest);
    }
}

#[test]
fn a_credential_that_is_refused_is_rotated_and_never_shown_as_the_callers_fault() {
    for status in [401, 402, 403] {
        let fault = refused(status);

        assert_eq!(fault.remedy(), Remedy::NextCredential, "{status}");
        assert_eq!(fault.failure().status, 502, "{status}");
        assert_eq!(fault.failure().code, FailureCode::UpstreamRejectedCredential);
    }
    assert_eq!(refused(401).verdict(), Verdict::Faulty);
    assert_eq!(refused(403).verdict(), Verdict::Neutral);
}

#[test]
fn a_prompt_that_is_too_long_goes_to_wider_endpoints_only() {
    let body = br#"{"error":{"message":"This model's maximum context length is 10 tokens","code":400}}"#;
    let fault = Fault::from(Refusal::of_answer(400, &HeaderMap::new(), body));

    assert_eq!(fault.remedy(), Remedy::WiderEndpoint);
    assert_eq!(fault.failure().code, FailureCode::ContextLengthExceeded);
    assert_eq!(fault.failure().status, 400);
    assert_eq!(fault.verdict(), Verdict::Neutral);
}

#[test]
fn an_overload_keeps_its_status_and_its_wait() {
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, http::HeaderValue::from_static("7"));
    let limited = Fault::from(Refusal::of_answer(429, &headers, b""));

    assert_eq!(limited.failure().status, 429);
    assert_eq!(limited.failure().retry_after_seconds, Some(7));
    assert_eq!(limited.verdict(), Verdict::Faulty);
    for status in [503, 529] {
        assert_eq!(refused(status).failure().status, 503);
        assert!(refused(status).failure().retry_after_seconds.is_some());
    }
    assert_eq!(refused(500).failure().status, 502);
}

#[test]
fn an_error_inside_a_200_counts_by_its_number_and_without_one_as_502() {
    let numbered = Refusal::inside(UpstreamError {
        status: Some(403),
        ..UpstreamError::default()
    });
    let unnumbered = Refusal::inside(UpstreamError::default());

    assert_eq!(Fault::from(numbered).verdict(), Verdict::Neutral);
    assert_eq!(Fault::from(unnumbered.clone()).verdict(), Verdict::Faulty);
    assert_eq!(Fault::from(unnumbered).remedy(), Remedy::NextEndpoint);
}

#[test]
fn failures_without_a_status_speak_against_the_backend() {
    for fault in [
        Fault::Unreachable,
        Fault::Unconnected,
        Fault::TimedOut,
        Fault::Redirected,
        Fault::Cut,
        Fault::Unusable(Unusable::Empty),
        Fault::Unusable(Unusable::Partial),
    ] {
        assert_eq!(fault.verdict(), Verdict::Faulty, "{fault:?}");
        assert_eq!(fault.remedy(), Remedy::NextEndpoint, "{fault:?}");
    }
    assert_eq!(Fault::Misconfigured.verdict(), Verdict::Neutral);
    assert_eq!(Fault::TimedOut.failure().status, 504);
}

#[test]
fn a_model_that_the_upstream_lost_is_the_operators_fault() {
    let fault = refused(404);

    assert_eq!(fault.remedy(), Remedy::NextEndpoint);
    assert_eq!(fault.failure().status, 502);
    assert_eq!(fault.failure().code, FailureCode::UpstreamError);
}

#[test]
fn what_an_upstream_says_about_its_credential_reaches_nobody() {
    let body = br#"{"error":{"message":"Incorrect API key provided: sk-canary","code":"invalid_api_key"}}"#;
    for status in [400, 401, 403, 429, 500] {
        let failure = Fault::from(Refusal::of_answer(status, &HeaderMap::new(), body)).failure();

        assert!(!failure.message.contains("canary"), "{status}");
    }
}

#[test]
fn an_error_inside_a_200_says_nothing_about_the_credential() {
    let numbered = |status| {
        Fault::from(Refusal::inside(UpstreamError {
            status: Some(status),
            ..UpstreamError::default()
        }))
    };
    for status in [401, 402, 403, 425, 429] {
        assert_eq!(numbered(status).flaw(), None, "{status}");
    }
    assert_eq!(refused(403).flaw(), Some(Flaw::Refused));
    assert_eq!(refused(429).flaw(), Some(Flaw::Limited { seconds: None }));
}

#[test]
fn an_overload_that_is_told_by_a_word_alone_keeps_its_meaning() {
    let told = |kind: &str, code: Option<&str>| {
        Fault::from(Refusal::inside(UpstreamError {
            kind: Some(kind.to_owned()),
            code: code.map(|code| ErrorCode::Text(code.to_owned())),
            ..UpstreamError::default()
        }))
    };
    for (fault, status) in [
        (told("overloaded_error", None), 503),
        (told("rate_limit_error", None), 429),
        (told("server_error", Some("rate_limit_exceeded")), 429),
        (told("odd", Some("engine_failed")), 502),
        (told("server_error", Some("engine_failed")), 502),
        (told("api_error", None), 502),
    ] {
        assert_eq!(fault.failure().status, status, "{fault:?}");
        assert_eq!(fault.verdict(), Verdict::Faulty, "{fault:?}");
    }
}

#[test]
fn a_request_that_is_refused_by_a_word_alone_is_the_callers_fault() {
    let told = |kind: &str, code: &str, message: &str| {
        let text = |text: &str| Some(text.to_owned());
        Fault::from(Refusal::inside(UpstreamError {
            kind: text(kind),
            code: Some(ErrorCode::Text(code.to_owned())),
            message: text(message),
            ..UpstreamError::default()
        }))
    };
    let rejected = FailureCode::UpstreamRejectedRequest;
    let too_long = FailureCode::ContextLengthExceeded;
    for (fault, code, remedy) in [
        (
            told("invalid_request_error", "x", "no"),
            rejected,
            Remedy::NextEndpoint,
        ),
        (told("x", "invalid_prompt", "no"), rejected, Remedy::NextEndpoint),
        (
            told("x", "context_length_exceeded", "no"),
            too_long,
            Remedy::WiderEndpoint,
        ),
        (
            told("invalid_request_error", "x", "prompt is too long"),
            too_long,
            Remedy::WiderEndpoint,
        ),
    ] {
        let failure = fault.failure();
        assert_eq!((failure.status, failure.code), (400, code), "{fault:?}");
        assert_eq!(fault.verdict(), Verdict::Neutral, "{fault:?}");
        assert_eq!(fault.remedy(), remedy, "{fault:?}");
        assert!(fault.concerns_request(), "{fault:?}");
    }
}

#[test]
fn what_ends_a_stream_amid_its_answer_keeps_what_a_client_can_act_on() {
    let told = |kind: &str, message: &str| {
        let text = |text: &str| Some(text.to_owned());
        let error = UpstreamError {
            kind: text(kind),
            message: text(message),
            ..UpstreamError::default()
        };
        Fault::from(Refusal::inside(error)).interruption()
    };
    for (failure, status, code) in [
        (
            told("rate_limit_error", "no"),
            429,
            FailureCode::UpstreamRateLimited,
        ),
        (told("overloaded_error", "no"), 503, FailureCode::UpstreamError),
        (
            told("invalid_request_error", "prompt is too long"),
            400,
            FailureCode::ContextLengthExceeded,
        ),
        (told("api_error", "no"), 502, FailureCode::StreamInterrupted),
        (
            told("invalid_request_error", "no"),
            502,
            FailureCode::StreamInterrupted,
        ),
        (told("odd", "no"), 502, FailureCode::StreamInterrupted),
        (Fault::Cut.interruption(), 502, FailureCode::StreamInterrupted),
    ] {
        assert_eq!((failure.status, failure.code), (status, code));
    }
}

#[test]
fn what_a_moderator_refuses_is_a_request_and_no_credential() {
    let body =
        br#"{"error":{"code":403,"message":"no","metadata":{"reasons":["violence"],"flagged_input":"x"}}}"#;
    let refused = Fault::from(Refusal::of_answer(403, &HeaderMap::new(), body));
    let inside = Fault::from(Refusal::inside(parse_upstream_error(body).expect("an error")));

    for (fault, remedy) in [(refused, Remedy::Report), (inside, Remedy::NextEndpoint)] {
        let failure = fault.failure();
        assert_eq!(
            (failure.status, failure.code),
            (400, FailureCode::UpstreamRejectedRequest)
        );
        assert_eq!((fault.flaw(), fault.remedy()), (None, remedy));
        assert_eq!(fault.verdict(), Verdict::Neutral);
    }
    for metadata in [
        r#"{"reasons":[]}"#,
        r#"{"provider_name":"x"}"#,
        r#"{"reasons":"x"}"#,
        "null",
    ] {
        let body = format!(r#"{{"error":{{"code":403,"message":"no","metadata":{metadata}}}}}"#);
        let fault = Fault::from(Refusal::of_answer(403, &HeaderMap::new(), body.as_bytes()));
        assert_eq!(fault.flaw(), Some(Flaw::Refused), "{metadata}");
    }
}

/// An error as Google writes it.
fn of_google(status: u16, detail: &str) -> Fault {
    let body = format!(r#"{{"error":{{"code":{status},"message":"m","status":"S","details":[{detail}]}}}}"#);
    Fault::from(Refusal::of_answer(status, &HeaderMap::new(), body.as_bytes()))
}

#[test]
fn a_key_that_google_calls_invalid_is_a_credential_and_not_a_request() {
    let fault = of_google(400, r#"{"reason":"API_KEY_INVALID"}"#);

    assert_eq!(fault.flaw(), Some(Flaw::Refused));
    assert_eq!(fault.remedy(), Remedy::NextCredential);
    assert_eq!(fault.verdict(), Verdict::Faulty);
    assert!(!fault.concerns_request());
    assert_eq!(fault.failure().status, 502);
    assert_eq!(fault.failure().code, FailureCode::UpstreamRejectedCredential);
    assert_eq!(of_google(400, r#"{"reason":"OTHER"}"#).failure().status, 400);
}

#[test]
fn a_key_that_is_refused_with_the_status_of_a_mistake_is_a_credential_as_well() {
    let of = |error: &str| {
        let body = format!(r#"{{"error":{error}}}"#);
        Fault::from(Refusal::of_answer(400, &HeaderMap::new(), body.as_bytes()))
    };
    for error in [
        r#"{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}"#,
        r#"{"message":"no","type":"authentication_error"}"#,
    ] {
        let fault = of(error);
        assert_eq!(fault.flaw(), Some(Flaw::Refused), "{error}");
        assert_eq!(fault.remedy(), Remedy::NextCredential, "{error}");
        assert_eq!(fault.failure().code, FailureCode::UpstreamRejectedCredential);
    }
    let mistake =
        of(r#"{"message":"invalid_api_key is no tool","type":"invalid_request_error","code":null}"#);
    assert_eq!(mistake.flaw(), None);
    assert_eq!(mistake.remedy(), Remedy::Report);
}

#[test]
fn a_wait_that_google_tells_in_the_body_is_one() {
    for status in [429, 503] {
        let fault = of_google(status, r#"{"retryDelay":"23.2s"}"#);

        assert_eq!(fault.failure().status, status);
        assert_eq!(fault.failure().retry_after_seconds, Some(24));
    }
    let anthropic = br#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#;
    let fault = Fault::from(Refusal::of_answer(429, &HeaderMap::new(), anthropic));
    assert_eq!(
        (fault.failure().status, fault.failure().retry_after_seconds),
        (429, Some(1))
    );
}

#[test]
fn a_date_to_wait_for_counts_from_the_upstreams_own_clock() {
    let wait = |date: Option<&'static str>, retry_after: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, http::HeaderValue::from_static(retry_after));
        if let Some(date) = date {
            headers.insert(DATE, http::HeaderValue::from_static(date));
        }
        Refusal::of_answer(503, &headers, b"").retry_after_seconds
    };
    let now = Some("Mon, 30 Nov 2026 10:00:00 GMT");

    assert_eq!(wait(now, "Mon, 30 Nov 2026 10:00:42 GMT"), Some(42));
    assert_eq!(wait(now, "Mon, 30 Nov 2026 09:59:00 GMT"), Some(1));
    assert_eq!(wait(now, "Tue, 01 Dec 2026 10:00:00 GMT"), Some(3_600));
    assert_eq!(wait(None, "Mon, 30 Nov 2026 10:00:42 GMT"), None);
    assert_eq!(wait(now, "soon"), None);
    assert_eq!(wait(now, " 7 "), Some(7));
}

#[test]
fn an_endpoint_without_a_usable_credential_says_why() {
    let limited = Fault::Exhausted { seconds: 13 }.failure();
    assert_eq!((limited.status, limited.retry_after_seconds), (429, Some(13)));
    let dead = Fault::Disowned.failure();
    assert_eq!(dead.code, FailureCode::UpstreamRejectedCredential);
    assert_eq!((dead.status, dead.retry_after_seconds), (502, None));
    let full = Fault::Saturated.failure();
    assert_eq!((full.status, full.retry_after_seconds), (503, Some(1)));

    for fault in [Fault::Exhausted { seconds: 1 }, Fault::Disowned, Fault::Saturated] {
        assert_eq!(fault.verdict(), Verdict::Neutral, "{fault:?}");
        assert_eq!(fault.remedy(), Remedy::NextEndpoint, "{fault:?}");
    }
}

#[test]
fn clients_of_messages_know_an_overload_by_its_own_status() {
    for (fault, on_messages) in [
        (refused(529), 529),
        (Fault::Saturated, 529),
        (refused(503), 503),
        (refused(429), 429),
        (refused(401), 502),
    ] {
        let failure = fault.failure_on(Surface::Messages);
        assert_eq!(failure.status, on_messages, "{fault:?}");
        assert_eq!(failure.retry_after_seconds, fault.failure().retry_after_seconds);
        assert_eq!(fault.failure_on(Surface::Responses), fault.failure());
    }
}
