//! What follows from each kind of failure.

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
        Fault::TimedOut,
        Fault::Redirected,
        Fault::Cut,
        Fault::Unusable(Unusable::Empty),
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
